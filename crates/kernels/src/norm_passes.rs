//! Batch normalisation as passes of its own, for layers whose convolutions do not sum while they write.
//!
//! Rows are pixels, columns channels. The loops are plain: inside a kernel they are compiled for its instruction set, and
//! the compiler makes vectors of them.

#![allow(unsafe_code)] // kernels are called through an unsafe trait; nothing here touches raw memory

use super::{Compute, isa::Kernel, simd::Simd};

/// Rows of a task of a pass that writes as it goes.
const ROWS: usize = 512;

/// Sums and sums of squares of each channel.
struct Moments<'a> {
    raw: &'a [f32],
    channels: usize,
    to: &'a mut [f64],
}

impl Kernel for Moments<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.to.fill(0.0);
        let (sums, squares) = self.to.split_at_mut(self.channels);
        for row in self.raw.chunks_exact(self.channels) {
            for ((&value, sum), square) in row.iter().zip(&mut *sums).zip(&mut *squares) {
                let value = f64::from(value);
                *sum += value;
                *square += value * value;
            }
        }
    }
}

/// Sums of the gradient, alone and times the centred raw value.
struct GradientSums<'a> {
    gradient: &'a [f32],
    raw: &'a [f32],
    mean: &'a [f32],
    to: &'a mut [f64],
}

impl Kernel for GradientSums<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.to.fill(0.0);
        let channels = self.mean.len();
        let (sums, products) = self.to.split_at_mut(channels);
        for (row, raw) in self.gradient.chunks_exact(channels).zip(self.raw.chunks_exact(channels))
        {
            let sums = sums.iter_mut().zip(&mut *products);
            for (((&gradient, &raw), &mean), (sum, product)) in
                row.iter().zip(raw).zip(self.mean).zip(sums)
            {
                *sum += f64::from(gradient);
                *product += f64::from(gradient) * f64::from(raw - mean);
            }
        }
    }
}

/// `raw * scale + shift`, with another value added where there is one, and nothing below zero.
struct Normalise<'a> {
    raw: &'a [f32],
    scale: &'a [f32],
    shift: &'a [f32],
    added: Option<&'a [f32]>,
    to: &'a mut [f32],
}

impl Kernel for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let channels = self.scale.len();
        let rows = self.raw.chunks_exact(channels).zip(self.to.chunks_exact_mut(channels));
        for (number, (raw, to)) in rows.enumerate() {
            for (((to, &raw), &scale), &shift) in
                to.iter_mut().zip(raw).zip(self.scale).zip(self.shift)
            {
                *to = raw * scale + shift;
            }
            if let Some(added) = self.added {
                for (to, &added) in to.iter_mut().zip(&added[number * channels..][..channels]) {
                    *to += added;
                }
            }
            for value in to {
                // NaN stays, so that a diverged run is seen.
                *value = if *value < 0.0 { 0.0 } else { *value };
            }
        }
    }
}

/// `gradient * by_gradient + raw * by_raw + constant`.
struct NormaliseBack<'a> {
    gradient: &'a [f32],
    raw: &'a [f32],
    by: [&'a [f32]; 3],
    to: &'a mut [f32],
}

impl Kernel for NormaliseBack<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let [by_gradient, by_raw, constant] = self.by;
        let channels = constant.len();
        let inputs = self.gradient.chunks_exact(channels).zip(self.raw.chunks_exact(channels));
        for ((gradient, raw), to) in inputs.zip(self.to.chunks_exact_mut(channels)) {
            let factors = by_gradient.iter().zip(by_raw).zip(constant);
            for (((to, &gradient), &raw), ((&by_gradient, &by_raw), &constant)) in
                to.iter_mut().zip(gradient).zip(raw).zip(factors)
            {
                *to = gradient * by_gradient + raw * by_raw + constant;
            }
        }
    }
}

/// Rows of one of so many parts.
fn share(rows: usize, part: usize, parts: usize, channels: usize) -> std::ops::Range<usize> {
    part * rows / parts * channels..(part + 1) * rows / parts * channels
}

impl Compute {
    /// Sums and sums of squares of each channel of `raw`; `parts` holds both for each part of the rows, one part after
    /// another.
    pub fn moments(&self, raw: &[f32], channels: usize, parts: &mut [f64]) {
        let (isa, rows, count) = (self.isa, raw.len() / channels, parts.len() / (2 * channels));
        self.pool.for_chunks(parts, 2 * channels, |part, to| {
            let raw = &raw[share(rows, part, count, channels)];
            // SAFETY: the kernel uses slices alone.
            unsafe { isa.run(Moments { raw, channels, to }) };
        });
    }

    /// Sums of the gradient, alone and times the centred raw value; as [`Compute::moments`] has them.
    pub fn gradient_sums(&self, gradient: &[f32], raw: &[f32], mean: &[f32], parts: &mut [f64]) {
        assert_eq!(gradient.len(), raw.len(), "a gradient for each value");
        let channels = mean.len();
        let (isa, rows, count) = (self.isa, raw.len() / channels, parts.len() / (2 * channels));
        self.pool.for_chunks(parts, 2 * channels, |part, to| {
            let range = share(rows, part, count, channels);
            let (gradient, raw) = (&gradient[range.clone()], &raw[range]);
            // SAFETY: as above.
            unsafe { isa.run(GradientSums { gradient, raw, mean, to }) };
        });
    }

    /// `relu(raw * scale + shift + added)`.
    pub fn normalise(
        &self,
        raw: &[f32],
        (scale, shift): (&[f32], &[f32]),
        added: Option<&[f32]>,
        to: &mut [f32],
    ) {
        assert_eq!(raw.len(), to.len(), "a result for each value");
        let (isa, size) = (self.isa, ROWS * scale.len());
        self.pool.for_chunks(to, size, |number, to| {
            let range = number * size..number * size + to.len();
            let (raw, added) = (&raw[range.clone()], added.map(|added| &added[range]));
            // SAFETY: as above.
            unsafe { isa.run(Normalise { raw, scale, shift, added, to }) };
        });
    }

    /// Nothing where the relu that made `made` let nothing through.
    pub fn relu_backward(&self, made: &[f32], gradient: &mut [f32]) {
        assert_eq!(made.len(), gradient.len(), "a gradient for each value");
        self.pool.for_chunks(gradient, ROWS * 64, |number, gradient| {
            let made = &made[number * ROWS * 64..][..gradient.len()];
            for (gradient, &made) in gradient.iter_mut().zip(made) {
                *gradient = if made > 0.0 { *gradient } else { 0.0 };
            }
        });
    }

    /// `gradient * by_gradient + raw * by_raw + constant`, the three of them in this order.
    pub fn normalise_backward(
        &self,
        gradient: &[f32],
        raw: &[f32],
        by: [&[f32]; 3],
        to: &mut [f32],
    ) {
        assert_eq!((gradient.len(), raw.len()), (to.len(), to.len()), "a gradient for each value");
        let (isa, size) = (self.isa, ROWS * by[0].len());
        self.pool.for_chunks(to, size, |number, to| {
            let range = number * size..number * size + to.len();
            let (gradient, raw) = (&gradient[range.clone()], &raw[range]);
            // SAFETY: as above.
            unsafe { isa.run(NormaliseBack { gradient, raw, by, to }) };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    #[test]
    fn passes_match_their_formulas_in_every_part() {
        for isa in Isa::available() {
            let (rows, channels) = (1300, 5);
            let compute = Compute::with_isa(isa, 2);
            let (raw, other) = (noise(1, rows * channels), noise(2, rows * channels));
            let factors = noise(3, 3 * channels);
            let [a, b, c] = [0, 1, 2].map(|n| &factors[n * channels..][..channels]);
            let mut parts = vec![f64::NAN; 3 * 2 * channels];
            let total = |parts: &[f64], at: usize| -> f64 {
                parts.chunks_exact(2 * channels).map(|part| part[at]).sum()
            };
            compute.moments(&raw, channels, &mut parts);
            let column = |values: &[f32], c: usize| -> Vec<f64> {
                values.iter().skip(c).step_by(channels).map(|&v| f64::from(v)).collect()
            };
            for c in 0..channels {
                let values = column(&raw, c);
                assert!((total(&parts, c) - values.iter().sum::<f64>()).abs() < 1e-9);
                let squares = values.iter().map(|v| v * v).sum::<f64>();
                assert!((total(&parts, channels + c) - squares).abs() < 1e-9);
            }
            compute.gradient_sums(&other, &raw, a, &mut parts);
            for (c, &mean) in a.iter().enumerate().take(channels) {
                let products = column(&raw, c)
                    .iter()
                    .zip(column(&other, c))
                    .map(|(r, g)| (r - f64::from(mean)) * g)
                    .sum::<f64>();
                assert!((total(&parts, channels + c) - products).abs() < 1e-4);
            }
            let mut to = vec![0.0; raw.len()];
            compute.normalise(&raw, (a, b), Some(&other), &mut to);
            let mut back = vec![0.0; raw.len()];
            compute.normalise_backward(&other, &raw, [a, b, c], &mut back);
            let mut masked = other.clone();
            compute.relu_backward(&to, &mut masked);
            for at in 0..raw.len() {
                let channel = at % channels;
                let wanted = (raw[at] * a[channel] + b[channel] + other[at]).max(0.0);
                assert!((to[at] - wanted).abs() < 1e-6, "{}", isa.name());
                let wanted = other[at] * a[channel] + raw[at] * b[channel] + c[channel];
                assert!((back[at] - wanted).abs() < 1e-6);
                assert_eq!(masked[at], if to[at] > 0.0 { other[at] } else { 0.0 });
            }
        }
    }
}
