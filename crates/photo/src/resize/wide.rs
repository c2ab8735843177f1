//! The resizer's two inner loops in 256-bit registers.

#![allow(unsafe_code, reason = "loads and stores of whole registers, each argued below")]

use super::weights::{Axis, GROUP, ONE};
use std::arch::x86_64::*;

/// Weights across, for each group of four places: the first pair four times, the second four times.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    of: Axis,
    weights: Vec<[i16; 16]>,
}

impl Repeated {
    /// Repeats the weights of an axis, unless they are the same as before.
    pub(super) fn prepare(&mut self, axis: &Axis) {
        if self.of != *axis {
            self.of.clone_from(axis);
            self.weights.clear();
            self.weights.extend(
                axis.weights
                    .as_chunks::<GROUP>()
                    .0
                    .iter()
                    .map(|&[a, b, c, d]| [a, b, a, b, a, b, a, b, c, d, c, d, c, d, c, d]),
            );
        }
    }

    /// The weights last prepared.
    pub(super) fn weights(&self) -> &[[i16; 16]] {
        &self.weights
    }
}

/// Mixes whole groups of 32 bytes of `rows` by `weights`; returns how many bytes that were.
pub(super) fn mix(rows: &[&[u8]], weights: &[i16], out: &mut [u8]) -> usize {
    let shortest = rows.iter().map(|row| row.len()).min().unwrap_or(0).min(out.len());
    let count = shortest / 32 * 32;
    // SAFETY: reached only where `Simd::Avx2` was found available; all slices hold `count` bytes.
    unsafe { mix_groups(rows, weights, out, count) };
    count
}

/// # Safety
/// The CPU has AVX2; `count` is a multiple of 32; every row and `out` hold as many bytes.
#[target_feature(enable = "avx2")]
unsafe fn mix_groups(rows: &[&[u8]], weights: &[i16], out: &mut [u8], count: usize) {
    let zero = _mm256_setzero_si256();
    let half = _mm256_set1_epi32(ONE / 2);
    let mut at = 0;
    while at < count {
        let mut sums = [half; 4];
        // Taps are padded to fours, so they come in pairs.
        for (rows, weights) in rows.as_chunks::<2>().0.iter().zip(weights.as_chunks::<2>().0) {
            let factors =
                _mm256_set1_epi32(i32::from(weights[1]) << 16 | i32::from(weights[0] as u16));
            // SAFETY: `at + 32 <= count`, which every row holds.
            let (a, b) = unsafe {
                (
                    _mm256_loadu_si256(rows[0].as_ptr().add(at).cast()),
                    _mm256_loadu_si256(rows[1].as_ptr().add(at).cast()),
                )
            };
            let (low, high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let parts = [
                _mm256_unpacklo_epi8(low, zero),
                _mm256_unpackhi_epi8(low, zero),
                _mm256_unpacklo_epi8(high, zero),
                _mm256_unpackhi_epi8(high, zero),
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(part, factors));
            }
        }
        let [a, b, c, d] = sums.map(|sum| _mm256_srai_epi32::<14>(sum));
        // Unpacking and packing both work within halves, so the order comes out right again.
        let bytes = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
        // SAFETY: `at + 32 <= count`, which `out` holds.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), bytes) };
        at += 32;
    }
}

/// Shrinks a line of RGB, whose first pixel has the number `first`, to the pixels of `out`.
pub(super) fn shrink(
    line: &[u8],
    firsts: &[usize],
    first: usize,
    weights: &[[i16; 16]],
    out: &mut [u8],
) {
    let count = out.len() / 3;
    if count == 0 {
        return;
    }
    let groups = weights.len() / count;
    assert!(
        firsts.len() >= count && weights.len() == groups * count,
        "an axis has all its weights"
    );
    let end = firsts[..count].iter().map(|&at| at - first).max().unwrap_or(0);
    assert!((end + groups * GROUP) * 3 + 16 <= line.len(), "the line has room beyond its end");
    // SAFETY: reached only where `Simd::Avx2` was found available; the slices were just measured.
    unsafe { shrink_pixels(line, firsts, first, weights, groups, out) }
}

/// # Safety
/// The CPU has AVX2; `firsts` has a place for each pixel of `out` and `weights` `groups` for each; the groups of
/// the last place, and four bytes more, lie inside `line`.
#[target_feature(enable = "avx2")]
unsafe fn shrink_pixels(
    line: &[u8],
    firsts: &[usize],
    first: usize,
    weights: &[[i16; 16]],
    groups: usize,
    out: &mut [u8],
) {
    const NONE: i8 = -1;
    // Four RGB pixels to pairs of 16-bit values: two pixels' reds, greens, blues; then the other two's.
    let pairs = _mm256_setr_epi8(
        0, NONE, 3, NONE, 1, NONE, 4, NONE, 2, NONE, 5, NONE, NONE, NONE, NONE, NONE, //
        6, NONE, 9, NONE, 7, NONE, 10, NONE, 8, NONE, 11, NONE, NONE, NONE, NONE, NONE,
    );
    let half = _mm_set1_epi32(ONE / 2);
    let count = out.len() / 3;
    for index in 0..count {
        let mut sums = _mm256_setzero_si256();
        for group in 0..groups {
            // SAFETY: by the caller's promise sixteen bytes from here lie inside the line, and the
            // weights hold `groups` registers per pixel.
            let (bytes, factors) = unsafe {
                let at = (firsts.get_unchecked(index) - first + group * GROUP) * 3;
                (
                    _mm_loadu_si128(line.as_ptr().add(at).cast()),
                    _mm256_loadu_si256(weights.as_ptr().add(index * groups + group).cast()),
                )
            };
            let values = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), pairs);
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(values, factors));
        }
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let scaled = _mm_srai_epi32::<14>(_mm_add_epi32(sum, half));
        let words = _mm_packs_epi32(scaled, scaled);
        let pixel = _mm_cvtsi128_si32(_mm_packus_epi16(words, words)).to_le_bytes();
        out[index * 3..index * 3 + 3].copy_from_slice(&pixel[..3]);
    }
}
