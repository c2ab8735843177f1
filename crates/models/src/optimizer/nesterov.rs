//! Nesterov momentum: the gradient's own step is taken ahead of the velocity.

use super::{MAX_SLOTS, OptimizerEntry, OptimizerSettings, Pass, Rule, dispatch::for_each_isa};

/// `v = momentum * v + g; w -= rate * (g + momentum * v)`, with the decay inside `g`.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "nesterov",
    about: "gradient descent with Nesterov momentum (0.9)",
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
        let g = g + settings.weight_decay * *w;
        *v = settings.momentum * *v + g;
        *w -= rate * (g + settings.momentum * *v);
    }
}
