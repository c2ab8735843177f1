//! Eight lanes.

use super::{
    Kernel, Simd,
    x86::{transpose_quarters, x86_backend},
};
use std::arch::x86_64::*;

/// A window into this table, starting at `8 - count`, is a mask of `count` lanes.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The first `count` lanes.
///
/// # Safety
/// The CPU has AVX.
#[inline(always)]
unsafe fn mask(count: usize) -> __m256i {
    // SAFETY: eight numbers from one of the first nine places of sixteen.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count.min(8)).cast()) }
}

x86_backend! {
    /// AVX2 with fused multiply-add.
    Avx2 needs("avx2" "fma" "popcnt" "bmi1" "bmi2" "lzcnt");
    /// Eight floats, on a CPU with [`Avx2`].
    Eight(__m256), lanes 8, tile_rows 6;
    splat _mm256_set1_ps, load _mm256_loadu_ps, store _mm256_storeu_ps, stream _mm256_stream_ps;
    lanewise {
        add(a, b) is _mm256_add_ps;
        sub(a, b) is _mm256_sub_ps;
        mul(a, b) is _mm256_mul_ps;
        div(a, b) is _mm256_div_ps;
        sqrt(a) is _mm256_sqrt_ps;
        fma(a, b, c) is _mm256_fmadd_ps;
        max(a, b) is _mm256_max_ps;
        min(a, b) is _mm256_min_ps;
    }
    impl Simd for Avx2 {
        #[inline(always)]
        unsafe fn load_partial(from: *const f32, count: usize) -> Eight {
            // SAFETY: only lanes within `count` are read, and those can be, as the caller promises.
            unsafe {
                if count >= 8 {
                    return Self::load(from);
                }
                Eight(_mm256_maskload_ps(from, mask(count)))
            }
        }
        #[inline(always)]
        unsafe fn load_bytes(from: *const u8) -> Eight {
            // SAFETY: reads eight bytes, as the caller promises.
            unsafe {
                let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast()));
                Eight(_mm256_cvtepi32_ps(wide))
            }
        }
        #[inline(always)]
        unsafe fn store_partial(to: *mut f32, value: Eight, count: usize) {
            // SAFETY: only lanes within `count` are written, and those can be, as the caller promises.
            unsafe {
                if count >= 8 {
                    // A masked store takes many times as long on some CPUs, and what it writes is not there for loads
                    // that follow closely.
                    return Self::store(to, value);
                }
                _mm256_maskstore_ps(to, mask(count), value.0);
            }
        }
        #[inline(always)]
        fn keep_greater(a: Eight, b: Eight, value: Eight) -> Eight {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe { Eight(_mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a.0, b.0), value.0)) }
        }
        #[inline(always)]
        fn keep_equal(a: Eight, b: Eight, value: Eight) -> Eight {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe { Eight(_mm256_and_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a.0, b.0), value.0)) }
        }
        #[inline(always)]
        fn positive(a: Eight) -> u32 {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let above = _mm256_cmp_ps::<_CMP_GT_OQ>(a.0, _mm256_setzero_ps());
                _mm256_movemask_ps(above).cast_unsigned()
            }
        }
        #[inline(always)]
        fn keep_bits(bits: u32, value: Eight) -> Eight {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
                let own = _mm256_and_si256(_mm256_set1_epi32(bits.cast_signed()), lanes);
                let keep = _mm256_castsi256_ps(_mm256_cmpeq_epi32(own, lanes));
                Eight(_mm256_and_ps(keep, value.0))
            }
        }
        #[inline(always)]
        fn round(a: Eight) -> Eight {
            // SAFETY: there is a vector, so the CPU has the instruction.
            unsafe {
                Eight(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a.0))
            }
        }
        #[inline(always)]
        fn exp2_whole(a: Eight) -> Eight {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let biased = _mm256_add_epi32(_mm256_cvtps_epi32(a.0), _mm256_set1_epi32(127));
                Eight(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased)))
            }
        }
        #[inline(always)]
        fn sum(a: Eight) -> f32 {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let four = _mm_add_ps(_mm256_castps256_ps128(a.0), _mm256_extractf128_ps::<1>(a.0));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
            }
        }
        #[inline(always)]
        fn largest(a: Eight) -> f32 {
            // SAFETY: there is a vector, so the CPU has the instructions.
            unsafe {
                let four = _mm_max_ps(_mm256_castps256_ps128(a.0), _mm256_extractf128_ps::<1>(a.0));
                let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
            }
        }
        #[inline(always)]
        unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
            // SAFETY: eight rows of eight floats are read, and as many columns written, as the caller
            // promises.
            unsafe {
                let mut r = [_mm256_setzero_ps(); 8];
                for (i, row) in r.iter_mut().enumerate() {
                    *row = _mm256_loadu_ps(from.add(i * from_stride));
                }
                transpose_quarters!(r, _mm256_unpacklo_ps, _mm256_unpackhi_ps, _mm256_shuffle_ps);
                for j in 0..4 {
                    let low = _mm256_permute2f128_ps::<0x20>(r[j], r[4 + j]);
                    let high = _mm256_permute2f128_ps::<0x31>(r[j], r[4 + j]);
                    _mm256_storeu_ps(to.add(j * to_stride), low);
                    _mm256_storeu_ps(to.add((4 + j) * to_stride), high);
                }
            }
        }
    }
}
