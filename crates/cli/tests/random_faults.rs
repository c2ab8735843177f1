//! Random schedules of faults on real processes: every strategy, dense and sparse, each policy. What the run folder tells afterwards is
//! held against what was promised: every step once, no checkpoint lost, examples that add up, losses named, no process left.
//!
//! A schedule follows from its seed. `PACELINE_SEED` replays one, `PACELINE_SCHEDULES` sets how many are tried
//! (`cargo xtask faults random N`).

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::{
    DIGITS, ENDLESS, Ended, Run, events, exists, processes, signal, steps, train_in, wait_for,
};
use paceline_stats::random::Random;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    time::Duration,
};
use tempfile::TempDir;

/// Examples of a step.
const BATCH: u64 = 30;
/// Schedules of an ordinary test.
const SCHEDULES: u64 = 20;
/// A process that is stopped for so long is not lost.
const STOPPED: Duration = Duration::from_secs(1);

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq)]
enum Fault {
    Kill(String),
    /// Stopped by a signal, and continued.
    Stop(String),
    /// All processes of the run are, as a machine that sleeps.
    Pause,
    /// A second process wants to continue the run.
    SecondOwner,
}

#[derive(Debug)]
struct Schedule {
    sparse: bool,
    strategy: &'static str,
    policy: &'static str,
    faults: Vec<Fault>,
}

impl Schedule {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 29);
        let sparse = random.below(3) == 0;
        let strategies: &[&str] = if sparse {
            &["ps-sync", "ps-async"]
        } else {
            &["multi-worker", "ps-sync", "ps-async"]
        };
        let strategy = strategies[random.below(strategies.len())];
        let policy = ["continue", "restart", "stop"][random.below(3)];
        let mut tasks = vec!["worker/1", "worker/2", "worker/0"];
        if strategy.starts_with("ps") {
            tasks.extend(["ps/0", "ps/1"]);
        }
        let mut killed = BTreeSet::new();
        let mut faults = Vec::new();
        for _ in 0..1 + random.below(3) {
            let task = tasks[random.below(tasks.len())].to_owned();
            faults.push(match random.below(6) {
                // A task that is gone for good cannot be hurt again.
                0..3 if killed.insert(task.clone()) => Fault::Kill(task),
                3 if !killed.contains(&task) => Fault::Stop(task),
                4 => Fault::SecondOwner,
                _ => Fault::Pause,
            });
        }
        Self { sparse, strategy, policy, faults }
    }

    /// The run, and the folder of its data.
    fn start(&self) -> (Run, TempDir) {
        let out = tempfile::tempdir().unwrap();
        let servers: &[&str] = if self.strategy.starts_with("ps") { &["--ps", "2"] } else { &[] };
        let batch = BATCH.to_string();
        let files = self.files(out.path());
        let data = files.join(",");
        let kind: &[&str] = if self.sparse {
            &["--model", "sparse-logistic", "--format", "libsvm", "--epochs", "1000000"]
        } else {
            &["--model", "softmax", "--checkpoint-every", "100"]
        };
        let data = if self.sparse { &data } else { DIGITS };
        let common = [
            "--data",
            data,
            "--strategy",
            self.strategy,
            "--on-loss",
            self.policy,
            "--workers",
            "3",
            "--steps",
            ENDLESS,
            "--batch-size",
            &batch,
        ];
        let runs = tempfile::tempdir_in(out.path()).unwrap();
        (train_in(runs, &[kind, &common, servers].concat()), out)
    }

    /// Rows for three workers.
    fn files(&self, folder: &Path) -> Vec<String> {
        if !self.sparse {
            return Vec::new();
        }
        let file = |number: u64| {
            let row = |at: u64| format!("{} {}:1 {}:0.5\n", at % 2, 1 + at % 7, 10 + at % 31);
            let path = folder.join(format!("rows-{number}.svm"));
            fs::write(&path, (number * 900..number * 900 + 900).map(row).collect::<String>())
                .unwrap();
            path.to_str().unwrap().to_owned()
        };
        (0..3).map(file).collect()
    }

    /// Whether the run ends when a task is killed.
    fn ends_with(&self, task: &str) -> bool {
        task == "worker/0" || self.policy == "stop"
    }

    /// Inflicts the faults one after the other; says whether one of them ended the run.
    fn inflict(&self, run: &mut Run) -> bool {
        let folder = run.folder();
        for fault in &self.faults {
            let made = steps(&folder);
            run.wait_for_step(made + 50);
            match fault {
                Fault::Kill(task) => {
                    let process = run.process(task);
                    signal(process, "-KILL");
                    wait_for(&format!("the loss of {task} to be named"), || {
                        run.talk().contains(task) || run.child.try_wait().unwrap().is_some()
                    });
                    if self.ends_with(task) {
                        return true;
                    }
                    wait_for(&format!("{task} in the log"), || {
                        events(&folder, "task_lost")
                            .iter()
                            .any(|event| event["data"]["lost"] == **task)
                    });
                }
                Fault::Stop(task) => {
                    let process = run.process(task);
                    signal(process, "-STOP");
                    std::thread::sleep(STOPPED);
                    signal(process, "-CONT");
                }
                Fault::Pause => {
                    let all: Vec<u32> =
                        processes(&folder).into_values().filter(|one| exists(*one)).collect();
                    let send = |name: &str| {
                        // One that has ended in between needs no signal.
                        for process in &all {
                            let _ = std::process::Command::new("kill")
                                .args([name, &process.to_string()])
                                .status();
                        }
                    };
                    send("-STOP");
                    std::thread::sleep(STOPPED);
                    send("-CONT");
                }
                Fault::SecondOwner => {
                    let mut second = support::paceline();
                    let output =
                        second.args(["train", "--quiet", "--resume"]).arg(&folder).output();
                    let output = output.unwrap();
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert_eq!(output.status.code(), Some(75), "a second owner: {said}");
                }
            }
        }
        false
    }

    /// What the run folder tells, against what was promised.
    fn check(&self, folder: &Path, ended: &Ended, over: bool) {
        let code = ended.code();
        assert_eq!(code, if over { 75 } else { 130 }, "{}", ended.talk);
        let in_lockstep = self.strategy != "ps-async";
        let kills = || {
            self.faults.iter().filter_map(|fault| match fault {
                Fault::Kill(task) => Some(task.as_str()),
                _ => None,
            })
        };
        let rolled_back = kills().any(|task| task.starts_with("ps/"));
        let made = events(folder, "step");
        let number = |event: &Value, name: &str| event["data"][name].as_u64().unwrap();
        for pair in made.windows(2) {
            let (before, step, count) =
                (number(&pair[0], "step"), number(&pair[1], "step"), number(&pair[1], "steps"));
            if in_lockstep && !rolled_back {
                // Others may have completed one whose end the chief did not hear of.
                let unheard = kills().count() as u64;
                assert!(
                    step >= before + count && step <= before + count + unheard,
                    "step {step} after {before}, {count} made"
                );
            }
        }
        let lost: Vec<String> = events(folder, "task_lost")
            .iter()
            .map(|event| event["data"]["lost"].as_str().unwrap().to_owned())
            .collect();
        for task in &lost {
            assert!(kills().any(|killed| killed == task) || over, "{task} was lost for nothing");
        }
        self.check_checkpoints(folder);
        if over {
            return;
        }
        let summary = ended.json();
        let (examples, global) =
            (summary["examples"].as_u64().unwrap(), summary["global_steps"].as_u64().unwrap());
        if !rolled_back && !self.sparse {
            assert_eq!(examples, BATCH * global, "examples do not add up");
        }
        if in_lockstep && kills().count() > 0 {
            let recovery = summary["phases"]["recovery"].as_f64().unwrap_or(0.0);
            assert!(recovery > 0.0, "the time after a loss is in no phase: {}", summary["phases"]);
        }
    }

    /// What was saved and not deleted is there, whole.
    fn check_checkpoints(&self, folder: &Path) {
        let mut kept = BTreeSet::new();
        for event in events(folder, "checkpoint") {
            let step = event["data"]["step"].as_u64().unwrap();
            match event["data"]["action"].as_str().unwrap() {
                "saved" => drop(kept.insert(step)),
                "deleted" => drop(kept.remove(&step)),
                _ => {}
            }
        }
        if let Some(last) = kept.last() {
            let names = fs::read_dir(folder.join("checkpoints")).unwrap();
            let steps: Vec<u64> =
                names.filter_map(|name| name.unwrap().file_name().to_str()?.parse().ok()).collect();
            assert!(steps.contains(last), "checkpoint {last} is lost; there are {steps:?}");
            let manifest = folder.join("checkpoints").join(
                fs::read_dir(folder.join("checkpoints"))
                    .unwrap()
                    .map(|name| name.unwrap().file_name().into_string().unwrap())
                    .find(|name| name.parse::<u64>() == Ok(*last))
                    .unwrap(),
            );
            assert!(manifest.join("manifest.json").exists(), "checkpoint {last} is not whole");
        }
    }

    fn run(&self) {
        let (mut run, _data) = self.start();
        run.wait_for_step(50);
        let folder = run.folder();
        let mut all: BTreeSet<u32> = processes(&folder).into_values().collect();
        let over = self.inflict(&mut run);
        if !over {
            let made = steps(&folder);
            run.wait_for_step(made + 50);
            signal(run.child.id(), "-INT");
        }
        let ended = run.end();
        all.extend(processes(&folder).into_values());
        self.check(&folder, &ended, over);
        wait_for("all processes to be gone", || !all.iter().any(|process| exists(*process)));
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_faults_break_no_promise() {
    let (first, count) = match number("PACELINE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("PACELINE_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    for seed in first..first + count {
        let schedule = Schedule::draw(seed);
        println!("seed {seed}: {schedule:?}");
        if let Err(broken) = catch_unwind(AssertUnwindSafe(|| schedule.run())) {
            println!("PACELINE_SEED={seed} replays it");
            resume_unwind(broken);
        }
    }
}
