//! Measuring several sides in turns.

use super::quiet::Quiet;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// One side of a comparison. A measurement is a rate: more is better.
pub enum Side {
    /// A process that measures once for every line it is sent (see `xtask/peers/contest.py`).
    Peer(Peer),
    /// Something this process starts and times itself.
    Own { name: String, measure: Box<dyn FnMut() -> anyhow::Result<f64>> },
}

/// A peer's process, warmed up and waiting.
pub struct Peer {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Line {
    ready: Option<String>,
    value: Option<f64>,
}

impl Side {
    /// Our own side.
    pub fn own(
        name: impl Into<String>,
        measure: impl FnMut() -> anyhow::Result<f64> + 'static,
    ) -> Self {
        Self::Own { name: name.into(), measure: Box::new(measure) }
    }

    /// Starts a peer and waits until it has warmed up.
    pub fn peer(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let input = child.stdin.take().context("the peer's standard input was piped")?;
        let output = BufReader::new(child.stdout.take().context("its output was piped")?);
        let mut peer = Peer { name: String::new(), child, input, output };
        peer.name =
            peer.line().with_context(|| format!("{command:?}"))?.ready.context("no ready line")?;
        Ok(Self::Peer(peer))
    }

    /// What to call it in a table.
    pub fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => &peer.name,
            Self::Own { name, .. } => name,
        }
    }

    fn measure(&mut self) -> anyhow::Result<f64> {
        match self {
            Self::Own { measure, .. } => measure(),
            Self::Peer(peer) => {
                peer.input.write_all(b"go\n")?;
                peer.input.flush()?;
                peer.line()?.value.with_context(|| format!("{} sent no value", peer.name))
            }
        }
    }
}

impl Peer {
    fn line(&mut self) -> anyhow::Result<Line> {
        let mut text = String::new();
        if self.output.read_line(&mut text)? == 0 {
            bail!("the peer ended without an answer; run it by hand to see why");
        }
        serde_json::from_str(&text).with_context(|| format!("not a line of the protocol: {text}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a comparison.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub work: String,
    pub unit: &'static str,
    /// Name and rates of each side, our own first.
    pub sides: Vec<(String, Vec<f64>)>,
}

/// Pause before each measurement: threads of OpenMP and OpenBLAS spin for a few hundred milliseconds
/// after their last product, on cores that the next side is to have for itself.
const SETTLE: Duration = Duration::from_millis(700);

/// Measures all sides `rounds` times, rotating which goes first. The first side is ours.
pub fn run(
    work: &str,
    unit: &'static str,
    rounds: usize,
    sides: Vec<Side>,
) -> anyhow::Result<Outcome> {
    run_when(work, unit, rounds, sides, None)
}

/// The same; if a [`Quiet`] is given, only while the machine is otherwise idle.
pub fn run_when(
    work: &str,
    unit: &'static str,
    rounds: usize,
    mut sides: Vec<Side>,
    mut quiet: Option<&mut Quiet>,
) -> anyhow::Result<Outcome> {
    let count = sides.len();
    let mut rates = vec![Vec::with_capacity(rounds); count];
    for round in 0..rounds {
        for turn in 0..count {
            let side = (round + turn) % count;
            std::thread::sleep(SETTLE);
            let rate = match &mut quiet {
                Some(quiet) => quiet.measure(|| sides[side].measure()),
                None => sides[side].measure(),
            };
            let rate = rate.with_context(|| format!("{work}: {} failed", sides[side].name()))?;
            eprintln!("{work}, round {}: {} {rate:.4} {unit}", round + 1, sides[side].name());
            rates[side].push(rate);
        }
    }
    let sides = sides.iter().map(|side| side.name().to_owned()).zip(rates).collect();
    Ok(Outcome { work: work.to_owned(), unit, sides })
}

/// Rounds of a trial: enough to tell apart settings that differ by more than the machine drifts.
const TRIAL: usize = 3;

/// Each tool at its best: measures all variants of each in turns, and keeps the fastest, whose name says of how many it is.
/// A variant that does not start on this machine is left out, and said so.
pub fn best_of(work: &str, tools: Vec<Vec<(Command, &'static str)>>) -> anyhow::Result<Vec<Side>> {
    let mut best = Vec::new();
    for variants in tools {
        let count = variants.len();
        let mut sides: Vec<(Side, Vec<f64>)> = Vec::new();
        for (mut command, what) in variants {
            match Side::peer(&mut command) {
                Ok(side) => sides.push((side, Vec::new())),
                Err(error) => eprintln!("{work}: no {what} here: {error:#}"),
            }
        }
        for round in 0..TRIAL {
            for turn in 0..sides.len() {
                let at = (round + turn) % sides.len();
                std::thread::sleep(SETTLE);
                let (side, rates) = &mut sides[at];
                rates.push(side.measure()?);
                eprintln!("{work}, trial {}: {} {:.4}", round + 1, side.name(), rates[round]);
            }
        }
        let found = sides.into_iter().max_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
        let (mut side, _) = found.with_context(|| format!("{work}: no variant of a peer runs"))?;
        if let (Side::Peer(peer), true) = (&mut side, count > 1) {
            peer.name = format!("{} (best of {count})", peer.name);
        }
        best.push(side);
    }
    Ok(best)
}

/// What holds the libraries of peers to AVX2: oneDNN, MKL, PyTorch's own kernels, OpenBLAS, XLA.
pub const HELD_TO_AVX2: [(&str, &str); 5] = [
    ("ONEDNN_MAX_CPU_ISA", "AVX2"),
    ("MKL_ENABLE_INSTRUCTIONS", "AVX2"),
    ("ATEN_CPU_CAPABILITY", "avx2"),
    ("OPENBLAS_CORETYPE", "Haswell"),
    ("XLA_FLAGS", "--xla_cpu_max_isa=AVX2"),
];

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

impl Outcome {
    /// Ratio of our rate to side `index` in each round: drift hits both alike.
    pub fn ratios(&self, index: usize) -> Vec<f64> {
        self.sides[0].1.iter().zip(&self.sides[index].1).map(|(own, peer)| own / peer).collect()
    }
}
