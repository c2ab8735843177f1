//! Carries out what the checkpoint policy decides, and survives a disk that fails.
//!
//! Large states are copied and written on a thread of their own, beside the next steps: a disk takes longer for hundreds of
//! megabytes than many a step. One is written at a time, and a question about what is on disk waits for it.

use crate::{
    Observer, RunPlan, TrainError,
    checkpoint::{Action, Checkpoint, Evaluated, Meta, Policy, Store, write_weights},
    error::{cause, with_causes},
    plan::Prepared,
};
use paceline_models::{
    Layout,
    optimizer::{Optimizer, OptimizerState},
};
use paceline_runs::{
    self as runs, CheckpointAction, Event, FinalWeights, FolderWatch, Recorder, RunFolder,
};
use std::{thread::JoinHandle, time::Instant};

/// Numbers of a state from which on it is written beside training: 16 MB, some tens of milliseconds of a disk.
const BESIDE: usize = 4 << 20;

/// What became of a state that was written.
struct Written {
    state: Checkpoint,
    result: Result<u64, TrainError>,
    seconds: f64,
}

/// The chief's checkpoints.
pub(crate) struct Keeper<'a> {
    pub(crate) store: Store,
    plan: &'a RunPlan,
    folder: FolderWatch,
    pub(crate) policy: Policy,
    pub(crate) layout: &'a Layout,
    pub(crate) optimizer: &'a Optimizer,
    pub(crate) recorder: &'a Recorder,
    pub(crate) observer: &'a dyn Observer,
    /// The best state so far, where it is not on disk yet.
    remembered: Option<Checkpoint>,
    /// The state of the last save, where that failed, and why.
    unsaved: Option<(Checkpoint, String)>,
    /// States that the evaluator scores at the moment: one, or two at the very end.
    awaited: Vec<Checkpoint>,
    saved_at: Instant,
    /// What is being written beside training.
    writing: Option<JoinHandle<Written>>,
    pub(crate) warnings: Vec<String>,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(
        run: &RunFolder,
        policy: Policy,
        prepared: &'a Prepared,
        recorder: &'a Recorder,
        observer: &'a dyn Observer,
    ) -> Result<Self, TrainError> {
        Ok(Self {
            store: Store::new(&run.checkpoints_path()),
            plan: &prepared.plan,
            folder: FolderWatch::start(run)?,
            policy,
            layout: &prepared.layout,
            optimizer: &prepared.optimizer,
            recorder,
            observer,
            remembered: None,
            unsaved: None,
            awaited: Vec::new(),
            saved_at: Instant::now(),
            writing: None,
            warnings: Vec::new(),
        })
    }

    /// Whether the run folder is gone: then training ends at once, instead of after hours for nothing.
    pub(crate) fn is_folder_gone(&mut self) -> bool {
        if self.writing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.settle();
        }
        let news = self.folder.glance();
        self.follow(news);
        self.folder.removed().is_some()
    }

    /// Tells what became of the run folder, and saves to where it is now.
    fn follow(&mut self, news: Option<String>) {
        let Some(news) = news else { return };
        self.warn(news);
        if self.folder.removed().is_none() {
            self.store = Store::new(&self.folder.run().checkpoints_path());
            self.observer.moved(self.folder.run());
        }
    }

    /// Whether enough time has passed for a save at the next boundary.
    pub(crate) fn is_due(&self) -> bool {
        self.saved_at.elapsed().as_secs_f64() >= self.policy.seconds
    }

    /// Holds a state in memory until the next save.
    pub(crate) fn remember(&mut self, meta: Meta, params: &[f32], state: OptimizerState) {
        self.remembered = Some(Checkpoint { meta, params: params.to_vec(), state });
    }

    /// Holds a state whose score is still to come: it may turn out to be the best.
    pub(crate) fn hand_over(&mut self, meta: Meta, params: &[f32], state: OptimizerState) {
        self.awaited.push(Checkpoint { meta, params: params.to_vec(), state });
    }

    /// The score of an earlier step has come; `improved` if there was never a better one.
    pub(crate) fn scored(&mut self, step: u64, score: Evaluated, improved: bool) {
        let place = self.awaited.iter().position(|awaited| awaited.meta.step == step);
        let held = place.map(|place| self.awaited.drain(..=place).next_back()).unwrap_or_default();
        self.settle();
        if self.store.contains(step) {
            if let Err(error) = self.store.rate(step, score) {
                self.warn(with_causes(&error));
            }
        } else if let Some(mut held) = held.filter(|_| improved) {
            held.meta.evaluation = Some(score);
            self.remembered = Some(held);
        }
    }

    /// Writes the best state if it is not on disk yet: nothing will be saved any more.
    pub(crate) fn flush(&mut self) {
        self.awaited.clear();
        self.settle();
        if let Some(best) = self.remembered.take() {
            self.save_one(&best.meta, &best.params, &best.state);
            self.prune();
        }
    }

    /// Writes the state (and the best one, if it waits), then removes what need not be kept. A failure
    /// is a warning: the run continues with the checkpoints it has.
    pub(crate) fn save(&mut self, meta: Meta, params: &[f32], state: OptimizerState) {
        self.settle();
        let news = self.folder.look();
        self.follow(news);
        self.unsaved = None;
        if let Some(best) = self.remembered.take().filter(|best| best.meta.step != meta.step) {
            self.save_one(&best.meta, &best.params, &best.state);
        }
        self.saved_at = Instant::now();
        let slots = self.optimizer.entry().slots.len();
        if params.len() * (1 + slots) < BESIDE {
            if let Some(reason) = self.save_one(&meta, params, &state) {
                let held = Checkpoint { meta, params: params.to_vec(), state };
                self.unsaved = Some((held, reason));
            }
            return self.prune();
        }
        let state = Checkpoint { meta, params: params.to_vec(), state };
        let (store, layout) = (self.store.clone(), self.layout.clone());
        let optimizer = self.optimizer.clone();
        self.writing = Some(std::thread::spawn(move || {
            let begun = Instant::now();
            let Checkpoint { meta, params, state: slots } = &state;
            let result = store.save(meta, &layout, &optimizer, params, slots);
            Written { state, result, seconds: begun.elapsed().as_secs_f64() }
        }));
    }

    /// Waits for what is being written, and says what became of it.
    pub(crate) fn settle(&mut self) {
        let Some(writing) = self.writing.take() else { return };
        let Written { state, result, seconds } = match writing.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if let Some(reason) = self.told(state.meta.step, result, seconds) {
            self.unsaved = Some((state, reason));
        }
        self.prune();
    }

    /// Whether the state of a step is on disk, in a run folder that is still there.
    pub(crate) fn has(&mut self, step: u64) -> bool {
        self.settle();
        let news = self.folder.look();
        self.follow(news);
        self.folder.removed().is_none() && self.store.is_whole(step)
    }

    /// Writes the last state again or, where that fails, somewhere else; the error says where. `state` is
    /// what belongs to `params`, where it is known.
    pub(crate) fn secure(
        &mut self,
        meta: &Meta,
        params: &[f32],
        state: Option<&OptimizerState>,
    ) -> Result<(), TrainError> {
        let held = self.unsaved.take().filter(|(held, _)| held.meta.step == meta.step);
        let (params, state) = match &held {
            Some((held, _)) => (&held.params[..], Some(&held.state)),
            None => (params, state),
        };
        let mut reason = held.as_ref().map(|(_, reason)| reason.clone());
        let removed = self.folder.removed().map(str::to_owned);
        if let (None, Some(state)) = (&removed, state) {
            match self.store.save(meta, self.layout, self.optimizer, params, state) {
                Ok(_) => return Ok(()),
                Err(error) => reason = Some(cause(&error)),
            }
        }
        let lost = FinalWeights {
            run: self.folder.run().clone(),
            step: meta.step,
            path: self.store.path(meta.step),
            reason: removed.or(reason).unwrap_or_else(|| "they are gone".to_owned()),
        };
        let error = lost.rescue(|folder| {
            folder.write_plan(self.plan).map_err(|error| cause(&error))?;
            match state {
                Some(state) => Store::new(&folder.checkpoints_path())
                    .save(meta, self.layout, self.optimizer, params, state)
                    .map(drop)
                    .map_err(|error| cause(&error)),
                None => {
                    let file = folder.path().join("weights.safetensors");
                    let pixels = self.plan.spec.pixels();
                    write_weights(&file, self.layout, params, pixels)
                        .map_err(|error| error.to_string())
                }
            }
        });
        Err(error.into())
    }

    /// Writes one state; says why, where it could not.
    fn save_one(&mut self, meta: &Meta, params: &[f32], state: &OptimizerState) -> Option<String> {
        let begun = Instant::now();
        let result = self.store.save(meta, self.layout, self.optimizer, params, state);
        self.told(meta.step, result, begun.elapsed().as_secs_f64())
    }

    /// Tells log and observer what became of a state; says why, where it could not be written.
    fn told(&mut self, step: u64, result: Result<u64, TrainError>, seconds: f64) -> Option<String> {
        let mut why = None;
        let (action, bytes, reason) = match result {
            Ok(bytes) => (CheckpointAction::Saved, bytes, None),
            Err(error) => {
                why = Some(cause(&error));
                (CheckpointAction::Failed, 0, Some(with_causes(&error)))
            }
        };
        if let Some(reason) = &reason {
            if self.folder.removed().is_none() {
                self.warn(format!("{reason}; the older checkpoints stay"));
            }
        } else {
            self.observer.saved(step);
        }
        self.recorder.record(Event::Checkpoint(runs::Checkpoint {
            action,
            step,
            seconds,
            bytes,
            reason,
        }));
        why
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
                Err(error) => self.warn(with_causes(&error)),
            }
        }
    }

    pub(crate) fn warn(&mut self, text: String) {
        self.observer.warned(&text);
        self.warnings.push(text);
    }
}

impl Drop for Keeper<'_> {
    /// A run that fails leaves what it was about to write.
    fn drop(&mut self) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}
