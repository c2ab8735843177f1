//! The books of a run: everything that is counted, recorded and saved while parcels are learned from.

use crate::{
    TrainError,
    error::with_causes,
    loss_watch::LossWatch,
    rows::{
        Checkpoint, Metrics, Plan, RowsPlace, RowsSpec, Totals, checkpoint,
        engine::{Learned, Ledger, Wish},
        learn::{Observer, Outcome, Stage, TASK},
        outcome,
        report::{RunFacts, WorkerReport, report},
    },
};
use paceline_data::rows::{Input, Rejects};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{
    self as runs, CheckpointAction, Divergence, Event, FolderWatch, Learning, Leg, LossGuard,
    Observed, PhaseTimes, Recorder, RunsError, figures::rate,
};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

/// Seconds between two records of progress.
const RECORD_SECONDS: f64 = 0.1;

/// Everything that is counted while parcels are learned from.
pub(crate) struct Books<'a> {
    spec: &'a RowsSpec,
    input: &'a Input,
    recorder: &'a Recorder,
    observer: &'a dyn Observer,
    model: &'a SparseLogistic,
    learned: &'a AtomicU64,
    reached: &'a AtomicBool,
    losses: &'a Mutex<LossWatch>,
    plan: &'a Plan,
    folder: FolderWatch,
    /// The stretches before this one, and when this one began.
    legs: &'a [Leg],
    started: f64,
    /// How rows were predicted before this process.
    before: Option<Totals>,
    rejects: Rejects,
    all: Totals,
    recent: Totals,
    /// Watches the loss for divergence.
    guard: LossGuard,
    /// Rows learned from and updates made before this process.
    earlier: u64,
    earlier_steps: u64,
    earlier_seconds: f64,
    bytes: u64,
    place: RowsPlace,
    begun: Instant,
    recorded: Instant,
    saved: Instant,
    saved_rows: u64,
    /// Threads that learn at once.
    learners: usize,
    /// Where the time of all steps went.
    phases: PhaseTimes,
    /// Seconds of learning since the last record, over all learners.
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
        losses: &'a Mutex<LossWatch>,
        folder: FolderWatch,
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
            losses,
            plan: stage.plan,
            folder,
            legs: stage.legs,
            started: stage.started,
            before: origin.and_then(|checkpoint| checkpoint.totals.clone()),
            rejects: Rejects::new(stage.run.path().join("rejects.jsonl"), stage.spec.max_rejects),
            all: Totals::default(),
            recent: Totals::default(),
            guard: LossGuard::of_blocks().beginning_far(stage.spec.init.is_some()),
            earlier,
            earlier_steps: origin.map_or(0, |checkpoint| checkpoint.step),
            earlier_seconds: origin.map_or(0.0, |checkpoint| checkpoint.seconds),
            bytes: 0,
            place: origin.map_or_else(RowsPlace::default, |checkpoint| checkpoint.place),
            begun: now,
            recorded: now,
            saved: now,
            saved_rows: earlier,
            learners: 1,
            phases: PhaseTimes::default(),
            recent_seconds: 0.0,
            delay_sum: 0.0,
            delay_most: 0.0,
            most_behind: None,
            warnings: stage.warnings.clone(),
        }
    }

    /// How all rows of the run were predicted before they were learned from, as far as that is known.
    fn whole(&self) -> Totals {
        let mut whole = self.all.clone();
        if let Some(before) = &self.before {
            whole.merge(before);
        }
        whole
    }

    /// The stretches of the run up to now.
    fn legs_so_far(&self) -> Vec<Leg> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let mut legs = self.legs.to_vec();
        legs.push(Leg {
            started: self.started,
            seconds,
            examples: self.all.rows,
            steps: self.steps() - self.earlier_steps,
            examples_per_second: rate(self.all.rows, seconds),
            step_seconds: Some(self.phases.total()),
            status: None,
        });
        legs
    }

    /// Tells what became of the run folder, where that is news.
    fn tell(&mut self, news: Option<String>) {
        let Some(news) = news else { return };
        self.observer.warned(&news);
        self.warnings.push(news);
        if self.folder.removed().is_none() {
            self.observer.moved(self.folder.run());
        }
    }

    /// Whether the run folder is still there: otherwise training ends at once.
    fn check_folder(&mut self) -> Result<(), TrainError> {
        let news = self.folder.glance();
        self.tell(news);
        match self.folder.removed() {
            Some(_) => {
                Err(RunsError::Removed { path: self.folder.run().path().to_path_buf() }.into())
            }
            None => Ok(()),
        }
    }

    /// So many threads learn at once.
    pub(crate) fn share_among(&mut self, learners: usize) {
        self.learners = learners.max(1);
    }

    fn rows(&self) -> u64 {
        self.earlier + self.all.rows
    }

    fn steps(&self) -> u64 {
        self.rows().div_ceil(self.spec.batch_size)
    }

    /// Writes down what happened since the last record. While no row comes there is nothing to write: that time was spent
    /// waiting for the next one, and is counted with it.
    fn record(&mut self) {
        if self.recent.rows == 0 {
            return;
        }
        let seconds = self.recorded.elapsed().as_secs_f64();
        self.recorded = Instant::now();
        let metrics = self.recent.metrics();
        // What learners do not spend learning they wait for rows, which are read and parsed.
        let compute = (self.recent_seconds / self.learners as f64).min(seconds);
        let phases = PhaseTimes { input: seconds - compute, compute, ..PhaseTimes::default() };
        self.phases += phases;
        self.recorder.record(Event::Step(runs::Step {
            step: self.steps(),
            steps: self.recent.rows.div_ceil(self.spec.batch_size),
            examples: self.recent.rows,
            seconds,
            loss: metrics.loss,
            accuracy: metrics.accuracy,
            learning_rate: f64::from(self.spec.learning_rate),
            global_batch: self.spec.batch_size,
            phases,
        }));
        let speed = rate(self.recent.rows, seconds);
        self.observer.progressed(&metrics, self.rows(), self.bytes, speed);
        self.recent.clear();
        self.recent_seconds = 0.0;
    }

    /// The present state, to be saved.
    fn present(&self, place: RowsPlace) -> Checkpoint {
        let step = self.steps();
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        Checkpoint {
            spec: self.spec.clone(),
            step,
            rows: self.rows(),
            place,
            seconds: self.earlier_seconds + self.begun.elapsed().as_secs_f64(),
            test_loss: losses.loss_at(step),
            marks: Vec::new(),
            totals: Some(self.whole()).filter(|totals| totals.loss.is_finite()),
            legs: self.legs_so_far(),
        }
    }

    fn checkpoint(&mut self, place: RowsPlace) {
        // The leg that the checkpoint carries has the time of its steps, also where none was recorded before.
        self.record();
        let begun = Instant::now();
        let step = self.steps();
        let news = self.folder.look();
        self.tell(news);
        let folder = self.folder.run().checkpoints_path();
        let policy = self.spec.common().checkpoints;
        let saved = checkpoint::save(&folder, &self.present(place), self.model, &policy);
        let (action, bytes, reason) = match saved {
            Ok(bytes) => (CheckpointAction::Saved, bytes, None),
            // A full disk costs the checkpoint, not the run.
            Err(error) => (CheckpointAction::Failed, 0, Some(with_causes(&error))),
        };
        if let Some(reason) = reason.as_ref().filter(|_| self.folder.removed().is_none()) {
            let text = format!("{reason}; the older checkpoints stay");
            self.observer.warned(&text);
            self.warnings.push(text);
        }
        let seconds = begun.elapsed().as_secs_f64();
        let event = runs::Checkpoint { action, step, seconds, bytes, reason };
        self.recorder.record(Event::Checkpoint(event));
        self.recorded += begun.elapsed(); // saving does not count as a step
        self.saved = Instant::now();
        self.saved_rows = self.rows();
    }

    fn diverged(&self, found: Divergence) -> TrainError {
        let good = checkpoint::latest_step(self.folder.run());
        outcome::diverged(self.spec, self.rows(), found, good)
    }

    pub(crate) fn close(
        mut self,
        stage: &Stage<'_>,
        mut failure: Option<TrainError>,
        held_out: Option<Metrics>,
    ) -> Outcome {
        self.record();
        if let Err(error) = self.rejects.flush() {
            self.warnings.push(error.to_string());
        }
        if failure.is_none() && self.rows() == 0 {
            failure = Some(TrainError::NoRows { data: self.spec.data.to_string() });
        }
        let cancelled = stage.control.cancel.load(Ordering::Relaxed);
        if let (None, false, Some(found)) = (&failure, cancelled, self.guard.at_end()) {
            failure = Some(self.diverged(found));
        }
        if failure.is_none() && !cancelled {
            failure = outcome::exploded(self.spec, self.rows(), held_out.as_ref());
        }
        // The latest checkpoint stays one of good weights; a run that a user stops keeps what there is.
        let wanted = !self.guard.is_suspect() || cancelled;
        if self.all.rows > 0 && self.rows() > self.saved_rows && wanted {
            self.checkpoint(self.place);
        }
        failure = self.secure(failure);
        let table = self.model.table();
        let nonzero = (0..table.len()).filter(|&index| self.model.weight(index) != 0.0).count();
        let reached = self.losses.lock().unwrap_or_else(PoisonError::into_inner).reached();
        let iterations = self.all.rows.div_ceil(self.spec.batch_size);
        let delay = [self.delay_sum / self.all.rows.max(1) as f64, self.delay_most];
        let facts = RunFacts {
            version: self.steps(),
            cancelled,
            failed: failure.is_some(),
            held_out,
            nonzero: nonzero as u64,
            reached,
            warnings: self.warnings,
            before: self.before,
            delay,
            most_behind: self.most_behind,
            ..RunFacts::default()
        };
        let mut own = WorkerReport::new(TASK.to_owned(), iterations, self.all, self.phases);
        (own.bytes, own.rejected) = (self.bytes, self.rejects.count);
        own.worker.finished = self.begun.elapsed().as_secs_f64();
        let report = report(self.spec, &[own], facts);
        if let Some(warning) = report.summary.learning.as_ref().and_then(Learning::warning) {
            self.observer.warned(&warning);
        }
        Outcome { report, failure }
    }
}

impl Books<'_> {
    /// Sees to it that the weights the run ends with are on disk, or that it fails and says where they are.
    fn secure(&mut self, failure: Option<TrainError>) -> Option<TrainError> {
        let folder_gone = matches!(failure, Some(TrainError::Runs(RunsError::Removed { .. })));
        if self.rows() == 0 || failure.is_some() && !folder_gone {
            return failure;
        }
        let news = self.folder.look();
        self.tell(news);
        let there = self.folder.run().checkpoints_path();
        if self.folder.removed().is_none() && checkpoint::is_whole(&there, self.steps()) {
            return failure;
        }
        let present = self.present(self.place);
        match checkpoint::secure(&mut self.folder, self.plan, &present, self.model) {
            Ok(()) => failure,
            Err(error) => Some(error.into()),
        }
    }
}

impl Ledger for Books<'_> {
    fn note(&mut self, learned: &Learned<'_>) -> Result<Wish, TrainError> {
        let parcel = learned.parcel;
        let rows = learned.totals.rows;
        self.all.merge(learned.totals);
        self.recent.merge(learned.totals);
        self.learned.store(self.rows(), Ordering::Relaxed);
        self.bytes += parcel.block.text.len() as u64;
        self.recent_seconds += learned.seconds;
        let delay = parcel.block.arrived.elapsed().as_secs_f64();
        self.delay_sum += delay * rows as f64;
        self.delay_most = self.delay_most.max(delay);
        self.most_behind = self.most_behind.max(parcel.behind);
        self.rejects.note(self.input, &parcel.block, rows, parcel.refused())?;
        if !learned.totals.loss.is_finite() {
            return Err(outcome::not_finite(self.spec, self.rows()));
        }
        self.guard.set_positive(self.all.positive as f64 / self.all.rows as f64);
        let Totals { loss, correct, .. } = *learned.totals;
        let observed = Observed { loss_sum: loss, correct, examples: rows };
        if let Some(found) = self.guard.observe(&observed) {
            return Err(self.diverged(found));
        }
        if self.recorded.elapsed().as_secs_f64() >= RECORD_SECONDS {
            self.record();
        }
        self.check_folder()?;
        if self.reached.load(Ordering::Relaxed) {
            return Ok(Wish::Stop);
        }
        let rows = self.rows() - self.saved_rows;
        let due = self.spec.common().checkpoints.is_due(rows, self.saved.elapsed().as_secs_f64());
        Ok(if due && !self.guard.is_suspect() { Wish::Save } else { Wish::GoOn })
    }

    fn save(&mut self, place: RowsPlace) {
        self.checkpoint(place);
    }

    fn end(&mut self, place: RowsPlace) {
        self.record(); // what follows, such as scoring held-out rows, does not count as a step
        self.place = place;
    }

    fn tick(&mut self) -> Result<(), TrainError> {
        if self.recorded.elapsed().as_secs_f64() >= RECORD_SECONDS {
            self.record();
        }
        self.check_folder()
    }
}
