//! `paceline train`: one run, from the command line to the summary.

use crate::{
    failure::{Exit, FailureExt, usage},
    terminal::{Progress as Bar, Table, Terminal, Unit},
};
use anyhow::Context;
use paceline_probes::{Layout, Roots, Sampler, Target, Writer};
use paceline_runs::{Evaluation, RunFolder, Status, Summary, list};
use paceline_trainer::{
    Control, Observer, Parts, Progress, RunPlan, RunSpec, Start, Stop, TrainError, train,
};
use std::{
    fs::OpenOptions,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::{Mutex, atomic::Ordering},
    time::Duration,
};

/// Arguments of `paceline train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model to train; `paceline models` lists them
    #[arg(long, short, required_unless_present = "resume", help_heading = "What")]
    model: Option<String>,
    /// Data set: a folder, or `generated:…`
    #[arg(long, short, required_unless_present = "resume", help_heading = "What")]
    data: Option<String>,
    /// How gradients are exchanged: one-device or mirrored [default: one-device]
    #[arg(long, short, help_heading = "What")]
    strategy: Option<String>,
    /// Weights to start from, a safetensors file
    #[arg(long, value_name = "FILE", help_heading = "What")]
    init: Option<PathBuf>,
    /// Train the last layer only; for weights given with --init
    #[arg(long, requires = "init", help_heading = "What")]
    freeze: bool,
    /// Width multiplier of MobileNet-v2
    #[arg(long, help_heading = "What")]
    width: Option<f32>,
    /// Dropout rate, for models that have it
    #[arg(long, help_heading = "What")]
    dropout: Option<f32>,
    /// Local response normalisation in AlexNet
    #[arg(long, help_heading = "What")]
    lrn: bool,

    /// Stop after so many passes over the training data
    #[arg(long, short, help_heading = "When to stop (the first that is met)")]
    epochs: Option<f64>,
    /// Stop after so many updates
    #[arg(long, help_heading = "When to stop (the first that is met)")]
    steps: Option<u64>,
    /// Stop when the loss on the test examples has fallen to this
    #[arg(long, value_name = "LOSS", help_heading = "When to stop (the first that is met)")]
    until_loss: Option<f64>,

    /// Examples of one update, over all replicas [default: 64]
    #[arg(long, short, help_heading = "How")]
    batch_size: Option<u64>,
    /// Learning rate [default: the optimiser's own]
    #[arg(long, visible_alias = "learning-rate", help_heading = "How")]
    lr: Option<f32>,
    /// sgd, momentum, nesterov, adagrad or adam [default: sgd]
    #[arg(long, help_heading = "How")]
    optimizer: Option<String>,
    /// Share of the old velocity kept each step
    #[arg(long, help_heading = "How")]
    momentum: Option<f32>,
    /// L2 penalty
    #[arg(long, help_heading = "How")]
    weight_decay: Option<f32>,
    /// Learning rate over time: constant, step:EPOCHS:FACTOR, cosine, warmup:EPOCHS+… [default: constant]
    #[arg(long, help_heading = "How")]
    schedule: Option<String>,
    /// Grow the batch where the schedule would lower the rate
    #[arg(long, help_heading = "How")]
    grow_batch: bool,
    /// Decides order, initial weights and dropout [default: 0]
    #[arg(long, help_heading = "How")]
    seed: Option<u64>,
    /// Threads of all replicas together [default: all cores this process may use]
    #[arg(long, help_heading = "How")]
    threads: Option<usize>,
    /// Replicas in this process, for strategy mirrored [default: one per thread]
    #[arg(long, help_heading = "How")]
    replicas: Option<usize>,

    /// Steps between evaluations on the test examples [default: an epoch]
    #[arg(long, value_name = "STEPS", help_heading = "Records")]
    eval_every: Option<u64>,
    /// Steps between checkpoints [default: half a minute, and the end]
    #[arg(long, value_name = "STEPS", help_heading = "Records")]
    checkpoint_every: Option<u64>,
    /// How many of the latest checkpoints to keep, besides the best [default: 2]
    #[arg(long, help_heading = "Records")]
    keep: Option<usize>,
    /// Write no TensorBoard files
    #[arg(long, help_heading = "Records")]
    no_tensorboard: bool,
    /// Folder of run folders
    #[arg(long, default_value = "runs", help_heading = "Records")]
    out: PathBuf,
    /// Go on with a run from its latest checkpoint: its folder or name, or the latest run
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "", help_heading = "Records")]
    resume: Option<String>,
}

/// Trains.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let (spec, start) = match &args.resume {
        Some(run) => args.resumed(run)?,
        None => (args.fresh(), Start::New { out: args.out.clone() }),
    };
    let cancel = terminal.interrupt()?;
    let parts = Parts::open(&spec).map_err(explain)?;
    for remark in parts.train.remarks() {
        terminal.note(format!("{}: {remark}", spec.data));
    }
    let watcher = Watcher { terminal, bar: Mutex::new(None), sampler: Mutex::new(None) };
    let control = Control { cancel: &cancel, observer: &watcher };
    let result = train(&spec, &parts, &start, &control);
    watcher.done();
    let summary = match result {
        Ok(summary) => summary,
        Err(error) => return Err(explain(error)),
    };
    let folder = match &start {
        Start::New { out } => out.join(&summary.run),
        Start::Resume { run } => run.path().to_path_buf(),
    };
    terminal.data(describe(&summary, &folder))?;
    terminal.json(&summary)?;
    if summary.status == Status::Cancelled && cancel.load(Ordering::Relaxed) {
        terminal.note(format!(
            "stopped at step {}; go on with `paceline train --resume {}`",
            summary.global_steps,
            folder.display()
        ));
    }
    Ok(Exit::Done)
}

impl Args {
    fn fresh(&self) -> RunSpec {
        let model = self.model.as_deref().unwrap_or_default();
        let spec = RunSpec::new(model, self.data.as_deref().unwrap_or_default());
        RunSpec {
            strategy: self.strategy.clone().unwrap_or(spec.strategy),
            batch_size: self.batch_size.unwrap_or(spec.batch_size),
            stop: self.stop(),
            learning_rate: self.lr,
            optimizer: self.optimizer.clone().unwrap_or(spec.optimizer),
            momentum: self.momentum,
            weight_decay: self.weight_decay,
            schedule: self.schedule.clone().unwrap_or(spec.schedule),
            grow_batch: self.grow_batch,
            seed: self.seed.unwrap_or(spec.seed),
            threads: self.threads,
            replicas: self.replicas,
            eval_every: self.eval_every,
            checkpoint_every: self.checkpoint_every,
            keep: self.keep.unwrap_or(spec.keep),
            init: self.init.clone(),
            freeze: self.freeze,
            width: self.width.unwrap_or(spec.width),
            dropout: self.dropout,
            lrn: self.lrn,
            tensorboard: !self.no_tensorboard,
            model: spec.model,
            data: spec.data,
        }
    }

    fn stop(&self) -> Stop {
        Stop { epochs: self.epochs, steps: self.steps, until_loss: self.until_loss }
    }

    /// The specification of a run that exists; only its end, its place and its records may change.
    fn resumed(&self, name: &str) -> anyhow::Result<(RunSpec, Start)> {
        for (given, flag) in [
            (self.model.is_some(), "--model"),
            (self.strategy.is_some(), "--strategy"),
            (self.batch_size.is_some(), "--batch-size"),
            (self.lr.is_some(), "--lr"),
            (self.optimizer.is_some(), "--optimizer"),
            (self.momentum.is_some(), "--momentum"),
            (self.weight_decay.is_some(), "--weight-decay"),
            (self.schedule.is_some(), "--schedule"),
            (self.grow_batch, "--grow-batch"),
            (self.seed.is_some(), "--seed"),
            (self.replicas.is_some(), "--replicas"),
            (self.init.is_some(), "--init"),
            (self.width.is_some(), "--width"),
            (self.dropout.is_some(), "--dropout"),
            (self.lrn, "--lrn"),
        ] {
            if given {
                return Err(usage(
                    format!("{flag} cannot change while a run goes on"),
                    "start a new run without --resume; --epochs, --steps and --until-loss may change",
                ));
            }
        }
        let run = find_run(&self.out, name)?;
        let mut spec: RunSpec = run.plan::<RunPlan>()?.spec;
        let stop = self.stop();
        if stop != Stop::default() {
            spec.stop = stop;
        }
        spec.data = self.data.clone().unwrap_or(spec.data);
        spec.threads = self.threads.or(spec.threads);
        spec.eval_every = self.eval_every.or(spec.eval_every);
        spec.checkpoint_every = self.checkpoint_every.or(spec.checkpoint_every);
        spec.keep = self.keep.unwrap_or(spec.keep);
        spec.tensorboard &= !self.no_tensorboard;
        Ok((spec, Start::Resume { run }))
    }
}

/// A run by its folder, by its name under `out`, or the latest one there.
pub(super) fn find_run(out: &Path, name: &str) -> anyhow::Result<RunFolder> {
    if name.is_empty() {
        return list(out)?
            .pop()
            .with_context(|| format!("there is no run in `{}`", out.display()))
            .hint("start one with `paceline train --model … --data …`, or name its folder");
    }
    let given = Path::new(name);
    let path = if given.exists() { given.to_path_buf() } else { out.join(name) };
    RunFolder::open(&path)
        .hint(format!("`paceline runs --out {}` lists the runs there", out.display()))
}

/// Shows a run on the terminal while it goes on.
struct Watcher<'a> {
    terminal: &'a Terminal,
    bar: Mutex<Option<Bar>>,
    /// Records what the machine does, beside the run's own records.
    sampler: Mutex<Option<Sampler>>,
}

impl Watcher<'_> {
    fn done(&self) {
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

/// Records the machine's resources until dropped; a resumed run goes on with its file.
fn record_resources(path: &Path) -> anyhow::Result<Sampler> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut writer = Writer::new(BufWriter::new(file), Layout::Full)?;
    let sampler = Sampler::start(&Roots::default(), Target::own(), SAMPLE_EVERY, move |reading| {
        // A full disk must not end a run; the gap in the recording shows it.
        let _ = writer.write(&reading);
    })?;
    Ok(sampler)
}

impl Observer for Watcher<'_> {
    fn started(&self, plan: &RunPlan, run: &RunFolder, first_step: u64) {
        self.terminal.note(header(plan, first_step));
        self.terminal.note(format!("records in `{}`", run.path().display()));
        let bar = self.terminal.progress("training", plan.planned_steps, Unit::Items("steps"));
        bar.set(first_step);
        if let Ok(mut slot) = self.bar.lock() {
            *slot = Some(bar);
        }
        let path = run.resources_path("worker/0");
        match (record_resources(&path), self.sampler.lock()) {
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

    fn warned(&self, text: &str) {
        self.terminal.warn(text);
    }
}

/// What will happen, with every number that people get wrong about batches and rates.
fn header(plan: &RunPlan, first_step: u64) -> String {
    let spec = &plan.spec;
    let per_replica = match plan.replicas {
        1 => String::new(),
        replicas => format!(
            " = {replicas} replicas x {} examples",
            spec.batch_size.div_ceil(replicas as u64)
        ),
    };
    let ends = plan.planned_steps.map_or_else(
        || format!("until the test loss is {}", spec.stop.until_loss.unwrap_or_default()),
        |steps| format!("{steps} steps"),
    );
    let from =
        if first_step > 0 { format!(", going on at step {first_step}") } else { String::new() };
    format!(
        "{} on `{}`, strategy {}: {} parameters, {} training and {} test examples, {ends}{from}\n\
         global batch {}{per_replica}, {} at learning rate {} ({}), gradients averaged over the global batch; {} x {} threads, seed {}",
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
        plan.replicas,
        plan.threads,
        spec.seed,
    )
}

fn describe(summary: &Summary, folder: &Path) -> String {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("run", folder.display().to_string());
    row("status", summary.status.to_string());
    row("steps", format!("{}", summary.global_steps));
    row("time", format!("{:.2} s, {:.0} examples/s", summary.seconds, summary.examples_per_second));
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
    row("verdict", summary.verdict.clone());
    for warning in &summary.warnings {
        row("warning", warning.clone());
    }
    table.to_string()
}

/// Adds what the user could do about an error.
fn explain(error: TrainError) -> anyhow::Error {
    let (hint, exit) = match &error {
        TrainError::NoStop => (
            "say when to stop, for example `--epochs 10` or `--until-loss 0.35`".to_string(),
            Some(Exit::Usage),
        ),
        TrainError::BatchTooLarge { examples, .. } => {
            (format!("use a batch of at most {examples}"), None)
        }
        TrainError::BatchTooSmall { batch, .. } => {
            (format!("use at most {batch} replicas, or a larger batch"), None)
        }
        TrainError::NotFinite { rate, .. } => (
            format!(
                "try a lower learning rate, such as `--lr {}`, or a warm-up: `--schedule warmup:1+constant`",
                rate / 10.0
            ),
            None,
        ),
        TrainError::Strategy(_) => {
            ("`paceline train --help` lists the strategies".to_string(), None)
        }
        TrainError::NothingToResume { .. } => {
            ("start the run again without --resume".to_string(), None)
        }
        TrainError::ResumeMismatch { .. } => ("start a new run without --resume".to_string(), None),
        TrainError::NoTestData { .. } => (
            "stop by --epochs or --steps, or prepare the data with `--split validation=0.1`"
                .to_string(),
            None,
        ),
        _ => return error.into(),
    };
    let dressed: anyhow::Result<()> = Err(error).hint(hint);
    match (dressed, exit) {
        (Err(error), None) => error,
        (dressed, exit) => match dressed.exit(exit.unwrap_or(Exit::Failed)) {
            Err(error) => error,
            Ok(()) => unreachable!("an error stays an error when it is dressed"),
        },
    }
}
