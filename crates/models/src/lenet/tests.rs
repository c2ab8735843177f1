//! Both forms of the model are the same function, and the settings change what they say.

use super::*;
use crate::{
    model::{Score, StepContext},
    random,
};
use paceline_batch::{Batch, FeatureKind, Features, LabelKind};

fn image(side: usize, channels: usize) -> ImageShape {
    ImageShape { height: side, width: side, channels }
}

fn schema(image: ImageShape) -> Schema {
    let names = (0..5).map(|class| class.to_string()).collect();
    Schema { features: FeatureKind::Image(image), labels: LabelKind::Classes { names } }
}

fn batch(image: ImageShape, examples: usize) -> Batch {
    let width = image.len();
    let values = (0..width * examples).map(|at| (random::mix(at as u64) >> 56) as u8).collect();
    let labels = (0..examples as u32).map(|example| example * 3 % 5).collect();
    Batch { features: Features::Pixels { values, width }, labels }
}

/// Loss and gradient.
fn step(model: &mut dyn Model, params: &[f32], batch: &Batch) -> (f64, Vec<f32>) {
    let mut params = params.to_vec();
    let mut grad = vec![f32::NAN; params.len()];
    let context =
        StepContext { seed: 1, step: 0, first_example: 0, scale: 1.0, keeps_gradient: true };
    let mut seen = 0;
    let loss = model
        .loss_and_grad(&mut params, batch, &context, &mut grad, &mut |range, _, _| {
            seen += range.len();
        })
        .unwrap();
    assert_eq!(seen, grad.len());
    (loss.loss_sum, grad)
}

#[test]
fn the_general_form_is_the_published_one_where_both_can_be_had() {
    let shape = image(SIDE, 1);
    for head_only in [false, true] {
        let options = ModelOptions { threads: 2, head_only, ..ModelOptions::default() };
        let mut fast = build(&schema(shape), &options).unwrap();
        let (shapes, mut layout) = (shapes(shape, PAD, 5), Layout::default());
        let at = layout.push_layers(LAYERS, |number| shapes.weights(number));
        let network = General::new(shapes, Activation::Relu, at);
        let mut general =
            ImageModel::new(ENTRY.name, (shape, 5), &options, layout, network).unwrap();
        assert_eq!(fast.layout(), general.layout());
        assert_eq!(fast.shapes(), general.shapes());
        let mut params = vec![0.0; fast.layout().len()];
        fast.init(3, &mut params);
        let batch = batch(shape, 5);
        let (wanted, wanted_grad) = step(&mut *fast, &params, &batch);
        let (found, found_grad) = step(&mut general, &params, &batch);
        assert!((found - wanted).abs() < 1e-4 * wanted, "{found} {wanted}");
        let size = wanted_grad.iter().fold(0f32, |size, value| size.max(value.abs()));
        for (at, (found, wanted)) in found_grad.iter().zip(&wanted_grad).enumerate() {
            assert!((found - wanted).abs() <= 1e-5 * size, "{at}: {found} {wanted}");
        }
    }
}

#[test]
fn gradients_of_every_setting_agree_with_differences_of_the_loss() {
    for (side, channels, pad, activation) in [
        (SIDE, 1, 0, Activation::Relu),
        (SIDE, 1, 2, Activation::Tanh),
        (SIDE, 1, 0, Activation::Tanh),
        (33, 3, 2, Activation::Relu),
        (32, 3, 0, Activation::Tanh),
        (12, 1, 2, Activation::Relu),
        (16, 2, 0, Activation::Tanh),
    ] {
        let shape = image(side, channels);
        let options =
            ModelOptions { threads: 2, pad: Some(pad), activation, ..ModelOptions::default() };
        let mut model = build(&schema(shape), &options).unwrap();
        let mut params = vec![0.0; model.layout().len()];
        model.init(3, &mut params);
        let batch = batch(shape, 3);
        let (_, grad) = step(&mut *model, &params, &batch);
        for entry in model.layout().clone().entries() {
            let norm: f64 = grad[entry.range()]
                .iter()
                .map(|&g| f64::from(g) * f64::from(g))
                .sum::<f64>()
                .sqrt();
            // Where a kink of relu spoils one step, a smaller one does without it.
            let errors = [4e-4, 1e-4].map(|share| {
                let reach = share / norm.max(1e-3);
                let mut loss_at = |sign: f64| {
                    let mut moved = params.clone();
                    for at in entry.range() {
                        moved[at] += (sign * reach * f64::from(grad[at]) / norm.max(1e-9)) as f32;
                    }
                    let mut score = Score::default();
                    model.score(&moved, &batch, &mut score).unwrap();
                    score.total.loss_sum
                };
                ((loss_at(1.0) - loss_at(-1.0)) / (2.0 * reach) - norm).abs()
            });
            assert!(
                errors[0].min(errors[1]) <= 0.15 * norm + 1e-3,
                "{side} {channels} {pad} {activation:?} {}: {errors:?} {norm}",
                entry.name
            );
        }
    }
}

#[test]
fn images_that_are_too_small_and_frames_that_are_too_wide_are_refused() {
    let with = |side, pad| {
        let options = ModelOptions { pad, ..ModelOptions::default() };
        build(&schema(image(side, 1)), &options).err().map(|error| error.to_string())
    };
    assert_eq!(with(12, None), None);
    assert!(with(11, None).is_some_and(|said| said.contains("at least 12x12")));
    assert!(with(15, Some(0)).is_some_and(|said| said.contains("at least 16x16")));
    assert!(with(28, Some(5)).is_some_and(|said| said.contains("0 to 4")));
}
