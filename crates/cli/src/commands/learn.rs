//! `paceline train --model sparse-logistic`: learning from a stream of rows.
//!
//! The flags that only streams have, and the way from the command line to `paceline-stream`.

use super::{
    learn_tasks,
    node_load::conclude,
    prepare_rows::{self, share_of_rows},
    run_hints,
    staging::local_path,
    train,
    train_flags::Flags,
    train_show::{describe_legs, record_resources, status, time},
};
use crate::{
    failure::{Exit, FailureExt, usage},
    terminal::{Progress, Table, Terminal, Unit},
};
use anyhow::Context;
use paceline_data::{
    DataError,
    rows::{Hashing, Integers, expand},
};
use paceline_models::sparse_logistic;
use paceline_probes::Sampler;
use paceline_runs::{RunFolder, Status};
use paceline_strategies::Combine;
use paceline_stream::{
    Control, DataSpec, Metrics, Observer, Plan, Report, Spec, Start, StreamError, Window, learn,
};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, atomic::Ordering},
};

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

/// Learns from rows: a new run, or one that goes on.
pub(super) fn exec(
    args: &Flags,
    resumed: Option<RunFolder>,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    match resumed {
        Some(run) => resume(run, args, terminal),
        None => fresh(args, terminal),
    }
}

fn fresh(args: &Flags, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut spec = specification(args)?;
    learn_tasks::share_out(args, None, &mut spec)?;
    if args.lr.is_none() {
        spec.suit_features().map_err(explain)?;
    }
    let start = Start::New { out: args.out.clone() };
    if spec.tasks.is_some() {
        return learn_tasks::exec(args, spec, &start, terminal);
    }
    run(&spec, &start, terminal)
}

/// What was asked for, without the tasks.
pub(super) fn specification(args: &Flags) -> anyhow::Result<Spec> {
    let stream = &args.stream;
    let data = match (&stream.follow, &args.data) {
        (Some(path), _) => DataSpec::Follow(path.clone()),
        (None, list) => DataSpec::Read(list.clone().unwrap_or_default()),
    };
    let optimizer = args.optimizer.as_deref().unwrap_or(sparse_logistic::DEFAULTS.optimizer);
    let mut spec = Spec::new(data, optimizer).map_err(explain)?;
    spec.format.clone_from(&stream.format);
    spec.hashing = Hashing {
        bits: stream.bits.unwrap_or(spec.hashing.bits),
        integers: stream.integers.map_or(spec.hashing.integers, Integers::from),
        labelled: true,
    };
    if stream.integers.is_some() {
        have_integers(&spec.data, stream.format.as_deref())?;
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

/// Refuses `--integers` where the first lines of the data are recognised as rows without integers. What stands in no file
/// yet cannot be looked at.
fn have_integers(data: &DataSpec, format: Option<&str>) -> anyhow::Result<()> {
    let first = match data {
        _ if format.is_some() => None,
        DataSpec::Follow(path) => Some(path.clone()),
        DataSpec::Read(list) if list == "-" => None,
        DataSpec::Read(list) => expand(list).ok().and_then(|files| files.into_iter().next()),
    };
    prepare_rows::check_integers(first.as_deref(), format)
}

/// Goes on with a run of ours; only its end and its records may change.
fn resume(folder: RunFolder, args: &Flags, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let spec = resumed(&folder, args)?;
    let start = Start::Resume { run: folder };
    if spec.tasks.is_some() {
        return learn_tasks::exec(args, spec, &start, terminal);
    }
    run(&spec, &start, terminal)
}

/// What was asked for when a run began, with what may change since.
pub(super) fn resumed(run: &RunFolder, args: &Flags) -> anyhow::Result<Spec> {
    let mut spec: Spec = run.plan::<Plan>()?.spec;
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
    }
    apply(args, &mut spec);
    Ok(spec)
}

fn apply(args: &Flags, spec: &mut Spec) {
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

fn run(spec: &Spec, start: &Start, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let watcher = Watcher::new(terminal, true);
    let result = learn(spec, start, &Control { cancel: &cancel, observer: &watcher });
    let moved = watcher.moved();
    drop(watcher);
    if let (Err(StreamError::Finished { .. }), Start::Resume { run }) = (&result, start) {
        return show_finished(run, terminal);
    }
    let mut report = result.map_err(explain)?;
    let folder = match (moved, start) {
        (Some(folder), _) => folder,
        (None, Start::New { out }) => out.join(&report.summary.run),
        (None, Start::Resume { run }) => run.path().to_path_buf(),
    };
    conclude(&folder, &mut report.summary, terminal);
    show(&report, &folder, cancel.load(Ordering::Relaxed), terminal)
}

/// A run that has nothing left to do: says so, and shows its result as it was recorded.
pub(super) fn show_finished(run: &RunFolder, terminal: &Terminal) -> anyhow::Result<Exit> {
    let report = recorded(run)?;
    let folder = terminal.place(run.path());
    train::note_finished(&folder, terminal);
    terminal.data(describe(&report, &folder.display().to_string()))?;
    terminal.json(&report)?;
    Ok(Exit::Done)
}

/// The report that a run has left in its folder.
pub(super) fn recorded(run: &RunFolder) -> anyhow::Result<Report> {
    let path = run.path().join("summary.json");
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not a report", path.display()))
}

/// The result, and how to go on where somebody stopped it.
pub(super) fn show(
    report: &Report,
    folder: &Path,
    asked: bool,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let folder = terminal.place(folder);
    terminal.data(describe(report, &folder.display().to_string()))?;
    terminal.json(report)?;
    if report.summary.status == Status::Cancelled && asked {
        terminal.note(format!(
            "stopped after {} rows; go on with `paceline train --resume {}`",
            report.summary.examples,
            folder.display()
        ));
    }
    Ok(Exit::Done)
}

/// Shows a run on the terminal while it goes on.
pub(super) struct Watcher<'a> {
    terminal: &'a Terminal,
    bar: Mutex<Option<Progress>>,
    sampler: Mutex<Option<Sampler>>,
    /// Whether this process is the one that learns.
    records: bool,
    /// Where the run folder was moved to, if it was.
    moved: Mutex<Option<PathBuf>>,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(terminal: &'a Terminal, records: bool) -> Self {
        let (bar, sampler, moved) = Default::default();
        Self { terminal, bar, sampler, records, moved }
    }

    /// Where the run folder is, if it was moved.
    fn moved(&self) -> Option<PathBuf> {
        self.moved.lock().ok().and_then(|moved| moved.clone())
    }
}

impl Observer for Watcher<'_> {
    fn started(&self, plan: &Plan, run: &RunFolder, rows: u64) {
        let spec = &plan.spec;
        let going_on =
            if rows > 0 { format!(", going on after {rows} rows") } else { String::new() };
        let window = match spec.window {
            Window::None => String::new(),
            Window::Rows(rows) => format!(", learning when {rows} rows wait"),
            Window::Seconds(span) => format!(", learning every {span} s"),
        };
        let tasks = spec.tasks.as_ref().map_or_else(String::new, |tasks| {
            format!(
                ", {}: {} workers, {} servers, {} transfer",
                tasks.strategy, tasks.workers, tasks.servers, tasks.transfer
            )
        });
        let beta = spec.beta.map_or_else(String::new, |beta| format!(" and beta {beta}"));
        let combined = match (spec.batch_size, spec.combine) {
            (1, _) => "",
            (_, Combine::Sum) => " (gradients summed)",
            (_, Combine::Mean) => " (gradients averaged)",
        };
        self.terminal.note(format!(
            "{} on `{}`{tasks}: 2^{} weights{going_on}\n\
             {} at learning rate {}{beta}, {} row{} per update{combined}{window}; {} thread{}{}",
            spec.model,
            spec.data,
            spec.hashing.bits,
            spec.optimizer,
            spec.learning_rate,
            spec.batch_size,
            if spec.batch_size == 1 { "" } else { "s" },
            plan.threads,
            if plan.threads == 1 { "" } else { "s" },
            if spec.deterministic { ", deterministic" } else { "" },
        ));
        self.terminal.note(format!("records in `{}`", self.terminal.place(run.path()).display()));
        if let Ok(mut slot) = self.bar.lock() {
            *slot = Some(self.terminal.progress("learning", plan.bytes, Unit::Bytes));
        }
        if !self.records {
            return;
        }
        match (record_resources(&run.resources_path("worker/0"), |_| ()), self.sampler.lock()) {
            (Ok(sampler), Ok(mut slot)) => *slot = Some(sampler),
            (Err(error), _) => {
                self.terminal.warn(format!("no resources are recorded: {error:#}"));
            }
            (Ok(_), Err(_)) => {}
        }
    }

    fn progressed(&self, recent: &Metrics, _: u64, done: u64, rows_per_second: f64) {
        if self.terminal.watched()
            && let Ok(slot) = self.bar.lock()
            && let Some(bar) = slot.as_ref()
        {
            bar.set(done);
            bar.message(format!("· loss {:.4}, {rows_per_second:.0} rows/s", recent.loss));
        }
    }

    fn evaluated(&self, metrics: &Metrics, rows: u64) {
        self.terminal.note(format!("after {rows} rows: held-out {}", words(metrics)));
    }

    fn moved(&self, run: &RunFolder) {
        if let Ok(mut moved) = self.moved.lock() {
            *moved = Some(run.path().to_path_buf());
        }
    }

    fn warned(&self, text: &str) {
        self.terminal.warn(text);
    }
}

/// Metrics in a line.
pub fn words(metrics: &Metrics) -> String {
    format!(
        "log loss {:.4}, accuracy {:.2} %, AUC {:.4}, normalised entropy {:.4}",
        metrics.loss,
        100.0 * metrics.accuracy,
        metrics.auc,
        metrics.normalised_entropy
    )
}

fn describe(report: &Report, folder: &str) -> String {
    let summary = &report.summary;
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("run", folder.to_owned());
    row("status", status(summary));
    row(
        "time",
        format!(
            "{}, {} rows, {:.0} rows/s, {:.0} MB/s",
            time(summary),
            summary.examples,
            summary.examples_per_second,
            report.bytes_per_second / 1e6
        ),
    );
    describe_legs(summary, "rows", &mut row);
    // Of rows that a process learned from before it was killed, nothing may be known.
    if report.progressive.rows > 0 {
        row("progressive", words(&report.progressive));
    }
    if let Some(held_out) = &report.held_out {
        row("held out", words(held_out));
    }
    if let Some(reached) = &summary.reached {
        row("reached", format!("loss {} after {:.2} s", reached.loss, reached.seconds));
    }
    row("weights", format!("{} not zero", report.nonzero));
    if let Some(exchange) = &report.exchange {
        learn_tasks::describe(summary, exchange, &mut row);
    } else {
        row("delay", delay(report));
    }
    if report.rejected > 0 {
        row(
            "rejected",
            format!("{} malformed lines; a sample is in rejects.jsonl", report.rejected),
        );
    }
    row("verdict", summary.verdict.clone());
    for warning in &summary.warnings {
        row("warning", warning.clone());
    }
    table.to_string()
}

fn delay(report: &Report) -> String {
    let behind = report.most_behind.map_or_else(String::new, |bytes| {
        format!("; at most {:.1} MB behind the log", bytes as f64 / 1e6)
    });
    format!(
        "{:.3} s from arrival to learning on average, {:.3} s at most{behind}",
        report.delay[0], report.delay[1]
    )
}

/// Adds what the user could do about an error.
pub fn explain(error: StreamError) -> anyhow::Error {
    explain_in(error, None)
}

/// The same for an error of a run whose folder is known.
pub(super) fn explain_in(error: StreamError, run: Option<&RunFolder>) -> anyhow::Error {
    let hint = match &error {
        StreamError::Data(DataError::TooManyRejected { .. }) => {
            "name the format with --format, or allow more with --max-rejects 10%"
        }
        StreamError::Data(DataError::NoRows { .. }) => "name the format with --format",
        StreamError::OtherData { .. } => {
            "give --data the files that the run began on, or start a new run without --resume"
        }
        StreamError::NotFinite { .. } => "try a lower learning rate, such as a tenth of it",
        StreamError::OtherModel { .. } => {
            "rows of sparse features are scored by runs of `paceline train --model sparse-logistic`"
        }
        StreamError::Diverged { .. } => {
            "try a lower learning rate, such as a tenth of it, or leave --lr and --optimizer out"
        }
        StreamError::NoCheckpoint { .. } => {
            "name a run folder of `paceline train --model sparse-logistic`"
        }
        StreamError::Data(DataError::NoFilesFor { .. }) => {
            "cut the data into more files, or use fewer --workers"
        }
        StreamError::Session(failed) => {
            let (hint, exit) = run_hints::of_session(failed, run);
            return dress(error, &hint, exit.unwrap_or(Exit::Failed));
        }
        StreamError::Runs(runs) => match run_hints::of_records(runs) {
            Some((hint, exit)) => return dress(error, &hint, exit.unwrap_or(Exit::Failed)),
            None => return error.into(),
        },
        _ if error.is_peer() => {
            return dress(error, &run_hints::start_again(run), Exit::Retry);
        }
        _ => return error.into(),
    };
    dress(error, hint, Exit::Failed)
}

fn dress(error: StreamError, hint: &str, exit: Exit) -> anyhow::Error {
    let dressed: anyhow::Result<()> = Err(error).hint(hint);
    match if exit == Exit::Failed { dressed } else { dressed.exit(exit) } {
        Err(error) => error,
        Ok(()) => unreachable!("an error stays an error when it is dressed"),
    }
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
