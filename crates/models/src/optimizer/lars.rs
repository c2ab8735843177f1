//! LARS: momentum whose rate follows, layer by layer, the ratio of the norms of weights and gradient (You, Gitman and
//! Ginsburg 2017), so that batches of thousands do not ruin the layers with large gradients.

use super::{
    OptimizerEntry, OptimizerSettings, Pass, Rule,
    tensors::{Tensor, norm},
};

/// `ratio = trust * |w| / (|g| + decay * |w|); v = momentum * v + rate * ratio * (g + decay * w); w -= v`. Biases and other
/// vectors have the ratio of the weights before them, and no decay.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "lars",
    about: "momentum with a rate for each layer by its norms, for large batches",
    settings: &["momentum"],
    slots: &["velocity"],
    defaults: OptimizerSettings {
        rate: 4.0,
        momentum: 0.9,
        weight_decay: 1e-4,
        ..OptimizerSettings::PLAIN
    },
    rule: Rule::Tensors(apply),
};

/// Share of its norm by which a layer may move at a rate of 1.
const TRUST: f64 = 0.001;

fn apply(pass: &Pass, tensor: Tensor<'_>, ratio: &mut f32) {
    let Pass { rate, settings, .. } = *pass;
    let Tensor { weights, grad, slots: [velocity, _], is_vector } = tensor;
    let decay = if is_vector { 0.0 } else { settings.weight_decay };
    if !is_vector {
        let weight_norm = norm(weights.iter().copied());
        let gradient_norm = norm(grad.iter().copied());
        let below = gradient_norm + f64::from(decay) * weight_norm;
        // Weights of zero would never leave it.
        *ratio = if weight_norm > 0.0 && below > 0.0 {
            (TRUST * weight_norm / below) as f32
        } else {
            TRUST as f32
        };
    }
    let rate = rate * *ratio;
    for ((w, g), v) in weights.iter_mut().zip(grad).zip(velocity) {
        *v = settings.momentum * *v + rate * (g + decay * *w);
        *w -= *v;
    }
}
