//! The phases of a step, once for every place that measures, adds up, records or judges them; and the time in which
//! there were no steps because a task was lost.

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
    /// Without a step, because a task was lost: from the step that failed until the next one. Not written where there
    /// was none.
    #[serde(skip_serializing_if = "is_none")]
    pub recovery: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_none(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl PhaseTimes {
    /// All of the time.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.stepping() + self.recovery
    }

    /// The four phases of steps: all but recovery.
    #[must_use]
    pub fn stepping(&self) -> f64 {
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

    /// Each phase as a share of the whole; they add up to 1, or are all 0 where no time was spent.
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
        let Self { input, compute, exchange, wait, recovery } = *self;
        Self {
            input: of(input),
            compute: of(compute),
            exchange: of(exchange),
            wait: of(wait),
            recovery: of(recovery),
        }
    }
}

impl AddAssign for PhaseTimes {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.compute += more.compute;
        self.exchange += more.exchange;
        self.wait += more.wait;
        self.recovery += more.recovery;
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
        let one = PhaseTimes { input: 1.0, compute: 2.0, exchange: 3.0, wait: 4.0, recovery: 5.0 };
        let sum: PhaseTimes = [one, one].into_iter().sum();
        let twice =
            PhaseTimes { input: 2.0, compute: 4.0, exchange: 6.0, wait: 8.0, recovery: 10.0 };
        assert_eq!(sum, twice);
        assert_eq!(
            (sum.own(), sum.together(), sum.stepping(), sum.total()),
            (6.0, 14.0, 20.0, 30.0)
        );
    }

    /// Logs of runs that lost no task stay as they were, and older ones are read.
    #[test]
    fn recovery_is_written_only_where_there_was_one() {
        let calm = PhaseTimes { compute: 1.0, ..PhaseTimes::default() };
        let text = serde_json::to_string(&calm).unwrap();
        assert!(!text.contains("recovery"), "{text}");
        assert_eq!(serde_json::from_str::<PhaseTimes>(&text).unwrap(), calm);
        let lost = PhaseTimes { recovery: 2.0, ..calm };
        let text = serde_json::to_string(&lost).unwrap();
        assert_eq!(serde_json::from_str::<PhaseTimes>(&text).unwrap(), lost);
    }
}
