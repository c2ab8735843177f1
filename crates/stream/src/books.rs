//! The books of a run: everything that is counted, recorded and saved while parcels are learned from.

use crate::{
    Checkpoint, Metrics, Place, Report, Spec, StreamError, Totals, checkpoint,
    engine::{Learned, Ledger, Wish},
    learn::{Observer, Outcome, Stage, TASK, with_cause},
};
use paceline_analysis::verdict::{Evidence, Examples, judge};
use paceline_data::rows::{Input, Rejects};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{
    self as runs, CheckpointAction, Event, Final, PhaseSeconds, PhaseShares, Reached, Recorder,
    Status, Summary,
};
use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

/// Seconds between checkpoints where no number of rows was asked for.
const CHECKPOINT_SECONDS: f64 = 30.0;
/// Seconds between two records of progress.
const RECORD_SECONDS: f64 = 0.1;

/// Scores of held-out rows so far.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    pub(crate) best: Option<f64>,
    /// Step, second and loss of the last one.
    pub(crate) last: Option<(u64, f64, f64)>,
    pub(crate) reached: Option<Reached>,
}

impl Scores {
    /// Takes note of a score; says whether it is the best so far.
    pub(crate) fn note(&mut self, wanted: Option<f64>, step: u64, now: f64, loss: f64) -> bool {
        let best = self.best.is_none_or(|best| loss < best);
        if best {
            self.best = Some(loss);
        }
        if let Some(wanted) = wanted.filter(|wanted| loss <= *wanted && self.reached.is_none()) {
            let between = [self.last.map_or(0, |(step, ..)| step), step];
            let (step, seconds) = self.crossing(wanted, step, now, loss);
            self.reached = Some(Reached { loss: wanted, step, seconds, between });
        }
        self.last = Some((step, now, loss));
        best
    }

    /// Where the loss was crossed, on a line between the last score and this one.
    fn crossing(&self, wanted: f64, step: u64, now: f64, loss: f64) -> (f64, f64) {
        let Some((last_step, last_now, last_loss)) = self.last else { return (step as f64, now) };
        let share = ((last_loss - wanted) / (last_loss - loss).max(1e-12)).clamp(0.0, 1.0);
        let at = |from: f64, to: f64| from + share * (to - from);
        (at(last_step as f64, step as f64), at(last_now, now))
    }
}

/// Everything that is counted while parcels are learned from.
pub(crate) struct Books<'a> {
    spec: &'a Spec,
    input: &'a Input,
    recorder: &'a Recorder,
    observer: &'a dyn Observer,
    model: &'a SparseLogistic,
    learned: &'a AtomicU64,
    reached: &'a AtomicBool,
    scores: &'a Mutex<Scores>,
    folder: PathBuf,
    rejects: Rejects,
    all: Totals,
    recent: Totals,
    /// Rows learned from before this process.
    earlier: u64,
    earlier_seconds: f64,
    bytes: u64,
    place: Place,
    begun: Instant,
    recorded: Instant,
    saved: Instant,
    saved_rows: u64,
    learn_seconds: f64,
    recent_seconds: f64,
    delay_sum: f64,
    delay_most: f64,
    most_behind: Option<u64>,
    warnings: Vec<String>,
}

impl<'a> Books<'a> {
    pub(crate) fn new(
        stage: &'a Stage<'_>,
        model: &'a SparseLogistic,
        origin: Option<&Checkpoint>,
        learned: &'a AtomicU64,
        reached: &'a AtomicBool,
        scores: &'a Mutex<Scores>,
    ) -> Self {
        let now = Instant::now();
        let earlier = origin.map_or(0, |checkpoint| checkpoint.rows);
        Self {
            spec: stage.spec,
            input: stage.input,
            recorder: stage.recorder,
            observer: stage.control.observer,
            model,
            learned,
            reached,
            scores,
            folder: stage.run.checkpoints_path(),
            rejects: Rejects::new(stage.run.path().join("rejects.jsonl"), stage.spec.max_rejects),
            all: Totals::default(),
            recent: Totals::default(),
            earlier,
            earlier_seconds: origin.map_or(0.0, |checkpoint| checkpoint.seconds),
            bytes: 0,
            place: origin.map_or_else(Place::default, |checkpoint| checkpoint.place),
            begun: now,
            recorded: now,
            saved: now,
            saved_rows: earlier,
            learn_seconds: 0.0,
            recent_seconds: 0.0,
            delay_sum: 0.0,
            delay_most: 0.0,
            most_behind: None,
            warnings: Vec::new(),
        }
    }

    fn rows(&self) -> u64 {
        self.earlier + self.all.rows
    }

    fn steps(&self) -> u64 {
        self.rows().div_ceil(self.spec.batch_size)
    }

    /// Writes down what happened since the last record.
    fn record(&mut self) {
        let seconds = self.recorded.elapsed().as_secs_f64();
        self.recorded = Instant::now();
        if self.recent.rows == 0 {
            return;
        }
        let metrics = self.recent.metrics();
        let compute = self.recent_seconds.min(seconds);
        self.recorder.record(Event::Step(runs::Step {
            step: self.steps(),
            steps: self.recent.rows.div_ceil(self.spec.batch_size),
            examples: self.recent.rows,
            seconds,
            loss: metrics.loss,
            accuracy: metrics.accuracy,
            learning_rate: f64::from(self.spec.learning_rate),
            global_batch: self.spec.batch_size,
            phases: PhaseSeconds { input: seconds - compute, compute, ..PhaseSeconds::default() },
        }));
        let speed = self.recent.rows as f64 / seconds.max(1e-9);
        self.observer.progressed(&metrics, self.rows(), self.bytes, speed);
        self.recent.clear();
        self.recent_seconds = 0.0;
    }

    fn checkpoint(&mut self, place: Place) {
        let begun = Instant::now();
        let step = self.steps();
        let test_loss = self.scores.lock().unwrap_or_else(PoisonError::into_inner).last;
        let checkpoint = Checkpoint {
            spec: self.spec.clone(),
            step,
            rows: self.rows(),
            place,
            seconds: self.earlier_seconds + self.begun.elapsed().as_secs_f64(),
            test_loss: test_loss.filter(|(at, ..)| *at == step).map(|(.., loss)| loss),
            marks: Vec::new(),
        };
        let saved = checkpoint::save(&self.folder, &checkpoint, self.model, self.spec.keep);
        let (action, bytes, reason) = match saved {
            Ok(bytes) => (CheckpointAction::Saved, bytes, None),
            // A full disk costs the checkpoint, not the run.
            Err(error) => (CheckpointAction::Failed, 0, Some(with_cause(&error))),
        };
        if let Some(reason) = &reason {
            let text = format!("{reason}; training goes on with the checkpoints there are");
            self.observer.warned(&text);
            self.warnings.push(text);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let event = runs::Checkpoint { action, step, seconds, bytes, reason };
        self.recorder.record(Event::Checkpoint(event));
        self.saved = Instant::now();
        self.saved_rows = self.rows();
    }

    pub(crate) fn close(
        mut self,
        stage: &Stage<'_>,
        idle: f64,
        mut failure: Option<StreamError>,
        held_out: Option<Metrics>,
    ) -> Outcome {
        self.record();
        let seconds = self.begun.elapsed().as_secs_f64();
        if let Err(error) = self.rejects.flush() {
            self.warnings.push(error.to_string());
        }
        if failure.is_none() && self.rows() == 0 {
            failure = Some(StreamError::NoRows { data: self.spec.data.to_string() });
        }
        if self.all.rows > 0 && self.rows() > self.saved_rows {
            self.checkpoint(self.place);
        }
        let busy = (seconds - idle).max(0.0).min(seconds);
        let phases = PhaseShares::from(PhaseSeconds {
            input: seconds - busy,
            compute: busy,
            ..PhaseSeconds::default()
        });
        let progressive = self.all.metrics();
        let cancelled = stage.control.cancel.load(Ordering::Relaxed);
        let table = self.model.table();
        let nonzero = (0..table.len()).filter(|&index| self.model.weight(index) != 0.0).count();
        let evidence = Evidence {
            // A step here is a block of rows: single rows would all be "small steps".
            steps: self.all.rows.div_ceil(1000),
            seconds,
            input: phases.input,
            compute: phases.compute,
            exchange: 0.0,
            wait: 0.0,
            threads: 1,
            busy_cores: None,
            examples: Examples::Rows,
        };
        let reached = self.scores.lock().unwrap_or_else(PoisonError::into_inner).reached;
        let summary = Summary {
            status: if cancelled { Status::Cancelled } else { Status::Done },
            global_batch: self.spec.batch_size,
            global_steps: self.steps(),
            examples: self.all.rows,
            examples_per_second: self.all.rows as f64 / seconds.max(1e-9),
            last: Final {
                train_loss: progressive.loss,
                test_loss: held_out.map_or(f64::NAN, |metrics| metrics.loss),
                test_accuracy: held_out.map_or(f64::NAN, |metrics| metrics.accuracy),
            },
            reached,
            workers: vec![runs::Worker {
                task: TASK.to_owned(),
                iterations: self.all.rows.div_ceil(self.spec.batch_size),
                examples: self.all.rows,
                seconds: self.learn_seconds,
                ..runs::Worker::default()
            }],
            phases,
            verdict: judge(&evidence).words,
            warnings: self.warnings,
            ..Summary::default()
        };
        let report = Report {
            summary,
            progressive,
            held_out,
            nonzero: nonzero as u64,
            rejected: self.rejects.count,
            bytes_per_second: self.bytes as f64 / seconds.max(1e-9),
            delay: [self.delay_sum / self.all.rows.max(1) as f64, self.delay_most],
            most_behind: self.most_behind,
            exchange: None,
        };
        Outcome { report, failure }
    }
}

impl Ledger for Books<'_> {
    fn note(&mut self, learned: &Learned<'_>) -> Result<Wish, StreamError> {
        let parcel = learned.parcel;
        let rows = learned.totals.rows;
        self.all.merge(learned.totals);
        self.recent.merge(learned.totals);
        self.learned.store(self.rows(), Ordering::Relaxed);
        self.bytes += parcel.block.text.len() as u64;
        self.learn_seconds += learned.seconds;
        self.recent_seconds += learned.seconds;
        let delay = parcel.block.arrived.elapsed().as_secs_f64();
        self.delay_sum += delay * rows as f64;
        self.delay_most = self.delay_most.max(delay);
        self.most_behind = self.most_behind.max(parcel.behind);
        self.rejects.note(self.input, &parcel.block, rows, parcel.refused())?;
        if !learned.totals.loss.is_finite() {
            return Err(StreamError::NotFinite { rows: self.rows() });
        }
        if self.recorded.elapsed().as_secs_f64() >= RECORD_SECONDS {
            self.record();
        }
        if self.reached.load(Ordering::Relaxed) {
            return Ok(Wish::Stop);
        }
        let due = match self.spec.checkpoint_every {
            Some(every) => self.rows() - self.saved_rows >= every,
            None => self.saved.elapsed().as_secs_f64() >= CHECKPOINT_SECONDS,
        };
        Ok(if due { Wish::Save } else { Wish::GoOn })
    }

    fn save(&mut self, place: Place) {
        self.checkpoint(place);
    }

    fn end(&mut self, place: Place) {
        self.place = place;
    }

    fn tick(&mut self) {
        if self.recorded.elapsed().as_secs_f64() >= RECORD_SECONDS {
            self.record();
        }
    }
}
