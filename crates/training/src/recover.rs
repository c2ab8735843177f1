//! When another task is lost: forming again, going back to a checkpoint, and the end of a run.

use crate::{
    TrainError,
    checkpoint::Moment,
    error::with_causes,
    evaluate::{Evaluated, Evaluator},
    lineage,
    loop_state::{LoopState, Origin},
    train::{initial_weights, origin_of},
    worker::{ExamplesWorker, Input},
};
use paceline_models::optimizer::OptimizerState;
use paceline_runs::{Evaluation, Event};
use std::{sync::atomic::Ordering, time::Instant};

impl ExamplesWorker<'_> {
    /// Workers that hold weights begin with the same ones: those of the worker that is furthest.
    pub(crate) fn align(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        if self.peers.is_none() || self.prepared.plan.details.servers > 0 {
            return Ok(());
        }
        let version = self.exchange.align(&mut self.params)?.0;
        if version != loop_state.step {
            self.move_to(loop_state, version)?;
        }
        Ok(())
    }

    /// Where workers are in lockstep, all must decide alike; one that is new learns from worker 0 what its
    /// decisions hang on.
    pub(crate) fn agree(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        let (rank, _) = self.exchange.place();
        let best = loop_state.losses.best().map_or([0.0, 0.0], |best| [1.0, best]);
        let saved = loop_state.saved.map_or(0.0, |step| step as f64 + 1.0);
        let checked = f64::from(u8::from(loop_state.checked));
        let unscored = f64::from(u8::from(loop_state.unscored));
        let mut values = [best[0], best[1], saved, checked, unscored];
        if rank != 0 {
            values.fill(0.0);
        }
        self.exchange.sum(&mut values)?;
        loop_state.losses.set_best((values[0] > 0.0).then_some(values[1]));
        loop_state.saved = (values[2] > 0.0).then_some(values[2] as u64).map(|step| step - 1);
        loop_state.checked = values[3] > 0.0;
        loop_state.unscored = values[4] > 0.0;
        Ok(())
    }

    /// The outer error is final; the inner one is another loss while recovering from the first.
    pub(crate) fn recover(
        &mut self,
        loop_state: &mut LoopState,
        error: TrainError,
    ) -> Result<Result<(), TrainError>, TrainError> {
        let Some(peers) = &mut self.peers else { return Err(error) };
        if !error.is_peer() {
            return Err(error);
        }
        if loop_state.closing
            && self.exchange.in_lockstep()
            && self.prepared.plan.details.servers == 0
        {
            // All updates are made, and others may have left already: there is no task to form with.
            loop_state.closed = true;
            self.secure(loop_state)?;
            return Ok(Ok(()));
        }
        if peers.session.regroup(error.peer(), &with_causes(&error))?.is_none() {
            // The chief has done its part: every update is made and saved.
            loop_state.closed = true;
            return Ok(Ok(()));
        }
        loop_state.reached |= self.hear(loop_state, false);
        Ok(self.go_on(loop_state))
    }

    /// Forms again with those that are there, at the last completed step, or at the last checkpoint if
    /// servers lost what they held.
    fn go_on(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        if let Some(origin) = self.supply()? {
            (loop_state.examples, loop_state.went_back) = (origin.examples, true);
            if let Some(chief) = &mut self.chief {
                chief.keeper.warn(format!(
                    "a server lost what it held: all tasks continue from step {}",
                    origin.step
                ));
            }
        }
        (loop_state.ending, loop_state.closing) = (None, false);
        let version = self.exchange.reform(&mut self.params)?.0;
        if self.chief.is_some() && self.exchange.in_lockstep() {
            // The others may have completed a step whose end this worker did not hear of.
            let pace = &self.prepared.pace;
            loop_state
                .pass_over((loop_state.step..version).map(|step| pace.examples_of(step)).sum());
        }
        self.move_to(loop_state, version)
    }

    fn move_to(&mut self, loop_state: &mut LoopState, step: u64) -> Result<(), TrainError> {
        let position = self.prepared.pace.position_of(step);
        loop_state.jump(step, step, position);
        self.input =
            Input::new(self.prepared, &self.sources.train, &*self.exchange, step, position)?;
        self.evaluator = evaluator(self)?;
        Ok(())
    }

    /// The chief gives servers that hold nothing the last checkpoint; says which one.
    fn supply(&mut self) -> Result<Option<Origin>, TrainError> {
        let (Some(chief), Some(peers)) = (&mut self.chief, &mut self.peers) else {
            return Ok(None);
        };
        if self.prepared.plan.details.servers == 0 {
            return Ok(None);
        }
        let Some(links) = lineage::ask(&peers.session, peers.lineage)? else { return Ok(None) };
        let (layout, optimizer) = (&self.prepared.layout, &self.prepared.optimizer);
        chief.keeper.settle();
        let (found, _) = chief.keeper.store.latest(layout, optimizer)?;
        let mut state: Option<OptimizerState> = None;
        let origin = match found {
            Some(checkpoint) => {
                self.params.copy_from_slice(&checkpoint.params);
                let origin = origin_of(&checkpoint);
                state = Some(checkpoint.state);
                origin
            }
            None => {
                let spec = &self.prepared.plan.spec;
                initial_weights(spec, &*self.model, layout, &mut self.params)?;
                Origin::default()
            }
        };
        peers.lineage = peers.session.view().generation;
        lineage::give(links, peers.lineage, &origin, &self.params, state.as_ref())?;
        Ok(Some(origin))
    }

    /// All steps are done: the last evaluation and save.
    pub(crate) fn finish(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        loop_state.closing = true;
        let cancelled = loop_state.ending == Some(true);
        let stopped = loop_state.ending.replace(cancelled).is_some();
        let decides = self.exchange.in_lockstep() || self.chief.is_some();
        if let Some(found) = loop_state.guard.at_end().filter(|_| decides && !cancelled) {
            let (_, rate) = self.prepared.pace.at(loop_state.step, loop_state.position);
            return Err(self.diverged(loop_state, found, rate));
        }
        if self.exchange.in_lockstep() {
            let moment = Moment { ending: true, ..self.moment(loop_state.step, loop_state) };
            self.checkpoint(loop_state, &moment)?;
            self.exchange.complete(&mut self.params)?;
        } else if self.chief.is_some() {
            if stopped {
                self.exchange.drain()?;
            }
            self.evaluate_and_checkpoint_alone(loop_state, (!cancelled, false, true))?;
        }
        self.hear(loop_state, true);
        self.score_last(loop_state)?;
        if let Some(chief) = &mut self.chief {
            chief.keeper.flush();
            loop_state.tally = self.exchange.tally()?;
        }
        self.secure(loop_state)?;
        self.exchange.leave()?;
        loop_state.closed = true;
        Ok(())
    }
}

impl ExamplesWorker<'_> {
    /// Scores the weights that this worker ended with, where every worker was asked to: where updates are asynchronous
    /// they are those of its last step, which others have gone beyond. Its training is over, so no step waits for it.
    pub(crate) fn score_own(
        &mut self,
        loop_state: &LoopState,
    ) -> Result<Option<Evaluated>, TrainError> {
        let plan = &self.prepared.plan;
        let test = self.sources.test.as_ref().filter(|_| plan.spec.evaluate_workers);
        // Only the chief knows why it stopped the others: where a loss may have been reached, they take it for that.
        let stop = &plan.spec.stop;
        let may_be_done = self.chief.is_none()
            && !self.cancel.load(Ordering::Relaxed)
            && (stop.until_loss.is_some() || stop.no_gain.is_some());
        let cancelled = loop_state.ending == Some(true) && !may_be_done;
        let Some(test) = test.filter(|_| !cancelled) else { return Ok(None) };
        let begun = Instant::now();
        let scored = Evaluator::new(test, plan.spec.batch_size, (0, 1), plan.threads)?
            .alone(&mut *self.model, &self.params)?;
        if let Some(recorder) = self.recorder {
            let pace = &self.prepared.pace;
            recorder.record(Event::WorkerEvaluation(Evaluation {
                step: loop_state.step,
                epochs: pace.epochs(pace.position_of(loop_state.step)),
                examples: scored.examples,
                loss: scored.loss,
                accuracy: scored.accuracy,
                seconds: begun.elapsed().as_secs_f64(),
                ..Evaluation::default()
            }));
        }
        Ok(Some(scored))
    }
}

/// Held-out examples for a worker: its share where all evaluate together, everything for a chief that
/// does it alone.
pub(crate) fn evaluator(worker: &ExamplesWorker<'_>) -> Result<Option<Evaluator>, TrainError> {
    let plan = &worker.prepared.plan;
    let place = if worker.exchange.in_lockstep() && !plan.spec.evaluator {
        worker.exchange.place()
    } else if worker.chief.is_some() {
        (0, 1)
    } else {
        return Ok(None);
    };
    let share = plan.spec.batch_size.div_ceil(place.1 as u64);
    let test = worker.sources.test.as_ref();
    test.map(|test| Evaluator::new(test, share, place, plan.threads)).transpose()
}
