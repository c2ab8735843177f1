//! Sixteen lanes.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// AVX-512 (F, BW, DQ, VL).
#[derive(Debug, Clone, Copy)]
pub struct Avx512;

#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= 16 { 0xffff } else { (1u16 << count) - 1 }
}

impl Avx512 {
    /// Whether this CPU has all that [`Simd::outline`] lets the compiler use.
    pub(crate) fn is_available() -> bool {
        super::Avx2::is_available()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
    }
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 14;

    #[inline(never)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,popcnt,bmi1,bmi2,lzcnt")]
    unsafe fn outline<K: Kernel>(kernel: K) -> K::Output {
        unsafe { kernel.run::<Self>() }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, count: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(mask(count), from) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()))) }
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
    unsafe fn store(to: *mut f32, value: __m512) {
        unsafe { _mm512_storeu_ps(to, value) }
    }
    #[inline(always)]
    unsafe fn store_partial(to: *mut f32, value: __m512, count: usize) {
        unsafe { _mm512_mask_storeu_ps(to, mask(count), value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sqrt(a: __m512) -> __m512 {
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn keep_greater(a: __m512, b: __m512, value: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), value) }
    }
    #[inline(always)]
    unsafe fn keep_equal(a: __m512, b: __m512, value: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b), value) }
    }
    #[inline(always)]
    unsafe fn positive(a: __m512) -> u32 {
        unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, _mm512_setzero_ps())) }
    }
    #[inline(always)]
    unsafe fn keep_bits(bits: u32, value: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(bits as __mmask16, value) }
    }
    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<0>(a) }
    }
    #[inline(always)]
    unsafe fn exp2_whole(a: __m512) -> __m512 {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn sum(a: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    unsafe fn largest(a: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(a) }
    }
    #[inline(always)]
    unsafe fn sums<const N: usize>(vectors: &[__m512; N], to: *mut f32) {
        // Halves, quarters, pairs and neighbours are added in the order of `_mm512_reduce_add_ps`, but
        // of several vectors at once: three instructions for two sums instead of eight for one.
        #[inline(always)]
        unsafe fn quarters(a: __m512, b: __m512, c: __m512, d: __m512) -> __m512 {
            unsafe {
                let low = _mm512_shuffle_f32x4::<0x44>(a, b);
                let ab = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0xee>(a, b));
                let low = _mm512_shuffle_f32x4::<0x44>(c, d);
                let cd = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0xee>(c, d));
                let even = _mm512_shuffle_f32x4::<0x88>(ab, cd);
                _mm512_add_ps(even, _mm512_shuffle_f32x4::<0xdd>(ab, cd))
            }
        }
        unsafe {
            let mut all = [_mm512_setzero_ps(); 16];
            for n in 0..N {
                all[n] = vectors[n];
            }
            // Quarter `k` of `column[j]` belongs to vector `4 k + j`.
            let mut column = [_mm512_setzero_ps(); 4];
            for j in 0..4 {
                column[j] = quarters(all[j], all[4 + j], all[8 + j], all[12 + j]);
            }
            let [a, b, c, d] = column;
            let low = _mm512_shuffle_ps::<0x44>(a, b);
            let ab = _mm512_add_ps(low, _mm512_shuffle_ps::<0xee>(a, b));
            let low = _mm512_shuffle_ps::<0x44>(c, d);
            let cd = _mm512_add_ps(low, _mm512_shuffle_ps::<0xee>(c, d));
            let even = _mm512_shuffle_ps::<0x88>(ab, cd);
            let sums = _mm512_add_ps(even, _mm512_shuffle_ps::<0xdd>(ab, cd));
            _mm512_mask_storeu_ps(to, mask(N), sums);
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        unsafe {
            let mut r = [_mm512_setzero_ps(); 16];
            for (i, row) in r.iter_mut().enumerate() {
                *row = _mm512_loadu_ps(from.add(i * from_stride));
            }
            // 4x4 blocks within each quarter first, then the quarters among each other.
            let mut t = r;
            for i in 0..8 {
                t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
                t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
            }
            for i in 0..4 {
                let (a, b, c, d) = (t[4 * i], t[4 * i + 1], t[4 * i + 2], t[4 * i + 3]);
                r[4 * i] = _mm512_shuffle_ps::<0x44>(a, c);
                r[4 * i + 1] = _mm512_shuffle_ps::<0xee>(a, c);
                r[4 * i + 2] = _mm512_shuffle_ps::<0x44>(b, d);
                r[4 * i + 3] = _mm512_shuffle_ps::<0xee>(b, d);
            }
            // r[4 i + j] now holds columns j, j+4, j+8, j+12 of rows 4 i .. 4 i + 3.
            for j in 0..4 {
                let low01 = _mm512_shuffle_f32x4::<0x44>(r[j], r[4 + j]);
                let high01 = _mm512_shuffle_f32x4::<0xee>(r[j], r[4 + j]);
                let low23 = _mm512_shuffle_f32x4::<0x44>(r[8 + j], r[12 + j]);
                let high23 = _mm512_shuffle_f32x4::<0xee>(r[8 + j], r[12 + j]);
                let out = [
                    _mm512_shuffle_f32x4::<0x88>(low01, low23),
                    _mm512_shuffle_f32x4::<0xdd>(low01, low23),
                    _mm512_shuffle_f32x4::<0x88>(high01, high23),
                    _mm512_shuffle_f32x4::<0xdd>(high01, high23),
                ];
                for (block, value) in out.into_iter().enumerate() {
                    _mm512_storeu_ps(to.add((4 * block + j) * to_stride), value);
                }
            }
        }
    }
}
