//! `cargo xtask faults`: many runs of every strategy, a random task of each killed at a random moment.
//!
//! Every run must end as its policy says, and none may hang. What is killed when follows from the number of the run, so that a
//! failure can be reproduced. A run that ends as if nothing had happened is accepted only if all steps were done when the task
//! was killed, according to its logs. One that continues must name the task it lost, and have trained on as many examples as its
//! steps have.

use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A run that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(90);
/// Duration of an undisturbed run, in seconds.
const TRAINING: f64 = 1.5;
/// Steps of the run that calibrates the speed of this machine.
const TRIAL: u64 = 2_000;
/// An event is written down a little after it happened, in seconds.
const LATER: f64 = 0.02;
/// Examples of a step; those of an epoch are a multiple, so that no step has fewer.
const BATCH: u64 = 30;
const DATA: &str = "generated:digits?examples=600";

const STRATEGIES: &[&str] = &["multi-worker", "ps-sync", "ps-async"];
const POLICIES: &[&str] = &["continue", "restart", "stop"];

/// Runs each strategy (or the named ones) `runs` times (100 unless told), its policies in turn.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let (numbers, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    let runs: u64 =
        numbers.first().map_or(Ok(100), |word| word.parse()).context("a number of runs")?;
    if let Some(unknown) = names.iter().find(|name| !STRATEGIES.contains(name)) {
        bail!("no such strategy: {unknown}; there are: {}", STRATEGIES.join(", "));
    }
    let program = match std::env::var_os("PACELINE_BIN") {
        Some(program) => program.into(),
        None => root.join("target/release/paceline"),
    };
    if !program.exists() {
        bail!("`{}` does not exist: run `cargo build --release`", program.display());
    }
    let mut failures = 0;
    let mut table = String::from(
        "| strategy | policy | runs | worker killed | server killed | chief killed | evaluator killed | already done | resumed | failed | longest from kill to end |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for strategy in STRATEGIES.iter().filter(|name| names.is_empty() || names.contains(name)) {
        let mut bench = Bench {
            program: &program,
            folder: root.join("target/faults").join(strategy),
            strategy,
            steps: TRIAL,
        };
        let whole = bench.calibrate()?;
        eprintln!("{strategy}: {} steps, {:.1} s undisturbed", bench.steps, whole.as_secs_f64());
        let mut counts = vec![Counts::default(); POLICIES.len()];
        for number in 0..runs {
            let place = (number % POLICIES.len() as u64) as usize;
            let fault = Fault::new(number, strategy, whole);
            let outcome = bench.inflict(&fault, POLICIES[place])?;
            if let Some(wrong) = counts[place].count(&fault, &outcome, POLICIES[place]) {
                println!(
                    "{strategy} {}, run {number}: {} killed after {:?}: {wrong}\n{}",
                    POLICIES[place], fault.victim, fault.after, outcome.stderr
                );
            } else if let Some(wrong) = bench.check_resume(&fault, &outcome, &mut counts[place])? {
                counts[place].failed += 1;
                println!("{strategy} {}, run {number}: {wrong}", POLICIES[place]);
            }
        }
        for (policy, count) in POLICIES.iter().zip(&counts) {
            failures += count.failed;
            table.push_str(&count.row(strategy, policy));
        }
    }
    println!("{table}");
    if failures > 0 {
        bail!("{failures} runs did not end as their policy says");
    }
    Ok(())
}

/// How runs of one strategy and policy ended.
#[derive(Default, Clone)]
struct Counts {
    runs: u64,
    worker: u64,
    server: u64,
    chief: u64,
    evaluator: u64,
    late: u64,
    resumed: u64,
    failed: u64,
    longest: f64,
}

impl Counts {
    /// Counts a run; returns what was wrong with it.
    fn count(&mut self, fault: &Fault, outcome: &Outcome, policy: &str) -> Option<String> {
        self.runs += 1;
        let over = outcome.killed.is_none_or(|killed| outcome.over_by(killed));
        let wanted = match fault.victim {
            _ if outcome.killed.is_none() => 0,
            "worker/0" => 75,
            "evaluator/0" => 0, // the chief can do without
            _ if policy == "stop" => 75,
            _ => 0,
        };
        match fault.victim {
            _ if over => self.late += 1,
            "worker/0" => self.chief += 1,
            "ps/0" | "ps/1" => self.server += 1,
            "evaluator/0" => self.evaluator += 1,
            _ => self.worker += 1,
        }
        if outcome.killed.is_some() {
            self.longest = self.longest.max(outcome.seconds_after);
        }
        let wrong = match outcome.exit {
            None => Some("it hung".to_owned()),
            // A task that is killed when it has nothing more to do changes nothing.
            Some(0) if wanted != 0 && over => None,
            Some(exit) if exit != wanted => Some(format!("exit {exit}, wanted {wanted}")),
            Some(0) if outcome.summary["global_steps"] != outcome.steps => {
                let steps = &outcome.summary["global_steps"];
                Some(format!("{steps} steps, wanted {}", outcome.steps))
            }
            Some(_) if !over && !outcome.stderr.contains(fault.victim) => {
                Some("no log names the lost task".to_owned())
            }
            Some(0) if !outcome.adds_up(fault.victim.starts_with("ps/")) => {
                let examples = &outcome.summary["examples"];
                Some(format!("{examples} examples, wanted {}", BATCH * outcome.steps))
            }
            Some(_) => None,
        };
        self.failed += u64::from(wrong.is_some());
        wrong
    }

    fn row(&self, strategy: &str, policy: &str) -> String {
        let Self { runs, worker, server, chief, evaluator, late, resumed, failed, longest } = self;
        format!(
            "| {strategy} | {policy} | {runs} | {worker} | {server} | {chief} | {evaluator} | {late} | {resumed} | {failed} | {longest:.1} s |\n"
        )
    }
}

/// Which task is killed, and when.
struct Fault {
    victim: &'static str,
    after: Duration,
}

impl Fault {
    fn new(number: u64, strategy: &str, whole: Duration) -> Self {
        let mut state = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ strategy.len() as u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        random(7);
        let victims: &[&'static str] = if strategy.starts_with("ps") {
            &["worker/1", "worker/2", "ps/0", "ps/1", "worker/0", "evaluator/0"]
        } else {
            &["worker/1", "worker/2", "worker/0", "evaluator/0"]
        };
        let victim = victims[random(victims.len() as u64) as usize];
        Self { victim, after: whole.mul_f64(random(1000) as f64 / 1000.0) }
    }
}

struct Outcome {
    /// When the task was killed, in seconds since 1970; nothing where it was gone already.
    killed: Option<f64>,
    /// Nothing where it hung and had to be ended.
    exit: Option<i32>,
    /// From the kill to the end of the run.
    seconds_after: f64,
    stderr: String,
    summary: Value,
    steps: u64,
    folder: Option<PathBuf>,
}

impl Outcome {
    /// Whether as many examples were trained on as the steps have. Those since a server's last checkpoint are made
    /// `again`, and then count twice.
    fn adds_up(&self, again: bool) -> bool {
        let (found, wanted) = (self.summary["examples"].as_u64(), Some(BATCH * self.steps));
        found == wanted || again && found > wanted
    }

    /// Whether all steps had been made by then, as any of the tasks wrote down.
    fn over_by(&self, time: f64) -> bool {
        let last = |event: &Value| {
            event["kind"] == "step" && event["data"]["step"].as_u64() >= Some(self.steps)
        };
        let events = self.folder.iter().flat_map(|folder| events(folder));
        events.filter(last).any(|event| event["time"].as_f64().is_some_and(|at| at <= time + LATER))
    }
}

/// Everything in the logs of a run.
fn events(folder: &Path) -> Vec<Value> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path());
    let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    logs.filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|text| {
            let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            lines.collect::<Vec<Value>>()
        })
        .collect()
}

/// Runs of one strategy.
struct Bench<'a> {
    program: &'a Path,
    folder: PathBuf,
    strategy: &'a str,
    steps: u64,
}

impl Bench<'_> {
    /// Finds how many steps make a run of the wanted length; returns how long one takes.
    fn calibrate(&mut self) -> anyhow::Result<Duration> {
        let mut whole = Duration::ZERO;
        for _ in 0..2 {
            let started = Instant::now();
            let _ = std::fs::remove_dir_all(&self.folder);
            let output = self.start("continue")?.wait_with_output()?;
            whole = started.elapsed();
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                bail!("{} fails even without a kill: {said}", self.strategy);
            }
            let summary = self.summary(self.run_folder().as_deref());
            let seconds = summary["seconds"].as_f64().context("a summary with its seconds")?;
            if self.steps == TRIAL {
                let steps = TRIAL as f64 * TRAINING / seconds.max(0.01);
                self.steps = (steps as u64).clamp(500, 200_000);
            }
        }
        Ok(whole)
    }

    fn start(&self, policy: &str) -> anyhow::Result<Child> {
        let servers: &[&str] = if self.strategy.starts_with("ps") { &["--ps", "2"] } else { &[] };
        let child = Command::new(self.program)
            .args(["train", "--model", "softmax", "--data", DATA, "--evaluator"])
            .args(["--strategy", self.strategy, "--on-loss", policy, "--workers", "3"])
            .args(servers)
            .args(["--steps", &self.steps.to_string(), "--checkpoint-every", "500", "--quiet"])
            .args(["--no-tensorboard", "--batch-size", &BATCH.to_string(), "--out"])
            .arg(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(child)
    }

    fn inflict(&self, fault: &Fault, policy: &str) -> anyhow::Result<Outcome> {
        let _ = std::fs::remove_dir_all(&self.folder);
        let mut child = self.start(policy)?;
        std::thread::sleep(fault.after);
        let victim = process_of(child.id(), fault.victim);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let started = Instant::now();
        let killed = victim.is_some_and(|process| {
            let mut kill = Command::new("kill");
            kill.args(["-9", &process.to_string()]).status().is_ok_and(|status| status.success())
        });
        let exit = loop {
            if let Some(status) = child.try_wait()? {
                break status.code();
            }
            if started.elapsed() > HANGS {
                child.kill()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let seconds_after = started.elapsed().as_secs_f64();
        let mut stderr = String::new();
        if let Some(mut errors) = child.stderr.take() {
            std::io::Read::read_to_string(&mut errors, &mut stderr)?;
        }
        let folder = self.run_folder();
        let summary = self.summary(folder.as_deref());
        let killed = killed.then_some(now);
        Ok(Outcome { killed, exit, seconds_after, stderr, summary, steps: self.steps, folder })
    }

    /// A run whose chief was killed must be picked up from its last checkpoint; says what was wrong.
    fn check_resume(
        &self,
        fault: &Fault,
        outcome: &Outcome,
        counts: &mut Counts,
    ) -> anyhow::Result<Option<String>> {
        let resumable = |folder: &PathBuf| folder.join("checkpoints").exists();
        let Some(folder) = outcome.folder.as_ref().filter(|folder| resumable(folder)) else {
            return Ok(None);
        };
        if fault.victim != "worker/0" || outcome.exit != Some(75) {
            return Ok(None);
        }
        let output = Command::new("timeout")
            .arg(HANGS.as_secs().to_string())
            .arg(self.program)
            .args(["train", "--quiet", "--resume"])
            .arg(folder)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        // Killed while it wrote its very first one: there is nothing to pick up, and it says so.
        if said.contains("no usable checkpoint") {
            return Ok(None);
        }
        let steps = self.summary(Some(folder))["global_steps"].clone();
        if output.status.code() != Some(0) || steps != self.steps {
            let status = output.status;
            return Ok(Some(format!(
                "resumed after the chief's death: {status}, {steps} steps\n{said}"
            )));
        }
        counts.resumed += 1;
        Ok(None)
    }

    fn run_folder(&self) -> Option<PathBuf> {
        std::fs::read_dir(&self.folder).ok()?.flatten().next().map(|entry| entry.path())
    }

    fn summary(&self, folder: Option<&Path>) -> Value {
        let text = folder.and_then(|folder| std::fs::read(folder.join("summary.json")).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

/// The process of a task: the one whose log is called after it.
fn process_of(parent: u32, task: &str) -> Option<u32> {
    let log = format!("/logs/{}.log", task.replace('/', "-"));
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let children = listed.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
    children.into_iter().find(|child| {
        std::fs::read_link(format!("/proc/{child}/fd/2"))
            .is_ok_and(|target| target.to_string_lossy().ends_with(&log))
    })
}
