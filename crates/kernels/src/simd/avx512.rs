//! Sixteen lanes.

use super::{
    Kernel, Simd,
    x86::{transpose_quarters, x86_backend},
};
use std::arch::x86_64::*;

/// The first `count` lanes.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= 16 { 0xffff } else { (1u16 << count) - 1 }
}

/// Adds the halves of four vectors, and then their quarters: quarter `k` of the result belongs to
/// vector `k`.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn quarters(a: __m512, b: __m512, c: __m512, d: __m512) -> __m512 {
    // SAFETY: the CPU has the instructions, as the caller promises.
    unsafe {
        let low = _mm512_shuffle_f32x4::<0x44>(a, b);
        let ab = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0xee>(a, b));
        let low = _mm512_shuffle_f32x4::<0x44>(c, d);
        let cd = _mm512_add_ps(low, _mm512_shuffle_f32x4::<0xee>(c, d));
        let even = _mm512_shuffle_f32x4::<0x88>(ab, cd);
        _mm512_add_ps(even, _mm512_shuffle_f32x4::<0xdd>(ab, cd))
    }
}

x86_backend! {
    /// AVX-512 (F, BW, DQ, VL).
    Avx512 needs("avx512f" "avx512bw" "avx512dq" "avx512vl" "avx2" "fma" "popcnt" "bmi1" "bmi2" "lzcnt");
    /// Sixteen floats, on a CPU with [`Avx512`].
    Sixteen(__m512), lanes 16, tile_rows 14;
    splat _mm512_set1_ps, load _mm512_loadu_ps, store _mm512_storeu_ps, stream _mm512_stream_ps;
    lanewise {
        add(a, b) is _mm512_add_ps;
        sub(a, b) is _mm512_sub_ps;
        mul(a, b) is _mm512_mul_ps;
        div(a, b) is _mm512_div_ps;
        sqrt(a) is _mm512_sqrt_ps;
        fma(a, b, c) is _mm512_fmadd_ps;
        max(a, b) is _mm512_max_ps;
        min(a, b) is _mm512_min_ps;
    }
    impl Simd for Avx512 {
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Sixteen {
            // SAFETY: only lanes within `count` are read, and those can be, as the caller promises.
            unsafe {
                if count >= 16 {
                    return Self::load(from);
                }
                Sixteen(_mm512_maskz_loadu_ps(mask(count), from))
            }
        }
        #[inline(always)]
        unsafe fn load_bytes(from: *const u8) -> Sixteen {
            // SAFETY: reads sixteen bytes, as the caller promises.
            unsafe {
                let wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast()));
                Sixteen(_mm512_cvtepi32_ps(wide))
            }
        }
        #[inline(always)]
        unsafe fn store_partial(to: *mut f32, value: Sixteen, count: usize) {
            // SAFETY: only lanes within `count` are written, and those can be, as the caller promises.
            unsafe {
                if count >= 16 {
                    // What a masked store writes is not there for loads that follow closely.
                    return Self::store(to, value);
                }
                _mm512_mask_storeu_ps(to, mask(count), value.0);
            }
        }
        #[inline(always)]
        fn keep_greater(a: Sixteen, b: Sixteen, value: Sixteen) -> Sixteen {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let keep = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a.0, b.0);
                Sixteen(_mm512_maskz_mov_ps(keep, value.0))
            }
        }
        #[inline(always)]
        fn keep_equal(a: Sixteen, b: Sixteen, value: Sixteen) -> Sixteen {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let keep = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a.0, b.0);
                Sixteen(_mm512_maskz_mov_ps(keep, value.0))
            }
        }
        #[inline(always)]
        fn positive(a: Sixteen) -> u32 {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a.0, _mm512_setzero_ps())) }
        }
        #[inline(always)]
        fn keep_bits(bits: u32, value: Sixteen) -> Sixteen {
            // SAFETY: there is a vector, so the CPU has the instruction.
            unsafe { Sixteen(_mm512_maskz_mov_ps(bits as __mmask16, value.0)) }
        }
        #[inline(always)]
        fn round(a: Sixteen) -> Sixteen {
            // SAFETY: there is a vector, so the CPU has the instruction.
            unsafe { Sixteen(_mm512_roundscale_ps::<0>(a.0)) }
        }
        #[inline(always)]
        fn exp2_whole(a: Sixteen) -> Sixteen {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let biased = _mm512_add_epi32(_mm512_cvtps_epi32(a.0), _mm512_set1_epi32(127));
                Sixteen(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased)))
            }
        }
        #[inline(always)]
        fn sum(a: Sixteen) -> f32 {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe { _mm512_reduce_add_ps(a.0) }
        }
        #[inline(always)]
        fn largest(a: Sixteen) -> f32 {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe { _mm512_reduce_max_ps(a.0) }
        }
        #[inline(always)]
        unsafe fn sums<const N: usize>(vectors: &[Sixteen; N], to: *mut f32) {
            // Halves, quarters, pairs and neighbours are added in the order of `_mm512_reduce_add_ps`, but
            // of several vectors at once: three instructions for two sums instead of eight for one.
            // SAFETY: the CPU has the instructions, and `N` floats can be written, as the caller promises.
            unsafe {
                let mut all = [_mm512_setzero_ps(); 16];
                for n in 0..N {
                    all[n] = vectors[n].0;
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
            // SAFETY: sixteen rows of sixteen floats are read, and as many columns written, as the caller
            // promises.
            unsafe {
                let mut r = [_mm512_setzero_ps(); 16];
                for (i, row) in r.iter_mut().enumerate() {
                    *row = _mm512_loadu_ps(from.add(i * from_stride));
                }
                // 4x4 blocks within each quarter first, then the quarters among each other.
                transpose_quarters!(r, _mm512_unpacklo_ps, _mm512_unpackhi_ps, _mm512_shuffle_ps);
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
}
