//! `versus models/memory`: peak memory of a training step, against PyTorch.

use super::contest::median;
use super::paceline::Paceline;
use super::{TORCH, benchmarks};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

const ROUNDS: usize = 3;

#[derive(Deserialize)]
struct Measured {
    name: String,
    megabytes: f64,
}

/// Measures every side and writes the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let torch = TORCH.ensure(root)?;
    let program = Paceline::build(root)?;
    let out = root.join("target/versus/runs");
    let own = [
        "train",
        "--model",
        "alexnet",
        "--data",
        "generated:images?size=224&classes=1000&examples=128",
        "--batch-size",
        "128",
        "--steps",
        "1",
        "--eval-every",
        "1000",
        "--dropout",
        "0",
        "--json",
        "--quiet",
        "--out",
    ];
    let mut body = String::from("| work | side | peak memory |\n| --- | --- | --- |\n");
    for side in ["run", "torch", "torch --channels-last"] {
        let (mut name, mut figures) = (String::new(), Vec::new());
        for _ in 0..ROUNDS {
            let _ = std::fs::remove_dir_all(&out);
            let mut command = Command::new(&torch);
            command.arg(root.join("xtask/peers/peak_memory.py")).args(side.split(' '));
            if side == "run" {
                command.arg(program.program()).args(own).arg(&out);
            }
            let output = command.output().context("cannot run the measurement")?;
            if !output.status.success() {
                bail!("{side} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            let measured: Measured = serde_json::from_slice(&output.stdout)?;
            name = measured.name;
            figures.push(measured.megabytes);
        }
        let work = if side == "run" { "one step of AlexNet, batch 128" } else { "" };
        body += &format!("| {work} | {name} | {:.0} MB |\n", median(&figures));
    }
    let _ = std::fs::remove_dir_all(&out);
    body += "\n- Peak resident set of the whole process, 2 threads, plain SGD, dropout off; ours also reads its images, saves a checkpoint and writes a run folder.\n";
    benchmarks::write_body(root, "models/memory", &body)
}
