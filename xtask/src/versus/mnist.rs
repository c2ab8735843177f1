//! `versus models/mnist`: softmax regression on MNIST, from the files to scored test images.

use super::contest::{self, Side};
use super::paceline::{self, Paceline};
use super::{MISC, TENSORFLOW, TORCH, benchmarks};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Passes over the digits; the peers' script has the same.
const EPOCHS: &str = "10";
const ROUNDS: usize = 5;

const CAVEATS: &[&str] = &[
    "Ours is the whole process (start-up, decompressing the files, evaluation after every epoch, run folder, TensorBoard files); the peers read the same files and evaluate once, without start-up and imports. Batch 100, learning rate 0.01 on every side.",
];

/// Runs the comparison and writes its section. Nothing without the real digits.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let data = paceline::shared_data(root).join("mnist");
    if !data.is_dir() {
        eprintln!("skipped: no MNIST at {}", data.display());
        return Ok(());
    }
    let (tensorflow, torch, misc) =
        (TENSORFLOW.ensure(root)?, TORCH.ensure(root)?, MISC.ensure(root)?);
    let program = Paceline::build(root)?;
    let runs = root.join("target/versus/runs");
    let mnist = data.clone();
    let train = move || -> anyhow::Result<f64> {
        let _ = std::fs::remove_dir_all(&runs);
        let (data, out) = (mnist.to_string_lossy(), runs.to_string_lossy());
        let started = Instant::now();
        program.json(&[
            "train",
            "--model",
            "softmax",
            "--batch-size",
            "100",
            "--epochs",
            EPOCHS,
            "--lr",
            "0.01",
            "--data",
            &data,
            "--out",
            &out,
        ])?;
        Ok(EPOCHS.parse::<f64>()? / started.elapsed().as_secs_f64())
    };
    // The peers have warmed up by then: once, so that program and files are in memory.
    train()?;
    let own = Side::own("Paceline, whole process", train);
    let peer = |python: &Path, engine: &str| {
        let script = root.join("xtask/peers/mnist_softmax.py");
        Side::peer(Command::new(python).arg(script).args([engine, "--mnist"]).arg(&data))
    };
    let sides = vec![
        own,
        peer(&tensorflow, "keras")?,
        peer(&tensorflow, "tf_function")?,
        peer(&torch, "torch")?,
        peer(&misc, "sklearn")?,
    ];
    let work = format!("softmax on MNIST end to end, {EPOCHS} epochs");
    let outcome = contest::run(&work, "epochs/s", ROUNDS, sides)?;
    benchmarks::write(root, "models/mnist", CAVEATS, &[outcome])
}
