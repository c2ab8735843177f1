//! Carries out a run: folder, workers, summary.

use crate::{
    Observer, Parts, RunPlan, RunSpec, TrainError,
    checkpoint::{Checkpoint, Store},
    checkpoint_keeper::Keeper,
    error::{Point, with_causes},
    evaluate::Evaluated,
    input::cached,
    lineage,
    loop_state::{Done, Origin},
    nonfinite,
    peers::Peers,
    plan::{self, Prepared},
    recover,
    session_log::Inbox,
    summarize::{self, Conclusion, Heading},
    weights,
    worker::{Chief, ExamplesWorker, Input, Sources},
};
use paceline_cluster::{
    JobMembership,
    session::{Session, SessionError},
};
use paceline_data::rejects::Reject;
use paceline_models::{
    Layout, Model, kernels::Buffer, optimizer::OptimizerState, random, threads::Pool,
};
use paceline_runs::{
    self as runs, CheckpointAction, Event, FolderHandle, Learning, Leg, Machine, Ownership,
    Recorder, RecorderSettings, RunFolder, Status, Summary, diagnosis::Examples, unix_seconds,
};
use paceline_strategies::{self as strategies, Exchange, Setup};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Instant,
};

/// The one task of a run in a single process.
const TASK: &str = "worker/0";
/// Where a worker's report has the photos that it left out.
const REJECTS: &str = "rejects";

/// How a run is steered and watched from outside.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// Raised to end the run after the present step, with a checkpoint.
    pub cancel: &'a AtomicBool,
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
    /// A new run in a folder that was made for it.
    In { run: RunFolder },
    /// The latest checkpoint of a run.
    Resume { run: RunFolder },
}

/// This process's part in a run of several.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Who else takes part.
    pub session: &'a Arc<Session>,
    /// What the session said so far and says from now on.
    pub inbox: &'a Inbox,
}

/// Whether a run could start: every check that needs no other task.
pub fn check(spec: &RunSpec, parts: &Parts) -> Result<RunPlan, TrainError> {
    plan::prepare(spec, parts).map(|prepared| prepared.plan)
}

/// Whether a run could be resumed: it is the same run, has a checkpoint, and something is left to do. For a
/// process that owns the run folder.
///
/// # Errors
/// [`TrainError::Finished`] where nothing is left to do.
pub fn check_resume(spec: &RunSpec, parts: &Parts, run: &RunFolder) -> Result<(), TrainError> {
    resume(run, &plan::prepare(spec, parts)?).map(drop)
}

/// Trains, and leaves a run folder behind. A run that was asked to stop is not an error: its summary says
/// so. A run that failed leaves a summary too.
pub fn train(
    spec: &RunSpec,
    parts: &Parts,
    start: &Start,
    control: &Control<'_>,
) -> Result<Summary, TrainError> {
    let prepared = plan::prepare(spec, parts)?;
    if !prepared.strategy.in_process {
        return Err(TrainError::Alone { strategy: prepared.strategy.name });
    }
    carry_out(&prepared, parts, start, control, None)
}

/// The same for a worker of several tasks. The chief's summary is the run's, and only the chief
/// writes it; the others' tell of themselves.
pub(crate) fn train_worker(
    spec: &RunSpec,
    parts: &Parts,
    start: &Start,
    control: &Control<'_>,
    task: Task<'_>,
) -> Result<Summary, TrainError> {
    let prepared = plan::prepare(spec, parts)?;
    carry_out(&prepared, parts, start, control, Some(task))
}

fn carry_out(
    prepared: &Prepared,
    parts: &Parts,
    start: &Start,
    control: &Control<'_>,
    task: Option<Task<'_>>,
) -> Result<Summary, TrainError> {
    let spec = &prepared.plan.spec;
    let name = task.map_or_else(|| TASK.to_owned(), |task| task.session.me().to_string());
    let is_chief = task.is_none_or(|task| task.session.is_chief());
    let models = (0..prepared.plan.replicas)
        .map(|_| plan::build_model(spec, parts, &prepared.options))
        .collect::<Result<Vec<_>, _>>()?;
    let mut params = Buffer::zeroed(prepared.layout.len());
    let mut warnings = Vec::new();
    let mut restored = None;
    let run = match start {
        Start::New { out } => RunFolder::create(out, &spec.model, prepared.strategy.name)?,
        Start::In { run } | Start::Resume { run } => run.clone(),
    };
    // A task's folder is owned by the chief, or by the process that started all tasks.
    let _owned = if task.is_none() { Some(Ownership::take(&run)?) } else { None };
    let (mut legs, mut before) = (Vec::new(), None);
    if is_chief && matches!(start, Start::Resume { .. }) {
        Store::new(&run.checkpoints_path()).sweep()?;
        let (checkpoint, refused) = resume(&run, prepared)?;
        legs = legs_before(&run, &checkpoint);
        before = Some(Summary::before(&run, checkpoint.meta.step));
        for refused in refused {
            let text = refused.warning(checkpoint.meta.step);
            control.observer.warned(&text);
            warnings.push(text);
        }
        params.copy_from_slice(&checkpoint.params);
        restored = Some(checkpoint);
        run.remove_summary()?;
    } else {
        for note in initial_weights(spec, &*models[0], &prepared.layout, &mut params)? {
            control.observer.warned(&note);
            warnings.push(note);
        }
    }
    if let Some((entry, value)) = nonfinite::first_bad(&prepared.layout, &params) {
        return Err(TrainError::BadWeights {
            origin: if restored.is_some() { "checkpoint" } else { "initial weights" }.to_string(),
            tensor: entry.name.clone(),
            value,
        });
    }
    if is_chief {
        run.write_plan(&prepared.plan)?;
        run.write_machine(&Machine::detect())?;
    }
    let settings =
        RecorderSettings { tensorboard: spec.tensorboard, ..RecorderSettings::default() };
    let recorder = Recorder::start(&run, &name, &settings)?;
    let handle = FolderHandle::open(&run)?;
    let started = unix_seconds();
    let origin = restored.as_ref().map_or_else(Origin::default, origin_of);
    let origin = Origin { started, legs, ..origin };
    announce(prepared, &run, &recorder, restored.as_ref(), control);
    let begun = Instant::now();
    let state = restored.as_ref().map(|checkpoint| &checkpoint.state);
    let cut_short = Mutex::new(None);
    let stage = Stage {
        prepared,
        parts,
        run: &run,
        recorder: &recorder,
        begun,
        control,
        task,
        cut_short: &cut_short,
    };
    let outcome = stage.run_workers(models, params, state, origin.clone());
    let seconds = begun.elapsed().as_secs_f64();
    // It may have been renamed; a folder that is gone is told by what could not be written.
    let home = handle.present().unwrap_or_else(|_| run.clone());
    let mut summary = Summary {
        global_batch: spec.batch_size,
        global_steps: origin.step,
        warnings,
        ..Summary::default()
    };
    let heading = Heading {
        run: home.name(),
        model: &spec.model,
        data: spec.data.clone(),
        strategy: prepared.strategy.name,
        seed: spec.seed,
        started,
        seconds,
    };
    heading.put(&mut summary);
    let outcome = outcome.and_then(|done| Ok((stage.meet(&name, &done)?, done)));
    let failure = match outcome {
        Ok((workers, mut done)) => {
            let most_seconds = begun.elapsed().as_secs_f64();
            summarize::fill(&mut summary, prepared, &done[0], workers, most_seconds);
            let mut records = || -> Result<(), TrainError> {
                summarize::note_rejects(&home, parts, &mut summary)?;
                summarize::write_confusion(&home, &prepared.plan, &done[0])
            };
            let unwritten = if is_chief { records().err() } else { None };
            let exploded = summarize::exploded(prepared, &done[0]).filter(|_| is_chief);
            let warning = summary.learning.as_ref().and_then(Learning::warning);
            if let (Some(warning), None, true) = (warning, &exploded, is_chief) {
                control.observer.warned(&warning);
                summary.warnings.push(warning);
            }
            done[0].unsaved.take().or(unwritten).or(exploded)
        }
        Err(error) => {
            summarize::fill_cut_short(&mut summary, prepared, cut_short, name, seconds);
            Some(error)
        }
    };
    let conclusion = Conclusion {
        failure: failure.as_ref(),
        tried: summarize::tried(&prepared.plan),
        threads: prepared.plan.threads * prepared.plan.replicas,
        examples: Examples::Any,
        first_step: origin.step,
    };
    let steps = conclusion.put(&mut summary, recorder);
    match before.filter(|_| steps == 0 && failure.is_none()) {
        Some(before) => {
            summary.add_no_step(before, &origin.legs);
            control.observer.warned(&summarize::nothing_left(&summary, prepared));
        }
        None => summary.add_legs(&origin.legs, steps),
    }
    let written = if is_chief { home.write_summary(&summary) } else { Ok(()) };
    match failure {
        Some(error) => Err(error),
        None => written.map(|()| summary).map_err(TrainError::from),
    }
}

/// Fills `params` as a run from the start has them; returns what a user should know.
pub(crate) fn initial_weights(
    spec: &RunSpec,
    model: &dyn Model,
    layout: &Layout,
    params: &mut [f32],
) -> Result<Vec<String>, TrainError> {
    model.init(spec.seed, params);
    if let Some((least, most)) = spec.init_range()? {
        for (number, entry) in layout.entries().iter().enumerate().filter(|(_, it)| it.trained) {
            let values = &mut params[entry.range()];
            random::fill_uniform(spec.seed, number as u64, (most - least) / 2.0, values);
            values.iter_mut().for_each(|value| *value += (most + least) / 2.0);
        }
        return Ok(Vec::new());
    }
    match &spec.init {
        Some(file) => weights::init_from(file, &spec.model, layout, params),
        None => Ok(Vec::new()),
    }
}

/// The latest usable checkpoint of a run, if the run is still the same.
fn resume(
    run: &RunFolder,
    prepared: &Prepared,
) -> Result<(Checkpoint, Vec<crate::checkpoint::Refused>), TrainError> {
    let store = Store::new(&run.checkpoints_path());
    let old: RunPlan = run.plan()?;
    let plan = &prepared.plan;
    let changed = |what: &'static str, found: String, wanted: String| {
        Err(TrainError::ResumeMismatch { path: run.path().to_path_buf(), what, found, wanted })
    };
    if old.spec.model != plan.spec.model {
        return changed("the model", old.spec.model, plan.spec.model.clone());
    }
    if old.details.train_examples != plan.details.train_examples
        || old.details.schema != plan.details.schema
    {
        let describe = |plan: &RunPlan| {
            let details = &plan.details;
            format!("{} {}", details.train_examples, plan::features(&details.schema))
        };
        return changed("the data", describe(&old), describe(plan));
    }
    if let (Some(was), Some(now)) = (&old.details.data, &plan.details.data)
        && let Some((was, now)) = was.difference(now)
    {
        return changed("the data", was, now);
    }
    if old.details.hash != plan.details.hash {
        let describe = |plan: &RunPlan| {
            format!(
                "{} replicas, batch {}, {} at {}, {}",
                plan.replicas,
                plan.spec.batch_size,
                plan.spec.optimizer,
                plan.details.learning_rate,
                plan.spec.schedule
            )
        };
        return changed("a setting", describe(&old), describe(plan));
    }
    let (checkpoint, refused) = store.latest(&prepared.layout, &prepared.optimizer)?;
    match checkpoint {
        Some(checkpoint) if is_finished(run, prepared, &checkpoint) => {
            let at = Point::Step(checkpoint.meta.step);
            Err(TrainError::Finished { path: run.path().to_path_buf(), at })
        }
        Some(checkpoint) => Ok((checkpoint, refused)),
        None => {
            let detail: Vec<String> = refused
                .iter()
                .map(|refused| format!("step {}: {}", refused.step, refused.reason))
                .collect();
            let detail =
                if detail.is_empty() { String::new() } else { format!(" ({})", detail.join("; ")) };
            Err(TrainError::NothingToResume { path: run.path().to_path_buf(), detail })
        }
    }
}

/// Whether the run ended at this checkpoint by a stop rule that goes as far as the present one.
fn is_finished(run: &RunFolder, prepared: &Prepared, checkpoint: &Checkpoint) -> bool {
    // One without a readable summary has at least that to do.
    let Ok(Some(summary)) = run.summary() else { return false };
    let step = checkpoint.meta.step;
    let ended = !matches!(summary.status, Status::Cancelled | Status::Failed | Status::Unknown);
    let reached = summary.reached.zip(prepared.plan.spec.stop.until_loss);
    ended
        && summary.global_steps == step
        && (prepared.pace.total_steps.is_some_and(|steps| step >= steps)
            || reached.is_some_and(|(reached, wanted)| wanted >= reached.loss))
}

/// The stretches of a run before one that continues from a checkpoint.
fn legs_before(run: &RunFolder, checkpoint: &Checkpoint) -> Vec<Leg> {
    let meta = &checkpoint.meta;
    let whole = Leg {
        seconds: meta.seconds,
        examples: meta.examples,
        steps: meta.step,
        examples_per_second: meta.examples as f64 / meta.seconds.max(1e-9),
        ..Leg::default()
    };
    Leg::earlier(&meta.legs, &whole, run.summary().ok().flatten().as_ref())
}

pub(crate) fn origin_of(checkpoint: &Checkpoint) -> Origin {
    let meta = &checkpoint.meta;
    let evaluated = meta.evaluation.map(|score| Evaluated {
        loss: score.loss,
        accuracy: score.accuracy,
        ..Evaluated::default()
    });
    Origin {
        train_loss: meta.train_loss,
        evaluated,
        step: meta.step,
        position: meta.position,
        examples: meta.examples,
        seconds: meta.seconds,
        outstanding: meta.outstanding.clone(),
        ..Origin::default()
    }
}

/// Tells log and observer that the first step is next.
fn announce(
    prepared: &Prepared,
    run: &RunFolder,
    recorder: &Recorder,
    restored: Option<&Checkpoint>,
    control: &Control<'_>,
) {
    let plan = &prepared.plan;
    let first_step = restored.map_or(0, |checkpoint| checkpoint.meta.step);
    recorder.record(plan.started(run, first_step));
    if let Some(checkpoint) = restored {
        recorder.record(Event::Checkpoint(paceline_runs::Checkpoint {
            action: CheckpointAction::Restored,
            step: checkpoint.meta.step,
            seconds: 0.0,
            bytes: 0,
            reason: None,
        }));
    }
    if plan.spec.tensorboard {
        let tensors = prepared.layout.entries().iter();
        let tensors = tensors.map(|entry| (entry.name.as_str(), entry.shape.as_slice()));
        recorder.graph(paceline_runs::tensorboard::layer_chain(tensors));
    }
    control.observer.started(plan, run, first_step);
}

/// What all workers of this process share.
struct Stage<'a> {
    prepared: &'a Prepared,
    parts: &'a Parts,
    run: &'a RunFolder,
    recorder: &'a Recorder,
    begun: Instant,
    control: &'a Control<'a>,
    task: Option<Task<'a>>,
    cut_short: &'a Mutex<Option<Done>>,
}

impl<'a> Stage<'a> {
    /// Runs one worker per replica; the first on this thread.
    fn run_workers(
        &self,
        models: Vec<Box<dyn Model>>,
        params: Buffer,
        state: Option<&OptimizerState>,
        origin: Origin,
    ) -> Result<Vec<Done>, TrainError> {
        let Self { prepared, recorder, control, task, .. } = *self;
        let pools: Vec<Pool> = models.iter().filter_map(|model| model.pool().cloned()).collect();
        let (exchanges, lineage) = self.connect(&origin, &params, state, &pools)?;
        let store = Store::new(&self.run.checkpoints_path());
        let best = store
            .kept()?
            .iter()
            .filter(|kept| kept.step <= origin.step)
            .filter_map(|kept| kept.loss)
            .min_by(f64::total_cmp);
        let origin = Origin { best, ..origin };
        let sources = Sources {
            train: cached(&self.parts.train),
            test: self.parts.test.as_ref().map(|(_, source)| cached(source)),
        };
        let is_chief = task.is_none_or(|task| task.session.is_chief());
        let mut chief = None;
        if is_chief {
            let (rules, observer) = (prepared.plan.spec.common().checkpoints, control.observer);
            let keeper = Keeper::new(self.run, rules, prepared, recorder, observer)?;
            chief = Some(Chief { observer, keeper });
        }
        let mut recorder = Some(recorder);
        let mut workers = Vec::with_capacity(models.len());
        for (model, exchange) in models.into_iter().zip(exchanges) {
            let (step, position) = (origin.step, origin.position);
            let mut worker = ExamplesWorker {
                prepared,
                model,
                input: Input::new(prepared, &sources.train, &*exchange, step, position)?,
                exchange,
                sources: sources.clone(),
                evaluator: None,
                params: params.clone(),
                origin: origin.clone(),
                cancel: control.cancel,
                begun: self.begun,
                chief: chief.take(),
                peers: task.map(|task| Peers::new(task, self.recorder, control.observer, lineage)),
                recorder: recorder.take(),
                cut_short: self.cut_short,
            };
            worker.evaluator = recover::evaluator(&worker)?;
            workers.push(worker);
        }
        drop(params);
        in_threads(workers)
    }

    /// Makes one exchange per replica of this process; returns the lineage of the servers' weights too.
    /// A task that is lost meanwhile is dealt with as later on.
    fn connect(
        &self,
        origin: &Origin,
        params: &Buffer,
        state: Option<&OptimizerState>,
        pools: &[Pool],
    ) -> Result<(Vec<Box<dyn Exchange>>, u32), TrainError> {
        let prepared = self.prepared;
        loop {
            let membership =
                self.task.map(|task| Arc::clone(task.session) as Arc<dyn JobMembership>);
            let setup = Setup {
                replicas: prepared.plan.replicas,
                layout: &prepared.layout,
                optimizer: &prepared.optimizer,
                state,
                pools: pools.to_vec(),
                origin: strategies::Origin {
                    version: origin.step,
                    outstanding: origin.outstanding.clone(),
                },
                steps: prepared.pace.total_steps,
                options: prepared.plan.spec.options(),
                split: prepared.split.clone(),
                membership,
            };
            let attempt = self
                .supply(origin, params, state)
                .and_then(|lineage| Ok(((prepared.strategy.connect)(&setup)?, lineage)));
            match (attempt, self.task) {
                (Err(error), Some(task)) if error.is_peer() => {
                    if task.session.regroup(error.peer(), &with_causes(&error))?.is_none() {
                        let (me, reason) = (task.session.me(), "the run had ended".to_owned());
                        return Err(SessionError::Expelled { me, reason }.into());
                    }
                }
                (attempt, _) => return attempt,
            }
        }
    }

    /// The chief gives all servers the weights to begin with; returns their lineage.
    fn supply(
        &self,
        origin: &Origin,
        params: &Buffer,
        state: Option<&OptimizerState>,
    ) -> Result<u32, TrainError> {
        let Some(task) = self.task.filter(|task| task.session.is_chief()) else { return Ok(0) };
        if self.prepared.plan.details.servers == 0 {
            return Ok(0);
        }
        let lineage = task.session.view().generation;
        if let Some(links) = lineage::ask(task.session, 0)? {
            lineage::give(links, lineage, origin, params, state)?;
        }
        Ok(lineage)
    }

    /// The exit barrier: what every worker did, as far as this task learns it.
    fn meet(&self, name: &str, done: &[Done]) -> Result<Vec<runs::WorkerSummary>, TrainError> {
        let Some(task) = self.task else {
            let alone = done.len() == 1;
            let name = |number| if alone { name.to_owned() } else { format!("replica/{number}") };
            let workers = done.iter().enumerate();
            return Ok(workers
                .map(|(number, done)| summarize::worker(name(number), done))
                .collect());
        };
        let own = summarize::worker(name.to_owned(), &done[0]);
        let mut report = serde_json::to_value(&own).unwrap_or_default();
        report[REJECTS] = serde_json::to_value(self.parts.rejects.list()).unwrap_or_default();
        let reports = task.session.finish(report)?;
        if !task.session.is_chief() {
            return Ok(vec![own]);
        }
        for rejects in reports.iter().filter_map(|(_, report)| report.get(REJECTS)) {
            let list: Vec<Reject> = serde_json::from_value(rejects.clone()).unwrap_or_default();
            list.into_iter().try_for_each(|reject| self.parts.rejects.note(reject))?;
        }
        // A report is our own type; one that does not read back is of another version.
        let read = |(_, report)| serde_json::from_value(report).ok();
        Ok(reports.into_iter().filter_map(read).collect())
    }
}

fn in_threads(mut workers: Vec<ExamplesWorker<'_>>) -> Result<Vec<Done>, TrainError> {
    let mut others = workers.split_off(1);
    let first = workers.swap_remove(0);
    let results: Vec<Result<Done, TrainError>> = std::thread::scope(|scope| {
        let handles: Vec<_> = others
            .drain(..)
            .enumerate()
            .map(|(replica, worker)| (replica + 1, scope.spawn(|| worker.run())))
            .collect();
        let first = first.run();
        std::iter::once(first)
            .chain(handles.into_iter().map(|(replica, handle)| {
                handle.join().unwrap_or(Err(TrainError::ReplicaPanicked { replica }))
            }))
            .collect()
    });
    // The cause before its echoes: a replica that fails makes the others fail too.
    let mut done = Vec::new();
    let mut echo = None;
    for result in results {
        match result {
            Ok(replica) => done.push(replica),
            Err(error) if error.is_echo() => echo = Some(error),
            Err(error) => return Err(error),
        }
    }
    echo.map_or(Ok(done), Err)
}
