//! One vector of `f32`, in three widths.
//!
//! Kernels are written against this trait and run through [`super::Isa::run`]. Every method is
//! `#[inline(always)]` so that it melts into a function that carries the target features.
//!
//! A vector is the proof that the CPU can work with it: what makes one out of nothing is unsafe and asks
//! for the CPU, so what takes a vector is safe. Unsafe besides is what reads or writes memory.

#![allow(unsafe_code)] // intrinsics, and raw memory
#![allow(clippy::needless_range_loop)] // indices of registers, unrolled

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

use super::isa::Kernel;

/// A vector of [`Simd::LANES`] floats.
///
/// Kernels hold: the CPU has `S` wherever code that is generic over `S` runs, since only [`Isa::run`](crate::Isa::run) and
/// [`Simd::outline`] begin it. What they argue about is memory.
///
/// # Safety
/// A vector exists only if the CPU has the instruction set: no safe function makes one without having one.
/// `LANES` is 4, 8 or 16, `TILE_ROWS` at most 14, and functions that take a pointer touch what they say and
/// nothing else.
pub unsafe trait Simd: Copy + Send + Sync + 'static {
    /// The vector.
    type V: Copy;
    /// Floats in a vector.
    const LANES: usize;
    /// Rows of the register tile of matrix products; its width is two vectors.
    const TILE_ROWS: usize;

    /// Calls a kernel as a function of its own, compiled for this instruction set.
    ///
    /// # Safety
    /// The CPU has the instruction set, and what the kernel's fields promise holds.
    unsafe fn outline<K: Kernel>(kernel: K) -> K::Output;

    /// All lanes equal.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn splat(value: f32) -> Self::V;
    /// `LANES` floats from memory.
    ///
    /// # Safety
    /// The CPU has the instruction set; `LANES` floats can be read, at any alignment.
    unsafe fn load(from: *const f32) -> Self::V;
    /// The first `count` lanes from memory, zero in the others; `count` may exceed `LANES`.
    ///
    /// # Safety
    /// The CPU has the instruction set; `count` floats, or `LANES` if that is less, can be read, at any alignment.
    unsafe fn load_partial(from: *const f32, count: usize) -> Self::V;
    /// `LANES` bytes from memory, widened.
    ///
    /// # Safety
    /// The CPU has the instruction set; `LANES` bytes can be read.
    unsafe fn load_bytes(from: *const u8) -> Self::V;
    /// All lanes to memory.
    ///
    /// # Safety
    /// `LANES` floats can be written, at any alignment, and no other thread uses them.
    unsafe fn store(to: *mut f32, value: Self::V);
    /// All lanes to memory past the caches, for what is not read before they hold something else: the old content is not fetched.
    ///
    /// # Safety
    /// As for [`Simd::store`], and `to` is aligned to a vector. [`Simd::end_streams`] comes before any other thread may look.
    #[inline(always)]
    unsafe fn stream(to: *mut f32, value: Self::V) {
        // SAFETY: passed on.
        unsafe { Self::store(to, value) }
    }
    /// Waits until what was written by [`Simd::stream`] is where other threads see it.
    #[inline(always)]
    fn end_streams() {}
    /// The first `count` lanes to memory; `count` may exceed `LANES`.
    ///
    /// # Safety
    /// `count` floats, or `LANES` if that is less, can be written, at any alignment, and no other thread uses them.
    unsafe fn store_partial(to: *mut f32, value: Self::V, count: usize);
    /// Lane-wise sum.
    fn add(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise difference.
    fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise product.
    fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise quotient.
    fn div(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise square root.
    fn sqrt(a: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the CPU can.
    fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Lane-wise maximum; where `a` is NaN, `b`.
    fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Lane-wise minimum; where `a` is NaN, `b`.
    fn min(a: Self::V, b: Self::V) -> Self::V;
    /// `value` where `a > b`, zero elsewhere.
    fn keep_greater(a: Self::V, b: Self::V, value: Self::V) -> Self::V;
    /// `value` where `a == b`, zero elsewhere.
    fn keep_equal(a: Self::V, b: Self::V, value: Self::V) -> Self::V;
    /// A bit for each lane: whether it is above zero.
    fn positive(a: Self::V) -> u32;
    /// `value` in lanes whose bit is set, zero elsewhere; bits beyond the lanes mean nothing.
    fn keep_bits(bits: u32, value: Self::V) -> Self::V;
    /// To the nearest whole number, halves to even.
    fn round(a: Self::V) -> Self::V;
    /// 2 to the power of whole numbers between -126 and 127.
    fn exp2_whole(a: Self::V) -> Self::V;
    /// Sum of all lanes.
    fn sum(a: Self::V) -> f32;
    /// Largest lane.
    fn largest(a: Self::V) -> f32;
    /// Writes the sum of all lanes of each vector, to the bit what [`Simd::sum`] gives; at most 16 vectors.
    ///
    /// # Safety
    /// The CPU has the instruction set; `N` floats can be written, and no other thread uses them.
    #[inline(always)]
    unsafe fn sums<const N: usize>(vectors: &[Self::V; N], to: *mut f32) {
        // SAFETY: an array of 16 floats has room for any vector; `N` floats can be written, as the caller promises.
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
    ///
    /// # Safety
    /// The CPU has the instruction set; all of these can be read and written, at any alignment, do not overlap,
    /// and no other thread writes the one or uses the other.
    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);

    /// Asks for a cache line that will be used soon; any address will do.
    #[inline(always)]
    fn prefetch(_from: *const f32) {}

    /// Asks for a cache line that will be used later: into the second-level cache; any address will do.
    #[inline(always)]
    fn prefetch_later(_from: *const f32) {}

    /// All lanes zero.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    #[inline(always)]
    unsafe fn zero() -> Self::V {
        // SAFETY: passed on.
        unsafe { Self::splat(0.0) }
    }

    /// `factor * a`
    #[inline(always)]
    fn scaled(factor: f32, a: Self::V) -> Self::V {
        // SAFETY: there is a vector, so the CPU has the instruction set.
        unsafe { Self::mul(Self::splat(factor), a) }
    }

    /// `factor * a + c`, rounded as [`Simd::fma`] is.
    #[inline(always)]
    fn add_scaled(factor: f32, a: Self::V, c: Self::V) -> Self::V {
        // SAFETY: there is a vector, so the CPU has the instruction set.
        unsafe { Self::fma(Self::splat(factor), a, c) }
    }

    /// `e^a`, to about 2 units in the last place; arguments are clamped to -87.3..=88.
    #[inline(always)]
    fn exp(a: Self::V) -> Self::V {
        // e^a = 2^n * e^r with |r| <= ln 2 / 2; ln 2 is split so that n * ln 2 stays exact enough.
        // SAFETY: there is a vector, so the CPU has the instruction set.
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

/// Whether rows of `columns` floats from `to` on can be written by [`Simd::stream`].
#[inline(always)]
pub fn streams<S: Simd>(to: *const f32, columns: usize) -> bool {
    columns.is_multiple_of(S::LANES) && to.addr().is_multiple_of(S::LANES * size_of::<f32>())
}

/// Copies `len` floats.
///
/// # Safety
/// The CPU has `S`; `len` floats can be read and written, do not overlap, and no other thread uses those written.
#[inline(always)]
pub(crate) unsafe fn copy<S: Simd>(from: *const f32, to: *mut f32, len: usize) {
    // SAFETY: `at + LANES <= len` for whole vectors, `len - at` floats for the last one.
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
///
/// # Safety
/// The CPU has `S`; `len` floats can be written, and no other thread uses them.
#[inline(always)]
pub(crate) unsafe fn clear<S: Simd>(to: *mut f32, len: usize) {
    // SAFETY: `at + LANES <= len` for whole vectors, `len - at` floats for the last one.
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
