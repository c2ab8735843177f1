//! The full transform on two blocks at once: one in each half of the 256-bit registers.
//!
//! Sixteen-bit lanes with 32-bit products of pairs (`madd`) give exactly the portable result.

#![allow(unsafe_code, reason = "loads and stores of whole registers, each argued below")]

use super::idct::{COSINES, EVEN, ODD};
use std::arch::x86_64::*;

/// Transforms `first` and `second`; writes eight rows of sixteen samples, or of eight (the first
/// block alone) where there is no `both`.
pub(super) fn two(
    first: &[i16; 64],
    second: &[i16; 64],
    quant: &[i16; 64],
    both: bool,
    out: &mut [u8],
    stride: usize,
) {
    let width = if both { 16 } else { 8 };
    assert!(out.len() >= 7 * stride + width, "the output holds eight rows");
    // SAFETY: reached only where `Simd::Avx2` was found available; the output was just measured.
    unsafe { transform(first, second, quant, both, out, stride) }
}

/// # Safety
/// The CPU has AVX2; `out` must hold seven strides and 16 (`both`) or 8 bytes more.
#[target_feature(enable = "avx2")]
unsafe fn transform(
    first: &[i16; 64],
    second: &[i16; 64],
    quant: &[i16; 64],
    both: bool,
    out: &mut [u8],
    stride: usize,
) {
    let mut rows = [_mm256_setzero_si256(); 8];
    for (index, row) in rows.iter_mut().enumerate() {
        // SAFETY: `index` is below 8, so each load of eight values lies inside its array of 64.
        let (a, b, q) = unsafe {
            (
                _mm_loadu_si128(first.as_ptr().add(index * 8).cast()),
                _mm_loadu_si128(second.as_ptr().add(index * 8).cast()),
                _mm_loadu_si128(quant.as_ptr().add(index * 8).cast()),
            )
        };
        *row = _mm256_mullo_epi16(_mm256_set_m128i(b, a), _mm256_set_m128i(q, q));
    }
    pass::<11>(&mut rows);
    transpose(&mut rows);
    pass::<18>(&mut rows);
    transpose(&mut rows);
    let half = _mm256_set1_epi8(-128);
    for pair in 0..4 {
        let packed = _mm256_packs_epi16(rows[2 * pair], rows[2 * pair + 1]);
        let samples = _mm256_xor_si256(packed, half);
        // From (a0 a1 | b0 b1) to (a0 b0 | a1 b1): the blocks lie next to each other.
        let samples = _mm256_permute4x64_epi64::<0b11_01_10_00>(samples);
        let (upper, lower) =
            (_mm256_castsi256_si128(samples), _mm256_extracti128_si256::<1>(samples));
        // SAFETY: rows 2 * pair and 2 * pair + 1 are below 8; the caller vouches for their bytes.
        unsafe {
            let to = out.as_mut_ptr().add(2 * pair * stride);
            if both {
                _mm_storeu_si128(to.cast(), upper);
                _mm_storeu_si128(to.add(stride).cast(), lower);
            } else {
                _mm_storel_epi64(to.cast(), upper);
                _mm_storel_epi64(to.add(stride).cast(), lower);
            }
        }
    }
}

/// Four samples by four from the lowest frequencies of a block.
pub(super) fn half(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], stride: usize) {
    assert!(out.len() >= 3 * stride + 4, "the output holds four rows");
    // SAFETY: reached only where `Simd::Avx2` was found available; the output was just measured.
    unsafe { transform_half(block, quant, out, stride) }
}

/// In double precision, which is exact: products have at most 16 + 14 + 14 bits, and the constants
/// are whole multiples of 2^-13.
///
/// # Safety
/// The CPU has AVX2; `out` must hold three strides and 4 bytes more.
#[target_feature(enable = "avx2")]
unsafe fn transform_half(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], stride: usize) {
    let mut rows = [_mm256_setzero_pd(); 4];
    for (index, row) in rows.iter_mut().enumerate() {
        // SAFETY: `index` is below 4, so each load of four values lies inside its array of 64.
        let (values, factors) = unsafe {
            (
                _mm_loadl_epi64(block.as_ptr().add(index * 8).cast()),
                _mm_loadl_epi64(quant.as_ptr().add(index * 8).cast()),
            )
        };
        let products = _mm_mullo_epi16(values, factors);
        *row = _mm256_cvtepi32_pd(_mm_cvtepi16_epi32(products));
    }
    pass_half(&mut rows);
    // Rows become columns.
    let a = _mm256_unpacklo_pd(rows[0], rows[1]);
    let b = _mm256_unpackhi_pd(rows[0], rows[1]);
    let c = _mm256_unpacklo_pd(rows[2], rows[3]);
    let d = _mm256_unpackhi_pd(rows[2], rows[3]);
    let mut columns = [
        _mm256_permute2f128_pd::<0x20>(a, c),
        _mm256_permute2f128_pd::<0x20>(b, d),
        _mm256_permute2f128_pd::<0x31>(a, c),
        _mm256_permute2f128_pd::<0x31>(b, d),
    ];
    pass_half(&mut columns);
    // Coefficients exceed samples eightfold; with 128 for the middle and a half for rounding,
    // cutting the fraction off rounds as the portable transform does.
    let eighth = _mm256_set1_pd(0.125);
    let middle = _mm256_set1_pd(128.5);
    let most = _mm256_set1_pd(255.0);
    let mut samples = [_mm_setzero_si128(); 4];
    for (samples, column) in samples.iter_mut().zip(columns) {
        let value = _mm256_add_pd(_mm256_mul_pd(column, eighth), middle);
        let value = _mm256_min_pd(_mm256_max_pd(value, _mm256_setzero_pd()), most);
        *samples = _mm256_cvttpd_epi32(value);
    }
    let bytes = _mm_packus_epi16(
        _mm_packs_epi32(samples[0], samples[1]),
        _mm_packs_epi32(samples[2], samples[3]),
    );
    // Sixteen bytes by columns, to be stored by rows.
    let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let turned = _mm_shuffle_epi8(bytes, order);
    let rows = [
        _mm_cvtsi128_si32(turned),
        _mm_extract_epi32::<1>(turned),
        _mm_extract_epi32::<2>(turned),
        _mm_extract_epi32::<3>(turned),
    ];
    for (row, samples) in rows.into_iter().enumerate() {
        // SAFETY: `row` is below 4; the caller vouches for the bytes of four rows.
        unsafe { out.as_mut_ptr().add(row * stride).cast::<i32>().write_unaligned(samples) };
    }
}

/// The 4-point transform down the columns.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn pass_half(rows: &mut [__m256d; 4]) {
    let large = _mm256_set1_pd(f64::from(COSINES[0]) / 8192.0);
    let small = _mm256_set1_pd(f64::from(COSINES[1]) / 8192.0);
    let [a, b, c, d] = *rows;
    let (sum, difference) = (_mm256_add_pd(a, c), _mm256_sub_pd(a, c));
    let outer = _mm256_add_pd(_mm256_mul_pd(large, b), _mm256_mul_pd(small, d));
    let inner = _mm256_sub_pd(_mm256_mul_pd(small, b), _mm256_mul_pd(large, d));
    *rows = [
        _mm256_add_pd(sum, outer),
        _mm256_add_pd(difference, inner),
        _mm256_sub_pd(difference, inner),
        _mm256_sub_pd(sum, outer),
    ];
}

/// Both multipliers in every 32-bit lane.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn constant((x, y): (i16, i16)) -> __m256i {
    _mm256_set1_epi32(i32::from(y) << 16 | i32::from(x as u16))
}

/// The products of pairs `a * x + b * y`, in two registers of 32-bit lanes.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::jpeg) fn pair(
    low: __m256i,
    high: __m256i,
    factors: (i16, i16),
) -> (__m256i, __m256i) {
    let factors = constant(factors);
    (_mm256_madd_epi16(low, factors), _mm256_madd_epi16(high, factors))
}

/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::jpeg) fn interleave(a: __m256i, b: __m256i) -> (__m256i, __m256i) {
    (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b))
}

/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::jpeg) fn add(a: (__m256i, __m256i), b: (__m256i, __m256i)) -> (__m256i, __m256i) {
    (_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1))
}

/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn subtract(a: (__m256i, __m256i), b: (__m256i, __m256i)) -> (__m256i, __m256i) {
    (_mm256_sub_epi32(a.0, b.0), _mm256_sub_epi32(a.1, b.1))
}

/// Sixteen-bit lanes as 32-bit lanes times 2^13.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn scaled(a: __m256i) -> (__m256i, __m256i) {
    // The value in the upper half of each lane is 2^16 times itself.
    let (low, high) = interleave(_mm256_setzero_si256(), a);
    (_mm256_srai_epi32::<3>(low), _mm256_srai_epi32::<3>(high))
}

/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn descale<const SHIFT: i32>(a: (__m256i, __m256i)) -> __m256i {
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    _mm256_packs_epi32(
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(a.0, round)),
        _mm256_srai_epi32::<SHIFT>(_mm256_add_epi32(a.1, round)),
    )
}

/// One pass down the columns.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn pass<const SHIFT: i32>(rows: &mut [__m256i; 8]) {
    let (low, high) = interleave(rows[2], rows[6]);
    let third = pair(low, high, EVEN[0]);
    let second = pair(low, high, EVEN[1]);
    let zero = scaled(_mm256_add_epi16(rows[0], rows[4]));
    let first = scaled(_mm256_sub_epi16(rows[0], rows[4]));
    let even =
        [add(zero, third), add(first, second), subtract(first, second), subtract(zero, third)];
    let (low, high) =
        interleave(_mm256_add_epi16(rows[7], rows[3]), _mm256_add_epi16(rows[5], rows[1]));
    let (z3, z4) = (pair(low, high, ODD[0]), pair(low, high, ODD[1]));
    let (low, high) = interleave(rows[7], rows[1]);
    let odd_0 = add(pair(low, high, ODD[3]), z4);
    let odd_3 = add(pair(low, high, ODD[2]), z3);
    let (low, high) = interleave(rows[5], rows[3]);
    let odd_1 = add(pair(low, high, ODD[5]), z3);
    let odd_2 = add(pair(low, high, ODD[4]), z4);
    let odd = [odd_0, odd_1, odd_2, odd_3];
    for index in 0..4 {
        rows[index] = descale::<SHIFT>(add(even[index], odd[index]));
        rows[7 - index] = descale::<SHIFT>(subtract(even[index], odd[index]));
    }
}

/// Transposes both blocks.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::jpeg) fn transpose(rows: &mut [__m256i; 8]) {
    let (a0, a1) = interleave(rows[0], rows[4]);
    let (a2, a3) = interleave(rows[1], rows[5]);
    let (a4, a5) = interleave(rows[2], rows[6]);
    let (a6, a7) = interleave(rows[3], rows[7]);
    let (b0, b1) = interleave(a0, a4);
    let (b2, b3) = interleave(a1, a5);
    let (b4, b5) = interleave(a2, a6);
    let (b6, b7) = interleave(a3, a7);
    let (c0, c1) = interleave(b0, b4);
    let (c2, c3) = interleave(b1, b5);
    let (c4, c5) = interleave(b2, b6);
    let (c6, c7) = interleave(b3, b7);
    *rows = [c0, c1, c2, c3, c4, c5, c6, c7];
}
