//! `versus models`: training steps on random data, against TensorFlow and PyTorch in both layouts.

use super::contest::{self, Outcome, Side};
use super::{TENSORFLOW, TORCH, benchmarks};
use crate::environment;
use std::path::Path;
use std::process::Command;

/// Threads of every side.
const THREADS: &str = "2";

const CAVEATS: &[&str] = &[
    "A step is forward, cross entropy, backward and plain SGD on one batch that stays in memory; dropout off on every side. Ours reads pixels as bytes, the peers as floats.",
    "Our softmax runs on one thread: a second one does not help at 30 microseconds per step.",
];

/// One row of the table.
struct Work {
    model: &'static str,
    batch: usize,
    /// Threads of our side.
    threads: &'static str,
    /// Steps of one measurement: about half a second for the slowest side.
    steps: usize,
    /// Measurements before the first that counts.
    warm_up: usize,
    rounds: usize,
    /// Whether PyTorch has a second memory layout for it.
    image: bool,
}

const WORKS: &[Work] = &[
    Work {
        model: "softmax",
        batch: 100,
        threads: "1",
        steps: 1_000,
        warm_up: 3,
        rounds: 7,
        image: false,
    },
    Work {
        model: "lenet",
        batch: 128,
        threads: THREADS,
        steps: 50,
        warm_up: 3,
        rounds: 7,
        image: true,
    },
    Work {
        model: "alexnet",
        batch: 32,
        threads: THREADS,
        steps: 1,
        warm_up: 2,
        rounds: 5,
        image: true,
    },
    Work {
        model: "alexnet",
        batch: 128,
        threads: THREADS,
        steps: 1,
        warm_up: 1,
        rounds: 3,
        image: true,
    },
    Work {
        model: "mobilenet-v2",
        batch: 32,
        threads: THREADS,
        steps: 1,
        warm_up: 2,
        rounds: 5,
        image: true,
    },
];

/// Runs all comparisons of the area and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    environment::run(environment::cargo(root).args([
        "build",
        "--release",
        "-p",
        "paceline-models",
        "--example",
        "step_speed",
    ]))?;
    let (tensorflow, torch) = (TENSORFLOW.ensure(root)?, TORCH.ensure(root)?);
    let outcomes: Vec<Outcome> = WORKS
        .iter()
        .map(|work| compare(root, work, &tensorflow, &torch))
        .collect::<anyhow::Result<_>>()?;
    benchmarks::write(root, "models", CAVEATS, &outcomes)
}

fn compare(root: &Path, work: &Work, tensorflow: &Path, torch: &Path) -> anyhow::Result<Outcome> {
    let (batch, steps) = (work.batch.to_string(), work.steps.to_string());
    let warm_up = work.warm_up.to_string();
    let peer = |python: &Path, script: &str, extra: &[&str]| {
        Side::peer(
            Command::new(python)
                .arg(root.join("xtask/peers").join(script))
                .args([work.model, "--batch", &batch, "--steps", &steps])
                .args(["--warm-up", &warm_up, "--threads", THREADS])
                .args(extra),
        )
    };
    let own = Side::peer(
        Command::new(root.join("target/release/examples/step_speed"))
            .args([work.model, &batch, work.threads, "--serve", &steps])
            .env_remove("PACELINE_ISA"),
    )?;
    let mut sides = vec![own, peer(tensorflow, "models_tf.py", &[])?];
    sides.push(peer(torch, "models_torch.py", &[])?);
    if work.image {
        sides.push(peer(torch, "models_torch.py", &["--channels-last"])?);
    }
    let name = format!("{} step, batch {batch}", work.model);
    contest::run(&name, "images/s", work.rounds, sides)
}
