//! Global average pooling, dropout, classifier and loss.

#![allow(unsafe_code)] // kernels on the planned buffer: the plan keeps the pieces apart

use super::{
    passes::Passes,
    pointwise::{Above, Behind, Source},
    tile::padded,
};
use crate::{
    kernels::{
        Kernel,
        activation::{Affine, load_some, relu6, relu6_mask, store_some},
        simd::Simd,
    },
    model::StepContext,
    random::mix,
};

/// Mean of the activations over one image's pixels.
struct Pool {
    /// `area * channels` floats.
    raw: *const f32,
    affine: Affine,
    area: usize,
    channels: usize,
    /// `channels` floats, which this task alone uses.
    out: *mut f32,
}

impl Kernel for Pool {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: lanes are cut to the channels left of each pixel.
        unsafe {
            let share = S::splat(1.0 / self.area as f32);
            for c in (0..self.channels).step_by(S::LANES) {
                let left = self.channels - c;
                let (scale, shift) = self.affine.load::<S>(c, left);
                let mut sum = S::zero();
                for pixel in 0..self.area {
                    let raw = load_some::<S>(self.raw.add(pixel * self.channels + c), left);
                    sum = S::add(sum, relu6::<S>(S::fma(raw, scale, shift)));
                }
                store_some::<S>(self.out.add(c), S::mul(sum, share), left);
            }
        }
    }
}

/// Spreads the gradient of one image's means over its pixels, masked by relu6, and sums it for the
/// last batch norm.
struct Spread {
    /// `area * channels` floats.
    raw: *const f32,
    affine: Affine,
    /// `channels` floats each.
    mean: *const f32,
    area: usize,
    channels: usize,
    gradient: *const f32,
    /// As long as `raw`; this and all below is used by this task or thread alone.
    out: *mut f32,
    /// `2 * channels` sums.
    sums: *mut f64,
    /// `2 * padded(channels)` floats.
    near: *mut f32,
}

impl Kernel for Spread {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: lanes are cut to the channels left of each pixel; `near` is padded to whole vectors.
        unsafe {
            let share = S::splat(1.0 / self.area as f32);
            for c in (0..self.channels).step_by(S::LANES) {
                let left = self.channels - c;
                let (scale, shift) = self.affine.load::<S>(c, left);
                let mean = load_some::<S>(self.mean.add(c), left);
                let gradient = S::mul(load_some::<S>(self.gradient.add(c), left), share);
                let (mut sum, mut product) = (S::zero(), S::zero());
                for pixel in 0..self.area {
                    let at = pixel * self.channels + c;
                    let raw = load_some::<S>(self.raw.add(at), left);
                    let masked = relu6_mask::<S>(S::fma(raw, scale, shift), gradient);
                    sum = S::add(sum, masked);
                    product = S::fma(masked, S::sub(raw, mean), product);
                    store_some::<S>(self.out.add(at), masked, left);
                }
                S::store(self.near.add(c), sum);
                S::store(self.near.add(padded(self.channels) + c), product);
            }
            for c in 0..self.channels {
                *self.sums.add(c) = f64::from(*self.near.add(c));
                let product = *self.near.add(padded(self.channels) + c);
                *self.sums.add(self.channels + c) = f64::from(product);
            }
        }
    }
}

/// Which units dropout keeps: a function of seed, step and position in the global batch, so that
/// the number of workers does not change it.
pub(super) struct Dropout {
    pub(super) rate: f32,
    pub(super) seed: u64,
    pub(super) step: u64,
    pub(super) first_example: u64,
}

impl Dropout {
    pub(super) fn of(rate: f32, context: &StepContext) -> Self {
        let StepContext { seed, step, first_example, .. } = *context;
        Self { rate, seed, step, first_example }
    }

    /// Scales `row`, the features of the batch's example `example`: kept units by 1 / (1 - rate),
    /// the others by 0.
    fn apply(&self, example: usize, row: &mut [f32]) {
        if self.rate <= 0.0 {
            return;
        }
        let keep = 1.0 / (1.0 - self.rate);
        let limit = (f64::from(self.rate) * 2f64.powi(32)) as u64;
        let position = self.first_example + example as u64;
        let start = mix(mix(mix(self.seed) ^ self.step) ^ position);
        for (unit, value) in row.iter_mut().enumerate() {
            let draw = mix(start.wrapping_add(unit as u64)) >> 32;
            *value *= if draw < limit { 0.0 } else { keep };
        }
    }
}

impl Passes<'_> {
    /// A planned piece of memory.
    ///
    /// # Safety
    /// `len` floats are planned there; no kernel runs and no other slice of them exists.
    unsafe fn piece<'a>(&self, offset: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.memory.at(offset), len) }
    }

    /// From the last raw output to the logits, one row an image, where their gradient is expected
    /// afterwards.
    pub(super) fn logits<'a>(&self, params: &[f32], dropout: Option<&Dropout>) -> &'a mut [f32] {
        let (shape, plan) = (self.shape, self.plan);
        let (features, classes) = (shape.features(), shape.classes);
        let last = shape.layers.len() - 1;
        let area = shape.layers[last].out_area();
        self.compute.pool().run(self.count, &|image, _| {
            let norm = self.norm(last);
            // SAFETY: each task reads its image and writes its row.
            unsafe {
                let out = self.memory.at(plan.pooled).add(image * features);
                self.compute.isa().run(Pool {
                    raw: self.raw(last).add(image * area * features),
                    affine: Affine { scale: norm.array(0), shift: norm.array(1) },
                    area,
                    channels: features,
                    out,
                });
                if let Some(dropout) = dropout {
                    dropout.apply(image, std::slice::from_raw_parts_mut(out, features));
                }
            }
        });
        let weights = &params[shape.classifier_weight.clone()];
        let packed = self.pack(weights, (1, features), (features, classes));
        let pooled = || Source::Plain { rows: self.memory.at(plan.pooled) };
        self.multiply(self.count, &pooled, packed, plan.logits);
        let bias = &params[shape.classifier_bias.clone()];
        // SAFETY: planned for every row of the batch; the pass above has ended.
        let logits = unsafe { self.piece(plan.logits, self.count * classes) };
        for row in logits.chunks_exact_mut(classes) {
            row.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += bias);
        }
        logits
    }

    /// Backward through the classifier: gradients of its weights and bias, and of the means.
    pub(super) fn classifier_back(&self, params: &[f32], grad: &mut [f32]) {
        let (shape, plan) = (self.shape, self.plan);
        let (features, classes) = (shape.features(), shape.classes);
        let weights = &params[shape.classifier_weight.clone()];
        let packed = self.pack(weights, (features, 1), (classes, features));
        let tasks = self.multiply_back(
            self.count,
            &|| Source::Plain { rows: self.memory.at(plan.pooled) },
            &|| Above::Plain { rows: self.memory.at(plan.logits) },
            packed,
            &|| Behind::Plain { out: self.memory.at(plan.pooled_grad) },
            false,
        );
        let stride = padded(features);
        let weight_grad = &mut grad[shape.classifier_weight.clone()];
        self.reduce(tasks, plan.weight_sums_stride, weight_grad, features, |class, feature| {
            class * stride + feature
        });
        let bias_grad = &mut grad[shape.classifier_bias.clone()];
        bias_grad.fill(0.0);
        // SAFETY: planned for every row of the batch; the pass above has ended.
        let rows = unsafe { self.piece(plan.logits, self.count * classes) };
        for row in rows.chunks_exact(classes) {
            bias_grad.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    }

    /// Backward through dropout, pooling and the last relu6. Answers the number of partial sums.
    pub(super) fn pool_back(&self, dropout: &Dropout) -> usize {
        let (shape, plan) = (self.shape, self.plan);
        let features = shape.features();
        let last = shape.layers.len() - 1;
        let area = shape.layers[last].out_area();
        self.compute.pool().run(self.count, &|image, thread| {
            let norm = self.norm(last);
            // SAFETY: each task works on its own image and sums; near sums are the thread's own.
            unsafe {
                let gradient = self.memory.at(plan.pooled_grad).add(image * features);
                dropout.apply(image, std::slice::from_raw_parts_mut(gradient, features));
                self.compute.isa().run(Spread {
                    raw: self.raw(last).add(image * area * features),
                    affine: Affine { scale: norm.array(0), shift: norm.array(1) },
                    mean: norm.array(2),
                    area,
                    channels: features,
                    gradient,
                    out: self.memory.at(plan.wide[0]).add(image * area * features),
                    sums: self.memory.sums(image, 2 * features),
                    near: self.memory.at(plan.near + thread * plan.near_stride),
                });
            }
        });
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropout_does_not_notice_how_the_batch_is_cut() {
        let dropout = |first_example| Dropout { rate: 0.3, seed: 5, step: 9, first_example };
        let mut whole = vec![1.0; 4000];
        for (example, row) in whole.chunks_mut(1000).enumerate() {
            dropout(16).apply(example, row);
        }
        let mut cut = vec![1.0; 1000];
        dropout(18).apply(1, &mut cut);
        assert_eq!(whole[3000..], cut);
        let dropped = whole.iter().filter(|&&value| value == 0.0).count();
        assert!((1100..1300).contains(&dropped), "{dropped} of 4000");
        assert!(whole.iter().all(|&v| v == 0.0 || (v - 1.0 / 0.7).abs() < 1e-6));
    }
}
