//! What each task of a run does: workers train, servers hold weights, an evaluator scores.

use crate::{
    Control, Parts, RunSpec, Start, Task, TrainError, error::with_causes, evaluate::Evaluator,
    input::cached, lineage, peers::next_weights, plan, session_log::Scored, train::train_worker,
};
use paceline_models::kernels::Buffer;
use paceline_runs::Summary;
use paceline_strategies::{Server, Setup};
use paceline_wire::Role;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// How often a server that no worker needs looks whether it is over.
const LOOK: Duration = Duration::from_millis(10);

/// Plays this task's part until the run is over. Workers have a summary to show: the chief's is the
/// run's and is written to its folder, the others' tell of themselves.
///
/// # Errors
/// Whatever ends this task before its time. The other tasks are told.
pub fn train_task(
    spec: &RunSpec,
    parts: &Parts,
    start: &Start,
    control: &Control<'_>,
    task: Task<'_>,
) -> Result<Option<Summary>, TrainError> {
    let outcome = match task.session.me().role {
        Role::Chief | Role::Worker => train_worker(spec, parts, start, control, task).map(Some),
        Role::Ps => serve(spec, parts, task).map(|()| None),
        Role::Evaluator => evaluate(spec, parts, control, task).map(|()| None),
    };
    if let Err(error) = &outcome {
        task.session.fail(&with_causes(error));
    }
    outcome
}

/// Holds weights, generation after generation.
fn serve(spec: &RunSpec, parts: &Parts, task: Task<'_>) -> Result<(), TrainError> {
    let prepared = plan::prepare(spec, parts)?;
    let session = task.session;
    let mut params = Buffer::zeroed(prepared.layout.len());
    let mut held: Option<(u32, Server)> = None;
    loop {
        let served = (|| -> Result<(), TrainError> {
            let lineage = held.as_ref().map_or(0, |(lineage, _)| *lineage);
            if let Some(beginning) =
                lineage::take(session, lineage, &prepared.optimizer, &mut params)?
            {
                let setup = Setup {
                    state: beginning.state.as_ref(),
                    origin: paceline_strategies::Origin {
                        version: beginning.origin.step,
                        outstanding: beginning.origin.outstanding.clone(),
                    },
                    steps: prepared.pace.total_steps,
                    options: spec.options(),
                    membership: Some(
                        Arc::clone(session) as Arc<dyn paceline_cluster::JobMembership>
                    ),
                    ..Setup::alone(1, &prepared.layout, &prepared.optimizer)
                };
                let server = Server::new(&setup, prepared.strategy.synchronous, &params)?;
                held = Some((beginning.lineage, server));
            }
            if let Some((_, server)) = &held {
                server.serve()?;
            }
            Ok(())
        })();
        match served {
            Ok(()) => loop {
                // No worker needs this server now; the run is over, or its workers form again.
                session.check()?;
                if session.released() {
                    return Ok(());
                }
                if session.interrupted().load(Ordering::Relaxed) {
                    if session.regroup(None, "the workers had left")?.is_none() {
                        return Ok(session.wait_for_release().map(drop)?);
                    }
                    break;
                }
                std::thread::sleep(LOOK);
            },
            Err(error) if error.is_peer() => {
                if session.regroup(error.peer(), &with_causes(&error))?.is_none() {
                    // All that it held is saved.
                    return Ok(session.wait_for_release().map(drop)?);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Scores whatever weights the chief sends.
fn evaluate(
    spec: &RunSpec,
    parts: &Parts,
    control: &Control<'_>,
    task: Task<'_>,
) -> Result<(), TrainError> {
    let prepared = plan::prepare(spec, parts)?;
    let mut model = (parts.build)(parts.train.schema(), &prepared.options)?;
    let mut params = Buffer::zeroed(prepared.layout.len());
    let Some((_, test)) = &parts.test else {
        return Err(TrainError::NoTestData { what: "an evaluator", data: spec.data.clone() });
    };
    let threads = prepared.plan.threads;
    let mut evaluator = Evaluator::new(&cached(test), spec.batch_size, (0, 1), threads)?;
    let mut link = None;
    while let Some(step) = next_weights(task.session, &mut link, &mut params, control.cancel)? {
        let begun = Instant::now();
        let evaluated = evaluator.alone(&mut *model, &params)?;
        let scored = Scored {
            step,
            loss: evaluated.loss,
            accuracy: evaluated.accuracy,
            examples: evaluated.examples,
            seconds: begun.elapsed().as_secs_f64(),
            confusion: evaluated.confusion,
        };
        task.session.tell(serde_json::to_value(&scored).unwrap_or_default());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
