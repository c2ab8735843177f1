//! How far another task's clock is from ours, from a few questions and answers.
//!
//! The answer with the shortest round trip bounds the error best: the other clock was read at some
//! moment within it, so half the round trip is the most the estimate can be wrong by.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock compared with ours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// Seconds the other clock is ahead.
    pub seconds: f64,
    /// Shortest round trip, in seconds; the offset is known to half of it.
    pub round_trip: f64,
}

impl Offset {
    /// Takes one question into account: when it left, when the answer came, and what the other clock
    /// said, all in seconds since 1970.
    pub(super) fn improve(best: Option<Self>, asked: f64, answered: f64, said: f64) -> Self {
        let found = Self {
            seconds: said - 0.5 * (asked + answered),
            round_trip: (answered - asked).max(0.0),
        };
        match best {
            Some(best) if best.round_trip <= found.round_trip => best,
            _ => found,
        }
    }
}

/// Seconds since 1970.
pub(super) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_decides() {
        // Three seconds ahead; one answer was held up on its way back.
        let first = Offset::improve(None, 100.0, 100.4, 103.05);
        assert!((first.seconds - 2.85).abs() < 1e-9);
        let second = Offset::improve(Some(first), 101.0, 101.01, 104.005);
        assert!((second.seconds - 3.0).abs() < 1e-9 && second.round_trip < 0.011);
        assert_eq!(Offset::improve(Some(second), 102.0, 102.5, 105.4), second);
    }
}
