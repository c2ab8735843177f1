//! `versus cluster/training`: the speed-up by a second process, against PyTorch's DistributedDataParallel.

use super::allocators::Allocator;
use super::contest::{self, Outcome, Side};
use super::paceline::{self, Paceline};
use super::paused_run::PausedRun;
use super::quiet::Quiet;
use super::{TORCH, benchmarks};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const CAVEATS: &[&str] = &[
    "Images per second of the step loop, one thread per process; the same global batch on one process and on two. The efficiency is half the ratio of two processes to one.",
    "All sides are warm and wait while another is measured: the peer for its next turn, our runs paused and continued by signals. A turn is 1 s (LeNet) or 5 s (AlexNet) for ours, 60 or 4 steps for the peer. The turns of a round are a few seconds apart, so that other load on the machine affects all sides equally.",
    "\"half the batch\" is one process with the batch that each of the two has. Smaller batches are slower: AlexNet reads its 58.6 million dense weights several times per step, whatever the batch size.",
    "Ours runs with `--on-loss stop` (like DDP, which ends when a process is lost): AlexNet's dense layers are then split, each process computes half of their outputs for the whole batch, and only activations and the convolutions' gradients are exchanged. With `--split-dense off` each process has a full copy, as in DDP.",
    "Ours reads its images (MNIST from files, 224-pixel images generated and cached); DDP trains on one random batch that stays in memory. How DDP allocates memory was chosen by a trial just before: glibc as it is, glibc that keeps large blocks, jemalloc or tcmalloc where installed.",
];

/// One row of the table.
pub struct Work {
    pub model: &'static str,
    pub batch: u32,
    /// Steps planned, more than all turns take; a run with fewer steps reports more often.
    steps: &'static str,
    /// Steps before the first turn: all generated images are cached by then.
    warm: u64,
    /// Seconds of a turn of ours, steps of one of the peer's.
    turn: (f64, &'static str),
    rounds: usize,
}

pub const WORKS: &[Work] = &[
    Work { model: "lenet", batch: 128, steps: "60000", warm: 2000, turn: (1.0, "60"), rounds: 20 },
    Work { model: "alexnet", batch: 32, steps: "1000", warm: 14, turn: (5.0, "4"), rounds: 12 },
];

/// Two processes; as with DDP the run ends when one is lost.
pub const TWO: &[&str] = &["--strategy", "multi-worker", "--workers", "2", "--on-loss", "stop"];

/// Runs the comparisons and writes their section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let torch = TORCH.ensure(root)?;
    let program = Paceline::build(root)?;
    let mut quiet = Quiet::new();
    let outcomes = WORKS
        .iter()
        .map(|work| compare(root, work, &program, &torch, &mut quiet))
        .collect::<anyhow::Result<Vec<Outcome>>>()?;
    let gate = format!(
        "Before and after every measurement of either side, a short computation in registers checks that both cores run at full speed: {} were repeated because another program was running, {} were kept nevertheless.",
        quiet.repeated, quiet.disturbed
    );
    let caveats: Vec<&str> = CAVEATS.iter().copied().chain([gate.as_str()]).collect();
    benchmarks::write(root, "cluster/training", &caveats, &outcomes)
}

fn compare(
    root: &Path,
    work: &Work,
    program: &Paceline,
    torch: &Path,
    quiet: &mut Quiet,
) -> anyhow::Result<Outcome> {
    let (whole, half) = (work.batch.to_string(), (work.batch / 2).to_string());
    let script = root.join("xtask/peers/ddp_torch.py");
    let ddp = |allocator: Allocator| {
        let mut command = Command::new(torch);
        command.arg(&script).args([work.model, &whole, work.turn.1]);
        allocator.set(&mut command);
        (command, "DDP")
    };
    let name = format!("{} training, global batch {whole}", work.model);
    let variants = Allocator::here().into_iter().map(ddp).collect();
    // Before our runs are there, whose paused processes hold memory.
    let best = contest::best_of(&name, vec![variants])?;
    let own = |name: &str, batch: &str, more: &[&str]| -> anyhow::Result<Side> {
        let mut run = start(root, work, program, name, batch, more)?;
        Ok(Side::own(name, move || run.measure()))
    };
    let mut sides = vec![
        own("Paceline, 2 processes", &whole, TWO)?,
        own("Paceline, 1 process", &whole, &[])?,
        own("Paceline, 1 process, half the batch", &half, &[])?,
    ];
    sides.extend(best);
    contest::run_when(&name, "images/s", work.rounds, sides, Some(quiet))
}

/// A run of ours, warm and paused.
pub fn start(
    root: &Path,
    work: &Work,
    program: &Paceline,
    name: &str,
    batch: &str,
    more: &[&str],
) -> anyhow::Result<PausedRun> {
    let data = if work.model == "lenet" {
        paceline::shared_data(root).join("mnist").to_string_lossy().into_owned()
    } else {
        String::from("generated:images?size=224&classes=1000&examples=192")
    };
    let mut args: Vec<String> = ["train", "--threads", "1", "--eval-every", "1000000000"]
        .into_iter()
        .chain(["--lr", "0.001", "--model", work.model, "--batch-size", batch, "--data", &data])
        .chain(["--steps", work.steps])
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect();
    if work.model == "alexnet" {
        args.extend(["--dropout", "0"].map(str::to_owned));
    }
    let folder = root.join("target/versus/runs").join(name.replace([' ', ','], "-"));
    let turn = Duration::from_secs_f64(work.turn.0);
    PausedRun::start(program, &args, &folder, work.warm, turn)
}
