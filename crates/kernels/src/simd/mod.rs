//! One vector of `f32`, in three widths.
//!
//! Kernels are written against this trait and run through [`super::Isa::run`]. Every method is
//! `#[inline(always)]` so that it melts into a function that carries the target features.

#![allow(unsafe_code, clippy::missing_safety_doc)] // see the trait's own safety section
#![allow(clippy::needless_range_loop)] // indices of registers, unrolled

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

use super::isa::Kernel;

/// A vector of [`Simd::LANES`] floats.
///
/// # Safety
/// Every method needs a CPU with the instruction set; loads and stores need valid memory for the
/// lanes they touch, at any alignment.
pub trait Simd: Copy + Send + Sync + 'static {
    /// The vector.
    type V: Copy;
    /// Floats in a vector.
    const LANES: usize;
    /// Rows of the register tile of matrix products; its width is two vectors.
    const TILE_ROWS: usize;

    /// Calls a kernel as a function of its own, compiled for this instruction set.
    unsafe fn outline<K: Kernel>(kernel: K) -> K::Output;

    /// All lanes equal.
    unsafe fn splat(value: f32) -> Self::V;
    /// `LANES` floats from memory.
    unsafe fn load(from: *const f32) -> Self::V;
    /// The first `count` lanes from memory, zero in the others; `count` may exceed `LANES`.
    unsafe fn load_partial(from: *const f32, count: usize) -> Self::V;
    /// `LANES` bytes from memory, widened.
    unsafe fn load_bytes(from: *const u8) -> Self::V;
    /// All lanes to memory.
    unsafe fn store(to: *mut f32, value: Self::V);
    /// The first `count` lanes to memory; `count` may exceed `LANES`.
    unsafe fn store_partial(to: *mut f32, value: Self::V, count: usize);
    /// Lane-wise sum.
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise difference.
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise product.
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise quotient.
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise square root.
    unsafe fn sqrt(a: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the CPU can.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Lane-wise maximum; where `a` is NaN, `b`.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise minimum; where `a` is NaN, `b`.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// `value` where `a > b`, zero elsewhere.
    unsafe fn keep_greater(a: Self::V, b: Self::V, value: Self::V) -> Self::V;
    /// `value` where `a == b`, zero elsewhere.
    unsafe fn keep_equal(a: Self::V, b: Self::V, value: Self::V) -> Self::V;
    /// A bit for each lane: whether it is above zero.
    unsafe fn positive(a: Self::V) -> u32;
    /// `value` in lanes whose bit is set, zero elsewhere; bits beyond the lanes mean nothing.
    unsafe fn keep_bits(bits: u32, value: Self::V) -> Self::V;
    /// To the nearest whole number, halves to even.
    unsafe fn round(a: Self::V) -> Self::V;
    /// 2 to the power of whole numbers between -126 and 127.
    unsafe fn exp2_whole(a: Self::V) -> Self::V;
    /// Sum of all lanes.
    unsafe fn sum(a: Self::V) -> f32;
    /// Largest lane.
    unsafe fn largest(a: Self::V) -> f32;
    /// Writes the sum of all lanes of each vector, to the bit what [`Simd::sum`] gives; at most 16 vectors.
    #[inline(always)]
    unsafe fn sums<const N: usize>(vectors: &[Self::V; N], to: *mut f32) {
        unsafe {
            // Through memory, by a loop short enough to unroll, or the vectors live there.
            let mut lanes = [[0f32; 16]; N];
            for n in 0..N {
                Self::store(lanes[n].as_mut_ptr(), vectors[n]);
            }
            for n in 0..N {
                *to.add(n) = Self::sum(Self::load(lanes[n].as_ptr()));
            }
        }
    }
    /// Writes to `to[column * to_stride + row]` what `from[row * from_stride + column]` holds, for
    /// `LANES` rows and columns.
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);

    /// Asks for a cache line that will be used soon; any address will do.
    #[inline(always)]
    unsafe fn prefetch(_from: *const f32) {}

    /// Asks for a cache line that will be used later: into the second-level cache.
    #[inline(always)]
    unsafe fn prefetch_later(_from: *const f32) {}

    /// All lanes zero.
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        unsafe { Self::splat(0.0) }
    }

    /// `e^a`, to about 2 units in the last place; arguments are clamped to -87.3..=88.
    #[inline(always)]
    unsafe fn exp(a: Self::V) -> Self::V {
        // e^a = 2^n * e^r with |r| <= ln 2 / 2; ln 2 is split so that n * ln 2 stays exact enough.
        unsafe {
            let a = Self::max(Self::min(a, Self::splat(88.0)), Self::splat(-87.3));
            let n = Self::round(Self::mul(a, Self::splat(std::f32::consts::LOG2_E)));
            let r = Self::fma(n, Self::splat(-0.693_359_4), a);
            let r = Self::fma(n, Self::splat(2.121_944_4e-4), r);
            let mut poly = Self::splat(1.987_569_1e-4);
            for term in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
                poly = Self::fma(poly, r, Self::splat(term));
            }
            let poly = Self::fma(Self::mul(poly, r), r, Self::add(r, Self::splat(1.0)));
            Self::mul(poly, Self::exp2_whole(n))
        }
    }
}

/// Copies `len` floats; the ranges must not overlap.
#[inline(always)]
pub(crate) unsafe fn copy<S: Simd>(from: *const f32, to: *mut f32, len: usize) {
    unsafe {
        let mut at = 0;
        while at + S::LANES <= len {
            S::store(to.add(at), S::load(from.add(at)));
            at += S::LANES;
        }
        if at < len {
            S::store_partial(to.add(at), S::load_partial(from.add(at), len - at), len - at);
        }
    }
}

/// Sets `len` floats to zero.
#[allow(dead_code)]
#[inline(always)]
pub(crate) unsafe fn clear<S: Simd>(to: *mut f32, len: usize) {
    unsafe {
        let mut at = 0;
        while at + S::LANES <= len {
            S::store(to.add(at), S::zero());
            at += S::LANES;
        }
        if at < len {
            S::store_partial(to.add(at), S::zero(), len - at);
        }
    }
}

#[cfg(test)]
mod tests;
