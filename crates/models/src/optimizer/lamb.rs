//! LAMB: Adam whose step is, layer by layer, as long as the weights are (You et al. 2020), for batches of thousands.

use super::{
    OptimizerEntry, OptimizerSettings, Pass, Rule,
    tensors::{Tensor, norm},
};

/// `r = mean / (sqrt(squares) + epsilon) + decay * w` with Adam's means; `w -= rate * |w| / |r| * r`. Biases and other vectors
/// take Adam's step as it is, without decay.
pub(super) const ENTRY: OptimizerEntry = OptimizerEntry {
    name: "lamb",
    about: "Adam with a step for each layer as long as its weights, for large batches",
    settings: &[],
    slots: &["mean", "squares"],
    defaults: OptimizerSettings {
        rate: 0.01,
        epsilon: 1e-6,
        weight_decay: 0.01,
        ..OptimizerSettings::PLAIN
    },
    rule: Rule::Tensors(apply),
};

fn apply(pass: &Pass, tensor: Tensor<'_>, _: &mut f32) {
    let Pass { rate, settings, count } = *pass;
    let OptimizerSettings { beta1, beta2, epsilon, weight_decay, .. } = settings;
    let Tensor { weights, grad, slots: [mean, squares], is_vector } = tensor;
    // In f64: 0.999^n near 1 loses all its digits in f32 during the first steps.
    let correction = |beta: f32| 1.0 - f64::from(beta).powi(count);
    let mean_scale = (1.0 / correction(beta1)) as f32;
    let root_scale = (1.0 / correction(beta2).sqrt()) as f32;
    let decay = if is_vector { 0.0 } else { weight_decay };
    for ((g, m), s) in grad.iter().zip(mean.iter_mut()).zip(squares.iter_mut()) {
        *m = beta1 * *m + (1.0 - beta1) * g;
        *s = beta2 * *s + (1.0 - beta2) * (g * g);
    }
    let direction =
        |w: f32, m: f32, s: f32| m * mean_scale / (s.sqrt() * root_scale + epsilon) + decay * w;
    let mut ratio = 1.0;
    if !is_vector {
        let weight_norm = norm(weights.iter().copied());
        let each = weights.iter().zip(mean.iter()).zip(squares.iter());
        let step_norm = norm(each.map(|((w, m), s)| direction(*w, *m, *s)));
        if weight_norm > 0.0 && step_norm > 0.0 {
            ratio = (weight_norm / step_norm) as f32;
        }
    }
    let rate = rate * ratio;
    for ((w, m), s) in weights.iter_mut().zip(mean.iter()).zip(squares.iter()) {
        *w -= rate * direction(*w, *m, *s);
    }
}
