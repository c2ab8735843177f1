//! Random words as a function of their place, not of the order in which they are drawn.

use paceline_stats::random::{STEP, scramble};

/// Mixes a word so that neighbouring inputs give unrelated outputs: the number that SplitMix64 draws after this state.
#[must_use]
#[inline]
pub fn mix(value: u64) -> u64 {
    scramble(value.wrapping_add(STEP))
}
