//! What happens between steps: evaluation, the loss to reach, checkpoints.

use crate::{
    TrainError,
    checkpoint::{self, Action, Meta, Moment},
    evaluate::Evaluated,
    loop_state::LoopState,
    loss_watch::{Check, Noted},
    session_log::Scored,
    worker::ExamplesWorker,
};
use paceline_data::order::Position;
use paceline_runs::{Evaluation, Event, Leg, tensorboard::Histogram};
use paceline_strategies::Snapshot;
use paceline_wire::{Role, TaskId};
use std::time::Instant;

/// There is one at most.
const EVALUATOR: TaskId = TaskId { role: Role::Evaluator, index: 0 };

/// A state up to this size is copied rather than written when it is the best so far.
const LIGHT_FLOATS: usize = 16 << 20;

/// A state that may be saved.
struct SavableState {
    step: u64,
    position: Position,
    outstanding: Vec<u64>,
}

/// What became of weights that the evaluator shall score.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    /// There is an evaluator.
    elsewhere: bool,
    /// These weights went to it; it may be busy with earlier ones.
    sent: bool,
}

impl ExamplesWorker<'_> {
    /// All workers at the end of an epoch, of an evaluation interval or of the run: evaluate, look at
    /// the loss to reach, save. Says whether the loss was reached.
    pub(crate) fn evaluate_and_checkpoint(
        &mut self,
        loop_state: &mut LoopState,
        last: bool,
    ) -> Result<bool, TrainError> {
        let moment = self.moment(loop_state.step, loop_state);
        let due = self.chief.as_ref().is_some_and(|chief| chief.keeper.is_due());
        loop_state.end_stretch();
        let elsewhere = self.is_scored_elsewhere()?;
        if elsewhere || self.evaluator.is_some() {
            self.exchange.complete(&mut self.params)?;
        }
        let Some(evaluator) = self.evaluator.as_mut().filter(|_| !elsewhere) else {
            // This worker does not evaluate, but all must learn whether the chief wants to save.
            let mut wish = [f64::from(u8::from(due))];
            self.exchange.sum(&mut wish)?;
            let since = if wish[0] > 0.0 { f64::INFINITY } else { 0.0 };
            self.checkpoint(loop_state, &Moment { boundary: true, since, ..moment })?;
            let params = std::mem::take(&mut self.params);
            let looked = self.evaluate_elsewhere(loop_state, &params, (moment.light, last));
            self.params = params;
            looked?;
            return Ok(false);
        };
        let begun = Instant::now();
        let evaluated = evaluator.run(&mut *self.model, &self.params, &mut *self.exchange, due)?;
        let since = if evaluated.save { f64::INFINITY } else { 0.0 };
        let seconds = begun.elapsed().as_secs_f64();
        let params = std::mem::take(&mut self.params);
        let (reached, improved) =
            self.scored(loop_state, loop_state.step, evaluated, seconds, &params);
        self.params = params;
        self.checkpoint(loop_state, &Moment { boundary: true, since, improved, ..moment })?;
        Ok(reached)
    }

    /// Synchronous workers: the chief gives the weights to the evaluator or, while there is none, scores
    /// them itself; the others wait for it in the next step. They learn by step report that the loss was reached.
    fn evaluate_elsewhere(
        &mut self,
        loop_state: &mut LoopState,
        params: &[f32],
        (light, last): (bool, bool),
    ) -> Result<(), TrainError> {
        let step = loop_state.step;
        let asked = self.score_elsewhere(loop_state, step, params, last);
        let here = !asked.elsewhere && self.evaluator.is_some();
        // Where layers are shared out, the chief cannot have a state without the others.
        let whole = self.prepared.split.is_none();
        if (asked.sent || here) && whole && light && loop_state.saved != Some(step) {
            self.await_score(loop_state, params)?;
        }
        if here {
            self.score_here(loop_state, step, params)?;
        }
        Ok(())
    }

    /// The chief of asynchronous workers: evaluates and saves one version while the others
    /// go on. Says whether the loss was reached.
    pub(crate) fn evaluate_and_checkpoint_alone(
        &mut self,
        loop_state: &mut LoopState,
        (boundary, save, ending): (bool, bool, bool),
    ) -> Result<bool, TrainError> {
        if boundary {
            loop_state.end_stretch();
        }
        let Some(snapshot) = self.exchange.snapshot()? else { return Ok(false) };
        let Snapshot { version, params, state, outstanding } = snapshot;
        let step = version.0;
        if ending {
            loop_state.step = step; // others may have made the last updates
        }
        let params = params.unwrap_or_else(|| self.params.clone());
        let (mut reached, mut improved, mut sent) = (false, false, false);
        if boundary && loop_state.evaluated.as_ref().is_none_or(|(at, _)| *at != step) {
            let asked = self.score_elsewhere(loop_state, step, &params, ending);
            sent = asked.sent;
            if !asked.elsewhere
                && let Some(evaluator) = &mut self.evaluator
            {
                let begun = Instant::now();
                let evaluated = evaluator.alone(&mut *self.model, &params)?;
                let seconds = begun.elapsed().as_secs_f64();
                (reached, improved) = self.scored(loop_state, step, evaluated, seconds, &params);
            }
        }
        let due = self.chief.as_ref().is_some_and(|chief| chief.keeper.is_due());
        let moment = Moment {
            boundary,
            improved,
            ending,
            passed: save,
            since: if due { f64::INFINITY } else { 0.0 },
            ..self.moment(step, loop_state)
        };
        let policy = self.prepared.plan.spec.common().checkpoints;
        let action = policy.decide(&moment);
        let awaited = sent && moment.light && loop_state.saved != Some(step);
        if action.is_some() || awaited {
            let batch = step + outstanding.len() as u64;
            let position = self.prepared.pace.position_of(batch);
            let meta = self.meta(loop_state, SavableState { step, position, outstanding });
            if let Some(chief) = &mut self.chief {
                match action {
                    Some(Action::Remember) => chief.keeper.remember(meta, &params, state),
                    Some(_) => chief.keeper.save(meta, &params, state),
                    None => chief.keeper.hand_over(meta, &params, state),
                }
            }
            if action == Some(Action::Save) {
                loop_state.saved = Some(step);
            }
        }
        Ok(reached)
    }

    /// Whether a task of its own scores the model: where one was asked for always, even while it is away and the chief does its work.
    /// One that the cluster does not list may come and go, and only the chief knows: all workers must learn it, since
    /// all of them score together or none does.
    fn is_scored_elsewhere(&mut self) -> Result<bool, TrainError> {
        if self.prepared.plan.spec.evaluator {
            return Ok(true);
        }
        let Some(peers) = &mut self.peers else { return Ok(false) };
        let there = self.chief.is_some() && peers.has_evaluator();
        let mut told = [f64::from(u8::from(there))];
        self.exchange.sum(&mut told)?;
        Ok(told[0] > 0.0)
    }

    /// Hands weights to the evaluator, where there is one. The last ones wait for it to have time.
    fn score_elsewhere(
        &mut self,
        loop_state: &mut LoopState,
        step: u64,
        params: &[f32],
        last: bool,
    ) -> Asked {
        if self.chief.is_none() {
            return Asked::default();
        }
        if last {
            loop_state.reached |= self.hear(loop_state, true);
        }
        let Some(peers) = &mut self.peers else { return Asked::default() };
        let sent = peers.evaluate(step, params);
        Asked { elsewhere: peers.has_evaluator(), sent }
    }

    /// The chief scores weights that should be scored elsewhere.
    fn score_here(
        &mut self,
        loop_state: &mut LoopState,
        step: u64,
        params: &[f32],
    ) -> Result<(), TrainError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(()) };
        let begun = Instant::now();
        let evaluated = evaluator.alone(&mut *self.model, params)?;
        let seconds = begun.elapsed().as_secs_f64();
        let score = checkpoint::Evaluated { loss: evaluated.loss, accuracy: evaluated.accuracy };
        let (reached, improved) = self.scored(loop_state, step, evaluated, seconds, params);
        loop_state.reached |= reached;
        if let Some(chief) = &mut self.chief {
            chief.keeper.scored(step, score, improved);
        }
        Ok(())
    }

    /// The end of a run: if the evaluator died over the last weights, the chief scores them.
    pub(crate) fn score_last(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        let unscored = self.peers.as_ref().is_some_and(|peers| peers.is_unscored(loop_state.step));
        if !unscored {
            return Ok(());
        }
        let held = if self.exchange.in_lockstep() { None } else { self.exchange.snapshot()? };
        match held.and_then(|snapshot| snapshot.params) {
            Some(params) => self.score_here(loop_state, loop_state.step, &params),
            None => {
                let params = std::mem::take(&mut self.params);
                let scored = self.score_here(loop_state, loop_state.step, &params);
                self.params = params;
                scored
            }
        }
    }

    /// Synchronous workers: holds the present state until its score comes. Only the chief has one to
    /// hold, and none of these exchanges needs the others for it.
    fn await_score(&mut self, loop_state: &LoopState, params: &[f32]) -> Result<(), TrainError> {
        let snapshot = self.exchange.snapshot()?;
        let place = SavableState {
            step: loop_state.step,
            position: loop_state.position,
            outstanding: Vec::new(),
        };
        let meta = self.meta(loop_state, place);
        if let (Some(chief), Some(snapshot)) = (&mut self.chief, snapshot) {
            let params = snapshot.params.as_deref().unwrap_or(params);
            chief.keeper.hand_over(meta, params, snapshot.state);
        }
        Ok(())
    }

    /// Takes note of what other tasks said since the last step; the chief's evaluations come this way
    /// when a task of its own makes them. Says whether the loss to reach was reached.
    pub(crate) fn hear(&mut self, loop_state: &mut LoopState, last: bool) -> bool {
        let Some(peers) = &mut self.peers else { return false };
        let scores =
            if last { peers.last_scores(loop_state.step) } else { peers.hear(loop_state.step) };
        let mut reached = false;
        for Scored { step, loss, accuracy, examples, seconds, confusion } in scores {
            let evaluated = Evaluated { loss, accuracy, examples, confusion, save: false };
            let (enough, improved) = self.scored(loop_state, step, evaluated, seconds, &[]);
            reached |= enough;
            if let Some(chief) = &mut self.chief {
                chief.keeper.scored(step, checkpoint::Evaluated { loss, accuracy }, improved);
            }
        }
        reached
    }

    /// An evaluation is there: tells log and observer; says whether the loss was reached and whether there
    /// was never a better one.
    fn scored(
        &mut self,
        loop_state: &mut LoopState,
        step: u64,
        evaluated: Evaluated,
        seconds: f64,
        params: &[f32],
    ) -> (bool, bool) {
        let now = self.origin.seconds + self.begun.elapsed().as_secs_f64();
        let check = Check { step, seconds: now, loss: evaluated.loss };
        let Noted { improved, reached } = loop_state.losses.check(check);
        if let (Some(chief), Some(recorder)) = (&self.chief, self.recorder) {
            let event = Evaluation {
                step,
                epochs: self.prepared.pace.epochs(self.prepared.pace.position_of(step)),
                examples: evaluated.examples,
                loss: evaluated.loss,
                accuracy: evaluated.accuracy,
                seconds,
                best: improved,
                // Weights that were scored elsewhere are not at hand.
                scored_by: params.is_empty().then(|| EVALUATOR.to_string()),
                ..Evaluation::default()
            };
            chief.observer.evaluated(&event);
            recorder.record(Event::Evaluation(event));
            if !params.is_empty() {
                let entries = self.prepared.layout.entries().iter();
                let histograms = entries
                    .map(|entry| (entry.name.clone(), Histogram::of(&params[entry.range()])));
                recorder.histograms(step, histograms.collect());
            }
        }
        loop_state.evaluated = Some((step, evaluated));
        // The state before the first step is not an achievement worth keeping.
        (reached, improved && step > 0)
    }

    pub(crate) fn moment(&self, step: u64, loop_state: &LoopState) -> Moment {
        let slots = self.prepared.optimizer.entry().slots.len();
        Moment {
            step,
            saved: loop_state.saved,
            suspect: loop_state.guard.is_suspect(),
            light: self.params.len() * (1 + slots) <= LIGHT_FLOATS,
            ..Moment::default()
        }
    }

    /// Does what the policy says; every worker takes part, the chief writes.
    pub(crate) fn checkpoint(
        &mut self,
        loop_state: &mut LoopState,
        moment: &Moment,
    ) -> Result<(), TrainError> {
        let policy = self.prepared.plan.spec.common().checkpoints;
        let Some(action) = policy.decide(moment) else { return Ok(()) };
        self.exchange.complete(&mut self.params)?;
        let snapshot = self.exchange.snapshot()?;
        let place = SavableState {
            step: loop_state.step,
            position: loop_state.position,
            outstanding: Vec::new(),
        };
        let meta = self.meta(loop_state, place);
        if let (Some(chief), Some(Snapshot { state, .. })) = (&mut self.chief, snapshot) {
            if action == Action::Remember {
                chief.keeper.remember(meta, &self.params, state);
            } else {
                chief.keeper.save(meta, &self.params, state);
            }
        }
        if action == Action::Save {
            loop_state.saved = Some(loop_state.step);
        }
        Ok(())
    }

    /// The stretches of the run up to a step of this one.
    fn legs(&self, loop_state: &LoopState, step: u64) -> Vec<Leg> {
        let origin = &self.origin;
        let seconds = self.begun.elapsed().as_secs_f64();
        let examples = loop_state.examples.saturating_sub(origin.examples);
        let mut legs = origin.legs.clone();
        legs.push(Leg {
            started: origin.started,
            seconds,
            examples,
            steps: step.saturating_sub(origin.step),
            examples_per_second: examples as f64 / seconds.max(1e-9),
            step_seconds: Some(loop_state.spent.total()),
            status: None,
        });
        legs
    }

    /// The end of a run: the weights of its last step are on disk, or it is known where they are.
    pub(crate) fn secure(&mut self, loop_state: &mut LoopState) -> Result<(), TrainError> {
        let step = loop_state.step;
        if self.chief.as_mut().is_none_or(|chief| chief.keeper.has(step)) {
            return Ok(());
        }
        // Other replicas, or workers that share out layers, would have to take part.
        let alone = self.prepared.split.is_none() && self.prepared.plan.replicas == 1;
        let snapshot = if alone { self.exchange.snapshot()? } else { None };
        let (params, state, outstanding) = snapshot
            .map_or((None, None, Vec::new()), |one| (one.params, Some(one.state), one.outstanding));
        let place = SavableState { step, position: loop_state.position, outstanding };
        let meta = self.meta(loop_state, place);
        if let Some(chief) = &mut self.chief {
            let params = params.as_deref().unwrap_or(&self.params);
            loop_state.unsaved = chief.keeper.secure(&meta, params, state.as_ref()).err();
        }
        Ok(())
    }

    fn meta(&self, loop_state: &LoopState, place: SavableState) -> Meta {
        let spec = &self.prepared.plan.spec;
        let score = loop_state.evaluated.as_ref().filter(|(step, _)| *step == place.step);
        Meta {
            model: spec.model.clone(),
            optimizer: spec.optimizer.clone(),
            step: place.step,
            position: place.position,
            examples: loop_state.examples,
            seconds: self.origin.seconds + self.begun.elapsed().as_secs_f64(),
            seed: spec.seed,
            plan: self.prepared.plan.details.hash.clone(),
            outstanding: place.outstanding,
            evaluation: score.map(|(_, score)| checkpoint::Evaluated {
                loss: score.loss,
                accuracy: score.accuracy,
            }),
            train_loss: Some(loop_state.present_loss()).filter(|loss| loss.is_finite()),
            legs: self.legs(loop_state, place.step),
        }
    }
}
