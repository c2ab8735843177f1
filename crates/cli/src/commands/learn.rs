//! `paceline train --model sparse-logistic`: learning from a stream of rows.
//!
//! The flags that only streams have, and the way from the command line to `paceline-stream`.

use super::{
    learn_tasks,
    node_load::conclude,
    staging::local_path,
    train_flags::{Flags, find_run},
    train_show::record_resources,
};
use crate::{
    failure::{Exit, FailureExt, usage},
    terminal::{Progress, Table, Terminal, Unit},
};
use paceline_data::{
    DataError,
    rows::{Hashing, Integers},
};
use paceline_models::sparse_logistic;
use paceline_probes::Sampler;
use paceline_runs::{RunFolder, Status};
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
    follow: Option<PathBuf>,
    /// Held-out rows, scored while training goes on
    #[arg(long, value_name = "FILES", help_heading = HEADING)]
    test: Option<String>,
    /// Format of the rows: clicks, vw or libsvm [default: recognised]
    #[arg(long, help_heading = HEADING)]
    format: Option<String>,
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
    window: Option<String>,
    /// Learn on one thread at a time: the same weights on every run, to the bit
    #[arg(long, help_heading = HEADING)]
    deterministic: bool,
    /// Stop when more than this share of the lines are no rows [default: 0.01]
    #[arg(long, value_name = "SHARE", help_heading = HEADING)]
    max_rejects: Option<f64>,
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

impl StreamArgs {
    /// The first flag given that other models do not know.
    fn given(&self) -> Option<&'static str> {
        [
            (self.follow.is_some(), "--follow"),
            (self.test.is_some(), "--test"),
            (self.format.is_some(), "--format"),
            (self.bits.is_some(), "--bits"),
            (self.integers.is_some(), "--integers"),
            (self.l1.is_some(), "--l1"),
            (self.window.is_some(), "--window"),
            (self.deterministic, "--deterministic"),
            (self.max_rejects.is_some(), "--max-rejects"),
        ]
        .into_iter()
        .find_map(|(given, flag)| given.then_some(flag))
    }
}

/// Flags of other models that mean nothing here.
fn unused(args: &Flags) -> Option<&'static str> {
    [
        (args.init.is_some(), "--init"),
        (args.width.is_some(), "--width"),
        (args.dropout.is_some(), "--dropout"),
        (args.lrn, "--lrn"),
        (args.momentum.is_some(), "--momentum"),
        (args.schedule.is_some(), "--schedule"),
        (args.grow_batch, "--grow-batch"),
        (args.seed.is_some(), "--seed"),
        (args.replicas.is_some(), "--replicas"),
        (args.evaluator, "--evaluator"),
        (args.combine.is_some(), "--combine"),
        (args.backup_workers.is_some(), "--backup-workers"),
        (args.max_staleness.is_some(), "--max-staleness"),
        (args.split_dense.is_some(), "--split-dense"),
    ]
    .into_iter()
    .find_map(|(given, flag)| given.then_some(flag))
}

/// Takes over where the model, or the run to go on with, is one of streams.
pub(super) fn dispatch(args: &Flags, terminal: &mut Terminal) -> anyhow::Result<Option<Exit>> {
    if let Some(name) = &args.resume {
        // What is wrong with the flags comes before what is wrong with the run.
        let Ok(run) = find_run(&args.out, name) else { return Ok(None) };
        return if is_stream_run(&run) { resume(run, args, terminal).map(Some) } else { Ok(None) };
    }
    if args.model.as_deref().is_some_and(is_stream_model) {
        return fresh(args, terminal).map(Some);
    }
    match args.stream.given() {
        Some(flag) => Err(usage(
            format!("{flag} is for rows of sparse features"),
            format!("it goes with `--model {}`", sparse_logistic::NAME),
        )),
        None => Ok(None),
    }
}

/// Whether the model, or the run to go on with, is one of streams.
pub(super) fn concerns(args: &Flags) -> bool {
    match &args.resume {
        Some(name) => find_run(&args.out, name).is_ok_and(|run| is_stream_run(&run)),
        None => args.model.as_deref().is_some_and(is_stream_model),
    }
}

/// Whether a model's name means the one that learns from streams.
pub(super) fn is_stream_model(name: &str) -> bool {
    name.replace('_', "-") == sparse_logistic::NAME
}

/// Whether a run was made here.
pub(super) fn is_stream_run(run: &RunFolder) -> bool {
    run.plan::<serde_json::Value>()
        .is_ok_and(|plan| plan.get("kind").and_then(|kind| kind.as_str()) == Some(Plan::KIND))
}

fn fresh(args: &Flags, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut spec = specification(args)?;
    learn_tasks::share_out(args, None, &mut spec)?;
    let start = Start::New { out: args.out.clone() };
    if spec.tasks.is_some() {
        return learn_tasks::exec(args, spec, &start, terminal);
    }
    run(&spec, &start, terminal)
}

/// What was asked for, without the tasks.
pub(super) fn specification(args: &Flags) -> anyhow::Result<Spec> {
    if let Some(flag) = unused(args) {
        return Err(usage(
            format!("{flag} means nothing for --model {}", sparse_logistic::NAME),
            "`paceline train --help` lists its flags under their own heading",
        ));
    }
    let stream = &args.stream;
    let data = match (&stream.follow, &args.data) {
        (Some(path), _) => DataSpec::Follow(path.clone()),
        (None, list) => DataSpec::Read(list.clone().unwrap_or_default()),
    };
    let optimizer = args.optimizer.as_deref().unwrap_or("adagrad");
    let mut spec = Spec::new(data, optimizer).map_err(explain)?;
    spec.format.clone_from(&stream.format);
    spec.hashing = Hashing {
        bits: stream.bits.unwrap_or(spec.hashing.bits),
        integers: stream.integers.map_or(spec.hashing.integers, Integers::from),
        labelled: true,
    };
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
    spec.epochs = epochs(args.epochs)?;
    spec.window = stream.window.as_deref().map_or(Ok(Window::None), window)?;
    spec.test.clone_from(&stream.test);
    spec.until_loss = args.until_loss;
    spec.deterministic = stream.deterministic;
    spec.max_rejects = stream.max_rejects.unwrap_or(spec.max_rejects);
    apply(args, &mut spec);
    Ok(spec)
}

/// Goes on with a run of ours; only its end and its records may change.
fn resume(folder: RunFolder, args: &Flags, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut spec: Spec = folder.plan::<Plan>()?.spec;
    if let Some(list) = &args.data {
        spec.data = DataSpec::Read(list.clone());
    }
    if args.epochs.is_some() {
        spec.epochs = epochs(args.epochs)?;
    }
    spec.until_loss = args.until_loss.or(spec.until_loss);
    apply(args, &mut spec);
    let start = Start::Resume { run: folder };
    if let Some(tasks) = &mut spec.tasks {
        tasks.steps = args.steps.or(tasks.steps);
        return learn_tasks::exec(args, spec, &start, terminal);
    }
    run(&spec, &start, terminal)
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
            format!("--epochs {epochs} is no whole number of passes"),
            "a stream is read from end to end; use 1 or more",
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
    usage(format!("--window {text} is no window"), "use rows such as 5000, or a time such as 10s")
}

fn run(spec: &Spec, start: &Start, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let watcher = Watcher::new(terminal, true);
    let result = learn(spec, start, &Control { cancel: &cancel, observer: &watcher });
    drop(watcher);
    let mut report = result.map_err(explain)?;
    let folder = match start {
        Start::New { out } => out.join(&report.summary.run),
        Start::Resume { run } => run.path().to_path_buf(),
    };
    conclude(&folder, &mut report.summary, terminal);
    show(&report, &folder, cancel.load(Ordering::Relaxed), terminal)
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
}

impl<'a> Watcher<'a> {
    pub(super) fn new(terminal: &'a Terminal, records: bool) -> Self {
        Self { terminal, bar: Mutex::new(None), sampler: Mutex::new(None), records }
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
        self.terminal.note(format!(
            "{} on `{}`{tasks}: 2^{} weights{going_on}\n\
             {} at learning rate {}, {} row{} per update{window}; {} thread{}{}",
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
    row("status", summary.status.to_string());
    row(
        "time",
        format!(
            "{:.2} s, {} rows, {:.0} rows/s, {:.0} MB/s",
            summary.seconds,
            summary.examples,
            summary.examples_per_second,
            report.bytes_per_second / 1e6
        ),
    );
    row("progressive", words(&report.progressive));
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
            format!("{} lines that are no rows; a sample is in rejects.jsonl", report.rejected),
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
    let hint = match &error {
        StreamError::Data(DataError::TooManyRejected { .. }) => {
            "name the format with --format, or allow more with --max-rejects 0.1"
        }
        StreamError::Data(DataError::NoRows { .. }) => "name the format with --format",
        StreamError::NotFinite { .. } => "try a lower learning rate, such as a tenth of it",
        StreamError::NoCheckpoint { .. } => {
            "name a run folder of `paceline train --model sparse-logistic`"
        }
        StreamError::Data(DataError::NoFilesFor { .. }) => {
            "cut the data into more files, or use fewer --workers"
        }
        StreamError::Session(failed) => {
            let exit = if failed.is_retryable() { Exit::Retry } else { Exit::Failed };
            return dress(error, "`--resume` picks the run up from its last checkpoint", exit);
        }
        _ if error.is_peer() => {
            return dress(
                error,
                "start it again; a run with a checkpoint goes on with --resume",
                Exit::Retry,
            );
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
