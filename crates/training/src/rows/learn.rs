//! Carries out a run: folder, threads, checkpoints, summary.

use crate::{
    Point, Start, TrainError,
    checkpoint::Store,
    error::with_causes,
    loss_watch::{Check, LossWatch},
    rows::{
        Checkpoint, Earlier, Metrics, Plan, RowsPlace, RowsReport, RowsSpec, Source, Window,
        books::Books,
        checkpoint,
        engine::{self, Shape},
        evaluate::{EVALUATE_SECONDS, evaluate, evaluation},
        source::Parcel,
    },
};
use paceline_data::rows::{Input, Next};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{
    Event, FolderHandle, FolderWatch, Leg, Machine, Ownership, Recorder, RecorderSettings,
    RunFolder, Status, unix_seconds,
};
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The one task of a run in a single process.
pub(crate) const TASK: &str = "worker/0";
/// From so many rows on, an update may be larger than the blocks that files are read in.
const LARGE_BATCH: u64 = 256;
/// Parcels that may wait for their window; at about half a megabyte each, below 100 MB.
const WINDOW_PARCELS: usize = 128;

/// How a run is steered and watched from outside.
pub struct Control<'a> {
    /// Raised to end the run after what has been read, with a checkpoint.
    pub cancel: &'a AtomicBool,
    pub observer: &'a dyn Observer,
}

/// Told what happens, a few times a second at most; every call has a default that does nothing.
pub trait Observer: Sync {
    /// The first row is next.
    fn started(&self, _plan: &Plan, _run: &RunFolder, _rows: u64) {}
    /// Some rows were learned from. `done` counts bytes of text of this process.
    fn progressed(&self, _recent: &Metrics, _rows: u64, _done: u64, _rows_per_second: f64) {}
    /// Held-out rows were scored.
    fn evaluated(&self, _metrics: &Metrics, _rows: u64) {}
    /// The run folder was renamed; the run continues there.
    fn moved(&self, _run: &RunFolder) {}
    /// Something the user should know.
    fn warned(&self, _text: &str) {}
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Whether a run could be resumed: it has a checkpoint, and something is left to do. For a process that owns the
/// run folder.
///
/// # Errors
/// [`TrainError::Finished`] where nothing is left to do.
pub fn check_resume(spec: &RowsSpec, run: &RunFolder) -> Result<(), TrainError> {
    check_unfinished(spec, run, &checkpoint::latest(run, checkpoint::load)?.0)
}

fn check_unfinished(spec: &RowsSpec, run: &RunFolder, kept: &Checkpoint) -> Result<(), TrainError> {
    // One without a readable summary has at least that to do.
    let Ok(Some(summary)) = run.summary() else { return Ok(()) };
    let ended = !matches!(summary.status, Status::Cancelled | Status::Failed | Status::Unknown);
    if !ended || summary.global_steps != kept.step {
        return Ok(());
    }
    let reached = summary.reached.zip(spec.until_loss);
    let is_left = match &spec.tasks {
        _ if reached.is_some_and(|(reached, wanted)| wanted >= reached.loss) => false,
        Some(tasks) => tasks.is_left(spec, kept)?,
        None => is_left(spec, kept)?,
    };
    if is_left {
        return Ok(());
    }
    Err(TrainError::Finished { path: run.path().to_path_buf(), at: Point::Rows(kept.rows) })
}

/// Whether there are rows beyond a checkpoint. A stream without an end may always bring more.
fn is_left(spec: &RowsSpec, kept: &Checkpoint) -> Result<bool, TrainError> {
    let input = spec.data.input()?;
    if input.is_live() {
        return Ok(true);
    }
    let format = spec.format.as_deref();
    let mut rest =
        Source::open(input, format, spec.hashing, kept.place, spec.epochs, Window::None)?;
    Ok(rest.next(&mut Parcel::default())? != Next::End)
}

/// Learns, and leaves a run folder behind. A run that was asked to stop is not an error: its summary says
/// so. A run that failed leaves a summary too.
///
/// # Errors
/// Says which setting, file or line is wrong.
pub fn learn(
    spec: &RowsSpec,
    start: &Start,
    control: &Control<'_>,
) -> Result<RowsReport, TrainError> {
    spec.check()?;
    let input = spec.data.input()?;
    if let Some(test) = &spec.test {
        paceline_data::rows::expand(test)?; // a missing file is told before an hour of training
    }
    let threads = spec.common().threads();
    let (_, settings) = spec.rule()?;
    let (mut earlier, mut warnings) = (Earlier::default(), Vec::new());
    let (run, owned, origin, model) = match start {
        Start::New { .. } | Start::In { .. } => {
            let model = SparseLogistic::new(spec.hashing.bits, &spec.optimizer, settings)?;
            let model = model.with_loss(spec.row_loss());
            if let Some(range) = spec.init_range()? {
                model.draw(range);
            }
            let run = match start {
                Start::New { out } => RunFolder::create(out, &spec.model, spec.strategy())?,
                Start::In { run } | Start::Resume { run } => run.clone(),
            };
            let owned = Ownership::take(&run)?;
            (run, owned, None, model)
        }
        Start::Resume { run } => {
            let owned = Ownership::take(run)?;
            spec.check_data(run, true)?;
            Store::new(&run.checkpoints_path()).sweep()?;
            let ((kept, model), refused) = checkpoint::latest(run, checkpoint::load_model)?;
            check_unfinished(spec, run, &kept)?;
            warnings.extend(refused.iter().map(|refused| refused.warning(kept.step)));
            earlier = Earlier::read(run, &kept);
            run.remove_summary()?;
            (run.clone(), owned, Some(kept), model)
        }
    };
    let plan = spec.plan(&input, threads)?;
    run.write_plan(&plan)?;
    run.write_machine(&Machine::detect())?;
    let settings =
        RecorderSettings { tensorboard: spec.tensorboard, ..RecorderSettings::default() };
    let recorder = Recorder::start(&run, TASK, &settings)?;
    let (handle, watch) = (FolderHandle::open(&run)?, FolderWatch::start(&run)?);
    let rows = origin.as_ref().map_or(0, |checkpoint| checkpoint.rows);
    let first_step = origin.as_ref().map_or(0, |checkpoint| checkpoint.step);
    recorder.record(plan.started(&run, first_step));
    control.observer.started(&plan, &run, rows);
    warnings.iter().for_each(|warning| control.observer.warned(warning));
    let started = unix_seconds();
    let begun = Instant::now();
    let stage = Stage {
        spec,
        plan: &plan,
        input: &input,
        run: &run,
        recorder: &recorder,
        control,
        begun,
        started,
        legs: &earlier.legs,
        warnings,
    };
    let Outcome { mut report, failure } = stage.run(&model, threads, origin.as_ref(), watch);
    // It may have been renamed; a folder that is gone is told by what could not be written.
    let home = handle.present().unwrap_or_else(|_| run.clone());
    let seconds = begun.elapsed().as_secs_f64();
    let (now, earlier) = ((started, seconds), (earlier, first_step));
    let nothing_left = report.conclude(spec, &home, now, failure.as_ref(), earlier, recorder);
    nothing_left.iter().for_each(|why| control.observer.warned(why));
    let written = report.write(&home);
    drop(owned);
    match failure {
        Some(error) => Err(error),
        None => written.map(|()| report),
    }
}

/// What all parts of a run look at.
pub(crate) struct Stage<'a> {
    pub(crate) spec: &'a RowsSpec,
    pub(crate) plan: &'a Plan,
    pub(crate) input: &'a Input,
    pub(crate) run: &'a RunFolder,
    pub(crate) recorder: &'a Recorder,
    pub(crate) control: &'a Control<'a>,
    begun: Instant,
    /// When that was, in seconds since 1970.
    pub(crate) started: f64,
    /// The stretches before this one.
    pub(crate) legs: &'a [Leg],
    /// What the user was told before the first row.
    pub(crate) warnings: Vec<String>,
}

/// How it went.
pub(crate) struct Outcome {
    pub(crate) report: RowsReport,
    pub(crate) failure: Option<TrainError>,
}

impl Stage<'_> {
    fn run(
        &self,
        model: &SparseLogistic,
        threads: usize,
        origin: Option<&Checkpoint>,
        watch: FolderWatch,
    ) -> Outcome {
        let spec = self.spec;
        let place = origin.map_or_else(RowsPlace::default, |checkpoint| checkpoint.place);
        let learned = AtomicU64::new(origin.map_or(0, |checkpoint| checkpoint.rows));
        let reached = AtomicBool::new(false);
        let finished = AtomicBool::new(false);
        let best = origin.and_then(|checkpoint| checkpoint.test_loss);
        let losses = Mutex::new(LossWatch::new(spec.until_loss, best));
        let mut books = Books::new(self, model, origin, &learned, &reached, &losses, watch);
        // A parcel holds at least one update's rows: updates do not span parcels.
        let window = match spec.window {
            Window::None if spec.batch_size >= LARGE_BATCH => Window::Rows(spec.batch_size),
            asked => asked,
        };
        let source = Source::open(
            self.input.clone(),
            spec.format.as_deref(),
            spec.hashing,
            place,
            spec.epochs,
            window,
        );
        let source = match source {
            Ok(source) => source,
            Err(error) => return books.close(self, Some(error), None),
        };
        let waits = spec.window != Window::None;
        let shape = Shape {
            threads,
            learners: if spec.deterministic { 1 } else { threads.div_ceil(2) },
            parcels: if waits { WINDOW_PARCELS } else { 2 * threads + 2 },
            batch_size: spec.batch_size,
            combine: spec.combine,
        };
        books.share_among(shape.learners.min(threads));
        let (books, result) = std::thread::scope(|scope| {
            if spec.test.is_some() {
                scope.spawn(|| self.score_beside(model, &learned, &reached, &finished, &losses));
            }
            let result = engine::run(source, place, model, shape, self.control.cancel, books);
            finished.store(true, Ordering::Relaxed);
            result
        });
        let mut failure = result.err();
        let mut held_out = None;
        if let (None, Some(test)) = (&failure, &spec.test) {
            // The last word is on the weights as they ended; a user in a hurry gets none.
            match evaluate(spec, test, model, self.control.cancel) {
                Ok(Some(metrics)) => {
                    self.tell(&metrics, &learned, &reached, &losses, 0.0);
                    held_out = Some(metrics);
                }
                Ok(None) => {}
                Err(error) => failure = Some(error),
            }
        }
        books.close(self, failure, held_out)
    }

    /// Scores held-out rows again and again until training has ended.
    fn score_beside(
        &self,
        model: &SparseLogistic,
        learned: &AtomicU64,
        reached: &AtomicBool,
        finished: &AtomicBool,
        losses: &Mutex<LossWatch>,
    ) {
        let Some(test) = &self.spec.test else { return };
        let mut next_rows =
            self.spec.eval_every.map(|every| learned.load(Ordering::Relaxed) + every);
        let mut next_time = Instant::now() + Duration::from_secs_f64(EVALUATE_SECONDS);
        while !finished.load(Ordering::Relaxed) {
            let due = match next_rows {
                Some(rows) => learned.load(Ordering::Relaxed) >= rows,
                None => Instant::now() >= next_time,
            };
            if !due {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            let begun = Instant::now();
            match evaluate(self.spec, test, model, finished) {
                Ok(Some(metrics)) => {
                    let seconds = begun.elapsed().as_secs_f64();
                    self.tell(&metrics, learned, reached, losses, seconds);
                    // Scoring must not take more than a fifth of the time of one core.
                    let pause = EVALUATE_SECONDS.max(4.0 * seconds);
                    next_time = Instant::now() + Duration::from_secs_f64(pause);
                }
                Ok(None) => return,
                Err(error) => {
                    self.control
                        .observer
                        .warned(&format!("held-out rows: {}", with_causes(&error)));
                    return;
                }
            }
            next_rows = self.spec.eval_every.map(|every| learned.load(Ordering::Relaxed) + every);
        }
    }

    /// Records a score of held-out rows.
    fn tell(
        &self,
        metrics: &Metrics,
        learned: &AtomicU64,
        reached: &AtomicBool,
        losses: &Mutex<LossWatch>,
        seconds: f64,
    ) {
        let rows = learned.load(Ordering::Relaxed);
        let step = rows.div_ceil(self.spec.batch_size);
        let before: f64 = self.legs.iter().map(|leg| leg.seconds).sum();
        let now = before + self.begun.elapsed().as_secs_f64();
        let check = Check { step, seconds: now, loss: metrics.loss };
        let noted = losses.lock().unwrap_or_else(PoisonError::into_inner).check(check);
        reached.store(noted.reached, Ordering::Relaxed);
        let event = evaluation(metrics, step, seconds, noted.improved);
        self.recorder.record(Event::Evaluation(event));
        self.control.observer.evaluated(metrics, rows);
    }
}
