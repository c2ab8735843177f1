//! Adagrad: each weight's rate falls with the gradients it has seen, which suits sparse features.

use super::{MAX_SLOTS, OptimizerEntry, OptimizerSettings, Pass, Rule, dispatch::for_each_isa};

/// `s += g²; w -= rate * g / (√s + epsilon)`, with the decay inside `g`.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "adagrad",
    about: "per-weight rates that fall with the squared gradients seen",
    settings: &[],
    slots: &["squares"],
    defaults: OptimizerSettings { epsilon: 1e-10, ..OptimizerSettings::PLAIN },
    rule: Rule::Elements(apply),
};

for_each_isa!(apply, body, (pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]));

#[inline(always)]
fn body(pass: &Pass, params: &mut [f32], grad: &[f32], slots: [&mut [f32]; MAX_SLOTS]) {
    let Pass { rate, settings, .. } = *pass;
    let [squares, _] = slots;
    for ((w, g), s) in params.iter_mut().zip(grad).zip(squares) {
        let g = g + settings.weight_decay * *w;
        *s += g * g;
        *w -= rate * (g / (s.sqrt() + settings.epsilon));
    }
}
