//! Affine maps and relu6 on rows of channels, recomputed wherever an activation is read.
//!
//! Batch normalisation is an affine map per channel once its statistics are known. Storing only
//! the convolution's raw output and applying map and relu6 on the way into the next kernel saves
//! writing and reading the activation once each.
//!
//! The functions over rows share one contract, that of [`activate`]: the CPU has `S`; from every pointer on,
//! as many floats as there are channels can be read or, behind `to`, written, at any alignment; no other thread
//! uses what is written. `to` may be what is read, but not overlap it otherwise. Each loop goes over
//! vectors of channels, the last of which is cut to the channels left.

#![allow(unsafe_code)] // vector loops over raw rows; each function states what it needs

use super::simd::Simd;

/// The affine map of each channel.
#[derive(Clone, Copy)]
pub struct Affine {
    /// Factor per channel.
    pub scale: *const f32,
    /// Summand per channel.
    pub shift: *const f32,
}

impl Affine {
    /// Factors and summands of a vector of channels from `first` on, of which `left` are left.
    ///
    /// # Safety
    /// The CPU has `S`; `left` floats from there on can be read, or a vector of them if that is less.
    #[inline(always)]
    pub unsafe fn load<S: Simd>(&self, first: usize, left: usize) -> (S::V, S::V) {
        // SAFETY: as the caller promises.
        unsafe {
            (
                load_some::<S>(self.scale.add(first), left),
                load_some::<S>(self.shift.add(first), left),
            )
        }
    }
}

/// `min(6, max(0, a))`; NaN stays NaN, so that a diverged run shows it.
#[inline(always)]
pub fn relu6<S: Simd>(a: S::V) -> S::V {
    // SAFETY: there is a vector, so the CPU has `S`.
    unsafe { S::min(S::splat(6.0), S::max(S::zero(), a)) }
}

/// `gradient` where the relu6 of `a` is neither 0 nor 6, zero elsewhere.
#[inline(always)]
pub fn relu6_mask<S: Simd>(a: S::V, gradient: S::V) -> S::V {
    // SAFETY: there is a vector, so the CPU has `S`.
    unsafe { S::keep_greater(a, S::zero(), S::keep_greater(S::splat(6.0), a, gradient)) }
}

/// Loads up to a vector: all lanes while `count` allows.
///
/// # Safety
/// The CPU has `S`; `count` floats, or a vector of them if that is less, can be read, at any alignment.
#[inline(always)]
pub unsafe fn load_some<S: Simd>(from: *const f32, count: usize) -> S::V {
    // SAFETY: passed on; a whole vector is loaded only where `count` has one.
    unsafe { if count >= S::LANES { S::load(from) } else { S::load_partial(from, count) } }
}

/// Stores up to a vector: all lanes while `count` allows.
///
/// # Safety
/// `count` floats, or a vector of them if that is less, can be written, at any alignment, and no other thread
/// uses them.
#[inline(always)]
pub unsafe fn store_some<S: Simd>(to: *mut f32, value: S::V, count: usize) {
    // SAFETY: passed on; a whole vector is stored only where `count` has one.
    unsafe {
        if count >= S::LANES { S::store(to, value) } else { S::store_partial(to, value, count) }
    }
}

/// [`store_some`], past the caches where `stream` says so.
///
/// # Safety
/// As for [`store_some`], or for [`Simd::stream`].
#[inline(always)]
pub unsafe fn write<S: Simd>(to: *mut f32, value: S::V, count: usize, stream: bool) {
    // SAFETY: passed on.
    unsafe { if stream { S::stream(to, value) } else { store_some::<S>(to, value, count) } }
}

/// `to = relu6(affine(from))` for one pixel's channels. Asks for what lies `ahead` floats further, which comes meanwhile.
///
/// # Safety
/// The CPU has `S`; `channels` floats can be read from `from`, `affine.scale` and `affine.shift` on and written
/// from `to` on, which no other thread uses.
#[inline(always)]
pub unsafe fn activate<S: Simd>(
    from: *const f32,
    affine: Affine,
    channels: usize,
    ahead: usize,
    to: *mut f32,
) {
    // SAFETY: `c < channels`, and no more than the `left` lanes are touched from there on.
    unsafe {
        for c in (0..channels).step_by(S::LANES) {
            let left = channels - c;
            S::prefetch_later(from.wrapping_add(c + ahead));
            let (scale, shift) = affine.load::<S>(c, left);
            let y = S::fma(load_some::<S>(from.add(c), left), scale, shift);
            store_some::<S>(to.add(c), relu6::<S>(y), left);
        }
    }
}

/// `to = affine(from) + residual` for one pixel's channels; a null `residual` counts as zero.
///
/// # Safety
/// As [`activate`]; a `residual` that is not null has `channels` floats, too.
#[inline(always)]
pub unsafe fn carry<S: Simd>(
    from: *const f32,
    affine: Affine,
    residual: *const f32,
    channels: usize,
    to: *mut f32,
) {
    // SAFETY: as in `activate`.
    unsafe {
        for c in (0..channels).step_by(S::LANES) {
            let left = channels - c;
            let (scale, shift) = affine.load::<S>(c, left);
            let mut y = S::fma(load_some::<S>(from.add(c), left), scale, shift);
            if !residual.is_null() {
                y = S::add(y, load_some::<S>(residual.add(c), left));
            }
            store_some::<S>(to.add(c), y, left);
        }
    }
}

/// Gradient of a convolution's raw output, from the masked gradient behind its batch norm:
/// `by_gradient * gradient + by_raw * raw + constant`.
#[derive(Clone, Copy)]
pub struct NormGradient {
    /// The masked gradient, pixel after pixel.
    pub gradient: *const f32,
    /// The convolution's raw output.
    pub raw: *const f32,
    /// Factor of the gradient, per channel.
    pub by_gradient: *const f32,
    /// Factor of the raw output, per channel.
    pub by_raw: *const f32,
    /// Summand, per channel.
    pub constant: *const f32,
}

impl NormGradient {
    /// Computes `channels` channels from `at` on, which may be any channel of any pixel; `channel`
    /// is the channel there. Asks for what lies `ahead` floats further, which comes meanwhile.
    ///
    /// # Safety
    /// As [`activate`]: `channels` floats from `at` on in `gradient` and `raw`, from `channel` on in the others, and
    /// from the first on behind `to`.
    #[inline(always)]
    pub unsafe fn row<S: Simd>(
        &self,
        at: usize,
        (channel, channels): (usize, usize),
        ahead: usize,
        to: *mut f32,
    ) {
        // SAFETY: as in `activate`.
        unsafe {
            for c in (0..channels).step_by(S::LANES) {
                let left = channels - c;
                S::prefetch_later(self.raw.wrapping_add(at + c + ahead));
                S::prefetch_later(self.gradient.wrapping_add(at + c + ahead));
                let by_raw = load_some::<S>(self.by_raw.add(channel + c), left);
                let by_gradient = load_some::<S>(self.by_gradient.add(channel + c), left);
                let constant = load_some::<S>(self.constant.add(channel + c), left);
                let raw = load_some::<S>(self.raw.add(at + c), left);
                let gradient = load_some::<S>(self.gradient.add(at + c), left);
                let sum = S::fma(by_raw, raw, constant);
                let sum = S::fma(by_gradient, gradient, sum);
                store_some::<S>(to.add(c), sum, left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Kernel, noise};

    struct Both<'a> {
        raw: &'a [f32],
        out: &'a mut [f32],
        mask: &'a mut [f32],
    }

    impl Kernel for Both<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            // SAFETY: slices and vectors of equal length; lanes are cut to what is left of it.
            unsafe {
                let n = self.raw.len();
                let (scale, shift) = (vec![8.0; n], vec![1.0; n]);
                let affine = Affine { scale: scale.as_ptr(), shift: shift.as_ptr() };
                activate::<S>(self.raw.as_ptr(), affine, n, n, self.out.as_mut_ptr());
                for i in (0..n).step_by(S::LANES) {
                    let y = S::fma(
                        load_some::<S>(self.raw.as_ptr().add(i), n - i),
                        S::splat(8.0),
                        S::splat(1.0),
                    );
                    let mask = relu6_mask::<S>(y, S::splat(1.0));
                    store_some::<S>(self.mask.as_mut_ptr().add(i), mask, n - i);
                }
            }
        }
    }

    #[test]
    fn relu6_clips_at_both_ends_and_shows_nan() {
        for isa in Isa::available() {
            for n in [1, 5, 16, 19, 40] {
                let mut raw = noise(7, n);
                raw[n / 2] = f32::NAN;
                let (mut out, mut mask) = (vec![9.0; n], vec![9.0; n]);
                // SAFETY: slices of equal length.
                unsafe { isa.run(Both { raw: &raw, out: &mut out, mask: &mut mask }) };
                for i in 0..n {
                    let y = raw[i].mul_add(8.0, 1.0);
                    if y.is_nan() {
                        assert!(out[i].is_nan(), "{} {n}", isa.name());
                        continue;
                    }
                    assert!((out[i] - y.clamp(0.0, 6.0)).abs() < 1e-6, "{} {n}", isa.name());
                    assert_eq!(
                        mask[i],
                        f32::from(u8::from(y > 0.0 && y < 6.0)),
                        "{} {n}",
                        isa.name()
                    );
                }
            }
        }
    }
}
