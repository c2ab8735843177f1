//! Carries out a run: folder, threads, checkpoints, summary.

use crate::{
    Checkpoint, Earlier, Exchanged, Metrics, Place, Source, Spec, StreamError, Window,
    books::{Books, Scores},
    checkpoint,
    engine::{self, Shape},
    evaluate::evaluate,
    outcome,
    source::Parcel,
};
use paceline_data::{
    FileMark,
    rows::{Input, Next},
};
use paceline_models::sparse_logistic::SparseLogistic;
use paceline_runs::{
    Evaluation, Event, FolderHandle, FolderWatch, Leg, Machine, Ownership, Recorder,
    RecorderSettings, RunEnded, RunFolder, RunStarted, Status, Summary,
    diagnosis::{Examples, first_words},
    figures::rate,
    unix_seconds, write_atomically,
};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The one task of a run in a single process.
pub(crate) const TASK: &str = "worker/0";
/// Strategy's name, in records.
const STRATEGY: &str = "one-device";
/// Seconds between two scores of held-out rows where no number of rows was asked for.
const EVALUATE_SECONDS: f64 = 5.0;
/// From so many rows on, an update may be larger than the blocks that files are read in.
const LARGE_BATCH: u64 = 256;
/// Parcels that may wait for their window; at about half a megabyte each, below 100 MB.
const WINDOW_PARCELS: usize = 128;

/// How a run is steered and watched from outside.
pub struct Control<'a> {
    /// Raised to end the run after what has been read, with a checkpoint.
    pub cancel: &'a AtomicBool,
    /// Told what happens.
    pub observer: &'a dyn Observer,
}

/// Where a run begins.
#[derive(Debug, Clone)]
pub enum Start {
    /// A new folder under this one.
    New {
        /// Folder of run folders.
        out: PathBuf,
    },
    /// The latest checkpoint of a run.
    Resume {
        /// The run.
        run: RunFolder,
    },
}

/// A run as it is going to happen; stored before the first row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Tells these plans from those of other models.
    pub kind: String,
    /// What was asked for.
    pub spec: Spec,
    /// Version of the program.
    pub version: String,
    /// Strategy's name.
    pub strategy: String,
    /// Weights, the bias included.
    pub parameters: u64,
    /// Threads.
    pub threads: usize,
    /// Bytes of all files, where the data has an end.
    pub bytes: Option<u64>,
    /// What identifies the files; absent in runs of 0.1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<FileMark>,
}

impl Plan {
    /// What [`Plan::kind`] says.
    pub const KIND: &'static str = "stream";
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

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// How a run ended: the summary every run has, and what only streams have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What every run says.
    #[serde(flatten)]
    pub summary: Summary,
    /// Every row judged before it was learned from.
    pub progressive: Metrics,
    /// Held-out rows, at the end.
    pub held_out: Option<Metrics>,
    /// Weights that are not zero.
    pub nonzero: u64,
    /// Lines that were no rows.
    pub rejected: u64,
    /// Bytes of text that were read.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes of text per second, over the same time as `examples_per_second`.
    pub bytes_per_second: f64,
    /// Seconds between the arrival of a row and its being learned from: mean and most.
    pub delay: [f64; 2],
    /// The most bytes that waited in a followed file.
    pub most_behind: Option<u64>,
    /// What went between tasks, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchanged>,
}

/// Whether a run could be resumed: it has a checkpoint, and something is left to do. For a process that owns the
/// run folder.
///
/// # Errors
/// [`StreamError::Finished`] where nothing is left to do.
pub fn check_resume(spec: &Spec, run: &RunFolder) -> Result<(), StreamError> {
    check_unfinished(spec, run, &checkpoint::load(&checkpoint::resolve(run.path())?)?)
}

fn check_unfinished(spec: &Spec, run: &RunFolder, kept: &Checkpoint) -> Result<(), StreamError> {
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
    Err(StreamError::Finished { path: run.path().to_path_buf(), rows: kept.rows })
}

/// Whether there are rows beyond a checkpoint. A stream without an end may always bring more.
fn is_left(spec: &Spec, kept: &Checkpoint) -> Result<bool, StreamError> {
    let input = spec.data.input()?;
    if input.is_live() {
        return Ok(true);
    }
    let format = spec.format.as_deref();
    let mut rest =
        Source::open(input, format, spec.hashing, kept.place, spec.epochs, Window::None)?;
    Ok(rest.next(&mut Parcel::default())? != Next::End)
}

impl Report {
    /// Derives what follows from the rest; called last, as [`Summary::settle`] is.
    pub(crate) fn settle(&mut self) {
        self.summary.settle();
        if self.summary.status != Status::Failed {
            self.summary.verdict = first_words(&self.summary, 1, Examples::Rows);
        }
        self.bytes_per_second = rate(self.bytes, self.summary.seconds);
    }
}

/// Learns, and leaves a run folder behind. A run that was asked to stop is no error: its summary says
/// so. A run that failed leaves a summary too.
///
/// # Errors
/// Says which setting, file or line is wrong.
pub fn learn(spec: &Spec, start: &Start, control: &Control<'_>) -> Result<Report, StreamError> {
    spec.check()?;
    let input = spec.data.input()?;
    if let Some(test) = &spec.test {
        paceline_data::rows::expand(test)?; // a missing file is told before an hour of training
    }
    let threads = spec.threads.unwrap_or_else(|| paceline_batch::cores().count);
    let (_, settings) = spec.rule()?;
    let mut earlier = Earlier::default();
    let (run, owned, origin, model) = match start {
        Start::New { out } => {
            let model = SparseLogistic::new(spec.hashing.bits, &spec.optimizer, settings)?;
            let run = RunFolder::create(out, &spec.model, STRATEGY)?;
            let owned = Ownership::take(&run)?;
            (run, owned, None, model)
        }
        Start::Resume { run } => {
            let owned = Ownership::take(run)?;
            spec.check_data(run, &run.plan::<Plan>()?.data, true)?;
            let (kept, model) = checkpoint::load_model(&checkpoint::resolve(run.path())?)?;
            check_unfinished(spec, run, &kept)?;
            earlier = Earlier::read(run, &kept);
            run.remove_summary()?;
            (run.clone(), owned, Some(kept), model)
        }
    };
    let plan = Plan {
        kind: Plan::KIND.to_owned(),
        spec: spec.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        strategy: STRATEGY.to_owned(),
        parameters: model.table().len() as u64,
        threads,
        bytes: bytes_of(&input, spec.epochs),
        data: spec.marks()?,
    };
    run.write_plan(&plan)?;
    run.write_machine(&Machine::detect())?;
    let settings =
        RecorderSettings { tensorboard: spec.tensorboard, ..RecorderSettings::default() };
    let recorder = Recorder::start(&run, TASK, &settings)?;
    let (handle, watch) = (FolderHandle::open(&run)?, FolderWatch::start(&run)?);
    let rows = origin.as_ref().map_or(0, |checkpoint| checkpoint.rows);
    recorder.record(Event::RunStarted(RunStarted {
        run: run.name(),
        model: spec.model.clone(),
        strategy: STRATEGY.to_owned(),
        seed: 0,
        version: plan.version.clone(),
        parameters: plan.parameters,
        global_batch: spec.batch_size,
        first_step: origin.as_ref().map_or(0, |checkpoint| checkpoint.step),
        planned_steps: None,
    }));
    control.observer.started(&plan, &run, rows);
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
    };
    let Outcome { mut report, failure } = stage.run(&model, threads, origin.as_ref(), watch);
    let summary = &mut report.summary;
    // It may have been renamed; a folder that is gone is told by what could not be written.
    let home = handle.present().unwrap_or_else(|_| run.clone());
    summary.run = home.name();
    summary.model.clone_from(&spec.model);
    summary.data = spec.data.to_string();
    summary.strategy = STRATEGY.to_owned();
    summary.started = started;
    summary.seconds = begun.elapsed().as_secs_f64();
    report.settle();
    let summary = &mut report.summary;
    if let Some(error) = &failure {
        summary.status = Status::Failed;
        summary.verdict = with_cause(error);
        summary.learning = outcome::of_failure(spec, error);
    }
    let closed = recorder.close(RunEnded {
        status: summary.status,
        step: summary.global_steps,
        seconds: summary.seconds,
        reason: failure.as_ref().map(with_cause),
        dropped_events: 0,
    });
    if closed.dropped > 0 {
        summary
            .warnings
            .push(format!("{} events were dropped: the disk was too slow", closed.dropped));
    }
    if let Some(error) = &closed.error {
        summary.warnings.push(format!("{} records were lost: {error}", closed.lost));
    }
    let before = origin.as_ref().map_or(0, |checkpoint| checkpoint.step);
    let steps = summary.global_steps.saturating_sub(before);
    if steps == 0 && failure.is_none() && earlier.report.is_some() {
        control.observer.warned(&report.keep(earlier, spec));
    } else {
        summary.add_legs(&earlier.legs, steps);
    }
    let text = serde_json::to_vec_pretty(&report).expect("a report is plain data");
    let written = write_atomically(&home.path().join("summary.json"), &text);
    drop(owned);
    match failure {
        Some(error) => Err(error),
        None => written.map(|()| report).map_err(StreamError::from),
    }
}

/// An error and its causes in one line.
pub(crate) fn with_cause(error: &StreamError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

pub(crate) fn bytes_of(input: &Input, epochs: u64) -> Option<u64> {
    let Input::Files(files) = input else { return None };
    // Packed files hold more than they weigh, so their end is not known.
    let packed = |path: &Path| path.extension().is_some_and(|name| name == "gz");
    if files.iter().any(|path| packed(path)) {
        return None;
    }
    let sizes = files.iter().map(|path| std::fs::metadata(path).map(|data| data.len()));
    Some(sizes.sum::<std::io::Result<u64>>().ok()? * epochs)
}

/// What all parts of a run look at.
pub(crate) struct Stage<'a> {
    pub(crate) spec: &'a Spec,
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
}

/// How it went.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) failure: Option<StreamError>,
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
        let place = origin.map_or_else(Place::default, |checkpoint| checkpoint.place);
        let learned = AtomicU64::new(origin.map_or(0, |checkpoint| checkpoint.rows));
        let reached = AtomicBool::new(false);
        let finished = AtomicBool::new(false);
        let scores = Mutex::new(Scores::default());
        let mut books = Books::new(self, model, origin, &learned, &reached, &scores, watch);
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
                scope.spawn(|| self.score_beside(model, &learned, &reached, &finished, &scores));
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
                    self.tell(&metrics, &learned, &reached, &scores, 0.0);
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
        scores: &Mutex<Scores>,
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
                    self.tell(&metrics, learned, reached, scores, seconds);
                    // Scoring must not take more than a fifth of the time of one core.
                    let pause = EVALUATE_SECONDS.max(4.0 * seconds);
                    next_time = Instant::now() + Duration::from_secs_f64(pause);
                }
                Ok(None) => return,
                Err(error) => {
                    self.control.observer.warned(&format!("held-out rows: {}", with_cause(&error)));
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
        scores: &Mutex<Scores>,
        seconds: f64,
    ) {
        let rows = learned.load(Ordering::Relaxed);
        let step = rows.div_ceil(self.spec.batch_size);
        let mut scores = scores.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.begun.elapsed().as_secs_f64();
        let best = scores.note(self.spec.until_loss, step, now, metrics.loss);
        reached.store(scores.reached.is_some(), Ordering::Relaxed);
        drop(scores);
        self.recorder.record(Event::Evaluation(Evaluation {
            step,
            epochs: 0.0,
            examples: metrics.rows,
            loss: metrics.loss,
            accuracy: metrics.accuracy,
            seconds,
            best,
            auc: Some(metrics.auc).filter(|auc| auc.is_finite()),
            normalised_entropy: Some(metrics.normalised_entropy)
                .filter(|entropy| entropy.is_finite()),
            scored_by: None,
        }));
        self.control.observer.evaluated(metrics, rows);
    }
}
