//! Resource use of one process, or of a process and everything it started.
//!
//! A job is rarely one process: launchers start ranks, data loaders start workers. CPU time is added up so that nothing is counted
//! twice when a child ends: its time then moves from its own counters to those of the parent that waited for it.

use crate::counter::{value_of, word};
use crate::kernel_file::KernelFile;
use crate::probe::{Column, Detail, Probe, ProbeEntry};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

/// Registry entry.
pub(crate) const ENTRY: ProbeEntry = ProbeEntry {
    name: "process",
    columns: &[
        Column {
            name: "process_cpu_percent",
            about: "CPU time of all threads and reaped children, in percent of one core: 200 is two cores",
        },
        Column {
            name: "process_rss_bytes",
            about: "resident memory; pages that several processes share count in each",
        },
        Column { name: "process_peak_rss_bytes", about: "peak resident memory" },
        Column { name: "process_threads", about: "threads" },
        Column { name: "process_minor_faults_per_second", about: "page faults served from memory" },
        Column { name: "process_major_faults_per_second", about: "page faults served from disk" },
        Column {
            name: "process_read_bytes_per_second",
            about: "bytes the process caused to be read from disks",
        },
        Column {
            name: "process_written_bytes_per_second",
            about: "bytes the process caused to be written",
        },
        Column {
            name: "process_waiting_percent",
            about: "time its threads were ready to run but had no core, in percent of one core: 200 is two cores missing",
        },
        Column {
            name: STOPPED,
            about: "time in which the whole process was stopped: by a signal, a frozen cgroup or a paused machine",
        },
        Column { name: "process_open_files", about: "open files, sockets and pipes" },
        Column { name: "process_count", about: "processes that the other process columns add up" },
    ],
    open: |roots, target| {
        Box::new(Group {
            proc: roots.proc.clone(),
            root: target.process,
            tree: target.tree,
            members: BTreeMap::new(),
            ticks: ticks_per_second(),
            text: String::new(),
            begun: false,
            peak: 0.0,
        })
    },
};

/// The column of time in which the process was stopped. A process cannot observe itself while it is stopped; the sampler
/// infers it from its own lateness.
pub(crate) const STOPPED: &str = "process_stopped_percent";

/// Threads and processes whose files stay open; the files of further ones are opened each time, because descriptors are scarce.
const KEPT: usize = 100;

/// CPU ticks, minor faults, major faults, bytes read, bytes written.
type Counts = [u64; 5];

/// The target and, if asked, its descendants.
struct Group {
    proc: PathBuf,
    root: u32,
    tree: bool,
    members: BTreeMap<u32, Member>,
    ticks: f64,
    text: String,
    /// Whether there is an earlier reading to compare with.
    begun: bool,
    peak: f64,
}

struct Member {
    stat: KernelFile,
    io: KernelFile,
    status: KernelFile,
    folder: PathBuf,
    /// Clock tick at which it began: a number may be given to another process later.
    began: u64,
    counts: Counts,
    threads: BTreeMap<u32, Thread>,
}

struct Thread {
    times: KernelFile,
    /// Nanoseconds that it has waited for a core so far.
    waited: u64,
}

/// What the members add up to at one moment.
#[derive(Default)]
struct Sum {
    grown: Counts,
    resident: f64,
    peak: f64,
    threads: f64,
    files: f64,
    waited: Option<u64>,
    stopped: bool,
}

impl Probe for Group {
    fn sample(&mut self, elapsed: Duration, values: &mut [Option<f64>], _: &mut Detail) {
        values.fill(None);
        let Some(sum) = self.add_up() else {
            self.members.clear(); // the process is gone
            self.begun = false;
            return;
        };
        let seconds = elapsed.as_secs_f64();
        if self.begun && seconds > 0.0 {
            let rate = |index: usize| Some(sum.grown[index] as f64 / seconds);
            values[0] = rate(0).map(|ticks| 100.0 * ticks / self.ticks);
            values[4] = rate(1);
            values[5] = rate(2);
            values[6] = rate(3);
            values[7] = rate(4);
            values[8] = sum.waited.map(|nanoseconds| 100.0 * nanoseconds as f64 * 1e-9 / seconds);
        }
        values[9] = self.begun.then_some(if sum.stopped { 100.0 } else { 0.0 });
        self.begun = true;
        let known = |value: f64| (value > 0.0).then_some(value);
        values[1] = known(sum.resident);
        // The peak of one process is the kernel's; that of several can only be seen here.
        self.peak = self.peak.max(sum.resident);
        values[2] = known(if self.tree { self.peak } else { sum.peak });
        values[3] = known(sum.threads);
        values[10] = known(sum.files);
        values[11] = Some(self.members.len() as f64);
    }
}

impl Group {
    /// Reads all members; nothing when the target has ended and left none.
    fn add_up(&mut self) -> Option<Sum> {
        let mut found = BTreeSet::from([self.root]);
        if self.tree {
            let roots = self.members.keys().copied().chain([self.root]).collect();
            found.extend(descendants(&self.proc, roots));
        }
        let mut sum = Sum::default();
        let mut members = BTreeMap::new();
        let mut lost = Counts::default();
        let mut before = std::mem::take(&mut self.members);

        found.extend(before.keys()); // a daemon's parent may have ended before it
        let (mut old, mut new) = (Counts::default(), Counts::default());
        for process in found {
            let known = before.remove(&process);
            let known_counts = known.as_ref().map(|member| member.counts);
            let member = known.unwrap_or_else(|| Member::new(self.proc.join(process.to_string())));
            let begun = self.begun || process != self.root;
            match member.read(&mut self.text, &mut sum) {
                Some(mut member) => {
                    // One that is new has done all of it since the last reading, the target itself excepted.
                    let past = known_counts.unwrap_or(if begun {
                        Counts::default()
                    } else {
                        member.counts
                    });
                    add(&mut old, &past);
                    add(&mut new, &member.counts);
                    for (at, (past, now)) in past.iter().zip(&member.counts).enumerate() {
                        sum.grown[at] += now.saturating_sub(*past);
                    }
                    if members.len() >= KEPT {
                        member.close();
                    }
                    members.insert(process, member);
                }
                None => add(&mut lost, &known_counts.unwrap_or_default()),
            }
        }
        // What an ended child had done was counted before; it is now part of its parent's count. If no member waited for it,
        // it is in no count at all, and nothing is taken off.
        for at in 0..sum.grown.len() {
            if new[at] >= old[at] + lost[at] {
                sum.grown[at] = sum.grown[at].saturating_sub(lost[at]);
            }
        }
        self.members = members;
        (!self.members.is_empty()).then_some(sum)
    }
}

/// All processes below some, by what each says of its parent.
pub(crate) fn descendants(proc: &Path, mut open: Vec<u32>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(process) = number(&entry.file_name()) else { continue };
        let Ok(text) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let parent = text.rfind(')').and_then(|at| word(&text[at + 1..], 1));
        if let Some(parent) = parent.and_then(|parent| u32::try_from(parent).ok()) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = BTreeSet::new();
    while let Some(process) = open.pop() {
        for child in children.remove(&process).unwrap_or_default() {
            found.insert(child);
            open.push(child);
        }
    }
    found
}

impl Member {
    fn new(folder: PathBuf) -> Self {
        Self {
            stat: KernelFile::new(folder.join("stat")),
            io: KernelFile::new(folder.join("io")),
            status: KernelFile::new(folder.join("status")),
            folder,
            began: 0,
            counts: Counts::default(),
            threads: BTreeMap::new(),
        }
    }

    /// Reads it and adds what is true of this moment; nothing when it has ended.
    fn read(mut self, text: &mut String, sum: &mut Sum) -> Option<Self> {
        if !self.stat.read(text) {
            return None;
        }
        let stat = parse_stat(text)?;
        if self.began != 0 && self.began != stat.began {
            return None;
        }
        self.began = stat.began;
        sum.stopped |= stat.stopped;
        let io = self.io.read(text);
        let of = |key| io.then(|| value_of(text, key)).flatten().unwrap_or(0);
        self.counts = [stat.ticks, stat.minor, stat.major, of("read_bytes"), of("write_bytes")];
        if self.status.read(text) {
            let bytes = |key| value_of(text, key).map_or(0.0, |kib| kib as f64 * 1024.0);
            sum.resident += bytes("VmRSS");
            sum.peak += bytes("VmHWM");
            sum.threads += value_of(text, "Threads").unwrap_or(0) as f64;
        }
        if let Some(waited) = self.waiting(text) {
            *sum.waited.get_or_insert(0) += waited;
        }
        sum.files += entries(&self.folder.join("fd")) as f64;
        Some(self)
    }

    /// Nanoseconds that all threads together have waited for a core since the last call, where the kernel counts them.
    fn waiting(&mut self, text: &mut String) -> Option<u64> {
        let mut now = BTreeMap::new();
        let mut sum = 0;
        for entry in std::fs::read_dir(self.folder.join("task")).ok()?.flatten() {
            let Some(thread) = number(&entry.file_name()) else { continue };
            // A new thread has waited only since it started.
            let mut known = self.threads.remove(&thread).unwrap_or_else(|| Thread {
                times: KernelFile::new(entry.path().join("schedstat")),
                waited: 0,
            });
            // A thread that ends in between takes its last few milliseconds with it.
            if !known.times.read(text) {
                continue;
            }
            let waited = word(text, 1)?;
            sum += waited.saturating_sub(known.waited);
            known.waited = waited;
            if now.len() >= KEPT {
                known.times.close();
            }
            now.insert(thread, known);
        }
        self.threads = now;
        (!self.threads.is_empty()).then_some(sum)
    }

    fn close(&mut self) {
        self.stat.close();
        self.io.close();
        self.status.close();
        self.threads.values_mut().for_each(|thread| thread.times.close());
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

fn number(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

/// How many entries a folder has; none where it may not be looked at.
fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

/// What `stat` says of a process and of its children that were waited for.
#[derive(Debug, PartialEq)]
struct Stat {
    ticks: u64,
    minor: u64,
    major: u64,
    began: u64,
    stopped: bool,
}

/// The command's name stands in brackets and may hold spaces and brackets itself.
fn parse_stat(text: &str) -> Option<Stat> {
    let rest = &text[text.rfind(')')? + 1..];
    let at = |index| word(rest, index);
    let state = rest.split_ascii_whitespace().next()?;
    Some(Stat {
        ticks: at(11)? + at(12)? + at(13)? + at(14)?,
        minor: at(7)? + at(8)?,
        major: at(9)? + at(10)?,
        began: at(19).unwrap_or(0),
        stopped: state == "T",
    })
}

#[allow(unsafe_code)] // no safe interface in std
fn ticks_per_second() -> f64 {
    // SAFETY: sysconf takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Roots, Target};

    #[test]
    fn names_with_brackets_and_spaces_do_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 1 1 0 -1 0 11 4 22 3 100 50 5 2 20 0 3 0 77 0 0";
        let stat = parse_stat(stat).unwrap();
        assert_eq!((stat.ticks, stat.minor, stat.major, stat.began), (157, 15, 25, 77));
        assert!(!stat.stopped);
        let state = |state| format!("7 (a) b) {state} 1 1 1 0 -1 0 1 0 2 0 1 1 1 1 20 0 3 0 7");
        assert!(parse_stat(&state("T")).unwrap().stopped);
    }

    #[test]
    fn our_own_process_has_memory_and_threads() {
        let mut probe = (ENTRY.open)(&Roots::default(), Target::own());
        let mut values = [None; 12];
        probe.sample(Duration::ZERO, &mut values, &mut Detail::new());
        assert!(values[1].is_some_and(|rss| rss > 100_000.0), "{values:?}");
        assert!(values[3].is_some_and(|threads| threads >= 1.0));
    }

    #[test]
    fn waiting_for_a_core_adds_up_over_threads_that_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("7");
        let thread = |number: u32, waited: u64| {
            let path = own.join(format!("task/{number}"));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("schedstat"), format!("1 {waited} 3")).unwrap();
        };
        thread(7, 5_000_000_000);
        thread(8, 1_000_000_000);
        std::fs::write(own.join("stat"), "7 (a) S 1 1 1 0 -1 0 1 0 2 0 10 5 0 0 20 0 3 0 0")
            .unwrap();
        let roots = Roots { proc: folder.path().into(), ..Roots::default() };
        let mut probe = (ENTRY.open)(&roots, Target::process(7));
        let mut values = [None; 12];
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[8], None, "no interval yet");
        thread(7, 5_250_000_000);
        std::fs::remove_dir_all(own.join("task/8")).unwrap();
        thread(9, 500_000_000);
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!(values[8], Some(75.0));
    }

    #[test]
    fn a_process_that_ended_is_unknown_not_zero() {
        let mut probe = (ENTRY.open)(&Roots::default(), Target::process(u32::MAX));
        let mut values = [Some(1.0); 12];
        probe.sample(Duration::ZERO, &mut values, &mut Detail::new());
        assert_eq!(values, [None; 12]);
    }

    /// Writes the files of a process as the kernel would: CPU ticks of itself and of children that were waited for.
    fn process(proc: &Path, number: u32, parent: u32, own: u64, children: u64) {
        let folder = proc.join(number.to_string());
        std::fs::create_dir_all(folder.join("task")).unwrap();
        let stat = format!(
            "{number} (a b) R {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 {number}"
        );
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("status"), "VmRSS: 10 kB\nVmHWM: 20 kB\nThreads: 2\n").unwrap();
    }

    /// The kernel's file of an ended process cannot be read even where it is still open.
    fn ended(proc: &Path, number: u32) {
        std::fs::write(proc.join(format!("{number}/stat")), "").unwrap();
    }

    /// Two spinning children once read as 0.00 %.
    #[test]
    fn children_count_once_while_they_live_and_after_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        process(proc, 7, 1, 50, 0);
        process(proc, 99, 1, 1000, 0); // another program
        let roots = Roots { proc: proc.into(), ..Roots::default() };
        let mut probe = (ENTRY.open)(&roots, Target::tree(7));
        let mut values = [None; 12];
        let ticks = ticks_per_second();
        let mut cpu = || {
            probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
            (values[0].map(|percent| (percent * ticks / 100.0).round()), values[3], values[11])
        };
        assert_eq!(cpu(), (None, Some(2.0), Some(1.0)), "no interval yet");
        process(proc, 8, 7, 30, 0);
        process(proc, 9, 8, 40, 0);
        process(proc, 99, 1, 2000, 0);
        assert_eq!(cpu(), (Some(70.0), Some(6.0), Some(3.0)), "two generations are found");
        process(proc, 8, 7, 35, 0);
        process(proc, 9, 8, 60, 0);
        assert_eq!(cpu().0, Some(25.0));
        // 9 made five more ticks, ended, and 8 waited for it.
        ended(proc, 9);
        process(proc, 8, 7, 36, 65);
        assert_eq!(cpu(), (Some(6.0), Some(4.0), Some(2.0)));
        // 8 ended and no member waited for it.
        ended(proc, 8);
        process(proc, 7, 1, 53, 0);
        assert_eq!(cpu(), (Some(3.0), Some(2.0), Some(1.0)));
        // A child whose parent has ended belongs to init, and still to the job.
        process(proc, 10, 7, 5, 0);
        assert_eq!(cpu().0, Some(5.0));
        process(proc, 10, 1, 15, 0);
        assert_eq!(cpu(), (Some(10.0), Some(4.0), Some(2.0)));
    }

    #[test]
    fn a_single_process_is_told_apart_from_its_children() {
        let folder = tempfile::tempdir().unwrap();
        process(folder.path(), 7, 1, 50, 0);
        process(folder.path(), 8, 7, 30, 0);
        let roots = Roots { proc: folder.path().into(), ..Roots::default() };
        let mut probe = (ENTRY.open)(&roots, Target::process(7));
        let mut values = [None; 12];
        probe.sample(Duration::from_secs(1), &mut values, &mut Detail::new());
        assert_eq!((values[2], values[3], values[11]), (Some(20480.0), Some(2.0), Some(1.0)));
    }
}
