//! From what workers did to the run's summary.
//!
//! What a summary says of every run, and how the log of a run ends, is written here once, for examples and rows, for
//! one process and several tasks. What only runs on examples have is below; what only streams have is in
//! `rows/report.rs`.

use crate::{
    Parts, RunPlan, TrainError,
    error::{Point, with_causes},
    loop_state::Done,
    plan::Prepared,
};
use paceline_batch::LabelKind;
use paceline_data::{manifest::REJECTS, rejects::json_lines};
use paceline_runs::{
    self as runs, Ending, Final, Labels, Learning, Recorder, RunEnded, RunFolder, Status, Summary,
    Traffic, Tried,
    diagnosis::{Examples, first_words},
    write_atomically,
};
use std::sync::{Mutex, PoisonError};

/// What every summary begins with.
pub(crate) struct Heading<'a> {
    pub(crate) run: String,
    pub(crate) model: &'a str,
    pub(crate) data: String,
    pub(crate) strategy: &'a str,
    pub(crate) seed: u64,
    /// Seconds since 1970.
    pub(crate) started: f64,
    pub(crate) seconds: f64,
}

impl Heading<'_> {
    /// Writes it into a summary.
    pub(crate) fn put(self, summary: &mut Summary) {
        summary.run = self.run;
        self.model.clone_into(&mut summary.model);
        summary.data = self.data;
        self.strategy.clone_into(&mut summary.strategy);
        summary.seed = self.seed;
        (summary.started, summary.seconds) = (self.started, self.seconds);
    }
}

/// What the end of a log and of a summary depends on.
pub(crate) struct Conclusion<'a> {
    pub(crate) failure: Option<&'a TrainError>,
    pub(crate) tried: Tried<'a>,
    /// Threads of this process, and what its examples are called.
    pub(crate) threads: usize,
    pub(crate) examples: Examples,
    /// Updates that were made before this stretch of the run.
    pub(crate) first_step: u64,
}

impl Conclusion<'_> {
    /// Derives what follows from the rest of a summary and ends the log. Returns the updates made in this stretch; the
    /// earlier ones are added by the caller.
    #[must_use]
    pub(crate) fn put(&self, summary: &mut Summary, recorder: Recorder) -> u64 {
        summary.settle();
        if let Some(error) = self.failure {
            summary.status = Status::Failed;
            summary.verdict = with_causes(error);
            summary.learning = divergence(error, &self.tried);
        } else {
            summary.verdict = first_words(summary, self.threads, self.examples);
        }
        let closed = recorder.close(RunEnded {
            status: summary.status,
            step: summary.global_steps,
            seconds: summary.seconds,
            reason: self.failure.map(|error| with_causes(error)),
            dropped_events: 0,
        });
        if closed.dropped > 0 {
            let text = format!("{} events were dropped: the disk was too slow", closed.dropped);
            summary.warnings.push(text);
        }
        if let Some(error) = &closed.error {
            summary.warnings.push(format!("{} records were lost: {error}", closed.lost));
        }
        summary.global_steps.saturating_sub(self.first_step)
    }
}

/// What a run that failed says about its learning, where that is why it failed.
fn divergence(error: &TrainError, tried: &Tried<'_>) -> Option<Learning> {
    let words = match error {
        TrainError::Diverged { found, at, .. } => format!("{found} {}", at.when()),
        TrainError::NotFinite { at, .. } => format!("the loss is not finite {}", at.when()),
        _ => return None,
    };
    Some(Learning::diverged(words, tried))
}

/// What one worker did.
pub(crate) fn worker(task: String, done: &Done) -> runs::WorkerSummary {
    let phases = done.total.phases;
    let examples = done.own_last.examples as f64;
    let own_score = done.own_score.as_ref();
    runs::WorkerSummary {
        task,
        iterations: done.total.steps,
        examples: done.own_examples,
        seconds: phases.total(),
        finished: done.finished,
        loss: done.own_last.loss_sum / examples,
        accuracy: done.own_last.correct as f64 / examples,
        test_loss: own_score.map(|score| score.loss),
        test_accuracy: own_score.map(|score| score.accuracy),
        dropped: done.dropped,
        phases: phases.shares(),
        traffic: traffic(done),
    }
}

fn traffic(done: &Done) -> Traffic {
    Traffic { sent_bytes: done.total.traffic.sent, received_bytes: done.total.traffic.received }
}

/// Fills in what the chief and all workers did. By the chief's clock, all of it took at most so many seconds.
pub(crate) fn fill(
    summary: &mut Summary,
    prepared: &Prepared,
    chief: &Done,
    mut workers: Vec<runs::WorkerSummary>,
    most_seconds: f64,
) {
    summary.status = if chief.cancelled { Status::Cancelled } else { Status::Done };
    summary.global_steps = chief.step;
    summary.global_batch = chief.batch;
    // Where workers are asynchronous, the chief has not seen the last step reports; the server counted all.
    summary.examples = chief.examples.max(chief.tally.examples);
    if chief.went_back {
        // The server that counted is gone with its counts; steps that were made again count again.
        let own: u64 = workers.iter().map(|worker| worker.examples).sum();
        let used = own.saturating_sub(chief.tally.dropped_examples);
        summary.examples = summary.examples.max(used);
    }
    // Another worker may have made the last step; its clock may also have been set in between.
    for worker in &mut workers {
        worker.finished = worker.finished.min(most_seconds);
    }
    summary.seconds = workers.iter().map(|one| one.finished).fold(summary.seconds, f64::max);
    summary.last = Final {
        train_loss: chief.train_loss,
        test_loss: chief.evaluated.as_ref().map_or(f64::NAN, |score| score.loss),
        test_accuracy: chief.evaluated.as_ref().map_or(f64::NAN, |score| score.accuracy),
    };
    if !chief.cancelled {
        let tried = tried(&prepared.plan);
        summary.learning = at_end(&prepared.plan, chief, |ending| Learning::judge(ending, &tried));
    }
    summary.reached = chief.reached;
    summary.staleness = chief.tally.staleness.clone();
    summary.dropped = chief.tally.dropped;
    summary.dropped_examples = chief.tally.dropped_examples;
    summary.lost = chief.lost.clone();
    summary.traffic = Traffic {
        sent_bytes: workers.iter().map(|worker| worker.traffic.sent_bytes).sum(),
        received_bytes: workers.iter().map(|worker| worker.traffic.received_bytes).sum(),
    };
    summary.workers = workers;
    summary.warnings.extend(chief.warnings.iter().cloned());
}

/// Fills in what the chief knows of a run that failed after some steps.
pub(crate) fn fill_cut_short(
    summary: &mut Summary,
    prepared: &Prepared,
    done: Mutex<Option<Done>>,
    name: String,
    seconds: f64,
) {
    if let Some(done) = done.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let workers = vec![worker(name, &done)];
        fill(summary, prepared, &done, workers, seconds);
    }
}

/// Calls `look` with what the run ended with: on held-out examples, else on the last it was trained on.
fn at_end<T>(plan: &RunPlan, chief: &Done, look: impl Fn(&Ending<'_>) -> T) -> T {
    let classes = plan.details.schema.labels.classes();
    let updates = chief.step;
    let ending = |loss, accuracy, labels| Ending { loss, accuracy, auc: None, labels, updates };
    let Some(score) = &chief.evaluated else {
        let own = &chief.own_last;
        let accuracy = own.correct as f64 / own.examples as f64;
        return look(&ending(chief.train_loss, accuracy, Labels::Classes(classes)));
    };
    let counts: Vec<u64> =
        score.confusion.chunks(classes.max(1)).map(|row| row.iter().sum()).collect();
    let labels = if counts.is_empty() { Labels::Classes(classes) } else { Labels::Counts(&counts) };
    look(&ending(score.loss, score.accuracy, labels))
}

/// The error of a run that made all its steps and ended with an exploded loss on held-out examples.
pub(crate) fn exploded(prepared: &Prepared, chief: &Done) -> Option<TrainError> {
    chief.evaluated.as_ref().filter(|_| !chief.cancelled)?;
    #[allow(clippy::redundant_closure_for_method_calls)]
    // the method alone is not general over lifetimes
    let found = at_end(&prepared.plan, chief, |ending| ending.divergence())?;
    let rate = prepared.plan.details.learning_rate;
    Some(TrainError::Diverged { at: Point::Step(chief.step), found, rate, good: None })
}

/// Why a run that was resumed made no step, and what would make it.
pub(crate) fn nothing_left(summary: &Summary, prepared: &Prepared) -> String {
    let step = summary.global_steps;
    let met = match prepared.pace.total_steps.filter(|total| step >= *total) {
        Some(total) => format!("it was to end at step {total}"),
        None if summary.status == Status::Cancelled => {
            return format!("stopped before a step was made: the run is still at step {step}");
        }
        None => "the loss to reach was reached there".to_owned(),
    };
    format!(
        "the stop rule is already met: the run is at step {step}, and {met}; no step was made. \
         More --epochs or --steps, or a lower --until-loss, extend it"
    )
}

/// What advice starts from.
pub(crate) fn tried(plan: &RunPlan) -> Tried<'_> {
    Tried {
        optimizer: &plan.spec.optimizer,
        rate: f64::from(plan.details.learning_rate),
        sturdier: Some("adam"),
        schedules: true,
    }
}

/// `rejects.jsonl`: the photos that were left out, with reasons, as `prepare` writes them; and a word about it.
pub(crate) fn note_rejects(
    run: &RunFolder,
    parts: &Parts,
    summary: &mut Summary,
) -> Result<(), TrainError> {
    let rejects = parts.rejects.list();
    if rejects.is_empty() {
        return Ok(());
    }
    let held_out = parts.test.as_ref().map_or(0, |(_, source)| source.len());
    let photos = parts.train.len() + held_out + parts.train.rejects().len() as u64;
    write_atomically(&run.path().join(REJECTS), &json_lines(&rejects))?;
    summary.warnings.push(format!(
        "{} of {photos} photos were rejected; reasons in `{REJECTS}`",
        rejects.len()
    ));
    Ok(())
}

/// `confusion.csv`: one row per label, one column per prediction.
pub(crate) fn write_confusion(
    run: &RunFolder,
    plan: &RunPlan,
    chief: &Done,
) -> Result<(), TrainError> {
    let Some(score) = chief.evaluated.as_ref().filter(|score| !score.confusion.is_empty()) else {
        return Ok(());
    };
    let names: Vec<String> = match &plan.details.schema.labels {
        LabelKind::Classes { names } => names.iter().map(|name| quoted(name)).collect(),
        LabelKind::Binary => vec!["0".to_string(), "1".to_string()],
    };
    let mut text = format!("label \\ prediction,{}\n", names.join(","));
    for (name, row) in names.iter().zip(score.confusion.chunks(names.len())) {
        let counts: Vec<String> = row.iter().map(ToString::to_string).collect();
        text.push_str(&format!("{name},{}\n", counts.join(",")));
    }
    write_atomically(&run.path().join("confusion.csv"), text.as_bytes())?;
    Ok(())
}

fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_string()
    }
}
