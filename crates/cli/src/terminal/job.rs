//! A job on the terminal: what its notices mean in words, and bars while it goes on.

use super::{
    Progress, Terminal, Unit,
    members::{MemberTable, waiting_for},
    show_count,
};
use paceline_jobs::{JobNotice, JobObserver, MissingTask};
use paceline_models::PixelScale;
use paceline_runs::Evaluation;
use paceline_strategies::{Combine, find};
use paceline_training::RunPlan;
use paceline_training::rows::{Metrics, Plan, Window};
use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

/// Shows a job while it goes on. It speaks through a terminal of its own, because notices come from many threads.
pub struct JobTerminal {
    terminal: Terminal,
    audience: Audience,
    /// Of the run.
    bar: Mutex<Option<Progress>>,
    /// Shown while tasks are missing.
    waiting: Mutex<Option<Progress>>,
}

/// For whom the words are.
enum Audience {
    /// The user who started all tasks.
    Local,
    /// The user who started this task, or its log.
    Cluster(MemberTable),
    /// The log of a task; the process that started it tells the user.
    Log,
}

impl JobTerminal {
    /// Shows a job whose tasks this process has started.
    pub fn of_local_job(terminal: &Terminal) -> Self {
        Self::new(terminal, Audience::Local)
    }

    /// Shows the part of one task of a cluster.
    pub fn of_cluster_task(terminal: &Terminal) -> Self {
        Self::new(terminal, Audience::Cluster(MemberTable::default()))
    }

    /// Leaves in the log of a task what its launcher is not told.
    pub fn of_launched_task(terminal: &Terminal) -> Self {
        Self::new(terminal, Audience::Log)
    }

    fn new(terminal: &Terminal, audience: Audience) -> Self {
        let (bar, waiting) = Default::default();
        Self { terminal: terminal.clone(), audience, bar, waiting }
    }

    /// Takes the bars away.
    pub fn done(&self) {
        set(&self.bar, None);
        set(&self.waiting, None);
    }

    fn log(&self, notice: &JobNotice) {
        match notice {
            JobNotice::DataRemark { data, remark } => {
                self.terminal.note(format!("{data}: {remark}"));
            }
            JobNotice::Stranger { text } => self.terminal.warn(text),
            _ => {}
        }
    }

    /// What happens to tasks.
    fn members(&self, notice: &JobNotice) {
        match (&self.audience, notice) {
            (Audience::Cluster(table), JobNotice::Waiting { missing, joined }) => {
                table.show(missing, *joined);
            }
            (_, JobNotice::Waiting { missing, joined }) => self.wait(missing, *joined),
            (Audience::Cluster(table), JobNotice::Joined { .. }) => table.say(&words(notice)),
            (_, JobNotice::Joined { .. }) => {} // local tasks that join are not news
            (Audience::Cluster(table), _) => table.warn(&words(notice)),
            _ => self.terminal.warn(words(notice)),
        }
    }

    fn wait(&self, missing: &[MissingTask], joined: usize) {
        if missing.is_empty() || !self.terminal.watched() {
            return set(&self.waiting, None);
        }
        let mut slot = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let total = (missing.len() + joined) as u64;
        let bar = slot.get_or_insert_with(|| {
            self.terminal.progress("tasks", Some(total), Unit::Items("joined"))
        });
        bar.set(joined as u64);
        let lines: Vec<String> = missing.iter().map(waiting_for).collect();
        bar.message(format!("· {}", lines.join("; ")));
    }

    fn started(&self, header: String, run: &Path, bar: Progress) {
        set(&self.waiting, None);
        self.terminal.note(header);
        self.terminal.note(format!("records in `{}`", self.terminal.place(run).display()));
        set(&self.bar, Some(bar));
    }

    fn progressed(&self, done: u64, message: impl FnOnce() -> String) {
        let slot = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = slot.as_ref().filter(|_| self.terminal.watched()) {
            bar.set(done);
            bar.message(message());
        }
    }

    fn warned(&self, task: Option<impl std::fmt::Display>, text: &str) {
        match task {
            Some(task) => self.terminal.warn(format!("{task}: {text}")),
            None => self.terminal.warn(text),
        }
    }
}

fn set(slot: &Mutex<Option<Progress>>, bar: Option<Progress>) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}

impl JobObserver for JobTerminal {
    fn notice(&self, notice: JobNotice) {
        if let Audience::Log = self.audience {
            return self.log(&notice);
        }
        match &notice {
            JobNotice::Started { plan, run, first_step } => {
                let (steps, terminal) = (plan.planned_steps, &self.terminal);
                let bar = terminal.progress("training", steps, Unit::Items("steps"));
                bar.set(*first_step);
                self.started(header(plan, *first_step), run, bar);
            }
            JobNotice::RowsStarted { plan, run, rows } => {
                let bar = self.terminal.progress("learning", plan.details.bytes, Unit::Bytes);
                self.started(rows_header(plan, *rows), run, bar);
            }
            JobNotice::Progressed(progress) => self.progressed(progress.step, || {
                let (loss, accuracy) = (progress.loss, 100.0 * progress.accuracy);
                let rate = progress.examples_per_second;
                format!("· loss {loss:.4}, accuracy {accuracy:.1} %, {rate:.0} examples/s")
            }),
            JobNotice::RowsProgressed { recent, done, speed, .. } => {
                self.progressed(*done, || format!("· loss {:.4}, {speed:.0} rows/s", recent.loss));
            }
            JobNotice::Evaluated(evaluation) => self.terminal.note(score(evaluation)),
            JobNotice::RowsEvaluated { metrics, rows } => {
                let held_out = metrics_words(metrics);
                self.terminal.note(format!("after {rows} rows: held-out {held_out}"));
            }
            JobNotice::DataRemark { data, remark } => {
                self.terminal.note(format!("{data}: {remark}"));
            }
            JobNotice::SummedByMpi => {
                self.terminal.note("gradients were added up by MPI_Allreduce");
            }
            JobNotice::Warned { task, text } => self.warned(*task, text),
            JobNotice::ChiefUnreachable { task, error } => self.warned(Some(task), error),
            JobNotice::Restarting { task, what } => {
                self.terminal.warn(format!("{task} {what}; starting it again"));
            }
            JobNotice::GivenUp { task, what, starts } => self.terminal.warn(format!(
                "{task} {what}; it was started {starts} times and is not started again"
            )),
            JobNotice::Moved { .. } => {}
            _ => self.members(&notice),
        }
    }
}

/// What happened to a task, in words.
fn words(notice: &JobNotice) -> String {
    match notice {
        JobNotice::Joined { task, address, host, clock, returned } => {
            let clock = clock.map_or_else(String::new, |offset| {
                format!(
                    ", clock {:+.1} ms, round trip {:.2} ms",
                    1e3 * offset.seconds,
                    1e3 * offset.round_trip
                )
            });
            let word = if *returned { "is back" } else { "joined" };
            format!("{task} {word} at {address} on {host}{clock}")
        }
        JobNotice::Refused { task, reason } => format!("refused {task}: {reason}"),
        JobNotice::Lost { task, address, reason } => {
            format!("lost {task} at {address}: {reason}")
        }
        JobNotice::Slow { text } | JobNotice::Stranger { text } => text.clone(),
        other => format!("{other:?}"),
    }
}

fn score(evaluation: &Evaluation) -> String {
    format!(
        "epoch {:.2}, step {}: test loss {:.4}, accuracy {:.2} %{}",
        evaluation.epochs,
        evaluation.step,
        evaluation.loss,
        100.0 * evaluation.accuracy,
        if evaluation.best { " (best so far)" } else { "" }
    )
}

/// How pixels are scaled for weights that were trained on ImageNet.
const IMAGENET_PIXELS: &str = "\npixels scaled as weights trained on ImageNet expect: less 0.485 0.456 0.406, by 0.229 0.224 0.225 (red, green, blue)";
/// The same for weights of Keras.
const KERAS_PIXELS: &str = "\npixels scaled to -1 to 1 and images turned by 180 degrees, as weights of Keras expect here (their kernels were turned too)";

/// What will happen, with every number that people get wrong about batches and rates.
fn header(plan: &RunPlan, first_step: u64) -> String {
    let (spec, details) = (&plan.spec, &plan.details);
    let (sharers, word) = if details.workers > 1 {
        (details.workers, "workers")
    } else {
        (plan.replicas, "replicas")
    };
    let asynchronous = find(&plan.strategy).is_ok_and(|strategy| !strategy.synchronous);
    let per_replica = match sharers {
        1 => String::new(),
        _ if asynchronous => format!(", each by one of {sharers} workers"),
        _ => format!(" = {sharers} {word} x {} examples", spec.batch_size.div_ceil(sharers as u64)),
    };
    let gradients = details.workers.saturating_sub(spec.backup_workers).max(1);
    let combined = match spec.combine {
        Combine::Mean => "gradients averaged over the global batch".to_owned(),
        Combine::Sum => format!(
            "gradients of {gradients} workers summed: effective learning rate {}",
            spec.combine.effective_rate(details.learning_rate, gradients)
        ),
    };
    let tasks = match (details.workers, details.servers) {
        (1, 0) => format!("{} x {}", plan.replicas, show_count(plan.threads, "thread")),
        (workers, servers) => {
            let held = match servers {
                0 => String::new(),
                servers => format!(", {}", show_count(servers, "server")),
            };
            let scored = if spec.evaluator { ", 1 evaluator" } else { "" };
            let workers = show_count(workers, "worker");
            format!("{workers} x {}{held}{scored}", show_count(plan.threads, "thread"))
        }
    };
    let ends = end_words(plan);
    let from =
        if first_step > 0 { format!(", continuing at step {first_step}") } else { String::new() };
    let split = match details.split_parameters {
        0 => String::new(),
        count => format!(
            "; dense layers ({count} weights) shared out: each worker has a part of their outputs for the whole batch"
        ),
    };
    let pixels = pixel_words(spec.pixels());
    format!(
        "{} on `{}`, strategy {}: {} parameters, {} training and {} test examples, {ends}{from}\n\
         global batch {}{per_replica}, {} at learning rate {} ({}), {combined}; {tasks}{split}, seed {}{pixels}",
        spec.model,
        spec.data,
        plan.strategy,
        plan.parameters,
        details.train_examples,
        details.test_examples,
        spec.batch_size,
        spec.optimizer,
        details.learning_rate,
        spec.schedule,
        spec.seed,
    )
}

/// How pixels are read, where it is not as usual.
fn pixel_words(pixels: PixelScale) -> &'static str {
    match pixels {
        PixelScale::Unit => "",
        PixelScale::Imagenet => IMAGENET_PIXELS,
        PixelScale::Keras => KERAS_PIXELS,
    }
}

/// When it stops.
fn end_words(plan: &RunPlan) -> String {
    match (plan.planned_steps, plan.spec.stop.until_loss) {
        (Some(steps), _) => format!("{steps} steps"),
        (None, Some(loss)) => format!("until the test loss is {loss}"),
        (None, None) => "until the test loss stops falling".to_owned(),
    }
}

/// The same for rows.
fn rows_header(plan: &Plan, rows: u64) -> String {
    let spec = &plan.spec;
    let continued =
        if rows > 0 { format!(", continuing after {rows} rows") } else { String::new() };
    let window = match spec.window {
        Window::None => String::new(),
        Window::Rows(rows) => format!(", learning when {rows} rows wait"),
        Window::Seconds(span) => format!(", learning every {span} s"),
    };
    let tasks = spec.tasks.as_ref().map_or_else(String::new, |tasks| {
        let scored = if tasks.evaluator { ", 1 evaluator" } else { "" };
        format!(
            ", {}: {} workers, {} servers{scored}, {} transfer",
            tasks.strategy, tasks.workers, tasks.servers, tasks.transfer
        )
    });
    let beta = spec.beta.map_or_else(String::new, |beta| format!(" and beta {beta}"));
    let combined = match (spec.batch_size, spec.combine) {
        (1, _) => "",
        (_, Combine::Sum) => " (gradients summed)",
        (_, Combine::Mean) => " (gradients averaged)",
    };
    format!(
        "{} on `{}`{tasks}: 2^{} weights{continued}\n\
         {} at learning rate {}{beta}, {} per update{combined}{window}; {}{}",
        spec.model,
        spec.data,
        spec.hashing.bits,
        spec.optimizer,
        spec.learning_rate,
        show_count(spec.batch_size, "row"),
        show_count(plan.threads, "thread"),
        if spec.deterministic { ", deterministic" } else { "" },
    )
}

/// Metrics in a line.
pub fn metrics_words(metrics: &Metrics) -> String {
    let Metrics { loss, auc, normalised_entropy, .. } = metrics;
    let accuracy = 100.0 * metrics.accuracy;
    if metrics.hinge {
        return format!("hinge loss {loss:.4}, accuracy {accuracy:.2} %, AUC {auc:.4}");
    }
    format!(
        "log loss {loss:.4}, accuracy {accuracy:.2} %, AUC {auc:.4}, normalised entropy {normalised_entropy:.4}"
    )
}
