//! `paceline compare`: is B faster than A, by how much, how surely?

mod prove;
mod words;

use super::sweep::foreign;
use crate::arguments::units::{Span, span};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Progress, Terminal, Unit};
use anyhow::Context;
use paceline_stats::sequential::SpeedRatio;
use paceline_sweep::{MeasuredBy, PairedComparison, Side, SweepError};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use words::Outcome;

/// Arguments of `paceline compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  paceline compare -- python train.py -- python train.py --channels-last
  paceline compare --prove runs/20261118-train-foreign-ab12
  paceline compare --until decided --fail-if slower -- ./old-build -- ./new-build
  paceline compare -- train --model lenet --data digits --epochs 1 --threads 1 \\
    -- train --model lenet --data digits --epochs 1

Both commands run in turns, in random order within each pair, after a pair that is not counted. What is compared is the rate \
(examples/s) if each call leaves one run folder: commands of paceline do, programs if they write one to PACELINE_RUN_FOLDER, as \
paceline.Run in Python does, or below `{out}`. Otherwise it is the time from start to end. A first word that is a command of \
paceline means that; `./train` is a program.

The interval holds at every look at once, so the comparison may stop when it is narrow enough, and Ctrl-C ends it with what is known: \
a command compared with itself is called different in at most 5 of 100 comparisons, whatever the noise. Exit code 0 says that the \
comparison was made, whatever came out; with --fail-if the answer decides. 1 is also that of a comparison whose command failed.")]
pub struct Args {
    /// When to stop: a precision of the ratio such as 2%, or `decided` as soon as one is surely faster [default: 2%]
    #[arg(long, value_name = "PRECISION", value_parser = until, conflicts_with = "pairs")]
    until: Option<Until>,
    /// Most time for the whole comparison [default: 5m, without an end if --pairs is given]
    #[arg(long, value_name = "TIME", value_parser = span)]
    budget: Option<Span>,
    /// Run so many pairs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pairs: Option<u32>,
    /// Pairs that are run first and not counted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    warm_up: u32,
    /// What is compared [default: the rate if both commands record one, else the time]
    #[arg(long, value_enum)]
    measure: Option<MeasureKind>,
    /// Exit with 1 if B is surely slower, or unless it is surely faster
    #[arg(long, value_enum, value_name = "ANSWER")]
    fail_if: Option<FailIf>,
    /// Most time for one call of a command
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Span>,
    /// Decides the order within the pairs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure the gain that the verdict on a run of `paceline run` speaks of: the script again, in turns with and without what limits it
    #[arg(long, value_name = "RUN", conflicts_with_all = ["commands", "measure"])]
    prove: Option<PathBuf>,
    /// Steps of each repetition
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with = "commands", value_parser = clap::value_parser!(u32).range(10..))]
    steps: u32,
    /// Command A, `--`, command B
    #[arg(last = true, required_unless_present = "prove", value_name = "A -- B")]
    commands: Vec<String>,
}

/// When a comparison is precise enough.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Until {
    /// One is surely faster.
    Decided,
    /// The interval reaches no further from the estimate than this share.
    Precision(f64),
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum MeasureKind {
    /// Examples per second of the run folder that each call leaves
    Rate,
    /// Seconds from start to end
    Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailIf {
    /// B is surely slower than A
    Slower,
    /// B is not surely faster than A
    NotFaster,
}

const DEFAULT_PRECISION: f64 = 0.02;
const DEFAULT_BUDGET: Duration = Duration::from_secs(300);

fn until(text: &str) -> Result<Until, String> {
    if text == "decided" {
        return Ok(Until::Decided);
    }
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(Until::Precision(percent / 100.0)),
        _ => Err("expected a precision such as 2%, or `decided`".to_owned()),
    }
}

/// Runs both commands in turns, and says what came out.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let claim = args.prove.as_deref().map(|run| prove::claim(run, args.steps)).transpose()?;
    let sides = match &claim {
        Some(claim) => claim.sides.clone(),
        None => args.sides()?,
    };
    let cancel = terminal.interrupt()?;
    let mut comparison = PairedComparison::new(
        sides.clone(),
        args.measured_by(),
        args.timeout.map(Span::duration),
        args.seed,
        &cancel,
    )
    .map_err(explain)?;
    let begin = Instant::now();
    // A command that fails half an hour into the comparison does not take away what was measured.
    let (stopped, failure) = match measure(args, &mut comparison, begin, terminal) {
        Ok(stopped) => (stopped, None),
        Err(error) if comparison.results().is_empty() => return Err(error),
        Err(error) => (Stopped::Failure, Some(error)),
    };
    let outcome = Outcome::new(&comparison, stopped, begin.elapsed());
    outcome.tell(&sides, terminal)?;
    if let Some(claim) = &claim {
        prove::tell(claim, comparison.ratio().as_ref(), terminal)?;
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let proof = claim.map(|claim| prove::document(&claim, comparison.ratio().as_ref()));
    outcome.json(&sides, args.warm_up, proof.as_ref(), terminal)?;
    Ok(args.exit(&outcome, terminal))
}

/// Why no further pair was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Stopped {
    Decided,
    Precision,
    Pairs,
    Budget,
    Interrupted,
    Failure,
}

fn measure(
    args: &Args,
    comparison: &mut PairedComparison<'_>,
    begin: Instant,
    terminal: &Terminal,
) -> anyhow::Result<Stopped> {
    let total = args.pairs.map(u64::from);
    let bar = terminal.progress("compare", total, Unit::Items("pairs"));
    for _ in 0..args.warm_up {
        bar.message("· warm-up");
        if !comparison.warm_up().map_err(explain)? {
            return Ok(Stopped::Interrupted);
        }
        if args.is_over(begin) {
            return Ok(Stopped::Budget);
        }
    }
    loop {
        if comparison.run_pair().map_err(explain)?.is_none() {
            return Ok(Stopped::Interrupted);
        }
        let pairs = comparison.results().len() as u64;
        bar.set(pairs);
        if total.is_some_and(|total| pairs >= total) {
            return Ok(Stopped::Pairs);
        }
        if let Some(stopped) = args.look(comparison, &bar) {
            return Ok(stopped);
        }
        if args.is_over(begin) {
            return Ok(Stopped::Budget);
        }
    }
}

impl Args {
    /// Whether the answer is precise enough. The interval of many pairs is not computed after each of them.
    fn look(&self, comparison: &PairedComparison<'_>, bar: &Progress) -> Option<Stopped> {
        if self.until == Some(Until::Decided) && comparison.differ() {
            return Some(Stopped::Decided);
        }
        let pairs = comparison.results().len();
        if pairs % (pairs / 25).max(1) != 0 {
            return None;
        }
        let ratio: SpeedRatio = comparison.ratio()?;
        bar.message(format!("· {}", words::short(&ratio)));
        let wanted = match self.until {
            Some(Until::Precision(share)) => share,
            None if self.pairs.is_none() => DEFAULT_PRECISION,
            _ => return None,
        };
        (ratio.precision() <= wanted).then_some(Stopped::Precision)
    }

    /// What is compared, where that is not left to what the commands record.
    fn measured_by(&self) -> Option<MeasuredBy> {
        let kind = self.measure.or(self.prove.is_some().then_some(MeasureKind::Rate));
        kind.map(|kind| match kind {
            MeasureKind::Rate => MeasuredBy::Rate,
            MeasureKind::Time => MeasuredBy::Time,
        })
    }

    fn is_over(&self, begin: Instant) -> bool {
        let given = self.budget.map(Span::duration);
        let budget = given.or(self.pairs.is_none().then_some(DEFAULT_BUDGET));
        budget.is_some_and(|budget| begin.elapsed() >= budget)
    }

    fn sides(&self) -> anyhow::Result<[Side; 2]> {
        let parts: Vec<&[String]> = self.commands.split(|word| word == "--").collect();
        match parts.as_slice() {
            [a, b] if !a.is_empty() && !b.is_empty() => Ok([side("A", a)?, side("B", b)?]),
            [_] | [_, _] => Err(usage(
                "two commands are needed",
                "write `paceline compare -- COMMAND A -- COMMAND B`",
            )),
            more => Err(usage(
                format!("{} commands were given instead of two", more.len()),
                "a command that has `--` in itself is written as `sh -c '…'`",
            )),
        }
    }

    fn exit(&self, outcome: &Outcome, terminal: &Terminal) -> Exit {
        if outcome.stopped == Stopped::Interrupted {
            return terminal.signalled().unwrap_or(Exit::Interrupted);
        }
        let fails = match self.fail_if {
            None => false,
            Some(FailIf::Slower) => outcome.answer == words::Answer::Slower,
            Some(FailIf::NotFaster) => outcome.answer != words::Answer::Faster,
        };
        if fails { Exit::Failed } else { Exit::Done }
    }
}

fn side(name: &'static str, words: &[String]) -> anyhow::Result<Side> {
    let mut arguments = words[1..].to_vec();
    let typed = words.join(" ");
    match foreign::program(&words[0])? {
        Some(program) => {
            let environment = Vec::new();
            let program = PathBuf::from(program);
            Ok(Side { name, program, arguments, own: false, typed, environment })
        }
        None => {
            arguments.insert(0, words[0].clone());
            // What it leaves is measured and removed.
            if words[0] == "train" && !arguments.iter().any(|word| word.starts_with("--out")) {
                arguments.extend(["--out".to_owned(), "{out}".to_owned()]);
            }
            let program = std::env::current_exe().context("cannot find the program itself")?;
            let (typed, environment) = (format!("paceline {typed}"), Vec::new());
            Ok(Side { name, program, arguments, own: true, typed, environment })
        }
    }
}

fn explain(error: SweepError) -> anyhow::Error {
    let hint = match &error {
        SweepError::Side { .. } => Some("run it by itself first; it must end with exit code 0"),
        SweepError::NoRate { .. } => Some(
            "each call must leave one run with examples in PACELINE_RUN_FOLDER or below `{out}`; --measure time compares times",
        ),
        _ => None,
    };
    let result: Result<(), SweepError> = Err(error);
    match hint {
        Some(hint) => result.hint(hint),
        None => result.exit(Exit::Failed),
    }
    .expect_err("it was an error")
}
