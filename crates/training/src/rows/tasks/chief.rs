//! What the chief does beside training: weights to begin with, scores of held-out rows, checkpoints.

use super::{
    RETURNING, Task, Tasks,
    evaluator::{EvaluatorLink, HandedOver},
};
use crate::{
    TrainError,
    checkpoint::Store,
    error::with_causes,
    loss_watch::{Check, LossWatch},
    rows::{
        Checkpoint, Control, Earlier, Metrics, Plan, RowsPlace, RowsSpec, Totals, checkpoint,
        evaluate::{EVALUATE_SECONDS, evaluation},
    },
};
use paceline_cluster::JobMembership;
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{
    self as runs, CheckpointAction, Event, FolderWatch, Leg, Reached, Recorder, RunFolder,
};
use paceline_strategies::sparse::{Beginning, Bookmark, Overseer, SparseOptions};
use paceline_wire::{Role, TaskId};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A worker that makes no step for so long is named; again only after it has made one.
const STANDSTILL: Duration = Duration::from_secs(30);
/// How often the thread looks whether something is due.
const LOOK: Duration = Duration::from_millis(20);

/// The task that scores held-out rows, where one does.
const EVALUATOR: TaskId = TaskId { role: Role::Evaluator, index: 0 };

/// Why a copy of the weights is of no use.
const TORN: &str = "a worker's gradient has come to some servers and not yet to others";

/// The weights of all servers.
enum Copied {
    /// Weights, how many are not zero, and what belongs to them.
    Whole(Box<SparseLogistic>, u64, Box<Checkpoint>),
    /// An update is on some servers and not on others.
    Torn,
    /// No server was asked yet.
    Nothing,
}

/// The chief's care for the whole model.
pub(super) struct Oversight<'a> {
    spec: &'a RowsSpec,
    task: &'a Task<'a>,
    recorder: &'a Recorder,
    control: &'a Control<'a>,
    options: SparseOptions,
    overseer: Mutex<Option<Overseer>>,
    /// Of the weights that the servers hold; 0 before the first.
    lineage: AtomicU32,
    /// The loss asked for was reached.
    pub(super) reached: AtomicBool,
    finished: AtomicBool,
    /// The training loss has exploded just now: nothing is saved.
    pub(super) suspect: AtomicBool,
    /// Rows in the weights, over all workers.
    pub(super) rows: AtomicU64,
    /// Microseconds that this worker has spent in steps.
    pub(super) step_micros: AtomicU64,
    /// Those in the weights that this stretch began with, and the updates made by then.
    rows_before: AtomicU64,
    steps_before: AtomicU64,
    /// What was done before this stretch, and when this one began.
    earlier: Mutex<Earlier>,
    started: f64,
    folder: Mutex<FolderWatch>,
    folder_gone: AtomicBool,
    losses: Mutex<LossWatch>,
    warnings: Mutex<Vec<String>>,
    begun: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Oversight<'a> {
    pub(super) fn new(
        spec: &'a RowsSpec,
        tasks: &'a Tasks,
        task: &'a Task<'a>,
        recorder: &'a Recorder,
        control: &'a Control<'a>,
        (begun, started): (Instant, f64),
    ) -> Result<Self, TrainError> {
        Ok(Self {
            spec,
            task,
            recorder,
            control,
            options: tasks.options(spec)?,
            overseer: Mutex::default(),
            lineage: AtomicU32::new(0),
            reached: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            rows: AtomicU64::new(0),
            step_micros: AtomicU64::new(0),
            rows_before: AtomicU64::new(0),
            steps_before: AtomicU64::new(0),
            earlier: Mutex::default(),
            started,
            folder: Mutex::new(FolderWatch::start(task.run)?),
            folder_gone: AtomicBool::new(false),
            losses: Mutex::new(LossWatch::new(spec.until_loss, None)),
            warnings: Mutex::default(),
            begun,
        })
    }

    fn warn(&self, text: String) {
        self.control.observer.warned(&text);
        locked(&self.warnings).push(text);
    }

    /// Whether training shall end: the loss asked for was reached, or the run folder is gone.
    pub(super) fn wants_end(&self) -> bool {
        self.reached.load(Ordering::Relaxed) || self.folder_gone.load(Ordering::Relaxed)
    }

    /// Tells what became of the run folder, where that is news.
    fn look_at_folder(&self, now: bool) {
        let mut folder = locked(&self.folder);
        let news = if now { folder.look() } else { folder.glance() };
        let Some(news) = news else { return };
        self.folder_gone.store(folder.removed().is_some(), Ordering::Relaxed);
        if folder.removed().is_none() {
            self.control.observer.moved(folder.run());
        }
        drop(folder);
        self.warn(news);
    }

    /// Where the run folder is.
    pub(super) fn run(&self) -> RunFolder {
        locked(&self.folder).run().clone()
    }

    /// What was done before this stretch, and the updates made by then.
    pub(super) fn earlier(&self) -> (Earlier, u64) {
        (locked(&self.earlier).clone(), self.steps_before.load(Ordering::Relaxed))
    }

    /// Sees to it that all servers of the present generation hold the same weights.
    pub(super) fn supply(&self) -> Result<(), TrainError> {
        let session = self.task.session;
        let membership = Arc::clone(session) as Arc<dyn JobMembership>;
        let mut overseer = Overseer::connect(membership, &self.options)?;
        let lineage = self.lineage.load(Ordering::Relaxed);
        if !overseer.keep(lineage)? {
            if lineage == 0 && self.task.resume {
                Store::new(&self.run().checkpoints_path()).sweep()?;
            }
            let kept = if lineage > 0 || self.task.resume { self.latest()? } else { None };
            let beginning = kept.as_ref().map_or_else(Beginning::default, |(kept, _)| Beginning {
                version: kept.step,
                examples: kept.rows,
                marks: kept.marks.clone(),
            });
            if lineage == 0 {
                self.rows_before.store(beginning.examples, Ordering::Relaxed);
                self.steps_before.store(beginning.version, Ordering::Relaxed);
                if let Some((kept, _)) = &kept {
                    *locked(&self.earlier) = Earlier::read(self.task.run, kept);
                    self.task.run.remove_summary()?;
                }
            } else {
                self.warn(format!(
                    "a server lost what it held: all tasks continue from step {}",
                    beginning.version
                ));
            }
            let fresh = session.view().generation;
            let drawn = if kept.is_none() { self.spec.fresh_model()? } else { None };
            let table = kept.as_ref().map(|(_, model)| model).or(drawn.as_ref());
            let table = table.map(SparseLogistic::table);
            overseer.give(fresh, &beginning, table)?;
            self.lineage.store(fresh, Ordering::Relaxed);
            if kept.is_some() {
                self.record_checkpoint(CheckpointAction::Restored, beginning.version, 0.0, 0, None);
            }
        }
        *locked(&self.overseer) = Some(overseer);
        Ok(())
    }

    /// The latest checkpoint; one must be there where a run continues, not where a server was lost early.
    fn latest(&self) -> Result<Option<(Checkpoint, SparseLogistic)>, TrainError> {
        match checkpoint::latest(&self.run(), checkpoint::load_model) {
            Err(TrainError::NoCheckpoint { .. }) if !self.task.resume => Ok(None),
            Err(error) => Err(error),
            Ok(((kept, model), refused)) => {
                refused.iter().for_each(|refused| self.warn(refused.warning(kept.step)));
                Ok(Some((kept, model)))
            }
        }
    }

    /// Scores and saves when it is due, until training has ended.
    pub(super) fn look_after(&self) {
        let rows = || self.rows.load(Ordering::Relaxed);
        let (mut scored, mut saved) = (Instant::now(), Instant::now());
        let (mut scored_rows, mut saved_rows) = (rows(), rows());
        let mut pause = EVALUATE_SECONDS;
        let policy = self.spec.common().checkpoints;
        let (mut asked, mut idle) = (Instant::now(), Vec::new());
        let mut evaluator = EvaluatorLink::default();
        while !self.finished.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let due = match self.spec.eval_every {
                Some(every) => rows() >= scored_rows + every,
                None => scored.elapsed().as_secs_f64() >= pause,
            };
            if let Some((weights, score)) = evaluator.score() {
                let HandedOver { step, rows, seconds } = weights;
                let by = Some(EVALUATOR.to_string());
                self.note_score(&score.metrics, (step, rows), seconds, score.seconds, by);
            }
            if self.spec.test.is_some() && due {
                let begun = Instant::now();
                // A server that is gone is the worker's to notice.
                let _ = self.have_scored(&mut evaluator);
                // Scoring must not take more than a fifth of the time of one core.
                pause = EVALUATE_SECONDS.max(4.0 * begun.elapsed().as_secs_f64());
                (scored, scored_rows) = (Instant::now(), rows());
            }
            self.look_at_folder(false);
            if asked.elapsed() >= STANDSTILL / 10 {
                self.name_idle(&mut idle);
                asked = Instant::now();
            }
            let sound = !self.suspect.load(Ordering::Relaxed);
            let (since, seconds) = (rows().saturating_sub(saved_rows), saved.elapsed());
            if sound && policy.is_due(since, seconds.as_secs_f64()) {
                let _ = self.save();
                (saved, saved_rows) = (Instant::now(), rows());
            }
        }
    }

    /// Names workers that heartbeat and make no step: a disk that does not answer, a file that is a pipe.
    fn name_idle(&self, named: &mut Vec<TaskId>) {
        let found = locked(&self.overseer).as_mut().map(|overseer| overseer.idle(STANDSTILL));
        let Some(Ok(found)) = found else { return };
        for task in found.iter().filter(|task| !named.contains(task)) {
            let seconds = STANDSTILL.as_secs();
            self.warn(format!("{task} has made no step for {seconds} s, though it is there"));
        }
        *named = found;
    }

    /// Training has ended.
    pub(super) fn end(&self) {
        self.finished.store(true, Ordering::Relaxed);
    }

    /// Hands the weights to the evaluator; where there is none, has held-out rows scored beside the weights.
    fn have_scored(&self, evaluator: &mut EvaluatorLink) -> Result<(), TrainError> {
        let session = self.task.session;
        let Some(present) = evaluator.present(session) else {
            return self.evaluate().map(drop);
        };
        if evaluator.is_busy() {
            return Ok(());
        }
        let Copied::Whole(model, _, kept) = self.copy()? else { return Ok(()) };
        let weights = HandedOver { step: kept.step, rows: kept.rows, seconds: kept.seconds };
        if let Err(error) = evaluator.hand_over(session, present, weights, &model) {
            // The run does not depend on it.
            self.warn(format!("{error}; the servers score held-out rows"));
        }
        Ok(())
    }

    /// Has held-out rows scored beside the weights.
    pub(super) fn evaluate(&self) -> Result<Option<Metrics>, TrainError> {
        let begun = Instant::now();
        let mut overseer = locked(&self.overseer);
        let Some(overseer) = overseer.as_mut() else { return Ok(None) };
        let Some((step, rows, scores)) = overseer.score()? else { return Ok(None) };
        let mut totals = Totals::of(self.spec.row_loss());
        let labels: Vec<u32> = scores.labels.iter().map(|label| u32::from(*label)).collect();
        totals.add(&scores.logits, &labels);
        let metrics = totals.metrics();
        let before: f64 = locked(&self.earlier).legs.iter().map(|leg| leg.seconds).sum();
        let now = before + self.begun.elapsed().as_secs_f64();
        self.note_score(&metrics, (step, rows), now, begun.elapsed().as_secs_f64(), None);
        Ok(Some(metrics))
    }

    /// Notes a score of the weights after so many steps and rows, as they were after `seconds` of training.
    fn note_score(
        &self,
        metrics: &Metrics,
        (step, rows): (u64, u64),
        seconds: f64,
        took: f64,
        scored_by: Option<String>,
    ) {
        let noted = locked(&self.losses).check(Check { step, seconds, loss: metrics.loss });
        self.reached.store(noted.reached, Ordering::Relaxed);
        let evaluation = evaluation(metrics, step, took, noted.improved);
        let evaluation = runs::Evaluation { scored_by, ..evaluation };
        self.recorder.record(Event::Evaluation(evaluation));
        self.control.observer.evaluated(metrics, rows);
    }

    /// Copies the weights that the run ends with into a checkpoint, or saves them elsewhere and fails; returns how
    /// many are not zero.
    pub(super) fn save_last(&self, plan: &Plan) -> Result<u64, TrainError> {
        let begun = Instant::now();
        loop {
            match self.copy()? {
                Copied::Whole(model, nonzero, kept) => {
                    self.write(&kept, &model, begun);
                    let mut folder = locked(&self.folder);
                    let there = folder.run().checkpoints_path();
                    if folder.removed().is_some() || !checkpoint::is_whole(&there, kept.step) {
                        checkpoint::secure(&mut folder, plan, &kept, &model)?;
                    }
                    return Ok(nonzero);
                }
                Copied::Nothing => return Ok(0),
                // Whatever is on its way comes, or its worker is lost and the servers go on without it.
                Copied::Torn if begun.elapsed() < RETURNING => std::thread::sleep(LOOK),
                Copied::Torn => return Err(TrainError::Ungathered { reason: TORN }),
            }
        }
    }

    /// Copies the weights into a checkpoint.
    pub(super) fn save(&self) -> Result<(), TrainError> {
        let begun = Instant::now();
        match self.copy()? {
            Copied::Whole(model, _, kept) => self.write(&kept, &model, begun),
            Copied::Nothing => {}
            Copied::Torn => {
                // A worker on its way back, or behind a network that is cut: the next one will do.
                let seconds = begun.elapsed().as_secs_f64();
                let (action, reason) = (CheckpointAction::Failed, Some(TORN.to_owned()));
                self.record_checkpoint(action, 0, seconds, 0, reason);
            }
        }
        Ok(())
    }

    /// Gathers the weights from the servers.
    fn copy(&self) -> Result<Copied, TrainError> {
        let model =
            SparseLogistic::new(self.options.bits, self.options.rule, self.options.settings)?;
        let mut nonzero = 0;
        let copied = {
            let mut overseer = locked(&self.overseer);
            let Some(overseer) = overseer.as_mut() else { return Ok(Copied::Nothing) };
            overseer.copy(|number, slot| {
                model.table().set(number, slot);
                nonzero += u64::from(model.rule().weight(slot) != 0.0);
            })?
        };
        let Some(beginning) = copied else { return Ok(Copied::Torn) };
        self.rows.fetch_max(beginning.examples, Ordering::Relaxed);
        let test_loss = locked(&self.losses).loss_at(beginning.version);
        let marks: Vec<(TaskId, Bookmark)> = beginning.marks;
        let (Earlier { mut legs, totals, .. }, steps_before) = self.earlier();
        let seconds = self.begun.elapsed().as_secs_f64();
        let examples = beginning.examples.saturating_sub(self.rows_before.load(Ordering::Relaxed));
        legs.push(Leg {
            started: self.started,
            seconds,
            examples,
            steps: beginning.version.saturating_sub(steps_before),
            examples_per_second: examples as f64 / seconds.max(1e-9),
            step_seconds: Some(self.step_micros.load(Ordering::Relaxed) as f64 * 1e-6),
            status: None,
        });
        let kept = Checkpoint {
            spec: self.spec.clone(),
            step: beginning.version,
            rows: beginning.examples,
            place: RowsPlace::default(),
            seconds: legs.iter().map(|leg| leg.seconds).sum(),
            test_loss,
            marks,
            // What this stretch adds to them, the workers tell at its end.
            totals,
            legs,
        };
        Ok(Copied::Whole(Box::new(model), nonzero, Box::new(kept)))
    }

    /// Writes a checkpoint; a failure is a warning, because the older ones stay.
    fn write(&self, kept: &Checkpoint, model: &SparseLogistic, begun: Instant) {
        self.look_at_folder(true);
        let (folder, policy) = (self.run().checkpoints_path(), self.spec.common().checkpoints);
        let (action, bytes, reason) = match checkpoint::save(&folder, kept, model, &policy) {
            Ok(bytes) => (CheckpointAction::Saved, bytes, None),
            Err(error) => (CheckpointAction::Failed, 0, Some(with_causes(&error))),
        };
        if let Some(reason) = &reason
            && !self.folder_gone.load(Ordering::Relaxed)
        {
            self.warn(format!("{reason}; the older checkpoints stay"));
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.record_checkpoint(action, kept.step, seconds, bytes, reason);
    }

    fn record_checkpoint(
        &self,
        action: CheckpointAction,
        step: u64,
        seconds: f64,
        bytes: u64,
        reason: Option<String>,
    ) {
        let event = runs::Checkpoint { action, step, seconds, bytes, reason };
        self.recorder.record(Event::Checkpoint(event));
    }

    /// Rows learned from since the run began, by workers that were lost too.
    pub(super) fn learned(&self) -> u64 {
        let before = self.rows_before.load(Ordering::Relaxed);
        self.rows.load(Ordering::Relaxed).saturating_sub(before)
    }

    /// When the loss asked for was reached, and what the user should know.
    pub(super) fn close(self) -> (Option<Reached>, Vec<String>) {
        let reached = locked(&self.losses).reached();
        (reached, self.warnings.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
