//! Gradients of every model and tensor against finite differences of its own loss.
//!
//! In f32 a difference quotient is good to percents: the loss is rounded, and kinks of relu lie
//! within any step. That finds wrong formulas and forgotten terms; digits are PyTorch's part.

use crate::formula::uniform;
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{Model, ModelOptions, StepContext, registry};

/// The smallest data a model takes.
fn schema(model: &str) -> Schema {
    let (side, channels) = match model {
        "lenet" => (28, 1),
        "alexnet" => (64, 3),
        "mobilenet-v2" => (40, 3),
        "resnet-20" => (13, 3),
        _ => (9, 2),
    };
    Schema {
        features: FeatureKind::Image(ImageShape { height: side, width: side, channels }),
        labels: LabelKind::Classes { names: (0..4).map(|class| class.to_string()).collect() },
    }
}

fn loss(model: &mut dyn Model, params: &mut [f32], batch: &Batch, grad: &mut [f32]) -> f64 {
    let context =
        StepContext { seed: 3, step: 2, first_example: 0, scale: 1.0, keeps_gradient: true };
    model.loss_and_grad(params, batch, &context, grad, &mut |_, _, _| {}).unwrap().loss_sum
}

/// Moves along the gradient and some noise, so that the loss changes by more than its rounding.
fn direction(name: &str, grad: &[f32]) -> Vec<f32> {
    let norm = |values: &[f32]| values.iter().map(|v| f64::from(v * v)).sum::<f64>().sqrt() as f32;
    let noise: Vec<f32> = uniform(name, grad.len()).collect();
    let (by_grad, by_noise) = (1.0 / norm(grad), 0.5 / norm(&noise));
    grad.iter().zip(&noise).map(|(g, n)| g * by_grad + n * by_noise).collect()
}

fn check(model: &mut dyn Model, name: &str, batch: &Batch) {
    let entries = model.layout().entries().to_vec();
    let mut params = vec![0.0; model.layout().len()];
    model.init(5, &mut params);
    // Away from zero biases and equal norms, where mistakes hide.
    for (value, noise) in params.iter_mut().zip(uniform("away", usize::MAX)) {
        *value += 0.02 * noise;
    }
    let mut grad = vec![0.0; params.len()];
    let start = loss(model, &mut params, batch, &mut grad);
    let mut scratch = vec![0.0; params.len()];
    let largest = entries
        .iter()
        .filter(|entry| entry.trained)
        .map(|entry| grad[entry.range()].iter().map(|v| f64::from(v * v)).sum::<f64>().sqrt());
    let largest = largest.fold(0.0, f64::max);
    for entry in entries.iter().filter(|entry| entry.trained) {
        let slope_of = |way: &[f32]| -> f64 {
            grad[entry.range()].iter().zip(way).map(|(g, d)| f64::from(g * d)).sum()
        };
        let way = direction(&entry.name, &grad[entry.range()]);
        let slope = slope_of(&way);
        if slope < 1e-4 * largest {
            continue; // nothing by nature: a bias before a batch norm
        }
        // The loss should move by about a thousandth; where a kink spoils one step, try a smaller one.
        let mut best = f64::INFINITY;
        for share in [3e-3, 1e-3, 3e-4] {
            let step = share * start / slope;
            let mut at = |by: f64| {
                let mut moved = params.clone();
                for (value, d) in moved[entry.range()].iter_mut().zip(&way) {
                    *value += (by * f64::from(*d)) as f32;
                }
                loss(model, &mut moved, batch, &mut scratch)
            };
            let found = (at(step) - at(-step)) / (2.0 * step);
            best = best.min((found - slope).abs() / slope);
        }
        assert!(best < 0.05, "{name} {}: off by {:.1} %", entry.name, best * 100.0);
    }
}

#[test]
fn gradients_match_finite_differences() {
    for entry in registry::ALL.iter().filter(|entry| entry.name != "sparse_logistic") {
        let schema = schema(entry.name);
        let options =
            ModelOptions { threads: 2, width: 0.35, dropout: Some(0.2), ..ModelOptions::default() };
        let mut model = (entry.build)(&schema, &options)
            .unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let FeatureKind::Image(image) = schema.features else { unreachable!() };
        let width = image.len();
        let batch = Batch {
            features: Features::Dense {
                values: uniform("pixels", 3 * width).map(|value| value * 0.5 + 0.5).collect(),
                width,
            },
            labels: vec![2, 0, 3],
        };
        check(&mut *model, entry.name, &batch);
    }
}
