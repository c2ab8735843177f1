//! Adds up what steps took and gave; no allocation, a few additions per step.

use paceline_models::StepLoss;
use paceline_runs::PhaseTimes;
use paceline_strategies::Traffic;

/// Sums over some steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    pub(crate) steps: u64,
    /// Loss and hits of all workers.
    pub(crate) loss: StepLoss,
    /// Examples of this worker alone.
    pub(crate) own: u64,
    pub(crate) phases: PhaseTimes,
    pub(crate) traffic: Traffic,
}

impl Meter {
    pub(crate) fn add(&mut self, loss: &StepLoss, own: u64, phases: PhaseTimes, traffic: Traffic) {
        self.steps += 1;
        self.own += own;
        self.loss.loss_sum += loss.loss_sum;
        self.loss.correct += loss.correct;
        self.loss.examples += loss.examples;
        self.phases += phases;
        self.traffic.sent += traffic.sent;
        self.traffic.received += traffic.received;
    }

    /// Adds another meter's sums.
    pub(crate) fn absorb(&mut self, other: &Self) {
        let steps = self.steps + other.steps;
        self.add(&other.loss, other.own, other.phases, other.traffic);
        self.steps = steps;
    }

    pub(crate) fn mean_loss(&self) -> f64 {
        self.loss.loss_sum / self.loss.examples as f64
    }

    pub(crate) fn accuracy(&self) -> f64 {
        self.loss.correct as f64 / self.loss.examples as f64
    }
}

/// Exchanges count in nanoseconds.
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}
