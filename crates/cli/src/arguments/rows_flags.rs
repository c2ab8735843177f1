//! `paceline train --model sparse-logistic`: the flags that only streams of rows have, and the specification they make.

use super::{limits::share_of_rows, paths::local_path, train_flags::Flags};
use crate::terminal::failure::{rows::explain, usage};
use paceline_data::rows::{Hashing, Integers, formats};
use paceline_models::sparse_logistic;
use paceline_runs::RunFolder;
use paceline_training::rows::{DataSpec, RowsPlan, RowsSpec, Window};
use std::path::{Path, PathBuf};

/// Flags of `paceline train` for rows of sparse features.
#[derive(Debug, Clone, clap::Args)]
pub struct StreamArgs {
    /// Learn from a growing log instead of --data, through rotations
    #[arg(long, value_name = "FILE", conflicts_with = "data", help_heading = HEADING, value_parser = local_path())]
    pub(super) follow: Option<PathBuf>,
    /// Held-out rows, scored while training goes on
    #[arg(long, value_name = "FILES", help_heading = HEADING)]
    pub(super) test: Option<String>,
    /// Format of the rows: clicks, vw or libsvm [default: recognised]
    #[arg(long, help_heading = HEADING)]
    pub(super) format: Option<String>,
    /// Hash features into 2^BITS weights [default: 25]
    #[arg(long, help_heading = HEADING)]
    bits: Option<u32>,
    /// What becomes of integers in click logs
    #[arg(long, value_enum, help_heading = HEADING)]
    integers: Option<IntegersArg>,
    /// L1 penalty, for ftrl; --weight-decay is the L2 penalty
    #[arg(long, help_heading = HEADING)]
    l1: Option<f32>,
    /// Learn when so many rows wait (5000), or at the end of every span (10s, 500ms, 2m) [default: at once]
    #[arg(long, value_name = "ROWS|TIME", help_heading = HEADING)]
    pub(super) window: Option<String>,
    /// Learn on one thread at a time: the same weights on every run, to the bit
    #[arg(long, help_heading = HEADING)]
    deterministic: bool,
}

const HEADING: &str = "Rows of sparse features (--model sparse-logistic)";

/// What becomes of integers in click logs.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum IntegersArg {
    /// A category for each number of binary digits
    Bins,
    /// Their logarithm as a value
    Values,
}

impl From<IntegersArg> for Integers {
    fn from(given: IntegersArg) -> Self {
        match given {
            IntegersArg::Bins => Self::Bins,
            IntegersArg::Values => Self::Values,
        }
    }
}

/// What was asked for, without the tasks.
pub(crate) fn specification(args: &Flags) -> anyhow::Result<RowsSpec> {
    let stream = &args.stream;
    let data = match (&stream.follow, &args.data) {
        (Some(path), _) => DataSpec::Follow(path.clone()),
        (None, list) => DataSpec::Read(list.clone().unwrap_or_default()),
    };
    let optimizer = args.optimizer.as_deref().unwrap_or(sparse_logistic::DEFAULTS.optimizer);
    let mut spec = RowsSpec::new(data, optimizer).map_err(explain)?;
    spec.format.clone_from(&stream.format);
    spec.hashing = Hashing {
        bits: stream.bits.unwrap_or(spec.hashing.bits),
        integers: stream.integers.map_or(spec.hashing.integers, Integers::from),
        labelled: true,
    };
    if stream.integers.is_some() {
        check_integers(spec.data.first_file().as_deref(), stream.format.as_deref())?;
    }
    let asked = (stream.bits.is_some() || stream.integers.is_some()).then_some(spec.hashing);
    spec.adopt_prepared().map_err(explain)?;
    if let Some(asked) = asked.filter(|asked| *asked != spec.hashing) {
        return Err(usage(
            format!("the rows were prepared with --bits {}, not {}", spec.hashing.bits, asked.bits),
            "leave --bits and --integers out: prepared rows are hashed already",
        ));
    }
    spec.learning_rate = args.lr.unwrap_or(spec.learning_rate);
    spec.l1 = stream.l1.unwrap_or(spec.l1);
    spec.l2 = args.weight_decay.unwrap_or(spec.l2);
    spec.loss = args.loss;
    spec.init = args.init.as_ref().map(|init| init.display().to_string());
    spec.batch_size = args.batch_size.unwrap_or(spec.batch_size);
    spec.combine = args.combine.unwrap_or(spec.combine);
    spec.epochs = epochs(args.epochs)?;
    spec.window = stream.window.as_deref().map_or(Ok(Window::None), window)?;
    spec.test.clone_from(&stream.test);
    spec.until_loss = args.until_loss;
    spec.deterministic = stream.deterministic;
    if let Some(limit) = args.max_rejects {
        spec.max_rejects = share_of_rows(limit)?;
    }
    apply(args, &mut spec);
    Ok(spec)
}

/// Refuses `--integers` for rows that have none: the format says so or, where it is not given, the first lines of the first file.
pub(crate) fn check_integers(first: Option<&Path>, format: Option<&str>) -> anyhow::Result<()> {
    let clicks = formats::clicks::ENTRY.name;
    let recognised = || first.and_then(formats::format_of).map(|format| format.name);
    match format.or_else(recognised) {
        Some(other) if other != clicks => Err(usage(
            format!("`--integers` has no effect on rows in format `{other}`"),
            format!("leave it out: only click logs (`--format {clicks}`) have integers"),
        )),
        _ => Ok(()),
    }
}

/// What was asked for when a run began, with what may change since.
pub(crate) fn resumed(run: &RunFolder, args: &Flags) -> anyhow::Result<RowsSpec> {
    let mut spec: RowsSpec = run.plan::<RowsSpec, RowsPlan>()?.spec;
    if let Some(list) = &args.data {
        spec.data = DataSpec::Read(list.clone());
    }
    if args.epochs.is_some() {
        spec.epochs = epochs(args.epochs)?;
    }
    spec.until_loss = args.until_loss.or(spec.until_loss);
    if let Some(limit) = args.max_rejects {
        spec.max_rejects = share_of_rows(limit)?;
    }
    if let Some(tasks) = &mut spec.tasks {
        tasks.steps = args.steps.or(tasks.steps);
        tasks.on_loss = args.on_loss.unwrap_or(tasks.on_loss);
        tasks.evaluator |= args.evaluator;
    }
    apply(args, &mut spec);
    Ok(spec)
}

fn apply(args: &Flags, spec: &mut RowsSpec) {
    spec.eval_every = args.eval_every.or(spec.eval_every);
    spec.checkpoint_every = args.checkpoint_every.or(spec.checkpoint_every);
    spec.keep = args.keep.unwrap_or(spec.keep);
    spec.threads = args.threads.or(spec.threads);
    spec.tensorboard &= !args.no_tensorboard;
}

fn epochs(given: Option<f64>) -> anyhow::Result<u64> {
    match given {
        None => Ok(1),
        Some(epochs) if epochs >= 1.0 && epochs.fract() == 0.0 => Ok(epochs as u64),
        Some(epochs) => Err(usage(
            format!("--epochs {epochs} is not a whole number of passes"),
            "rows are read from end to end; use 1 or more",
        )),
    }
}

/// `5000` is a number of rows; `10s`, `500ms` and `2m` are spans of time.
fn window(text: &str) -> anyhow::Result<Window> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" => return rows_window(text),
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(no_window(text)),
    };
    let seconds: f64 = number.parse().map_err(|_| no_window(text))?;
    Ok(Window::Seconds(seconds * factor))
}

fn rows_window(text: &str) -> anyhow::Result<Window> {
    text.parse().map(Window::Rows).map_err(|_| no_window(text))
}

fn no_window(text: &str) -> anyhow::Error {
    usage(
        format!("--window {text} is neither a number of rows nor a time"),
        "use rows such as 5000, or a time such as 10s",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_rows_or_spans_of_time() {
        assert_eq!(window("5000").unwrap(), Window::Rows(5000));
        assert_eq!(window("10s").unwrap(), Window::Seconds(10.0));
        assert_eq!(window("500ms").unwrap(), Window::Seconds(0.5));
        assert_eq!(window("2m").unwrap(), Window::Seconds(120.0));
        for text in ["", "s", "10x", "-5", "1.5"] {
            assert!(window(text).is_err(), "{text}");
        }
    }
}
