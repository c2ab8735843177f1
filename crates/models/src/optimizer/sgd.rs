//! Plain stochastic gradient descent: no state, one pass over weights and gradient.

use super::{MAX_SLOTS, OptimizerEntry, OptimizerSettings, Pass, Rule, dispatch::for_each_isa};

/// `w -= rate * (g + decay * w)`.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "sgd",
    about: "plain gradient descent",
    settings: &[],
    slots: &[],
    defaults: OptimizerSettings::PLAIN,
    rule: Rule::Elements(apply),
};

for_each_isa!(apply, body, (pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]));

#[inline(always)]
fn body(pass: &Pass, params: &mut [f32], grad: &[f32], _slots: [&mut [f32]; MAX_SLOTS]) {
    let Pass { rate, settings, .. } = *pass;
    let decay = settings.weight_decay;
    for (w, g) in params.iter_mut().zip(grad) {
        *w -= rate * (g + decay * *w);
    }
}
