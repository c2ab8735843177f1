//! A prediction as a range, and where a measurement stands to it.

use crate::simulate::SimulationOutcome;
use serde::Serialize;

/// All but one of the 46 simulated cases of `BENCHMARKS.md` were this near to what was then measured.
const WITHIN: f64 = 0.17;

/// Examples a second that a run is expected to have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Expectation {
    pub low: f64,
    pub expected: f64,
    pub high: f64,
}

/// Where a measured rate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Slower than the range.
    Below,
    Inside,
    /// Faster than the range.
    Above,
}

impl Expectation {
    /// From a simulation, as near as those have been.
    #[must_use]
    pub fn of(outcome: &SimulationOutcome) -> Self {
        let expected = outcome.examples_per_second;
        Self { low: expected / (1.0 + WITHIN), expected, high: expected / (1.0 - WITHIN) }
    }

    /// Where that rate stands.
    #[must_use]
    pub fn standing(&self, measured: f64) -> Standing {
        if measured < self.low {
            Standing::Below
        } else if measured > self.high {
            Standing::Above
        } else {
            Standing::Inside
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_below_inside_or_above() {
        let range = Expectation { low: 80.0, expected: 100.0, high: 120.0 };
        let of = |rate| range.standing(rate);
        assert_eq!(
            (of(79.9), of(80.0), of(120.0), of(121.0)),
            (Standing::Below, Standing::Inside, Standing::Inside, Standing::Above)
        );
    }
}
