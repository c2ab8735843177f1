//! Adam, and AdamW where the decay is decoupled.

use super::{MAX_SLOTS, OptimizerEntry, OptimizerSettings, Pass, Rule, dispatch::for_each_isa};

/// Running means of gradient and squared gradient, corrected for their start at zero.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "adam",
    about: "running means of gradient and square; decoupled weight decay makes it AdamW",
    settings: &[],
    slots: &["mean", "squares"],
    defaults: OptimizerSettings { rate: 0.001, ..OptimizerSettings::PLAIN },
    rule: Rule::Elements(apply),
};

for_each_isa!(apply, body, (pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]));

#[inline(always)]
fn body(pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]) {
    let Pass { rate, settings, count } = *pass;
    let OptimizerSettings { beta1, beta2, epsilon, weight_decay, decoupled, .. } = settings;
    // In f64: 0.999^n near 1 loses all its digits in f32 during the first steps.
    let correction = |beta: f32| 1.0 - f64::from(beta).powi(count);
    let step_size = (f64::from(rate) / correction(beta1)) as f32;
    let root_scale = (1.0 / correction(beta2).sqrt()) as f32;
    let (l2, keep) = if decoupled { (0.0, 1.0 - rate * weight_decay) } else { (weight_decay, 1.0) };
    let [mean, squares] = slots;
    for (((w, g), m), s) in params.iter_mut().zip(grad).zip(mean).zip(squares) {
        let g = g + l2 * *w;
        *m = beta1 * *m + (1.0 - beta1) * g;
        *s = beta2 * *s + (1.0 - beta2) * (g * g);
        *w = *w * keep - step_size * (*m / (s.sqrt() * root_scale + epsilon));
    }
}
