//! Luma and chroma to RGB, sixteen pixels at a time.
//!
//! Products by `mulhi` on doubled values, then halved with rounding, equal the portable 16-bit fixed
//! point exactly: `((2 * c * f >> 16) + 1) >> 1 = (c * f + 2^15) >> 16`.

#![allow(unsafe_code, reason = "loads and stores of whole registers, each argued below")]

use std::arch::x86_64::*;

/// Converts all whole groups of sixteen pixels; returns how many pixels that were.
pub(super) fn ycc_line(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) -> usize {
    let count = y.len().min(cb.len()).min(cr.len()).min(out.len() / 3) / 16 * 16;
    // SAFETY: reached only where `Simd::Avx2` was found available; all four slices hold `count`.
    unsafe { groups(y, cb, cr, out, count) };
    count
}

/// # Safety
/// The CPU has AVX2; `count` is a multiple of 16; the inputs hold `count` bytes, `out` three times as many.
#[target_feature(enable = "avx2")]
unsafe fn groups(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8], count: usize) {
    let middle = _mm256_set1_epi16(128);
    let one = _mm256_set1_epi16(1);
    let red_factor = _mm256_set1_epi16(26345);
    let blue_factor = _mm256_set1_epi16(-14942);
    // Pairs: -0.34414 for blue difference, 0.28586 (= 1 - 0.71414) for red difference.
    let green_factors = _mm256_set1_epi32(18734 << 16 | 0xffff & -22554);
    let half = _mm256_set1_epi32(1 << 15);
    // Where bytes of one colour go in each third of 48 output bytes; 128 and up clears.
    let spread = |colour: usize, third: usize| -> __m128i {
        let mut places = [0x80u8; 16];
        for (place, byte) in places.iter_mut().enumerate() {
            let at = third * 16 + place;
            if at % 3 == colour {
                *byte = (at / 3) as u8;
            }
        }
        // SAFETY: the array has sixteen bytes.
        unsafe { _mm_loadu_si128(places.as_ptr().cast()) }
    };
    let spreads: [[__m128i; 3]; 3] =
        std::array::from_fn(|third| std::array::from_fn(|colour| spread(colour, third)));
    let mut at = 0;
    while at < count {
        // SAFETY: `at + 16 <= count`, and each input holds `count` bytes.
        let (luma, blue, red) = unsafe {
            (
                _mm256_cvtepu8_epi16(_mm_loadu_si128(y.as_ptr().add(at).cast())),
                _mm256_cvtepu8_epi16(_mm_loadu_si128(cb.as_ptr().add(at).cast())),
                _mm256_cvtepu8_epi16(_mm_loadu_si128(cr.as_ptr().add(at).cast())),
            )
        };
        let (cb, cr) = (_mm256_sub_epi16(blue, middle), _mm256_sub_epi16(red, middle));
        let (cb2, cr2) = (_mm256_add_epi16(cb, cb), _mm256_add_epi16(cr, cr));
        let rounded = |product| _mm256_srai_epi16::<1>(_mm256_add_epi16(product, one));
        let red_part = rounded(_mm256_mulhi_epi16(cr2, red_factor));
        let blue_part = rounded(_mm256_mulhi_epi16(cb2, blue_factor));
        let red = _mm256_add_epi16(luma, _mm256_add_epi16(cr, red_part));
        let blue = _mm256_add_epi16(luma, _mm256_add_epi16(cb2, blue_part));
        let low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), green_factors);
        let high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), green_factors);
        let green_part = _mm256_packs_epi32(
            _mm256_srai_epi32::<16>(_mm256_add_epi32(low, half)),
            _mm256_srai_epi32::<16>(_mm256_add_epi32(high, half)),
        );
        let green = _mm256_add_epi16(luma, _mm256_sub_epi16(green_part, cr));
        let bytes = |wide: __m256i| {
            let packed = _mm256_packus_epi16(wide, wide);
            _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b11_01_10_00>(packed))
        };
        let colours = [bytes(red), bytes(green), bytes(blue)];
        for (third, spreads) in spreads.iter().enumerate() {
            let place = |colour: usize| _mm_shuffle_epi8(colours[colour], spreads[colour]);
            let mixed = _mm_or_si128(_mm_or_si128(place(0), place(1)), place(2));
            // SAFETY: `3 * at + 48 <= 3 * count`, which `out` holds.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().add(3 * at + 16 * third).cast(), mixed) };
        }
        at += 16;
    }
}
