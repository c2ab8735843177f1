//! The forward transform and quantisation of two blocks, one in each half of the registers.

#![allow(unsafe_code, reason = "loads and stores of whole registers, each argued below")]

use super::forward::{Divisors, EVEN, Pair};
use crate::jpeg::idct::ODD;
use crate::jpeg::idct_avx2::{add, descale, interleave, pair, transpose};
use std::arch::x86_64::*;

/// See [`super::forward::two`].
pub(super) fn two(first: &[u8], second: &[u8], stride: usize, divisors: &Divisors, out: &mut Pair) {
    assert!(first.len().min(second.len()) >= 7 * stride + 8, "both blocks have eight lines");
    // SAFETY: reached only where `Simd::Avx2` was found available; the inputs were just measured.
    unsafe { transform(first, second, stride, divisors, out) }
}

/// # Safety
/// The CPU has AVX2; both inputs hold seven strides and eight bytes.
#[target_feature(enable = "avx2")]
unsafe fn transform(
    first: &[u8],
    second: &[u8],
    stride: usize,
    divisors: &Divisors,
    out: &mut Pair,
) {
    let middle = _mm256_set1_epi16(128);
    let mut rows = [_mm256_setzero_si256(); 8];
    for (index, row) in rows.iter_mut().enumerate() {
        // SAFETY: `index` is below 8, and the caller vouches for eight lines of eight bytes.
        let both = unsafe {
            let a = _mm_loadl_epi64(first.as_ptr().add(index * stride).cast());
            let b = _mm_loadl_epi64(second.as_ptr().add(index * stride).cast());
            _mm_unpacklo_epi64(a, b)
        };
        *row = _mm256_sub_epi16(_mm256_cvtepu8_epi16(both), middle);
    }
    transpose(&mut rows);
    pass::<true, 11>(&mut rows);
    transpose(&mut rows);
    pass::<false, 15>(&mut rows);
    for (index, &row) in rows.iter().enumerate() {
        let at = index * 8;
        // SAFETY: `at + 8 <= 64`, the length of each table.
        let load = |table: &[u16; 64]| unsafe {
            _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().add(at).cast()))
        };
        let eighth =
            _mm256_srli_epi16::<3>(_mm256_add_epi16(_mm256_abs_epi16(row), load(&divisors.half)));
        let high = _mm256_mulhi_epu16(_mm256_add_epi16(eighth, eighth), load(&divisors.reciprocal));
        let divided = _mm256_mulhi_epu16(_mm256_add_epi16(high, high), load(&divisors.shift));
        let signed = _mm256_sign_epi16(divided, row);
        // SAFETY: `at + 8 <= 64`, the length of each block.
        unsafe {
            _mm_storeu_si128(out[0].as_mut_ptr().add(at).cast(), _mm256_castsi256_si128(signed));
            _mm_storeu_si128(
                out[1].as_mut_ptr().add(at).cast(),
                _mm256_extracti128_si256::<1>(signed),
            );
        }
    }
}

/// One pass over the registers.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn pass<const FIRST: bool, const SHIFT: i32>(rows: &mut [__m256i; 8]) {
    let sum = |index: usize| _mm256_add_epi16(rows[index], rows[7 - index]);
    let difference = |index: usize| _mm256_sub_epi16(rows[index], rows[7 - index]);
    let (s0, s1, s2, s3) = (sum(0), sum(1), sum(2), sum(3));
    let (outer, outer_less) = (_mm256_add_epi16(s0, s3), _mm256_sub_epi16(s0, s3));
    let (inner, inner_less) = (_mm256_add_epi16(s1, s2), _mm256_sub_epi16(s1, s2));
    let end = |value: __m256i| {
        if FIRST {
            _mm256_slli_epi16::<2>(value)
        } else {
            _mm256_srai_epi16::<2>(_mm256_add_epi16(value, _mm256_set1_epi16(2)))
        }
    };
    let (t4, t5, t6, t7) = (difference(3), difference(2), difference(1), difference(0));
    let (low, high) = interleave(_mm256_add_epi16(t4, t6), _mm256_add_epi16(t5, t7));
    let (z3, z4) = (pair(low, high, ODD[0]), pair(low, high, ODD[1]));
    let (less_low, less_high) = interleave(inner_less, outer_less);
    let (a_low, a_high) = interleave(t4, t7);
    let (b_low, b_high) = interleave(t5, t6);
    *rows = [
        end(_mm256_add_epi16(outer, inner)),
        descale::<SHIFT>(add(pair(a_low, a_high, ODD[3]), z4)),
        descale::<SHIFT>(pair(less_low, less_high, EVEN[0])),
        descale::<SHIFT>(add(pair(b_low, b_high, ODD[5]), z3)),
        end(_mm256_sub_epi16(outer, inner)),
        descale::<SHIFT>(add(pair(b_low, b_high, ODD[4]), z4)),
        descale::<SHIFT>(pair(less_low, less_high, EVEN[1])),
        descale::<SHIFT>(add(pair(a_low, a_high, ODD[2]), z3)),
    ];
}
