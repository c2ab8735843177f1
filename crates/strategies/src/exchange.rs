//! What a worker needs from a strategy.

use crate::StrategyError;
use paceline_models::{StepLoss, kernels::Buffer, optimizer::OptimizerState, split::Peers};
use std::ops::Range;

/// Updates done so far on the parameters a worker holds: one global step is one update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

/// A step that is about to happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepInfo {
    /// Global step, from 0.
    pub step: u64,
    /// Its learning rate.
    pub rate: f32,
    /// Examples of the whole global batch.
    pub examples: u64,
}

impl StepInfo {
    /// Before the first step.
    pub(crate) const NONE: Self = Self { step: 0, rate: 0.0, examples: 0 };
}

/// A piece of work: one share of one global batch.
///
/// Global batches are numbered in the order that seed and epoch fix, so a number identifies the same
/// examples for every worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Number of the global batch, from 0.
    pub batch: u64,
    /// Which share of it, and of how many.
    pub share: (usize, usize),
}

/// What a worker contributes to a step besides its gradient; sums and "or"s over all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepReport {
    /// Loss over the worker's share of the global batch.
    pub loss: StepLoss,
    /// This worker was asked to stop.
    pub stop: bool,
    /// The gradient holds a value that is not finite, so no update was made from it.
    pub nonfinite: bool,
}

impl StepReport {
    /// Adds another worker's.
    pub fn add(&mut self, other: &Self) {
        self.loss.loss_sum += other.loss.loss_sum;
        self.loss.correct += other.loss.correct;
        self.loss.examples += other.loss.examples;
        self.stop |= other.stop;
        self.nonfinite |= other.nonfinite;
    }
}

/// Bytes that crossed a process boundary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pushed {
    /// The step reports of all workers together. Where workers do not run in lockstep: all step reports that were counted
    /// since this worker's last push, its own included, so that the sums over a run are complete.
    pub step_report: StepReport,
    /// Updates made so far; one more than before where workers run in lockstep.
    pub version: Version,
    /// Updates that others made between this worker's pull and its own update.
    pub staleness: u64,
    /// The gradient came too late and was thrown away.
    pub dropped: bool,
    /// What it cost the network.
    pub traffic: Traffic,
    /// Nanoseconds spent moving and adding gradients and weights.
    pub exchange: u64,
    /// Nanoseconds spent waiting for others.
    pub wait: u64,
}

/// Weights and optimiser state of one version, to be saved.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Updates in it.
    pub version: Version,
    /// The weights; nothing where they are the ones the worker holds.
    pub params: Option<Buffer>,
    pub state: OptimizerState,
    /// Batches that were dealt but whose updates are not in the weights, ascending. A run that resumes
    /// from here deals them first and then continues with batch `version + outstanding.len()`.
    pub outstanding: Vec<u64>,
}

/// Where a run starts from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Updates in the weights.
    pub version: u64,
    /// As in [`Snapshot::outstanding`].
    pub outstanding: Vec<u64>,
}

/// What became of all gradients of a run; strategies without servers count nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Updates by staleness: how many others were made between its pull and itself.
    pub staleness: Vec<u64>,
    /// Gradients that came too late and were thrown away.
    pub dropped: u64,
    pub dropped_examples: u64,
    /// Examples whose gradients were used.
    pub examples: u64,
}

/// A worker's side of a strategy.
///
/// The step loop is the same for all of them:
///
/// ```text
/// while let Some(ticket) = deal(step) {    which examples; nothing is left: the run is over
///     pull(params)                         weights of the step
///     … ready(range) …                     during the backward pass
///     push(step_report, params, grad)             ends the step
/// }
/// leave()                                  finished, not lost
/// ```
///
/// Where workers run in lockstep ([`Exchange::in_lockstep`]), every worker makes the collective calls (`push`, `sum`,
/// `complete`, `snapshot`) in the same order; a worker that drops its exchange in
/// between makes the others fail instead of wait forever. Where they do not, `push` concerns the
/// caller alone, worker 0 calls `snapshot` and `tally` at any time, and only `sum` is a
/// collective call of all remaining workers.
pub trait Exchange: Send {
    /// Which worker this is, and of how many.
    fn place(&self) -> (usize, usize);

    /// Whether all workers do every step together, so that they come to the same decisions by
    /// themselves.
    fn in_lockstep(&self) -> bool {
        true
    }

    /// Whether the gradient is needed as a whole when all of it is there: not where every range is used as
    /// soon as it is reported.
    fn keeps_gradient(&self) -> bool {
        true
    }

    /// What to work on next, after `step` updates; nothing when the run is over. May wait: for the
    /// next step to begin, or for a batch that a worker may have to repeat. After the run is over,
    /// a last `pull` of everything brings the final weights where servers hold them.
    fn deal(&mut self, step: u64) -> Result<Option<Ticket>, StrategyError> {
        Ok(Some(Ticket { batch: step, share: self.place() }))
    }

    /// Batches that will be dealt to this worker after the present one, as far as is known, for a
    /// loader that reads ahead. Empty where they follow one another.
    fn upcoming(&self) -> &[u64] {
        &[]
    }

    /// Begins a step: brings `params` up to date.
    fn pull(&mut self, step: StepInfo, params: &mut [f32]) -> Result<Version, StrategyError>;

    /// A range of the gradient is final and the model no longer reads these parameters in this step.
    /// Called in the middle of the backward pass, so it must not wait; failures surface in `push`.
    fn ready(&mut self, range: Range<usize>, params: &mut [f32], grad: &mut [f32]);

    /// The other workers, where they share out layers among themselves: the model then makes its step
    /// together with them. A call that fails there surfaces in `push`.
    fn peers(&mut self) -> Option<&mut dyn Peers> {
        None
    }

    /// Brings the whole of `params` up to date where each worker has only its own part of some layers.
    /// Where workers run in lockstep it is a collective call, made before any worker uses all weights.
    fn complete(&mut self, params: &mut [f32]) -> Result<(), StrategyError> {
        let _ = params;
        Ok(())
    }

    /// Ends a step. Afterwards `params` are those of the next step, unless the step report is nonfinite: then
    /// they are untouched, so that one can look for the cause. `grad` may be exchanged for another
    /// buffer of the same length.
    fn push(
        &mut self,
        step_report: StepReport,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError>;

    /// Sums `values` over all workers; every worker gets the sums.
    fn sum(&mut self, values: &mut [f64]) -> Result<(), StrategyError>;

    /// Collects the state of one version; worker 0 receives it.
    fn snapshot(&mut self) -> Result<Option<Snapshot>, StrategyError>;

    /// What became of all gradients so far.
    fn tally(&mut self) -> Result<Tally, StrategyError> {
        Ok(Tally::default())
    }

    /// Forms the group again from the remaining workers after a member was lost: each ends up
    /// with the weights of the last completed step, whose number is returned, and a new place.
    fn reform(&mut self, params: &mut [f32]) -> Result<Version, StrategyError> {
        let _ = params;
        Err(StrategyError::NoReform)
    }

    /// Brings those that are behind up to the others, right after connecting: a worker that was started
    /// again, or that has no checkpoint to resume from. Where workers hold weights, all of them call it;
    /// forming the group again includes it. Returns the number of updates that all workers have.
    fn align(&mut self, params: &mut [f32]) -> Result<Version, StrategyError> {
        let _ = params;
        Err(StrategyError::NoReform)
    }

    /// Asks all workers to stop after the current step. Where workers run in lockstep, a step report does that.
    fn stop(&mut self) -> Result<(), StrategyError> {
        Ok(())
    }

    /// Waits, after [`stop`](Self::stop), for the updates of other workers that are under way, so that what is saved has
    /// everything that was counted. Where workers run in lockstep there are none.
    fn drain(&mut self) -> Result<(), StrategyError> {
        Ok(())
    }

    /// Says that this worker has finished, so that it is not taken for lost.
    fn leave(&mut self) -> Result<(), StrategyError> {
        Ok(())
    }
}

/// Looks for a value that is not finite at the end of the first range of a step.
///
/// That range belongs to the last layer, whose bias gradient sums the loss gradient over the batch:
/// it is NaN or infinite whenever the loss or any activation is. So a few thousand values tell, and no pass
/// over the whole gradient is needed.
pub(crate) fn is_nonfinite(grad: &[f32]) -> bool {
    const LOOK: usize = 1024;
    let tail = &grad[grad.len().saturating_sub(LOOK)..];
    // Adding `0 * x` leaves 0 for finite values and NaN otherwise, without a branch per value.
    let mut lanes = [0.0f32; 16];
    let (chunks, rest) = tail.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * 0.0;
        }
    }
    let rest: f32 = rest.iter().map(|value| value * 0.0).sum();
    !(lanes.iter().sum::<f32>() + rest).is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_are_seen_wherever_they_lie() {
        for length in [1, 15, 16, 17, 1000, 1024] {
            let clean = vec![1.5f32; length];
            assert!(!is_nonfinite(&clean), "{length}");
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, length / 2, length - 1] {
                    let mut grad = clean.clone();
                    grad[at] = bad;
                    assert!(is_nonfinite(&grad), "{bad} at {at} of {length}");
                }
            }
        }
        assert!(!is_nonfinite(&[]));
        assert!(!is_nonfinite(&[f32::MAX, f32::MIN, f32::MIN_POSITIVE]));
    }
}
