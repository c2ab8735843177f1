//! Where a worker's loop stands.

use crate::{
    TrainError, evaluate::Evaluated, loss_watch::LossWatch, meter::Meter, plan::Prepared,
    recovery::Standstill,
};
use paceline_data::order::Position;
use paceline_models::StepLoss;
use paceline_runs::{Divergence, Leg, LossGuard, Observed, PhaseTimes, Reached};
use paceline_strategies::{Pushed, Tally};
use std::time::Instant;

/// Where a run begins, or continues.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) step: u64,
    pub(crate) position: Position,
    pub(crate) examples: u64,
    /// Seconds of training before this process.
    pub(crate) seconds: f64,
    /// When this process began to train, in seconds since 1970.
    pub(crate) started: f64,
    /// The stretches before this one.
    pub(crate) legs: Vec<Leg>,
    /// Training and test loss at the checkpoint.
    pub(crate) train_loss: Option<f64>,
    pub(crate) evaluated: Option<Evaluated>,
    /// Lowest test loss so far.
    pub(crate) best: Option<f64>,
    /// Batches that were dealt but are not in the weights.
    pub(crate) outstanding: Vec<u64>,
}

/// How a worker ended.
pub(crate) struct Done {
    pub(crate) step: u64,
    /// Examples this worker worked on.
    pub(crate) own_examples: u64,
    /// Loss and accuracy on its own last examples.
    pub(crate) own_last: StepLoss,
    pub(crate) batch: u64,
    /// Examples that all workers trained on, as far as it knows.
    pub(crate) examples: u64,
    /// Sums over all its steps.
    pub(crate) total: Meter,
    pub(crate) train_loss: f64,
    pub(crate) evaluated: Option<Evaluated>,
    /// What its own weights gave on all held-out examples, where that was asked for.
    pub(crate) own_score: Option<Evaluated>,
    pub(crate) reached: Option<Reached>,
    pub(crate) cancelled: bool,
    pub(crate) dropped: u64,
    pub(crate) tally: Tally,
    /// Whether steps were made again after servers had lost what they held.
    pub(crate) went_back: bool,
    /// Seconds from the first step until it had finished.
    pub(crate) finished: f64,
    pub(crate) warnings: Vec<String>,
    /// Why the weights it ended with are not where they belong, and where they are.
    pub(crate) unsaved: Option<TrainError>,
    /// Tasks that were lost on the way.
    pub(crate) lost: Vec<String>,
}

/// Where the loop stands; where workers are in lockstep, what decides is the same in all of them.
pub(crate) struct LoopState {
    pub(crate) step: u64,
    /// Number of the batch at `position`.
    pub(crate) batch: u64,
    pub(crate) position: Position,
    pub(crate) examples: u64,
    /// Those of them that are in no step report it has seen.
    unheard: u64,
    pub(crate) losses: LossWatch,
    /// Watches the training loss for divergence; set when that is certain.
    pub(crate) guard: LossGuard,
    pub(crate) diverged: Option<Divergence>,
    /// Whether the evaluator's loss was low enough: the others learn it with the next step report.
    pub(crate) reached: bool,
    /// Whether the run folder is gone: the others learn it with the next step report.
    pub(crate) folder_gone: bool,
    /// Why the weights it ends with are not where they belong.
    pub(crate) unsaved: Option<TrainError>,
    /// Whether the loss to reach was looked at before the first step.
    pub(crate) checked: bool,
    /// Whether the run was resumed where its stop rule was met already, and its weights are still to be scored.
    pub(crate) unscored: bool,
    pub(crate) evaluated: Option<(u64, Evaluated)>,
    pub(crate) saved: Option<u64>,
    /// Set when no further step shall be done; says whether it was asked for.
    pub(crate) ending: Option<bool>,
    /// Whether the final evaluation and save have begun, and whether they are over.
    pub(crate) closing: bool,
    pub(crate) closed: bool,
    /// What became of all gradients, as servers counted.
    pub(crate) tally: Tally,
    pub(crate) went_back: bool,
    /// Sums since the last event, since the last boundary, and over all steps.
    pub(crate) recent: Meter,
    pub(crate) stretch: Meter,
    pub(crate) total: Meter,
    pub(crate) own_examples: u64,
    /// On own examples, since the last boundary and in the stretch before it.
    own: StepLoss,
    own_last: StepLoss,
    pub(crate) dropped: u64,
    pub(crate) reported: Instant,
    /// Step of the last look at evaluation and of the last at checkpoints.
    looked: u64,
    save_looked: u64,
    /// Mean training loss of the last full stretch between two boundaries.
    pub(crate) train_loss: f64,
    /// Time of all steps so far.
    pub(crate) spent: PhaseTimes,
    /// Since when there are no steps because a task was lost.
    pub(crate) stands: Standstill,
    /// Examples of the last update.
    pub(crate) size: u64,
}

impl LoopState {
    pub(crate) fn new(prepared: &Prepared, origin: &Origin) -> Self {
        let (size, _) = prepared.pace.at(origin.step, origin.position);
        Self {
            step: origin.step,
            batch: origin.step + origin.outstanding.len() as u64,
            position: origin.position,
            examples: origin.examples,
            unheard: 0,
            losses: LossWatch::new(prepared.plan.spec.stop.until_loss, origin.best)
                .idle_at_most(prepared.plan.spec.stop.no_gain),
            guard: LossGuard::of_updates(prepared.plan.details.schema.labels.classes()),
            diverged: None,
            reached: false,
            folder_gone: false,
            unsaved: None,
            checked: false,
            unscored: prepared.is_met_at(origin.step),
            evaluated: origin.evaluated.clone().map(|evaluated| (origin.step, evaluated)),
            saved: (origin.step > 0).then_some(origin.step),
            ending: None,
            closing: false,
            closed: false,
            tally: Tally::default(),
            went_back: false,
            recent: Meter::default(),
            stretch: Meter::default(),
            total: Meter::default(),
            own_examples: 0,
            own: StepLoss::default(),
            own_last: StepLoss::default(),
            dropped: 0,
            reported: Instant::now(),
            looked: origin.step,
            save_looked: origin.step,
            train_loss: origin.train_loss.unwrap_or(f64::NAN),
            spent: PhaseTimes::default(),
            stands: Standstill::default(),
            size,
        }
    }

    /// Takes a finished step into account; `next` is the position behind batch number `batch`.
    pub(crate) fn advance(
        &mut self,
        pushed: &Pushed,
        own: &StepLoss,
        phases: PhaseTimes,
        (batch, next): (u64, Position),
    ) {
        self.step = pushed.version.0;
        if batch >= self.batch {
            self.batch = batch + 1;
            self.position = next;
        }
        self.examples += pushed.step_report.loss.examples;
        self.own_examples += own.examples;
        self.own.loss_sum += own.loss_sum;
        self.own.correct += own.correct;
        self.own.examples += own.examples;
        self.dropped += u64::from(pushed.dropped);
        let StepLoss { loss_sum, correct, examples } = pushed.step_report.loss;
        self.diverged = self.guard.observe(&Observed { loss_sum, correct, examples });
        self.recent.add(&pushed.step_report.loss, own.examples, phases, pushed.traffic);
        self.spent += phases;
    }

    /// Counts examples of steps that the others completed without notifying this worker.
    pub(crate) fn pass_over(&mut self, examples: u64) {
        self.examples += examples;
        self.unheard += examples;
    }

    /// Moves to another step: the run went on from there.
    pub(crate) fn jump(&mut self, step: u64, batch: u64, position: Position) {
        (self.step, self.batch, self.position) = (step, batch, position);
        (self.looked, self.save_looked) = (step, step);
        self.saved = self.saved.filter(|saved| *saved <= step);
        self.guard.restart();
    }

    /// Whether a multiple of `every` was passed since the last call.
    pub(crate) fn passed(&mut self, every: u64) -> bool {
        let passed = self.step / every > self.looked / every;
        self.looked = self.step;
        passed
    }

    /// The same for checkpoints.
    pub(crate) fn save_due(&mut self, every: Option<u64>) -> bool {
        let passed = every.is_some_and(|every| self.step / every > self.save_looked / every);
        self.save_looked = self.step;
        passed
    }

    /// Whether everything is done, the final save included.
    pub(crate) fn ended(&self) -> bool {
        self.closed
    }

    /// Sums since the last event; they are added to the longer ones.
    pub(crate) fn take_recent(&mut self) -> Meter {
        let recent = std::mem::take(&mut self.recent);
        self.stretch.absorb(&recent);
        self.total.absorb(&recent);
        self.reported = Instant::now();
        recent
    }

    /// A stretch between two boundaries is over.
    pub(crate) fn end_stretch(&mut self) {
        if self.stretch.steps > 0 {
            self.train_loss = std::mem::take(&mut self.stretch).mean_loss();
        }
        if self.own.examples > 0 {
            self.own_last = std::mem::take(&mut self.own);
        }
    }

    /// Mean training loss of the present stretch between two boundaries or, at its very beginning, of the last.
    pub(crate) fn present_loss(&self) -> f64 {
        let mut stretch = self.stretch;
        stretch.absorb(&self.recent);
        if stretch.steps > 0 { stretch.mean_loss() } else { self.train_loss }
    }

    pub(crate) fn done(mut self, warnings: Vec<String>, lost: Vec<String>, finished: f64) -> Done {
        self.end_stretch(); // stopped between two boundaries: what there is since the last one
        Done {
            step: self.step,
            own_examples: self.own_examples,
            own_last: self.own_last,
            batch: self.size,
            examples: self.total.loss.examples + self.unheard,
            total: self.total,
            train_loss: self.train_loss,
            evaluated: self.evaluated.map(|(_, evaluated)| evaluated),
            own_score: None,
            reached: self.losses.reached(),
            cancelled: self.ending == Some(true),
            dropped: self.dropped,
            tally: self.tally,
            went_back: self.went_back,
            finished,
            warnings,
            unsaved: self.unsaved,
            lost,
        }
    }
}
