//! RGB to luma and chroma, sixteen pixels at a time.

#![allow(unsafe_code, reason = "loads and stores of whole registers, each argued below")]

use std::arch::x86_64::*;

/// Converts all whole groups of sixteen pixels; returns how many pixels that were.
pub(super) fn ycc_line(rgb: &[u8], y: &mut [u8], cb: &mut [u8], cr: &mut [u8]) -> usize {
    let count = (rgb.len() / 3).min(y.len()).min(cb.len()).min(cr.len()) / 16 * 16;
    // SAFETY: reached only where `Simd::Avx2` was found available; all slices hold `count` pixels.
    unsafe { groups(rgb, y, cb, cr, count) };
    count
}

/// Two multipliers in every 32-bit lane.
///
/// # Safety
/// The CPU has AVX2; safe to call where that is known at compile time.
#[target_feature(enable = "avx2")]
#[inline]
fn factors(x: i16, y: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(y) << 16 | i32::from(x as u16))
}

/// # Safety
/// The CPU has AVX2; `count` is a multiple of 16; `rgb` holds three times as many bytes, the others as many.
#[target_feature(enable = "avx2")]
unsafe fn groups(rgb: &[u8], y: &mut [u8], cb: &mut [u8], cr: &mut [u8], count: usize) {
    // Which bytes of each third of 48 belong to a colour, and where they go; 128 and up clears.
    let gather = |colour: usize, third: usize| -> __m128i {
        let mut places = [0x80u8; 16];
        for (pixel, place) in places.iter_mut().enumerate() {
            let at = pixel * 3 + colour;
            if at / 16 == third {
                *place = (at % 16) as u8;
            }
        }
        // SAFETY: the array has sixteen bytes.
        unsafe { _mm_loadu_si128(places.as_ptr().cast()) }
    };
    let gathers: [[__m128i; 3]; 3] =
        std::array::from_fn(|colour| std::array::from_fn(|third| gather(colour, third)));
    let half = _mm256_set1_epi32(1 << 15);
    let centre = _mm256_set1_epi32((128 << 16) + 32767);
    let zero = _mm256_setzero_si256();
    let mut at = 0;
    while at < count {
        // SAFETY: `3 * at + 48 <= 3 * count`, which `rgb` holds.
        let thirds: [__m128i; 3] = std::array::from_fn(|third| unsafe {
            _mm_loadu_si128(rgb.as_ptr().add(3 * at + 16 * third).cast())
        });
        let colour = |colour: usize| {
            let part = |third: usize| _mm_shuffle_epi8(thirds[third], gathers[colour][third]);
            _mm256_cvtepu8_epi16(_mm_or_si128(_mm_or_si128(part(0), part(1)), part(2)))
        };
        let (red, green, blue) = (colour(0), colour(1), colour(2));
        let halves =
            |a: __m256i, b: __m256i| (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
        let (rg, bg) = (halves(red, green), halves(blue, green));
        // A value in the upper half of a lane, shifted down by one, is 32768 times itself.
        let (r0, b0) = (halves(zero, red), halves(zero, blue));
        let madd = _mm256_madd_epi16;
        let sum = |a, b, c| _mm256_srai_epi32::<16>(_mm256_add_epi32(_mm256_add_epi32(a, b), c));
        let luma =
            |rg, bg| sum(madd(rg, factors(19595, 22086)), madd(bg, factors(7471, 16384)), half);
        let blue_less =
            |rg, b0| sum(madd(rg, factors(-11059, -21709)), _mm256_srli_epi32::<1>(b0), centre);
        let red_less =
            |bg, r0| sum(madd(bg, factors(-5329, -27439)), _mm256_srli_epi32::<1>(r0), centre);
        let bytes = |low: __m256i, high: __m256i| {
            let words = _mm256_packs_epi32(low, high);
            let packed = _mm256_packus_epi16(words, words);
            _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b11_01_10_00>(packed))
        };
        // SAFETY: `at + 16 <= count`, which each output holds.
        unsafe {
            let to = y.as_mut_ptr().add(at).cast();
            _mm_storeu_si128(to, bytes(luma(rg.0, bg.0), luma(rg.1, bg.1)));
            let to = cb.as_mut_ptr().add(at).cast();
            _mm_storeu_si128(to, bytes(blue_less(rg.0, b0.0), blue_less(rg.1, b0.1)));
            let to = cr.as_mut_ptr().add(at).cast();
            _mm_storeu_si128(to, bytes(red_less(bg.0, r0.0), red_less(bg.1, r0.1)));
        }
        at += 16;
    }
}
