//! `cargo xtask verdicts`: are verdicts right? Real short runs with a bottleneck put in their way on purpose, counted.
//!
//! Each kind is injected from outside, by the means a real machine would: other programs on the cores, examples that take long to
//! make, a batch of one, a worker that is stopped three quarters of the time. The program knows nothing of it.
//! Wants a quiet machine: whatever else runs is a bottleneck too, and the verdict rightly says so.

use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs per kind, and how many of them must be judged right.
const RUNS: usize = 20;
const RIGHT: usize = 19;

/// A bottleneck and how it is put in the way.
struct Kind {
    name: &'static str,
    about: &'static str,
    /// The verdict that is right.
    limit: &'static str,
    /// Arguments of `paceline train`; `{digits}` is a folder of digits.
    train: &'static [&'static str],
    injection: Injection,
}

#[derive(Clone, Copy, PartialEq)]
enum Injection {
    /// Nothing: the setting itself is the bottleneck.
    None,
    /// As many burners as there are cores.
    Burners,
    /// The second worker is stopped three quarters of the time.
    SlowWorker,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "healthy",
        about: "LeNet at batch 128, nothing in the way",
        limit: "compute",
        train: &["--model", "lenet", "--data", "{digits}", "--batch-size", "128", "--steps", "150"],
        injection: Injection::None,
    },
    Kind {
        name: "burner",
        about: "the same while other programs burn every core",
        limit: "taken-cores",
        train: &["--model", "lenet", "--data", "{digits}", "--batch-size", "128", "--steps", "100"],
        injection: Injection::Burners,
    },
    Kind {
        name: "slow-input",
        about: "examples that take longer to make than to learn",
        limit: "input",
        train: &[
            "--model",
            "softmax",
            "--data",
            "generated:digits?examples=60000",
            "--steps",
            "1500",
        ],
        injection: Injection::None,
    },
    Kind {
        name: "small-batch",
        about: "softmax at batch 1",
        limit: "small-steps",
        train: &[
            "--model",
            "softmax",
            "--data",
            "{digits}",
            "--batch-size",
            "1",
            "--steps",
            "60000",
            "--threads",
            "1",
        ],
        injection: Injection::None,
    },
    Kind {
        name: "slow-worker",
        about: "two synchronous workers, the second stopped three quarters of the time",
        limit: "straggler",
        train: &[
            "--model",
            "lenet",
            "--data",
            "{digits}",
            "--batch-size",
            "128",
            "--steps",
            "120",
            "--strategy",
            "multi-worker",
            "--workers",
            "2",
        ],
        injection: Injection::SlowWorker,
    },
];

/// Runs the kinds named, or all.
pub fn run(root: &Path, names: &[&str]) -> anyhow::Result<()> {
    let program = root.join("target/release/paceline");
    if !program.is_file() {
        bail!("`{}` is not there: cargo build --release first", program.display());
    }
    if let Some(unknown) = names.iter().find(|name| !KINDS.iter().any(|kind| kind.name == **name)) {
        let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        bail!("no kind `{unknown}`; there are {}", known.join(", "));
    }
    let work = root.join("target/verdicts");
    let digits = work.join("digits");
    if !digits.is_dir() {
        let made = Command::new(&program)
            .args(["data", "synth", "digits"])
            .arg(&digits)
            .args(["--train", "12000", "--test", "1000", "--quiet"])
            .status()?;
        anyhow::ensure!(made.success(), "cannot draw digits");
    }
    let mut poor = Vec::new();
    for kind in KINDS.iter().filter(|kind| names.is_empty() || names.contains(&kind.name)) {
        let runs = work.join(kind.name);
        let _ = std::fs::remove_dir_all(&runs);
        let mut right = 0;
        let begun = Instant::now();
        for number in 0..RUNS {
            let diagnosis = once(&program, kind, &digits, &runs, number)?;
            let limit = diagnosis["limit"].as_str().unwrap_or_default();
            if limit == kind.limit {
                right += 1;
            } else {
                println!(
                    "  {} #{number}: {}",
                    kind.name,
                    diagnosis["words"].as_str().unwrap_or_default()
                );
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{:12} {right} of {RUNS} right ({}; wanted {}; {seconds:.0} s)",
            kind.name, kind.about, kind.limit
        );
        if right < RIGHT {
            poor.push(kind.name);
        }
    }
    anyhow::ensure!(poor.is_empty(), "fewer than {RIGHT} of {RUNS} right: {}", poor.join(", "));
    Ok(())
}

/// One run with its bottleneck; the diagnosis.
fn once(
    program: &Path,
    kind: &Kind,
    digits: &Path,
    runs: &Path,
    seed: usize,
) -> anyhow::Result<Value> {
    let mut command = Command::new(program);
    command.arg("train");
    for word in kind.train {
        command.arg(word.replace("{digits}", &digits.to_string_lossy()));
    }
    command.args(["--no-tensorboard", "--json", "--seed", &seed.to_string(), "--out"]).arg(runs);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let burners = (kind.injection == Injection::Burners).then(Burners::start);
    let child = command.spawn().context("cannot start a run")?;
    let slowed = (kind.injection == Injection::SlowWorker).then(|| Slowed::start(child.id()));
    let output = child.wait_with_output()?;
    drop((burners, slowed));
    anyhow::ensure!(
        output.status.success(),
        "a run of kind {} failed: {}",
        kind.name,
        String::from_utf8_lossy(&output.stdout)
    );
    let summary: Value = serde_json::from_slice(&output.stdout).context("a run's JSON")?;
    let name = summary["run"].as_str().context("a run has a name")?;
    let found = Command::new(program).args(["runs", name, "--json", "--out"]).arg(runs).output()?;
    let documents: Value =
        serde_json::from_slice(&found.stdout).context("the JSON of `paceline runs`")?;
    let _ = std::fs::remove_dir_all(runs.join(name).join("checkpoints"));
    Ok(documents[0]["diagnosis"].clone())
}

/// Other programs that keep every core busy.
struct Burners(Vec<Child>);

impl Burners {
    fn start() -> Burners {
        // Every core of the machine, whatever this process may use itself.
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cores = text.lines().filter(|line| line.starts_with("processor")).count().max(1);
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
struct Slowed {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    fn start(parent: u32) -> Slowed {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                let Some(task) = children(parent).pop().filter(|_| children(parent).len() > 1)
                else {
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
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<u32> =
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    found.sort_unstable();
    found
}
