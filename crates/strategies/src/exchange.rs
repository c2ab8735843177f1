//! What a worker needs from a strategy.

use crate::StrategyError;
use paceline_models::{StepLoss, Touched, kernels::Buffer, optimizer::State};
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
}

/// What a worker contributes to a step besides its gradient; sums and "or"s over all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Vote {
    /// Loss over the worker's share of the global batch.
    pub loss: StepLoss,
    /// Somebody asked this worker to stop.
    pub stop: bool,
    /// The gradient holds a value that is not finite, so no update was made from it.
    pub poisoned: bool,
}

impl Vote {
    /// Adds another worker's.
    pub fn add(&mut self, other: &Self) {
        self.loss.loss_sum += other.loss.loss_sum;
        self.loss.correct += other.loss.correct;
        self.loss.examples += other.loss.examples;
        self.stop |= other.stop;
        self.poisoned |= other.poisoned;
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
    /// Everybody's votes together.
    pub vote: Vote,
    /// Global step after this update.
    pub version: Version,
    /// What it cost the network.
    pub traffic: Traffic,
    /// Nanoseconds spent moving and adding gradients and weights.
    pub exchange: u64,
    /// Nanoseconds spent waiting for others.
    pub wait: u64,
}

/// A worker's side of a strategy.
///
/// Collective calls (`push`, `sum`, `gather_state`) are made by every worker in the same order; a
/// worker that drops its exchange in between makes the others fail instead of wait for ever.
pub trait Exchange: Send {
    /// Which worker this is, and of how many: its share of every global batch.
    fn place(&self) -> (usize, usize);

    /// Begins a step: brings `params` (at least those `touched`) up to date.
    fn pull(
        &mut self,
        step: StepInfo,
        touched: &Touched,
        params: &mut [f32],
    ) -> Result<Version, StrategyError>;

    /// A range of the gradient is final and the model no longer reads these parameters in this step.
    /// Called in the middle of the backward pass, so it must not wait; failures surface in `push`.
    fn ready(&mut self, range: Range<usize>, params: &mut [f32], grad: &mut [f32]);

    /// Ends a step. Afterwards `params` are those of the next step, unless the vote is poisoned: then
    /// they are untouched, so that one can look for the cause. `grad` may be exchanged for another
    /// buffer of the same length.
    fn push(
        &mut self,
        vote: Vote,
        params: &mut [f32],
        grad: &mut Buffer,
    ) -> Result<Pushed, StrategyError>;

    /// Adds up `values` over all workers; everybody gets the sums.
    fn sum(&mut self, values: &mut [f64]) -> Result<(), StrategyError>;

    /// Collects the optimiser's state; worker 0 receives it.
    fn gather_state(&mut self) -> Result<Option<State>, StrategyError>;
}

/// Looks for a value that is not finite at the end of the first range of a step.
///
/// That range belongs to the last layer, whose bias gradient sums the loss gradient over the batch:
/// it is poisoned whenever the loss or any activation is. So a few thousand values tell, and no pass
/// over the whole gradient is needed.
pub(crate) fn is_poisoned(grad: &[f32]) -> bool {
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
    fn poison_is_seen_wherever_it_lies() {
        for length in [1, 15, 16, 17, 1000, 1024] {
            let clean = vec![1.5f32; length];
            assert!(!is_poisoned(&clean), "{length}");
            for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in [0, length / 2, length - 1] {
                    let mut grad = clean.clone();
                    grad[at] = poison;
                    assert!(is_poisoned(&grad), "{poison} at {at} of {length}");
                }
            }
        }
        assert!(!is_poisoned(&[]));
        assert!(!is_poisoned(&[f32::MAX, f32::MIN, f32::MIN_POSITIVE]));
    }
}
