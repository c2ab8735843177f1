//! Eight lanes.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// AVX2 with fused multiply-add.
#[derive(Debug, Clone, Copy)]
pub struct Avx2;

/// A window into this table, starting at `8 - count`, is a mask of `count` lanes.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
unsafe fn mask(count: usize) -> __m256i {
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count.min(8)).cast()) }
}

impl Avx2 {
    /// Whether this CPU has all that [`Simd::outline`] lets the compiler use.
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
    }
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;

    #[inline(never)]
    #[target_feature(enable = "avx2,fma,popcnt,bmi1,bmi2,lzcnt")]
    unsafe fn outline<K: Kernel>(kernel: K) -> K::Output {
        unsafe { kernel.run::<Self>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, count: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(from, mask(count)) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()))) }
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn prefetch_later(from: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m256) {
        unsafe { _mm256_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn store_partial(to: *mut f32, value: __m256, count: usize) {
        unsafe { _mm256_maskstore_ps(to, mask(count), value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sqrt(a: __m256) -> __m256 {
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn keep_greater(a: __m256, b: __m256, value: __m256) -> __m256 {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), value) }
    }
    #[inline(always)]
    unsafe fn keep_equal(a: __m256, b: __m256, value: __m256) -> __m256 {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b), value) }
    }
    #[inline(always)]
    unsafe fn positive(a: __m256) -> u32 {
        unsafe {
            let above = _mm256_cmp_ps::<_CMP_GT_OQ>(a, _mm256_setzero_ps());
            _mm256_movemask_ps(above).cast_unsigned()
        }
    }
    #[inline(always)]
    unsafe fn keep_bits(bits: u32, value: __m256) -> __m256 {
        unsafe {
            let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let own = _mm256_and_si256(_mm256_set1_epi32(bits.cast_signed()), lanes);
            _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(own, lanes)), value)
        }
    }
    #[inline(always)]
    unsafe fn round(a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    unsafe fn exp2_whole(a: __m256) -> __m256 {
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn sum(a: __m256) -> f32 {
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(a: __m256) -> f32 {
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        unsafe {
            let mut r = [_mm256_setzero_ps(); 8];
            for (i, row) in r.iter_mut().enumerate() {
                *row = _mm256_loadu_ps(from.add(i * from_stride));
            }
            let mut t = r;
            for i in 0..4 {
                t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..2 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                r[4 * i] = _mm256_shuffle_ps::<0x44>(a, c);
                r[4 * i + 1] = _mm256_shuffle_ps::<0xee>(a, c);
                r[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b, d);
                r[4 * i + 3] = _mm256_shuffle_ps::<0xee>(b, d);
            }
            for j in 0..4 {
                let low = _mm256_permute2f128_ps::<0x20>(r[j], r[4 + j]);
                let high = _mm256_permute2f128_ps::<0x31>(r[j], r[4 + j]);
                _mm256_storeu_ps(to.add(j * to_stride), low);
                _mm256_storeu_ps(to.add((4 + j) * to_stride), high);
            }
        }
    }
}
