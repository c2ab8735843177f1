//! `versus cluster/training`: what a second process brings, against PyTorch's DistributedDataParallel.

use super::contest::{self, Outcome, Side};
use super::paceline::{self, Paceline};
use super::quiet::Quiet;
use super::{TORCH, benchmarks};
use anyhow::Context;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

const ROUNDS: usize = 5;

const CAVEATS: &[&str] = &[
    "Images per second of the step loop, one thread per process; the same global batch on one process and on two. Half the ratio of two processes to one is the efficiency.",
    "\"half the batch\" is one process with the batch that each of the two has. Smaller batches are slower: AlexNet passes over its 58.6 million dense weights several times a step whatever the batch.",
    "Ours with `--on-loss stop` (as DDP, which ends when a process is lost): AlexNet's dense layers are then shared out, each process computes half of their outputs for the whole batch, and only activations and the convolutions' gradients are exchanged. With `--split-dense off` each has a copy of everything, as in DDP.",
    "Our side reads its images (MNIST from its files, 224-pixel images generated and kept); DDP trains on one random batch that stays in memory.",
];

/// One row of the table.
struct Work {
    model: &'static str,
    batch: u32,
    /// Steps of one measurement of ours and of the peer's: two to twenty seconds. One process makes its first images
    /// on the core that is idle, two have none: so many steps that this does not matter.
    steps: (&'static str, &'static str),
}

const WORKS: &[Work] = &[
    Work { model: "lenet", batch: 128, steps: ("4000", "60") },
    Work { model: "alexnet", batch: 32, steps: ("36", "4") },
];

/// Runs the comparisons and writes their section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let torch = TORCH.ensure(root)?;
    let program = Rc::new(Paceline::build(root)?);
    let mut quiet = Quiet::new();
    let outcomes = WORKS
        .iter()
        .map(|work| compare(root, work, &program, &torch, &mut quiet))
        .collect::<anyhow::Result<Vec<Outcome>>>()?;
    let gate = format!(
        "Every measurement, ours and the peer's, with both cores at full speed before and after it, as a short computation in registers shows: {} were made again because another program was at work, {} kept in spite of it.",
        quiet.repeated, quiet.disturbed
    );
    let caveats: Vec<&str> = CAVEATS.iter().copied().chain([gate.as_str()]).collect();
    benchmarks::write(root, "cluster/training", &caveats, &outcomes)
}

fn compare(
    root: &Path,
    work: &Work,
    program: &Rc<Paceline>,
    torch: &Path,
    quiet: &mut Quiet,
) -> anyhow::Result<Outcome> {
    let (whole, half) = (work.batch.to_string(), (work.batch / 2).to_string());
    // As DDP does, which ends when a process is lost.
    let two = ["--strategy", "multi-worker", "--workers", "2", "--on-loss", "stop"];
    let script = root.join("xtask/peers/ddp_torch.py");
    let mut ddp = Command::new(torch);
    ddp.arg(script).args([work.model, &whole, work.steps.1]);
    let sides = vec![
        own(root, work, program, "Paceline, 2 processes", &whole, &two),
        own(root, work, program, "Paceline, 1 process", &whole, &[]),
        own(root, work, program, "Paceline, 1 process, half the batch", &half, &[]),
        Side::peer(&mut ddp)?,
    ];
    let name = format!("{} training, global batch {whole}", work.model);
    contest::run_when(&name, "images/s", ROUNDS, sides, Some(quiet))
}

/// A run of ours; the rate is that of its step loop, as the slowest worker saw it.
fn own(
    root: &Path,
    work: &Work,
    program: &Rc<Paceline>,
    name: &str,
    batch: &str,
    more: &[&str],
) -> Side {
    let runs = root.join("target/versus/runs");
    let data = if work.model == "lenet" {
        paceline::shared_data(root).join("mnist").to_string_lossy().into_owned()
    } else {
        String::from("generated:images?size=224&classes=1000&examples=192")
    };
    let out = runs.to_string_lossy().into_owned();
    let mut args: Vec<String> = ["train", "--threads", "1", "--eval-every", "1000000"]
        .into_iter()
        .chain(["--lr", "0.001", "--model", work.model, "--steps", work.steps.0])
        .chain(["--batch-size", batch, "--data", &data, "--out", &out])
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect();
    if work.model == "alexnet" {
        args.extend(["--dropout", "0"].map(str::to_owned));
    }
    let program = Rc::clone(program);
    Side::own(name, move || {
        let _ = std::fs::remove_dir_all(&runs);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let summary = program.json(&args)?;
        let workers = summary["workers"].as_array().context("a summary names its workers")?;
        let each =
            |key: &'static str| workers.iter().filter_map(move |worker| worker[key].as_f64());
        let slowest = each("seconds").fold(0.0, f64::max);
        Ok(each("examples").sum::<f64>() / slowest)
    })
}
