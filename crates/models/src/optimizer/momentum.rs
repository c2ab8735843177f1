//! Gradient descent with momentum: a velocity that forgets slowly.

use super::{MAX_SLOTS, OptimizerEntry, OptimizerSettings, Pass, Rule, dispatch::for_each_isa};

/// `v = momentum * v + g; w -= rate * v`, with the decay inside `g`.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "momentum",
    about: "gradient descent with momentum (0.9)",
    settings: &["momentum"],
    slots: &["velocity"],
    defaults: OptimizerSettings { momentum: 0.9, ..OptimizerSettings::PLAIN },
    rule: Rule::Elements(apply),
};

for_each_isa!(apply, body, (pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]));

#[inline(always)]
fn body(pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]) {
    let Pass { rate, settings, .. } = *pass;
    let [velocity, _] = slots;
    for ((w, g), v) in params.iter_mut().zip(grad).zip(velocity) {
        *v = settings.momentum * *v + (g + settings.weight_decay * *w);
        *w -= rate * *v;
    }
}
