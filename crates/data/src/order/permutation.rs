//! A shuffle that needs no memory.
//!
//! A Feistel network over a grid of about `sqrt(n)` by `sqrt(n)` cells is a permutation whatever its
//! round function is; cells beyond `n` are walked through again until the path lands inside, which
//! keeps it an exact permutation of `0..n`. So any place of any epoch is found in constant time: a
//! run resumes mid-epoch without replaying anything, and a billion examples cost no more memory
//! than ten. The quality is checked by the tests below against what a fair shuffle would show.

use paceline_stats::random::{STEP, scramble};
use std::ops::Range;

/// Enough that every statistic in the tests is that of a fair shuffle.
const ROUNDS: usize = 8;

/// A grid of two by three cells mixes slowly: with 8 rounds, some orders of five examples come more
/// often than others.
const ROUNDS_OF_TINY_SETS: usize = 16;

/// Sets below this size are tiny.
const TINY: u64 = 256;

/// A permutation of `0..len`, decided by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    rows: u64,
    columns: u64,
    keys: [u64; ROUNDS_OF_TINY_SETS],
}

impl Permutation {
    /// The permutation of `0..len` that belongs to `key`.
    #[must_use]
    pub fn new(len: u64, key: u64) -> Self {
        // rows * columns - len < rows: at most one path in sqrt(len) has to be walked twice.
        let rows = len.max(1).isqrt();
        let rows = if rows * rows < len { rows + 1 } else { rows };
        let columns = len.max(1).div_ceil(rows);
        let mut keys = [0; ROUNDS_OF_TINY_SETS];
        for (round, slot) in keys.iter_mut().enumerate() {
            *slot = mix(key, round as u64);
        }
        Self { len, rows, columns, keys }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing to permute.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `place`, which must be below `len`.
    #[must_use]
    pub fn at(&self, place: u64) -> u64 {
        debug_assert!(place < self.len);
        self.walk(place / self.columns, place % self.columns)
    }

    /// The place at which `element` comes: the inverse of [`Permutation::at`].
    #[must_use]
    pub fn place_of(&self, element: u64) -> u64 {
        debug_assert!(element < self.len);
        let mut place = element;
        loop {
            let (mut row, mut column) = (place / self.columns, place % self.columns);
            for round in (0..self.keys().len()).rev() {
                if round % 2 == 0 {
                    row = subtract(row, scaled(column, self.keys[round], self.rows), self.rows);
                } else {
                    column =
                        subtract(column, scaled(row, self.keys[round], self.columns), self.columns);
                }
            }
            place = row * self.columns + column;
            if place < self.len {
                return place;
            }
        }
    }

    /// Appends the elements at `places`, which must lie within `0..len`; no division per element.
    pub fn extend(&self, places: Range<u64>, out: &mut Vec<u64>) {
        if places.is_empty() {
            return;
        }
        debug_assert!(places.end <= self.len);
        let (mut row, mut column) = (places.start / self.columns, places.start % self.columns);
        out.extend(places.map(|_| {
            let element = self.walk(row, column);
            column += 1;
            if column == self.columns {
                (row, column) = (row + 1, 0);
            }
            element
        }));
    }

    #[inline]
    fn keys(&self) -> &[u64] {
        if self.len < TINY { &self.keys } else { &self.keys[..ROUNDS] }
    }

    #[inline]
    fn walk(&self, mut row: u64, mut column: u64) -> u64 {
        loop {
            for pair in self.keys().chunks_exact(2) {
                row = add(row, scaled(column, pair[0], self.rows), self.rows);
                column = add(column, scaled(row, pair[1], self.columns), self.columns);
            }
            let element = row * self.columns + column;
            if element < self.len {
                return element;
            }
            // Rare: the cell lies in the last row's overhang.
        }
    }
}

#[inline]
fn add(a: u64, b: u64, modulus: u64) -> u64 {
    let sum = a + b;
    if sum >= modulus { sum - modulus } else { sum }
}

#[inline]
fn subtract(a: u64, b: u64, modulus: u64) -> u64 {
    if a >= b { a - b } else { a + modulus - b }
}

/// The round function: a number below `limit` (at most 2^32) by multiplication instead of division.
#[inline]
fn scaled(value: u64, key: u64, limit: u64) -> u64 {
    let mut hash = (value ^ key).wrapping_mul(STEP);
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((hash >> 32) * limit) >> 32
}

/// Two numbers into one well-mixed number; also what derives keys from seeds everywhere in this crate.
#[must_use]
pub fn mix(a: u64, b: u64) -> u64 {
    scramble(a ^ b.wrapping_add(1).wrapping_mul(STEP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_element_is_lost_or_doubled(len in 1_u64..3000, key: u64) {
            let permutation = Permutation::new(len, key);
            let mut seen = vec![false; usize::try_from(len).unwrap()];
            for place in 0..len {
                let element = permutation.at(place);
                prop_assert!(!std::mem::replace(&mut seen[usize::try_from(element).unwrap()], true));
                prop_assert_eq!(permutation.place_of(element), place);
            }
        }

        #[test]
        fn ranges_equal_single_places(len in 1_u64..5000, key: u64, a: u64, b: u64) {
            let permutation = Permutation::new(len, key);
            let (a, b) = (a % (len + 1), b % (len + 1));
            let mut out = vec![77];
            permutation.extend(a.min(b)..a.max(b), &mut out);
            let single: Vec<u64> =
                std::iter::once(77).chain((a.min(b)..a.max(b)).map(|p| permutation.at(p))).collect();
            prop_assert_eq!(out, single);
        }

        #[test]
        fn huge_sets_stay_inside(len in 1_u64 << 40..u64::MAX >> 1, key: u64, place: u64) {
            let permutation = Permutation::new(len, key);
            let element = permutation.at(place % len);
            prop_assert!(element < len);
            prop_assert_eq!(permutation.place_of(element), place % len);
        }
    }

    /// Chi-square of counts against a uniform expectation, in standard deviations.
    fn deviations(counts: &[u32]) -> f64 {
        let total: f64 = counts.iter().map(|&c| f64::from(c)).sum();
        let expected = total / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&c| (f64::from(c) - expected).powi(2) / expected).sum();
        let freedom = counts.len() as f64 - 1.0;
        (chi - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn every_order_of_a_tiny_set_is_equally_likely() {
        for len in [3_u64, 4, 5, 6] {
            let mut counts = vec![0_u32; (1..=len).product::<u64>() as usize];
            for key in 0..200 * counts.len() as u64 {
                let permutation = Permutation::new(len, mix(11, key));
                // Lehmer code: the rank of this order among all orders.
                let order: Vec<u64> = (0..len).map(|p| permutation.at(p)).collect();
                let rank = (0..order.len()).fold(0, |rank, i| {
                    let smaller = order[i + 1..].iter().filter(|&&o| o < order[i]).count();
                    rank * (order.len() - i) + smaller
                });
                counts[rank] += 1;
            }
            assert!(deviations(&counts).abs() < 5.0, "{len}: {}", deviations(&counts));
        }
    }

    #[test]
    fn every_example_comes_at_every_place_and_after_every_other() {
        for len in [7_usize, 10, 30, 61] {
            let mut places = vec![0_u32; len * len];
            let mut steps = vec![0_u32; len - 1];
            for key in 0..6000 {
                let permutation = Permutation::new(len as u64, mix(5, key));
                let order: Vec<usize> =
                    (0..len as u64).map(|p| permutation.at(p) as usize).collect();
                for (place, &element) in order.iter().enumerate() {
                    places[place * len + element] += 1;
                }
                // The jump from one example to the next, cyclically, is never zero.
                for pair in order.windows(2) {
                    steps[(pair[1] + len - pair[0]) % len - 1] += 1;
                }
            }
            assert!(deviations(&places).abs() < 6.0, "{len} places: {}", deviations(&places));
            assert!(deviations(&steps).abs() < 6.0, "{len} steps: {}", deviations(&steps));
        }
    }

    #[test]
    fn a_large_shuffle_shows_no_trend_and_keeps_nothing_in_place() {
        let len = 60_000_u64;
        for key in 0..8 {
            let permutation = Permutation::new(len, mix(3, key));
            let mut order = Vec::new();
            permutation.extend(0..len, &mut order);
            let fixed = order.iter().enumerate().filter(|&(p, &e)| p as u64 == e).count();
            assert!(fixed < 9, "{fixed} fixed points; one is expected");
            // Correlation of neighbours and with the unshuffled order: 1 / sqrt(len) is one deviation.
            let centred: Vec<f64> = order.iter().map(|&e| e as f64 - len as f64 / 2.0).collect();
            let variance: f64 = centred.iter().map(|c| c * c).sum();
            let neighbours: f64 = centred.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / variance;
            let trend: f64 = centred
                .iter()
                .enumerate()
                .map(|(p, c)| (p as f64 - len as f64 / 2.0) * c)
                .sum::<f64>()
                / variance;
            let limit = 5.0 / (len as f64).sqrt();
            assert!(neighbours.abs() < limit && trend.abs() < limit, "{neighbours} {trend}");
            // How many examples of each twentieth land in each twentieth.
            let mut counts = vec![0_u32; 400];
            for (place, &element) in order.iter().enumerate() {
                counts[place * 20 / len as usize * 20 + element as usize * 20 / len as usize] += 1;
            }
            assert!(deviations(&counts).abs() < 6.0, "{}", deviations(&counts));
        }
    }
}
