//! `versus models`: training steps on random data, against TensorFlow and PyTorch at their best.
//!
//! One part for each model, because the trials that find a peer's best settings take minutes. `PACELINE_ISA=avx2 cargo xtask versus models` compares on
//! AVX2: every side is then held to it, and sections end in `/avx2`.

use super::allocators::Allocator;
use super::contest::{self, HELD_TO_AVX2, Outcome, Side};
use super::{TENSORFLOW, TORCH, benchmarks};
use crate::environment;
use std::path::Path;
use std::process::Command;

/// Threads of every side.
const THREADS: &str = "2";
/// The variable that holds our side to an instruction set.
const ISA: &str = "PACELINE_ISA";

const CAVEATS: &[&str] = &[
    "A step is forward, cross entropy, backward and plain SGD on one batch that stays in memory; dropout off on every side. Ours reads pixels as bytes, the peers as floats.",
    "Each peer's best was found in a trial just before, on the same work: TensorFlow with and without XLA, PyTorch in both memory layouts, eager and compiled; each with and without settings by which glibc keeps large blocks instead of giving them back to the kernel (`MALLOC_MMAP_MAX_=0` and two more), and with jemalloc or tcmalloc preloaded where they are installed.",
    "Our softmax runs on one thread at batch 100: a second one does not help at 30 microseconds per step.",
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
    /// Side of the images and width of the network, where they are not the usual ones.
    shape: Option<(usize, f32)>,
}

const fn work(model: &'static str, batch: usize, steps: usize, rounds: usize) -> Work {
    Work { model, batch, threads: THREADS, steps, warm_up: 2, rounds, shape: None }
}

const WORKS: &[Work] = &[
    Work { threads: "1", ..work("softmax", 100, 1_000, 7) },
    work("softmax", 1_000, 200, 7),
    work("lenet", 32, 150, 7),
    work("lenet", 128, 50, 7),
    work("lenet", 1_024, 8, 7),
    work("alexnet", 8, 3, 5),
    work("alexnet", 32, 1, 5),
    work("alexnet", 128, 1, 3),
    work("mobilenet-v2", 32, 1, 5),
    Work { shape: Some((96, 1.0)), ..work("mobilenet-v2", 64, 2, 5) },
    Work { shape: Some((160, 1.0)), ..work("mobilenet-v2", 16, 2, 5) },
    Work { shape: Some((224, 0.5)), ..work("mobilenet-v2", 32, 1, 5) },
];

pub fn softmax(root: &Path) -> anyhow::Result<()> {
    run(root, "softmax")
}

pub fn lenet(root: &Path) -> anyhow::Result<()> {
    run(root, "lenet")
}

pub fn alexnet(root: &Path) -> anyhow::Result<()> {
    run(root, "alexnet")
}

pub fn mobilenet_v2(root: &Path) -> anyhow::Result<()> {
    run(root, "mobilenet-v2")
}

/// Compares all works of a model and writes its section.
fn run(root: &Path, model: &str) -> anyhow::Result<()> {
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
        .filter(|work| work.model == model)
        .map(|work| compare(root, work, &tensorflow, &torch))
        .collect::<anyhow::Result<_>>()?;
    let held = std::env::var(ISA).is_ok_and(|isa| isa == "avx2");
    let section = format!("models/{model}{}", if held { "/avx2" } else { "" });
    benchmarks::write(root, &section, CAVEATS, &outcomes)
}

impl Work {
    fn name(&self) -> String {
        let shape = self.shape.map_or_else(String::new, |(side, width)| {
            let narrow = if width < 1.0 { format!(", width {width}") } else { String::new() };
            format!(", {side} px{narrow}")
        });
        format!("{} step, batch {}{shape}", self.model, self.batch)
    }

    /// Flags that both our program and the scripts of the peers understand.
    fn shape_flags(&self) -> Vec<String> {
        self.shape.map_or_else(Vec::new, |(side, width)| {
            ["--side", &side.to_string(), "--width", &width.to_string()].map(str::to_owned).to_vec()
        })
    }
}

/// One way to run a peer.
fn variant(
    root: &Path,
    work: &Work,
    (python, script): (&Path, &str),
    flags: &[&str],
    allocator: Allocator,
) -> Command {
    let mut command = Command::new(python);
    command
        .arg(root.join("xtask/peers").join(script))
        .args([work.model, "--batch", &work.batch.to_string()])
        .args(["--steps", &work.steps.to_string(), "--warm-up", &work.warm_up.to_string()])
        .args(["--threads", THREADS])
        .args(flags)
        .args(work.shape_flags());
    allocator.set(&mut command);
    if std::env::var(ISA).is_ok_and(|isa| isa == "avx2") {
        command.envs(HELD_TO_AVX2);
    }
    command
}

fn compare(root: &Path, work: &Work, tensorflow: &Path, torch: &Path) -> anyhow::Result<Outcome> {
    let own = Side::peer(
        Command::new(root.join("target/release/examples/step_speed"))
            .args([work.model, &work.batch.to_string(), work.threads])
            .args(work.shape_flags())
            .args(["--serve", &work.steps.to_string()]),
    )?;
    let all = |peer: (&Path, &str), flags: &[&str], what: &'static str| -> Vec<_> {
        let one = |allocator| (variant(root, work, peer, flags, allocator), what);
        Allocator::here().into_iter().map(one).collect()
    };
    let (tensorflow, torch) = ((tensorflow, "models_tf.py"), (torch, "models_torch.py"));
    let of_tensorflow = [all(tensorflow, &[], "TensorFlow"), all(tensorflow, &["--xla"], "XLA")];
    let mut of_torch =
        vec![all(torch, &[], "PyTorch"), all(torch, &["--compile"], "torch.compile")];
    if work.model != "softmax" {
        of_torch.push(all(torch, &["--channels-last"], "PyTorch"));
        of_torch.push(all(torch, &["--compile", "--channels-last"], "torch.compile"));
    }
    let tools = vec![
        of_tensorflow.into_iter().flatten().collect(),
        of_torch.into_iter().flatten().collect(),
    ];
    let mut sides = vec![own];
    sides.extend(contest::best_of(&work.name(), tools)?);
    contest::run(&work.name(), "images/s", work.rounds, sides)
}
