//! The four phases of a step, once for every place that measures, adds up, records or judges them.

use serde::{Deserialize, Serialize};
use std::{iter::Sum, ops::AddAssign};

/// Where the time of some steps went: in seconds, or as parts of the whole where [`PhaseTimes::shares`] made them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhaseTimes {
    /// Waiting for the next batch.
    pub input: f64,
    /// Forward pass, backward pass, update.
    pub compute: f64,
    /// Moving and adding gradients and weights.
    pub exchange: f64,
    /// Waiting for other workers.
    pub wait: f64,
}

impl PhaseTimes {
    /// All four phases.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.input + self.compute + self.exchange + self.wait
    }

    /// What is spent on other tasks: exchange and wait.
    #[must_use]
    pub fn together(&self) -> f64 {
        self.exchange + self.wait
    }

    /// What a worker does on its own: input and compute.
    #[must_use]
    pub fn own(&self) -> f64 {
        self.input + self.compute
    }

    /// Each phase as a share of all four; they add up to 1, or are all 0 where no time was spent.
    #[must_use]
    pub fn shares(&self) -> Self {
        self.shares_of(self.total())
    }

    /// Each phase as a share of so many seconds; all 0 where there are none.
    #[must_use]
    pub fn shares_of(&self, seconds: f64) -> Self {
        if seconds <= 0.0 { Self::default() } else { self.map(|phase| phase / seconds) }
    }

    /// The seconds behind shares of so many seconds.
    #[must_use]
    pub fn seconds_of(&self, seconds: f64) -> Self {
        self.map(|share| seconds * share)
    }

    fn map(&self, of: impl Fn(f64) -> f64) -> Self {
        let Self { input, compute, exchange, wait } = *self;
        Self { input: of(input), compute: of(compute), exchange: of(exchange), wait: of(wait) }
    }
}

impl AddAssign for PhaseTimes {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.compute += more.compute;
        self.exchange += more.exchange;
        self.wait += more.wait;
    }
}

impl Sum for PhaseTimes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_no_time_are_zero_not_nan() {
        assert_eq!(PhaseTimes::default().shares(), PhaseTimes::default());
        let shares = PhaseTimes { input: 1.0, compute: 3.0, ..PhaseTimes::default() }.shares();
        assert_eq!((shares.input, shares.compute), (0.25, 0.75));
        assert_eq!(shares.seconds_of(4.0).compute, 3.0);
    }

    #[test]
    fn sums_add_each_phase() {
        let one = PhaseTimes { input: 1.0, compute: 2.0, exchange: 3.0, wait: 4.0 };
        let sum: PhaseTimes = [one, one].into_iter().sum();
        assert_eq!(sum, PhaseTimes { input: 2.0, compute: 4.0, exchange: 6.0, wait: 8.0 });
        assert_eq!((sum.own(), sum.together(), sum.total()), (6.0, 14.0, 20.0));
    }
}
