//! A run on the terminal: header, progress, result, errors with hints.

use super::run_hints;
use crate::{
    failure::{Exit, FailureExt},
    terminal::{Progress as Bar, Table, Terminal, Unit},
};
use paceline_data::DataError;
use paceline_probes::{Layout, Reading, Roots, Sampler, Target, Writer};
use paceline_runs::{Evaluation, Outcome, RunFolder, Summary, format_utc};
use paceline_strategies::{Combine, StrategyError, find};
use paceline_trainer::{Observer, Progress, RunPlan, TrainError};
use std::{
    fs::OpenOptions,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

/// Shows a run on the terminal while it goes on.
pub(super) struct Watcher<'a> {
    terminal: &'a Terminal,
    bar: Mutex<Option<Bar>>,
    /// The task whose resources are recorded, beside the run's own records.
    task: Option<String>,
    sampler: Mutex<Option<Sampler>>,
    /// Where the run folder was moved to, if it was.
    moved: Mutex<Option<PathBuf>>,
}

impl<'a> Watcher<'a> {
    /// Shows a run; records resources for `task`, where one is given.
    pub(super) fn new(terminal: &'a Terminal, task: Option<String>) -> Self {
        let (bar, sampler, moved) = Default::default();
        Self { terminal, bar, task, sampler, moved }
    }

    /// Where the run folder is, if it was moved.
    pub(super) fn moved(&self) -> Option<PathBuf> {
        self.moved.lock().ok().and_then(|moved| moved.clone())
    }

    /// Takes the bar away and ends the recording.
    pub(super) fn done(&self) {
        if let Ok(mut bar) = self.bar.lock() {
            bar.take();
        }
        if let Ok(mut sampler) = self.sampler.lock() {
            sampler.take();
        }
    }
}

/// Seconds between two readings of the machine.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Records the machine's resources until dropped, and shows each reading to `each`; a resumed run goes on with its file.
pub(super) fn record_resources(
    path: &Path,
    mut each: impl FnMut(&Reading) + Send + 'static,
) -> anyhow::Result<Sampler> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut writer = Writer::new(BufWriter::new(file), Layout::Full)?;
    let sampler = Sampler::start(&Roots::default(), Target::own(), SAMPLE_EVERY, move |reading| {
        // A full disk must not end a run; the gap in the recording shows it.
        let _ = writer.write(&reading);
        each(&reading);
    })?;
    Ok(sampler)
}

impl Observer for Watcher<'_> {
    fn started(&self, plan: &RunPlan, run: &RunFolder, first_step: u64) {
        self.terminal.note(header(plan, first_step));
        self.terminal.note(format!("records in `{}`", self.terminal.place(run.path()).display()));
        let bar = self.terminal.progress("training", plan.planned_steps, Unit::Items("steps"));
        bar.set(first_step);
        if let Ok(mut slot) = self.bar.lock() {
            *slot = Some(bar);
        }
        let Some(task) = &self.task else { return };
        let path = run.resources_path(task);
        match (record_resources(&path, |_| ()), self.sampler.lock()) {
            (Ok(sampler), Ok(mut slot)) => *slot = Some(sampler),
            (Err(error), _) => {
                self.terminal.warn(format!("no resources are recorded: {error:#}"));
            }
            (Ok(_), Err(_)) => {}
        }
    }

    fn progressed(&self, progress: &Progress) {
        if let Ok(slot) = self.bar.lock()
            && let Some(bar) = slot.as_ref()
            && self.terminal.watched()
        {
            bar.set(progress.step);
            bar.message(format!(
                "· loss {:.4}, accuracy {:.1} %, {:.0} examples/s",
                progress.loss,
                100.0 * progress.accuracy,
                progress.examples_per_second
            ));
        }
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        self.terminal.note(format!(
            "epoch {:.2}, step {}: test loss {:.4}, accuracy {:.2} %{}",
            evaluation.epochs,
            evaluation.step,
            evaluation.loss,
            100.0 * evaluation.accuracy,
            if evaluation.best { " (best so far)" } else { "" }
        ));
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

/// What will happen, with every number that people get wrong about batches and rates.
fn header(plan: &RunPlan, first_step: u64) -> String {
    let spec = &plan.spec;
    let (sharers, word) =
        if plan.workers > 1 { (plan.workers, "workers") } else { (plan.replicas, "replicas") };
    let asynchronous = find(&plan.strategy).is_ok_and(|strategy| !strategy.synchronous);
    let per_replica = match sharers {
        1 => String::new(),
        _ if asynchronous => format!(", each by one of {sharers} workers"),
        _ => format!(" = {sharers} {word} x {} examples", spec.batch_size.div_ceil(sharers as u64)),
    };
    let gradients = plan.workers.saturating_sub(spec.backup_workers).max(1);
    let combined = match spec.combine {
        Combine::Mean => "gradients averaged over the global batch".to_owned(),
        Combine::Sum => format!(
            "gradients of {gradients} workers summed: effective learning rate {}",
            spec.combine.effective_rate(plan.learning_rate, gradients)
        ),
    };
    let tasks = match (plan.workers, plan.servers) {
        (1, 0) => format!("{} x {} threads", plan.replicas, plan.threads),
        (workers, servers) => {
            let held = if servers > 0 { format!(", {servers} servers") } else { String::new() };
            let scored = if spec.evaluator { ", 1 evaluator" } else { "" };
            format!("{workers} workers x {} threads{held}{scored}", plan.threads)
        }
    };
    let ends = plan.planned_steps.map_or_else(
        || format!("until the test loss is {}", spec.stop.until_loss.unwrap_or_default()),
        |steps| format!("{steps} steps"),
    );
    let from =
        if first_step > 0 { format!(", going on at step {first_step}") } else { String::new() };
    let split = match plan.split_parameters {
        0 => String::new(),
        count => format!(
            "; dense layers ({count} weights) shared out: each worker has a part of their outputs for the whole batch"
        ),
    };
    let pixels = if spec.imagenet_input {
        "\npixels scaled as weights trained on ImageNet expect: less 0.485 0.456 0.406, by 0.229 0.224 0.225 (red, green, blue)"
    } else {
        ""
    };
    format!(
        "{} on `{}`, strategy {}: {} parameters, {} training and {} test examples, {ends}{from}\n\
         global batch {}{per_replica}, {} at learning rate {} ({}), {combined}; {tasks}{split}, seed {}{pixels}",
        spec.model,
        spec.data,
        plan.strategy,
        plan.parameters,
        plan.train_examples,
        plan.test_examples,
        spec.batch_size,
        spec.optimizer,
        plan.learning_rate,
        spec.schedule,
        spec.seed,
    )
}

/// The time of a run, and how much of it went into steps where evaluations, checkpoints and the start took their part of it.
pub(super) fn time(summary: &Summary) -> String {
    let (all, steps) = (summary.seconds, summary.step_seconds);
    if steps > 0.0 && steps < 0.9 * all {
        format!("{all:.2} s ({steps:.2} s in steps)")
    } else {
        format!("{all:.2} s")
    }
}

/// How a run ended, and whether it was worth it.
pub(super) fn status(summary: &Summary) -> String {
    match summary.learning.as_ref().map(|learning| learning.outcome) {
        Some(Outcome::DidNotLearn) => format!("{}, but the model did not learn", summary.status),
        Some(Outcome::Diverged) => format!("{}: training diverged", summary.status),
        _ => summary.status.to_string(),
    }
}

pub(super) fn describe(summary: &Summary, folder: &Path) -> String {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("run", folder.display().to_string());
    row("status", status(summary));
    row("steps", format!("{}", summary.global_steps));
    row(
        "time",
        format!(
            "{}, {} examples, {:.0} examples/s",
            time(summary),
            summary.examples,
            summary.examples_per_second
        ),
    );
    describe_legs(summary, "examples", &mut row);
    let last = &summary.last;
    row("train loss", format!("{:.4}", last.train_loss));
    if !last.test_loss.is_nan() {
        row(
            "test",
            format!("loss {:.4}, accuracy {:.2} %", last.test_loss, 100.0 * last.test_accuracy),
        );
    }
    if let Some(reached) = &summary.reached {
        row(
            "reached",
            format!(
                "loss {} at about step {:.0}, {:.2} s (between the checks at {} and {})",
                reached.loss, reached.step, reached.seconds, reached.between[0], reached.between[1]
            ),
        );
    }
    let phases = &summary.phases;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    row(
        "step time",
        format!(
            "input {}, compute {}, exchange {}, wait {}",
            percent(phases.input),
            percent(phases.compute),
            percent(phases.exchange),
            percent(phases.wait)
        ),
    );
    let traffic = &summary.traffic;
    if traffic.sent_bytes > 0 {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        row(
            "traffic",
            format!(
                "{:.1} MiB sent, {:.1} MiB received",
                mib(traffic.sent_bytes),
                mib(traffic.received_bytes)
            ),
        );
    }
    if summary.workers.len() > 1 {
        for worker in &summary.workers {
            row(
                &worker.task,
                format!(
                    "{} iterations, {} examples, finished after {:.2} s, accuracy {:.1} %, waited {}",
                    worker.iterations,
                    worker.examples,
                    worker.finished,
                    100.0 * worker.accuracy,
                    percent(worker.phases.wait)
                ),
            );
        }
    }
    if summary.staleness.len() > 1 {
        row("staleness", staleness(&summary.staleness));
    }
    if summary.dropped > 0 {
        row(
            "dropped",
            format!(
                "{} gradients of {} examples came too late",
                summary.dropped, summary.dropped_examples
            ),
        );
    }
    for lost in &summary.lost {
        row("lost", lost.clone());
    }
    row("verdict", summary.verdict.clone());
    for warning in &summary.warnings {
        row("warning", warning.clone());
    }
    table.to_string()
}

/// A line for each stretch of a run that was resumed.
pub(super) fn describe_legs(summary: &Summary, examples: &str, row: &mut dyn FnMut(&str, String)) {
    if summary.legs.len() < 2 {
        return;
    }
    for (leg, number) in summary.legs.iter().zip(1..) {
        row(
            &format!("leg {number}"),
            format!(
                "{} UTC, {:.2} s, {} steps, {} {examples}, {}",
                format_utc(leg.started),
                leg.seconds,
                leg.steps,
                leg.examples,
                leg.status_word()
            ),
        );
    }
}

/// A histogram in a line: mean, and the commonest values.
fn staleness(counts: &[u64]) -> String {
    let updates: u64 = counts.iter().sum();
    let sum: u64 = counts.iter().enumerate().map(|(value, count)| value as u64 * count).sum();
    let shown = counts.iter().enumerate().filter(|(_, count)| **count > 0).take(6);
    let parts: Vec<String> = shown
        .map(|(value, count)| {
            format!("{value}: {:.0} %", 100.0 * *count as f64 / updates.max(1) as f64)
        })
        .collect();
    format!("mean {:.2} ({})", sum as f64 / updates.max(1) as f64, parts.join(", "))
}

/// Adds what the user could do about an error.
pub(super) fn explain(error: TrainError) -> anyhow::Error {
    explain_in(error, None)
}

/// The same for an error of a run whose folder is known.
pub(super) fn explain_in(error: TrainError, run: Option<&RunFolder>) -> anyhow::Error {
    let (hint, exit) = match &error {
        TrainError::NoStop => (
            "say when to stop, for example `--epochs 10` or `--until-loss 0.35`".to_string(),
            None,
        ),
        TrainError::GrowthWithoutEpochs => {
            ("say how many, for example `--epochs 10`".to_string(), None)
        }
        TrainError::Memory { fits, .. } => (
            match fits {
                Some(fits) => format!("`--batch-size {fits}` fits"),
                None => "no batch fits: use a smaller model or smaller images".to_string(),
            },
            None,
        ),
        TrainError::BatchTooLarge { examples, .. } => {
            (format!("use `--batch-size {examples}` or less"), None)
        }
        TrainError::BatchTooSmall { batch, .. } => {
            (format!("use at most {batch} replicas or workers, or a larger `--batch-size`"), None)
        }
        TrainError::NotFinite { rate, .. } => (
            format!(
                "try a lower learning rate, such as `--lr {}`, or a warm-up: `--schedule warmup:1+constant`",
                rate / 10.0
            ),
            None,
        ),
        TrainError::Diverged { rate, .. } => (
            format!(
                "try a lower learning rate, such as `--lr {}`, a warm-up (`--schedule warmup:1+constant`), or `--optimizer adam` without `--lr`",
                rate / 10.0
            ),
            None,
        ),
        TrainError::Session(error) => run_hints::of_session(error, run),
        TrainError::Data(DataError::Rows { .. }) => (
            "train on rows with `--model sparse-logistic`; `paceline data info` describes them"
                .to_string(),
            None,
        ),
        TrainError::Data(DataError::TooManyRejects { .. }) => (
            "look at the reasons; a higher --max-rejects, or none, leaves them out and trains"
                .to_string(),
            None,
        ),
        TrainError::Data(DataError::ShardChanged { .. }) => (
            "`paceline data verify` lists all that is wrong; prepare the data again with --fresh"
                .to_string(),
            None,
        ),
        TrainError::Link(_)
        | TrainError::Strategy(StrategyError::Link(_) | StrategyError::PeerLost { .. }) => {
            (run_hints::start_again(run), Some(Exit::Retry))
        }
        TrainError::Runs(runs) => match run_hints::of_records(runs) {
            Some(found) => found,
            None => return error.into(),
        },
        TrainError::Strategy(_) | TrainError::Alone { .. } => {
            ("`paceline list strategies` says how each of them works".to_string(), None)
        }
        TrainError::NothingToResume { .. } => {
            ("start the run again without --resume".to_string(), None)
        }
        TrainError::ResumeMismatch { what: "the data", .. } => (
            "give --data the data that the run began on, or start a new run; --init takes weights over"
                .to_string(),
            None,
        ),
        TrainError::ResumeMismatch { .. } => ("start a new run without --resume".to_string(), None),
        TrainError::NoTestData { .. } => (
            "stop by --epochs or --steps, or prepare the data with `--split validation=0.1`"
                .to_string(),
            None,
        ),
        _ => return error.into(),
    };
    dress(error, hint, exit)
}

fn dress(error: impl Into<anyhow::Error>, hint: String, exit: Option<Exit>) -> anyhow::Error {
    let dressed: anyhow::Result<()> = Err(error.into()).hint(hint);
    match (dressed, exit) {
        (Err(error), None) => error,
        (dressed, exit) => match dressed.exit(exit.unwrap_or(Exit::Failed)) {
            Err(error) => error,
            Ok(()) => unreachable!("an error stays an error when it is dressed"),
        },
    }
}
