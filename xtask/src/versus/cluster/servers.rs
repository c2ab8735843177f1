//! Weights on a parameter server, against TensorFlow's strategy of the same kind.

use crate::versus::contest::{self, Side};
use crate::versus::paceline::shared_data;
use crate::versus::{TENSORFLOW, benchmarks};
use crate::{environment, versus::paceline::Paceline};
use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Few rounds, because TensorFlow needs about 20 s to start.
const ROUNDS: usize = 5;
const STARTS: usize = 2;

const CAVEATS: &[&str] = &[
    "Softmax on MNIST, batch 100, asynchronous, 2 workers + 1 server, all on this machine. Ours: a complete `paceline train` each time, the rate over its training time, including data order, step reports, staleness and logs. TensorFlow: ParameterServerStrategy with a coordinator, hand-written SGD, batches made beforehand, processes kept running between turns, in a separate network namespace.",
    "\"first step\": from starting the command to the end of the first step, as a rate (1 / seconds). TensorFlow's imports are included, because its users wait for them too.",
];

/// Runs the comparisons and writes their section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let data = shared_data(root).join("mnist");
    if !data.is_dir() {
        eprintln!("skipped: no MNIST at {}", data.display());
        return Ok(());
    }
    let tensorflow = TENSORFLOW.ensure(root)?;
    let paceline = Paceline::build(root)?;
    let job =
        Job { program: paceline.program().to_owned(), data, runs: root.join("target/versus/runs") };
    let peer = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
            .arg(&tensorflow)
            .arg(root.join("xtask/peers/ps_tf.py"))
            .arg(&job.data)
            .args(more);
        command
    };
    let own = job.clone();
    let sides = vec![
        Side::own("Paceline", move || own.steps_per_second()),
        Side::peer(&mut peer(&["--inner", "100"]))?,
        Side::peer(&mut peer(&["--inner", "1"]))?,
    ];
    let work = "softmax on MNIST, ps-async, 2 workers + 1 server";
    let mut outcomes = vec![contest::run(work, "global steps/s", ROUNDS, sides)?];

    let own = job.clone();
    let mut first = peer(&["--first"]);
    let sides = vec![
        Side::own("Paceline", move || own.first_step()),
        Side::own("TensorFlow 2.21 ParameterServerStrategy", move || {
            let started = std::time::Instant::now();
            environment::run(first.stdout(Stdio::null()).stderr(Stdio::null()))?;
            Ok(1.0 / started.elapsed().as_secs_f64())
        }),
    ];
    let work = "from start to first step, the same job";
    outcomes.push(contest::run(work, "starts/s", STARTS, sides)?);
    benchmarks::write(root, "cluster/servers", CAVEATS, &outcomes)
}

/// The same job on our side.
#[derive(Clone)]
struct Job {
    program: PathBuf,
    data: PathBuf,
    runs: PathBuf,
}

impl Job {
    fn run(&self, steps: &str) -> anyhow::Result<Value> {
        let _ = std::fs::remove_dir_all(&self.runs);
        let output = Command::new(&self.program)
            .args(["train", "--model", "softmax", "--strategy", "ps-async", "--workers", "2"])
            .args(["--ps", "1", "--batch-size", "100", "--lr", "0.01", "--steps", steps])
            .args(["--eval-every", "1000000", "--quiet", "--json", "--data"])
            .arg(&self.data)
            .arg("--out")
            .arg(&self.runs)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.program.display(), output.status);
        }
        serde_json::from_slice(&output.stdout).context("a summary on standard output")
    }

    fn steps_per_second(&self) -> anyhow::Result<f64> {
        let summary = self.run("60000")?;
        let number = |name: &str| summary[name].as_f64().with_context(|| format!("no {name}"));
        Ok(number("global_steps")? / number("seconds")?)
    }

    /// One over the seconds until the first step of any worker was written down.
    fn first_step(&self) -> anyhow::Result<f64> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        self.run("500")?; // few enough that every step is an event of its own
        let mut first = f64::INFINITY;
        for run in std::fs::read_dir(&self.runs)? {
            for file in std::fs::read_dir(run?.path())? {
                let path = file?.path();
                if path.extension().is_none_or(|extension| extension != "jsonl") {
                    continue;
                }
                for line in std::fs::read_to_string(&path)?.lines() {
                    let event: Value = serde_json::from_str(line)?;
                    if event["kind"] == "step" {
                        first = first.min(event["time"].as_f64().context("an event's time")?);
                    }
                }
            }
        }
        if !first.is_finite() {
            bail!("no step in {}", self.runs.display());
        }
        Ok(1.0 / (first - started))
    }
}
