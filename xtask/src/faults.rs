//! `cargo xtask faults`: many runs of every strategy, a random task of each killed at a random moment.
//!
//! Every run must end as its policy says, and none may hang. What was killed when follows from the
//! seed, so that a failure can be repeated.

use anyhow::{Context, bail};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(90);

/// A strategy, a policy, and the exit code that the loss of a worker shall have.
const CASES: &[(&str, &str, i32)] = &[
    ("multi-worker", "continue", 0),
    ("multi-worker", "restart", 0),
    ("multi-worker", "stop", 75),
    ("ps-sync", "continue", 0),
    ("ps-sync", "restart", 0),
    ("ps-sync", "stop", 75),
    ("ps-async", "continue", 0),
    ("ps-async", "restart", 0),
    ("ps-async", "stop", 75),
];

/// Runs each strategy `runs` times (100 unless told), its policies in turn.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let runs: u64 =
        words.first().map_or(Ok(100), |word| word.parse()).context("a number of runs")?;
    let program = match std::env::var_os("PACELINE_PROGRAM") {
        Some(program) => program.into(),
        None => root.join("target/release/paceline"),
    };
    if !program.exists() {
        bail!("`{}` is not there: cargo build --release", program.display());
    }
    let folder = root.join("target/faults");
    let _ = std::fs::remove_dir_all(&folder);
    let mut failures = 0;
    for strategy in ["multi-worker", "ps-sync", "ps-async"] {
        let cases: Vec<_> = CASES.iter().filter(|case| case.0 == strategy).collect();
        let whole = duration(&program, &folder, strategy)?;
        let (mut hit, mut missed) = (0, 0);
        for number in 0..runs {
            let (_, policy, worker_exit) = cases[(number % cases.len() as u64) as usize];
            let fault = Fault::new(number, strategy, whole);
            let outcome = fault.inflict(&program, &folder, strategy, policy)?;
            let wanted = match (outcome.killed, fault.victim) {
                (false, _) => 0,
                (true, "worker/0") => 75,
                (true, "ps/0") if *policy == "stop" => 75,
                (true, "ps/0") => 0,
                (true, _) => *worker_exit,
            };
            let count = if outcome.killed { &mut hit } else { &mut missed };
            *count += 1;
            // A task that is killed when it has nothing more to do changes nothing.
            let late = outcome.killed && outcome.exit == Some(0);
            if outcome.exit != Some(wanted) && !late {
                failures += 1;
                println!(
                    "{strategy} {policy}, run {number}: {} killed after {:?}: exit {:?}, wanted {wanted}\n{}",
                    fault.victim, fault.after, outcome.exit, outcome.talk
                );
            }
        }
        println!("{strategy}: {runs} runs, {hit} with a task killed, {missed} over before");
    }
    if failures > 0 {
        bail!("{failures} runs did not end as their policy says");
    }
    Ok(())
}

struct Fault {
    victim: &'static str,
    after: Duration,
}

struct Outcome {
    killed: bool,
    /// Nothing where it hung and had to be ended.
    exit: Option<i32>,
    talk: String,
}

impl Fault {
    fn new(number: u64, strategy: &str, whole: Duration) -> Self {
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ strategy.len() as u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        random(7);
        let victims: &[&'static str] = if strategy.starts_with("ps") {
            &["worker/1", "worker/2", "ps/0", "worker/0"]
        } else {
            &["worker/1", "worker/2", "worker/0"]
        };
        let victim = victims[random(victims.len() as u64) as usize];
        Self { victim, after: whole.mul_f64(random(1000) as f64 / 1000.0) }
    }

    fn inflict(
        &self,
        program: &Path,
        folder: &Path,
        strategy: &str,
        policy: &str,
    ) -> anyhow::Result<Outcome> {
        let _ = std::fs::remove_dir_all(folder);
        let mut child = start(program, folder, strategy, policy)?;
        let begun = Instant::now();
        std::thread::sleep(self.after);
        let victim = child_of(child.id(), self.victim);
        let killed = victim.is_some_and(|process| {
            Command::new("kill")
                .args(["-9", &process.to_string()])
                .status()
                .is_ok_and(|s| s.success())
        });
        let exit = loop {
            if let Some(status) = child.try_wait()? {
                break status.code();
            }
            if begun.elapsed() > HANGS {
                child.kill()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut talk = String::new();
        if let Some(mut errors) = child.stderr.take() {
            std::io::Read::read_to_string(&mut errors, &mut talk)?;
        }
        Ok(Outcome { killed, exit, talk })
    }
}

fn start(program: &Path, folder: &Path, strategy: &str, policy: &str) -> anyhow::Result<Child> {
    let child = Command::new(program)
        .args(["train", "--model", "softmax", "--data", "generated:digits?examples=600", "--quiet"])
        .args(["--strategy", strategy, "--on-loss", policy, "--workers", "3", "--steps", "4000"])
        .args(["--checkpoint-every", "500", "--no-tensorboard", "--batch-size", "30", "--out"])
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// How long a run takes that nobody disturbs.
fn duration(program: &Path, folder: &Path, strategy: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let status = start(program, folder, strategy, "continue")?.wait()?;
    if !status.success() {
        bail!("{strategy} fails even when nobody disturbs it");
    }
    Ok(begun.elapsed())
}

/// The process of a task: tasks are started one after the other, so their numbers ascend.
fn child_of(parent: u32, task: &str) -> Option<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut children: Vec<u32> =
        listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    children.sort_unstable();
    let place = match task {
        "ps/0" => 3,
        other => other.strip_prefix("worker/")?.parse().ok()?,
    };
    children.get(place).copied()
}
