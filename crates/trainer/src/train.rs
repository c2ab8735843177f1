//! Carries out a run: folder, replicas, summary.

use crate::{
    Observer, Parts, RunPlan, RunSpec, TrainError,
    checkpoint::{Checkpoint, Policy, Store},
    checkpoint_keeper::{Keeper, with_cause},
    evaluate::Evaluator,
    input::{Feed, cached},
    plan::{self, Prepared},
    poison, weights,
    worker::{Chief, Done, Origin, Worker},
};
use paceline_analysis::verdict::{Evidence, judge};
use paceline_batch::LabelKind;
use paceline_models::{kernels::Buffer, optimizer::State};
use paceline_runs::{
    CheckpointAction, Event, Final, Machine, PhaseShares, Recorder, RecorderSettings, RunEnded,
    RunFolder, RunStarted, Status, Summary, Traffic, unix_seconds, write_atomically,
};
use paceline_strategies::{self as strategies, Setup};
use std::{path::PathBuf, sync::atomic::AtomicBool, time::Instant};

/// The one task of a run in a single process.
const TASK: &str = "worker/0";
/// Seconds between checkpoints where no number of steps was asked for.
const CHECKPOINT_SECONDS: f64 = 30.0;

/// How a run is steered and watched from outside.
pub struct Control<'a> {
    /// Raised to end the run after the present step, with a checkpoint.
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

/// When to save and what to keep.
pub(crate) fn policy(spec: &RunSpec) -> Policy {
    Policy { every: spec.checkpoint_every, seconds: CHECKPOINT_SECONDS, last: spec.keep }
}

/// Trains, and leaves a run folder behind. A run that was asked to stop is no error: its summary says
/// so. A run that failed leaves a summary too.
pub fn train(
    spec: &RunSpec,
    parts: &Parts,
    start: &Start,
    control: &Control<'_>,
) -> Result<Summary, TrainError> {
    let prepared = plan::prepare(spec, parts)?;
    let models = (0..prepared.plan.replicas)
        .map(|_| (parts.build)(parts.train.schema(), &prepared.options))
        .collect::<Result<Vec<_>, _>>()?;
    let mut params = Buffer::zeroed(prepared.layout.len());
    models[0].init(spec.seed, &mut params);
    let mut warnings = Vec::new();
    if let (Some(file), Start::New { .. }) = (&spec.init, start) {
        for note in weights::init_from(file, &spec.model, &prepared.layout, &mut params)? {
            control.observer.warned(&note);
            warnings.push(note);
        }
    }
    let mut restored = None;
    let run = match start {
        Start::New { out } => {
            let run = RunFolder::create(out, &spec.model, prepared.strategy.name)?;
            run.write_plan(&prepared.plan)?;
            run
        }
        Start::Resume { run } => {
            let (checkpoint, refused) = resume(run, &prepared)?;
            for refused in refused {
                let text = format!(
                    "checkpoint of step {} is damaged ({}); going on from step {}",
                    refused.step, refused.reason, checkpoint.meta.step
                );
                control.observer.warned(&text);
                warnings.push(text);
            }
            params.copy_from_slice(&checkpoint.params);
            restored = Some(checkpoint);
            run.write_plan(&prepared.plan)?;
            run.remove_summary()?;
            run.clone()
        }
    };
    if let Some((entry, value)) = poison::first_bad(&prepared.layout, &params) {
        return Err(TrainError::BadWeights {
            origin: if restored.is_some() { "checkpoint" } else { "initial weights" }.to_string(),
            tensor: entry.name.clone(),
            value,
        });
    }
    run.write_machine(&Machine::detect())?;
    let settings =
        RecorderSettings { tensorboard: spec.tensorboard, ..RecorderSettings::default() };
    let recorder = Recorder::start(&run, TASK, &settings)?;
    let origin = restored.as_ref().map_or_else(Origin::default, origin_of);
    announce(&prepared, &run, &recorder, restored.as_ref(), control);
    let started = unix_seconds();
    let begun = Instant::now();
    let outcome = run_workers(
        &prepared,
        parts,
        models,
        params,
        restored.as_ref().map(|checkpoint| &checkpoint.state),
        origin,
        &run,
        &recorder,
        begun,
        control,
    );
    let seconds = begun.elapsed().as_secs_f64();
    let mut summary = Summary {
        run: run.name(),
        model: spec.model.clone(),
        data: spec.data.clone(),
        strategy: prepared.strategy.name.to_string(),
        seed: spec.seed,
        started,
        global_batch: spec.batch_size,
        global_steps: origin.step,
        seconds,
        warnings,
        ..Summary::default()
    };
    let failure = match outcome {
        Ok(replicas) => {
            fill(&mut summary, &prepared, &replicas);
            write_confusion(&run, &prepared.plan, &replicas[0])?;
            None
        }
        Err(error) => {
            summary.status = Status::Failed;
            summary.verdict = with_cause(&error);
            Some(error)
        }
    };
    let report = recorder.close(RunEnded {
        status: summary.status,
        step: summary.global_steps,
        seconds,
        reason: failure.as_ref().map(with_cause),
        dropped_events: 0,
    });
    if report.dropped > 0 {
        let text = format!("{} events were dropped: the disk was too slow", report.dropped);
        summary.warnings.push(text);
    }
    if let Some(error) = &report.error {
        summary.warnings.push(format!("{} records were lost: {error}", report.lost));
    }
    let written = run.write_summary(&summary);
    match failure {
        Some(error) => Err(error),
        None => written.map(|()| summary).map_err(TrainError::from),
    }
}

/// The latest usable checkpoint of a run, if the run is still the same.
fn resume(
    run: &RunFolder,
    prepared: &Prepared,
) -> Result<(Checkpoint, Vec<crate::checkpoint::Refused>), TrainError> {
    let store = Store::new(&run.checkpoints_path());
    store.sweep()?;
    let old: RunPlan = run.plan()?;
    let plan = &prepared.plan;
    let changed = |what: &'static str, found: String, wanted: String| {
        Err(TrainError::ResumeMismatch { path: run.path().to_path_buf(), what, found, wanted })
    };
    if old.spec.model != plan.spec.model {
        return changed("the model", old.spec.model, plan.spec.model.clone());
    }
    if old.train_examples != plan.train_examples || old.schema != plan.schema {
        let describe =
            |plan: &RunPlan| format!("{} {}", plan.train_examples, plan::features(&plan.schema));
        return changed("the data", describe(&old), describe(plan));
    }
    if old.hash != plan.hash {
        let describe = |plan: &RunPlan| {
            format!(
                "{} replicas, batch {}, {} at {}, {}",
                plan.replicas,
                plan.spec.batch_size,
                plan.spec.optimizer,
                plan.learning_rate,
                plan.spec.schedule
            )
        };
        return changed("a setting", describe(&old), describe(plan));
    }
    let (checkpoint, refused) = store.latest(&prepared.layout, &prepared.optimizer)?;
    match checkpoint {
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

fn origin_of(checkpoint: &Checkpoint) -> Origin {
    let meta = &checkpoint.meta;
    Origin {
        step: meta.step,
        position: meta.position,
        examples: meta.examples,
        seconds: meta.seconds,
        best: None,
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
    recorder.record(Event::RunStarted(RunStarted {
        run: run.name(),
        model: plan.spec.model.clone(),
        strategy: plan.strategy.clone(),
        seed: plan.spec.seed,
        version: plan.version.clone(),
        parameters: plan.parameters,
        global_batch: plan.spec.batch_size,
        first_step,
        planned_steps: plan.planned_steps,
    }));
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

/// Runs one worker per replica; the chief on this thread.
#[allow(clippy::too_many_arguments)] // one call, each argument of its own kind
fn run_workers(
    prepared: &Prepared,
    parts: &Parts,
    models: Vec<Box<dyn paceline_models::Model>>,
    params: Buffer,
    state: Option<&State>,
    origin: Origin,
    run: &RunFolder,
    recorder: &Recorder,
    begun: Instant,
    control: &Control<'_>,
) -> Result<Vec<Done>, TrainError> {
    let plan = &prepared.plan;
    let setup = Setup {
        replicas: plan.replicas,
        layout: &prepared.layout,
        optimizer: &prepared.optimizer,
        state,
        pools: models.iter().filter_map(|model| model.pool().cloned()).collect(),
        origin: strategies::Origin { version: origin.step, ..strategies::Origin::default() },
        steps: prepared.pace.total_steps,
        options: strategies::Options::default(),
        seat: None,
    };
    let exchanges = (prepared.strategy.connect)(&setup)?;
    let store = Store::new(&run.checkpoints_path());
    let best = store
        .kept()?
        .iter()
        .filter(|kept| kept.step <= origin.step)
        .filter_map(|kept| kept.loss)
        .min_by(f64::total_cmp);
    let origin = Origin { best, ..origin };
    let share = plan.spec.batch_size.div_ceil(plan.replicas as u64);
    let (first_batch, _) = prepared.pace.at(origin.step, origin.position);
    let size = (first_batch, !plan.spec.grow_batch);
    let train = cached(&parts.train);
    let test = parts.test.as_ref().map(|(_, source)| cached(source));
    let mut workers = Vec::with_capacity(plan.replicas);
    for (model, exchange) in models.into_iter().zip(exchanges) {
        let (seed, place) = (plan.spec.seed, exchange.place());
        let evaluator = test
            .as_ref()
            .map(|test| Evaluator::new(test, share, place, plan.threads))
            .transpose()?;
        workers.push(Worker {
            prepared,
            model,
            feed: Feed::new(&train, seed, size, origin.position, place, plan.threads)?,
            exchange,
            evaluator,
            params: params.clone(),
            origin,
            cancel: control.cancel,
            begun,
            chief: None,
        });
    }
    drop(params);
    workers[0].chief = Some(Chief {
        recorder,
        observer: control.observer,
        keeper: Keeper::new(
            store,
            policy(&plan.spec),
            &prepared.layout,
            &prepared.optimizer,
            recorder,
            control.observer,
        ),
    });
    let mut others = workers.split_off(1);
    let chief = workers.swap_remove(0);
    let results: Vec<Result<Done, TrainError>> = std::thread::scope(|scope| {
        let handles: Vec<_> = others
            .drain(..)
            .enumerate()
            .map(|(replica, worker)| (replica + 1, scope.spawn(|| worker.run())))
            .collect();
        let first = chief.run();
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

fn fill(summary: &mut Summary, prepared: &Prepared, replicas: &[Done]) {
    let chief = &replicas[0];
    let phases = chief.total.phases();
    let shares = PhaseShares::from(phases);
    summary.status = if chief.cancelled { Status::Cancelled } else { Status::Done };
    summary.global_steps = chief.step;
    summary.global_batch = chief.batch;
    summary.examples = chief.total.loss.examples;
    summary.examples_per_second = chief.total.loss.examples as f64 / phases.total().max(1e-9);
    summary.last = Final {
        train_loss: chief.train_loss,
        test_loss: chief.evaluated.as_ref().map_or(f64::NAN, |score| score.loss),
        test_accuracy: chief.evaluated.as_ref().map_or(f64::NAN, |score| score.accuracy),
    };
    summary.reached = chief.reached;
    summary.workers = replicas
        .iter()
        .enumerate()
        .map(|(number, replica)| paceline_runs::Worker {
            task: if replicas.len() == 1 { TASK.to_string() } else { format!("replica/{number}") },
            iterations: replica.total.steps,
            examples: replica.own_examples,
            seconds: replica.total.phases().total(),
        })
        .collect();
    summary.phases = shares;
    summary.traffic = Traffic {
        sent_bytes: chief.total.traffic.sent,
        received_bytes: chief.total.traffic.received,
    };
    summary.verdict = judge(&Evidence {
        steps: chief.total.steps,
        seconds: phases.total(),
        input: shares.input,
        compute: shares.compute,
        exchange: shares.exchange,
        wait: shares.wait,
        threads: prepared.plan.threads * prepared.plan.replicas,
        busy_cores: None,
    })
    .words;
    summary.warnings.extend(chief.warnings.iter().cloned());
}

/// `confusion.csv`: one row per label, one column per prediction.
fn write_confusion(run: &RunFolder, plan: &RunPlan, chief: &Done) -> Result<(), TrainError> {
    let Some(score) = chief.evaluated.as_ref().filter(|score| !score.confusion.is_empty()) else {
        return Ok(());
    };
    let names: Vec<String> = match &plan.schema.labels {
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
