//! From field and value to a weight's number.
//!
//! The field is part of the hash: the same value in two columns means two things. The product of two
//! 64-bit words, its halves folded together, spreads similar keys over all bits in one instruction.

use serde::{Deserialize, Serialize};

/// What becomes of the integer columns of a click log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Integers {
    /// Each number of binary digits is a category of its own: counts matter by their magnitude.
    #[default]
    Bins,
    /// One feature per column whose value is the signed logarithm of the integer.
    Values,
}

/// How features become weight numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hashing {
    /// Weights are numbered `0..2^bits`; 1 to 31.
    pub bits: u32,
    /// What becomes of integer columns.
    #[serde(default)]
    pub integers: Integers,
    /// Whether rows begin with a label; without one their label is 0.
    #[serde(default = "yes")]
    pub labelled: bool,
}

fn yes() -> bool {
    true
}

impl Default for Hashing {
    fn default() -> Self {
        Self { bits: 25, integers: Integers::default(), labelled: true }
    }
}

impl Hashing {
    /// The fewest and the most bits there may be: indices are 32 bits wide in memory and on disk.
    pub const BITS: std::ops::RangeInclusive<u32> = 1..=31;

    /// Number of weights.
    #[must_use]
    pub fn width(&self) -> u64 {
        1 << self.bits
    }

    /// Shifts a hash down to a weight's number.
    #[inline]
    pub(crate) fn index(&self, hash: u64) -> u32 {
        (hash >> (64 - self.bits)) as u32
    }
}

const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND: u64 = 0xd1b5_4a32_d192_ed03;

/// What makes a field's values its own.
#[inline]
pub(crate) const fn field(number: u64) -> u64 {
    (number + 1).wrapping_mul(SECOND)
}

/// The hash of a value in a field.
#[inline]
pub(crate) const fn fold(field: u64, value: u64) -> u64 {
    let product = (field ^ value) as u128 * FIRST as u128;
    // The low half alone would keep low bits low; the high half alone forgets them.
    let folded = (product >> 64) as u64 ^ product as u64;
    folded.wrapping_mul(SECOND)
}

/// Where the hash of a name begins: its length keeps `a` and `a\0` apart.
#[inline(always)]
pub(crate) fn name_seed(field: u64, length: usize) -> u64 {
    field ^ (length as u64).wrapping_mul(FIRST)
}

/// The hash of a name within a field.
#[inline]
pub(crate) fn fold_bytes(field: u64, name: &[u8]) -> u64 {
    let (words, rest) = name.as_chunks::<8>();
    let mut hash = name_seed(field, name.len());
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn similar_values_and_fields_spread_over_all_weights() {
        // 40 fields of 1,000 neighbouring values into 2^25 weights: by chance about 24 of 40,000 pairs
        // collide; a poor hash loses far more.
        let hashing = Hashing::default();
        let mut seen = HashSet::new();
        let mut buckets = [0_u32; 16];
        for number in 0..40 {
            for value in 0..1000 {
                let index = hashing.index(fold(field(number), value));
                seen.insert(index);
                buckets[(index >> 21) as usize] += 1;
            }
        }
        assert!(seen.len() > 39_900, "{} of 40000 stayed apart", seen.len());
        assert!(buckets.iter().all(|&count| (2200..2800).contains(&count)), "{buckets:?}");
    }

    #[test]
    fn names_differ_by_length_and_by_their_last_byte() {
        let names: Vec<Vec<u8>> = (0..200_usize).map(|n| vec![0; n]).collect();
        let hashes: HashSet<u64> = names.iter().map(|name| fold_bytes(3, name)).collect();
        assert_eq!(hashes.len(), names.len());
        assert_ne!(fold_bytes(3, b"c12=abcd"), fold_bytes(3, b"c12=abce"));
        assert_ne!(fold_bytes(3, b"same"), fold_bytes(4, b"same"));
    }
}
