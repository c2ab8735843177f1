//! Carries out what the checkpoint policy decides, and survives a disk that fails.

use crate::{
    Observer, TrainError,
    checkpoint::{Action, Checkpoint, Evaluated, Meta, Policy, Store},
};
use paceline_models::{
    Layout,
    optimizer::{Optimizer, State},
};
use paceline_runs::{self as runs, CheckpointAction, Event, Recorder};
use std::time::Instant;

/// The chief's checkpoints.
pub(crate) struct Keeper<'a> {
    pub(crate) store: Store,
    pub(crate) policy: Policy,
    pub(crate) layout: &'a Layout,
    pub(crate) optimizer: &'a Optimizer,
    pub(crate) recorder: &'a Recorder,
    pub(crate) observer: &'a dyn Observer,
    /// The best state so far, where it is not on disk yet.
    remembered: Option<Checkpoint>,
    /// States that somebody else scores at the moment: one, or two at the very end.
    awaited: Vec<Checkpoint>,
    saved_at: Instant,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(
        store: Store,
        policy: Policy,
        layout: &'a Layout,
        optimizer: &'a Optimizer,
        recorder: &'a Recorder,
        observer: &'a dyn Observer,
    ) -> Self {
        Self {
            store,
            policy,
            layout,
            optimizer,
            recorder,
            observer,
            remembered: None,
            awaited: Vec::new(),
            saved_at: Instant::now(),
            warnings: Vec::new(),
        }
    }

    /// Whether enough time has passed for a save at the next boundary.
    pub(crate) fn is_due(&self) -> bool {
        self.saved_at.elapsed().as_secs_f64() >= self.policy.seconds
    }

    /// Holds a state in memory until the next save.
    pub(crate) fn remember(&mut self, meta: Meta, params: &[f32], state: State) {
        self.remembered = Some(Checkpoint { meta, params: params.to_vec(), state });
    }

    /// Holds a state whose score is still to come: it may turn out to be the best.
    pub(crate) fn hand_over(&mut self, meta: Meta, params: &[f32], state: State) {
        self.awaited.push(Checkpoint { meta, params: params.to_vec(), state });
    }

    /// The score of an earlier step has come; `improved` if there was never a better one.
    pub(crate) fn scored(&mut self, step: u64, score: Evaluated, improved: bool) {
        let place = self.awaited.iter().position(|awaited| awaited.meta.step == step);
        let held = place.map(|place| self.awaited.drain(..=place).next_back()).unwrap_or_default();
        if self.store.contains(step) {
            if let Err(error) = self.store.rate(step, score) {
                self.warn(with_cause(&error));
            }
        } else if let Some(mut held) = held.filter(|_| improved) {
            held.meta.evaluation = Some(score);
            self.remembered = Some(held);
        }
    }

    /// Writes the best state if it is not on disk yet: nothing will be saved any more.
    pub(crate) fn flush(&mut self) {
        self.awaited.clear();
        if let Some(best) = self.remembered.take() {
            self.save_one(&best.meta, &best.params, &best.state);
            self.prune();
        }
    }

    /// Writes the state (and the best one, if it waits), then removes what need not be kept. A failure
    /// is a warning: the run goes on with the checkpoints it has.
    pub(crate) fn save(&mut self, meta: &Meta, params: &[f32], state: &State) {
        if let Some(best) = self.remembered.take().filter(|best| best.meta.step != meta.step) {
            self.save_one(&best.meta, &best.params, &best.state);
        }
        self.save_one(meta, params, state);
        self.saved_at = Instant::now();
        self.prune();
    }

    fn save_one(&mut self, meta: &Meta, params: &[f32], state: &State) {
        let begun = Instant::now();
        let result = self.store.save(meta, self.layout, self.optimizer, params, state);
        let seconds = begun.elapsed().as_secs_f64();
        let (action, bytes, reason) = match result {
            Ok(bytes) => (CheckpointAction::Saved, bytes, None),
            Err(error) => (CheckpointAction::Failed, 0, Some(with_cause(&error))),
        };
        if let Some(reason) = &reason {
            self.warn(format!("{reason}; training goes on with the checkpoints there are"));
        } else {
            self.observer.saved(meta.step);
        }
        self.recorder.record(Event::Checkpoint(runs::Checkpoint {
            action,
            step: meta.step,
            seconds,
            bytes,
            reason,
        }));
    }

    fn prune(&mut self) {
        let actions = self.store.kept().map(|present| self.policy.prune(&present));
        for action in actions.unwrap_or_default() {
            let Action::Delete(step) = action else { continue };
            match self.store.delete(step) {
                Ok(()) => self.recorder.record(Event::Checkpoint(runs::Checkpoint {
                    action: CheckpointAction::Deleted,
                    step,
                    seconds: 0.0,
                    bytes: 0,
                    reason: None,
                })),
                Err(error) => self.warn(with_cause(&error)),
            }
        }
    }

    pub(crate) fn warn(&mut self, text: String) {
        self.observer.warned(&text);
        self.warnings.push(text);
    }
}

/// An error and its causes in one line.
pub(crate) fn with_cause(error: &TrainError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
