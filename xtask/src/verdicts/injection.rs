//! Injected bottlenecks: other programs on the cores, a task that is stopped repeatedly, a slow disk, a slow link.
//!
//! Everything is undone when its value is dropped.

use anyhow::{Context, bail, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every core of the machine, whatever this process may use itself.
pub(super) fn host_cores() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// Other programs that keep every core busy.
pub(super) struct Burners(Vec<Child>);

impl Burners {
    pub(super) fn start() -> Burners {
        let cores = host_cores();
        let burn = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().ok();
        Burners((0..cores).filter_map(|_| burn()).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops and continues the last task that a run has started, until dropped.
pub(super) struct Slowed {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    pub(super) fn start(parent: u32) -> Slowed {
        Slowed::of(move || children(parent).pop().filter(|_| children(parent).len() > 1))
    }

    fn of(task: impl Fn() -> Option<u32> + Send + 'static) -> Slowed {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                let Some(task) = task() else {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                };
                signal("-STOP", task);
                std::thread::sleep(Duration::from_millis(30));
                signal("-CONT", task);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Slowed { over, thread: Some(thread) }
    }
}

impl Slowed {
    /// The same with the last process below `root` whose command line has `word` in it, once there are two.
    pub(super) fn below(root: u32, word: &'static str) -> Slowed {
        Slowed::of(move || {
            let mut found = descendants(root);
            found.retain(|process| {
                fs::read(format!("/proc/{process}/cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
            });
            // The launcher has the script in its own arguments.
            found.sort_unstable();
            found.pop().filter(|_| found.len() > 1)
        })
    }
}

/// All processes below one.
fn descendants(root: u32) -> Vec<u32> {
    let mut found = children(root);
    let mut at = 0;
    while at < found.len() {
        let below = children(found[at]);
        found.extend(below);
        at += 1;
    }
    found
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn signal(name: &str, process: u32) {
    let _ = Command::new("kill").args([name, &process.to_string()]).stderr(Stdio::null()).status();
}

/// Processes that `parent` has started, in the order of their numbers.
fn children(parent: u32) -> Vec<u32> {
    let path = PathBuf::from(format!("/proc/{parent}/task/{parent}/children"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<u32> =
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    found.sort_unstable();
    found
}

/// A control group whose reads from one disk are limited.
pub(super) struct SlowDisk {
    group: PathBuf,
    data: PathBuf,
}

impl SlowDisk {
    /// Limits reads from the disk below `data`, in bytes per second. Needs root, and a kernel that throttles.
    pub(super) fn new(data: &Path, bytes_per_second: u64) -> anyhow::Result<SlowDisk> {
        let device = whole_disk(data)?;
        let name = format!("paceline-verdicts-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/blkio");
        let (group, file, limit) = if first.is_dir() {
            let limit = format!("{device} {bytes_per_second}");
            (first.join(name), "blkio.throttle.read_bps_device", limit)
        } else {
            let root = Path::new("/sys/fs/cgroup");
            let _ = fs::write(root.join("cgroup.subtree_control"), "+io");
            (root.join(name), "io.max", format!("{device} rbps={bytes_per_second}"))
        };
        fs::create_dir(&group).context("cannot make a control group; this kind needs root")?;
        let disk = SlowDisk { group, data: data.to_owned() };
        fs::write(disk.group.join(file), &limit)
            .with_context(|| format!("cannot write `{limit}` to {file}"))?;
        Ok(disk)
    }

    /// Arguments that run a program within the limit.
    pub(super) fn within(&self) -> Vec<String> {
        within(&self.group)
    }

    /// Drops the data from the page cache.
    pub(super) fn forget(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.data)? {
            let input = format!("if={}", entry?.path().display());
            let done = Command::new("dd")
                .args([&input, "iflag=nocache", "count=0"])
                .stderr(Stdio::null())
                .status()?;
            ensure!(done.success(), "dd cannot drop pages");
        }
        Ok(())
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        remove(&self.group);
    }
}

/// A control group whose processes share little memory.
pub(super) struct LittleMemory {
    group: PathBuf,
}

impl LittleMemory {
    /// Needs root.
    pub(super) fn new(bytes: u64) -> anyhow::Result<LittleMemory> {
        let name = format!("paceline-verdicts-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (group, file) = if first.is_dir() {
            (first.join(name), "memory.limit_in_bytes")
        } else {
            let root = Path::new("/sys/fs/cgroup");
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root.join(name), "memory.max")
        };
        fs::create_dir(&group).context("cannot make a control group; this kind needs root")?;
        let memory = LittleMemory { group };
        fs::write(memory.group.join(file), bytes.to_string())
            .with_context(|| format!("cannot write {bytes} to {file}"))?;
        Ok(memory)
    }

    /// Arguments that run a program within the limit.
    pub(super) fn within(&self) -> Vec<String> {
        within(&self.group)
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        remove(&self.group);
    }
}

/// Arguments that run a program in a control group.
fn within(group: &Path) -> Vec<String> {
    let join = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.display());
    ["sh", "-c", &join, "sh"].map(str::to_owned).to_vec()
}

/// Removes a control group; a process that has just ended may still be leaving.
fn remove(group: &Path) {
    for _ in 0..50 {
        if fs::remove_dir(group).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `major:minor` of the disk that holds a path; limits are set on disks, not on their partitions.
fn whole_disk(path: &Path) -> anyhow::Result<String> {
    let number = fs::metadata(path)?.dev();
    // The kernel's own layout of device numbers.
    let major = (number >> 8) & 0xfff;
    let minor = (number & 0xff) | ((number >> 12) & 0xfff00);
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !entry.exists() {
        bail!("`{}` is not on a disk", path.display());
    }
    if entry.join("partition").exists() {
        let disk = fs::canonicalize(&entry)?.join("../dev");
        return Ok(fs::read_to_string(disk)?.trim().to_owned());
    }
    Ok(format!("{major}:{minor}"))
}

/// CPU use by the kernel's own counters, independent of the program under test.
pub(super) struct Cores {
    at: Instant,
    /// Hundredths of a second that all cores were busy, and those of our own children that have ended.
    busy: u64,
    own: u64,
}

impl Cores {
    pub(super) fn now() -> Cores {
        let numbers = |text: &str, skip: usize| -> Vec<u64> {
            text.split_whitespace().skip(skip).filter_map(|word| word.parse().ok()).collect()
        };
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        let modes = numbers(machine.lines().next().unwrap_or_default(), 1);
        // user nice system idle iowait irq softirq steal
        let busy = modes.iter().enumerate().filter(|(at, _)| ![3, 4].contains(at) && *at < 8);
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let times = numbers(stat.rsplit(')').next().unwrap_or_default(), 12);
        let busy = busy.map(|(_, ticks)| ticks).sum();
        Cores { at: Instant::now(), busy, own: times.iter().take(4).sum() }
    }

    /// Cores that neither we nor our children kept busy since then.
    pub(super) fn foreign(&self) -> f64 {
        let now = Cores::now();
        let ticks = (now.busy - self.busy).saturating_sub(now.own - self.own);
        ticks as f64 / 100.0 / (now.at - self.at).as_secs_f64()
    }
}

/// Waits until the machine is nearly idle, up to a limit.
pub(super) fn wait_for_quiet() {
    for _ in 0..200 {
        let before = Cores::now();
        std::thread::sleep(Duration::from_millis(100));
        if before.foreign() <= 0.2 {
            return;
        }
    }
}

/// Two hosts on one link: network namespaces without access to the outside.
pub(super) struct Lab {
    names: [String; 2],
}

impl Lab {
    /// Creates the link; `rate` is its capacity in each direction, such as `100mbit`. Needs root.
    pub(super) fn new(rate: Option<&str>) -> anyhow::Result<Lab> {
        let lab = Lab { names: [0, 1].map(|host| format!("plv{}-{host}", std::process::id())) };
        let [a, b] = &lab.names;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("-n {a} link add cable type veth peer name cable netns {b}"))?;
        for (host, name) in lab.names.iter().enumerate() {
            ip(&format!("-n {name} addr add {} dev cable", lab.address(host, "/24")))?;
            ip(&format!("-n {name} link set cable up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            if let Some(rate) = rate {
                ip(&format!(
                    "netns exec {name} tc qdisc add dev cable root tbf rate {rate} burst 32kb latency 50ms"
                ))?;
            }
        }
        Ok(lab)
    }

    /// A host's address, and what follows it.
    pub(super) fn address(&self, host: usize, more: &str) -> String {
        format!("10.78.0.{}{more}", host + 1)
    }

    /// Arguments that run a program on a host.
    pub(super) fn on(&self, host: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.names[host]].map(str::to_owned).to_vec()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> anyhow::Result<()> {
    let done = Command::new("ip").args(words.split_whitespace()).stderr(Stdio::null()).status();
    let done = done.context("cannot start `ip`")?;
    ensure!(done.success(), "`ip {words}` failed; network namespaces need root");
    Ok(())
}
