//! The hyperbolic tangent, and the way back through it.

#![allow(unsafe_code)] // kernels on raw memory

use super::{Compute, isa::Kernel, simd::Simd};

/// Floats of a task: enough to be worth waking a thread for.
const SHARE: usize = 1 << 13;

struct Forward<'a>(&'a mut [f32]);

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let len = self.0.len();
        let mut at = 0;
        // SAFETY: lanes are cut to the values left.
        unsafe {
            let (one, two) = (S::splat(1.0), S::splat(2.0));
            while at < len {
                let to = self.0.as_mut_ptr().add(at);
                let value = S::load_partial(to, len - at);
                // 1 - 2 / (e^2x + 1): right at both ends, where the exponential is huge or nothing. The exponential takes NaN
                // for a number; 0 * x does not, and a run that diverged must be seen.
                let part = S::div(two, S::add(S::exp(S::mul(two, value)), one));
                let value = S::fma(value, S::zero(), S::sub(one, part));
                S::store_partial(to, value, len - at);
                at += S::LANES;
            }
        }
    }
}

struct Backward<'a> {
    made: &'a [f32],
    gradient: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let len = self.made.len().min(self.gradient.len());
        let mut at = 0;
        // SAFETY: lanes are cut to the values left of both.
        unsafe {
            let one = S::splat(1.0);
            while at < len {
                let made = S::load_partial(self.made.as_ptr().add(at), len - at);
                let to = self.gradient.as_mut_ptr().add(at);
                let slope = S::sub(one, S::mul(made, made));
                S::store_partial(to, S::mul(S::load_partial(to, len - at), slope), len - at);
                at += S::LANES;
            }
        }
    }
}

impl Compute {
    /// Every value becomes its hyperbolic tangent.
    pub fn tanh(&self, values: &mut [f32]) {
        let isa = self.isa;
        // SAFETY: the kernel stays within its slice.
        self.pool.for_chunks(values, SHARE, |_, piece| unsafe { isa.run(Forward(piece)) });
    }

    /// Gradient before the tangent that made `made`, in place of the gradient after it.
    ///
    /// # Panics
    /// If the two differ in length.
    pub fn tanh_backward(&self, made: &[f32], gradient: &mut [f32]) {
        assert_eq!(made.len(), gradient.len(), "a gradient for each value");
        let isa = self.isa;
        self.pool.for_chunks(gradient, SHARE, |number, gradient| {
            let made = &made[number * SHARE..][..gradient.len()];
            // SAFETY: the kernel stays within the shorter of its slices.
            unsafe { isa.run(Backward { made, gradient }) };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    #[test]
    fn values_and_slopes_are_those_of_double_precision() {
        for isa in Isa::available() {
            let compute = Compute::with_isa(isa, 2);
            let before: Vec<f32> = noise(3, 20_001).iter().map(|value| value * 12.0).collect();
            let mut made = before.clone();
            compute.tanh(&mut made);
            let mut slopes = vec![1.0; made.len()];
            compute.tanh_backward(&made, &mut slopes);
            for ((&x, &made), &slope) in before.iter().zip(&made).zip(&slopes) {
                let wanted = f64::from(x).tanh();
                assert!((f64::from(made) - wanted).abs() < 3e-7, "{}: {x} {made}", isa.name());
                assert!((f64::from(slope) - (1.0 - wanted * wanted)).abs() < 1e-6);
            }
            let mut odd = [f32::NAN, 1e30, -1e30, 0.0];
            compute.tanh(&mut odd);
            assert!(odd[0].is_nan() && odd[1..] == [1.0, -1.0, 0.0], "{odd:?}");
        }
    }
}
