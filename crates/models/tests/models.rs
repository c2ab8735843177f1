//! What every model of the registry owes its callers: true gradients, the same result for any
//! split of a batch, any number of threads and either form of pixels, and errors for bad batches.

#![allow(clippy::unwrap_used)] // a test

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{
    Model, ModelError, ModelOptions, PixelScale, Score, StepContext, StepLoss,
    registry::{self, ModelEntry},
};

/// The smallest images a model takes, so that the tests stay fast.
fn schema(entry: &ModelEntry) -> Schema {
    let side = match entry.name {
        "softmax" => 9,
        "lenet" => 28,
        "alexnet" => 63,
        "resnet-20" => 12,
        _ => 32,
    };
    let channels = if matches!(entry.name, "softmax" | "lenet") { 1 } else { 3 };
    let names = (0..7).map(|class| format!("class {class}")).collect();
    Schema {
        features: FeatureKind::Image(ImageShape { height: side, width: side, channels }),
        labels: LabelKind::Classes { names },
    }
}

fn build(entry: &ModelEntry, threads: usize) -> Box<dyn Model> {
    let options = ModelOptions { threads, dropout: Some(0.0), ..ModelOptions::default() };
    (entry.build)(&schema(entry), &options).unwrap()
}

fn bytes(entry: &ModelEntry, examples: usize) -> Batch {
    let FeatureKind::Image(image) = schema(entry).features else { unreachable!() };
    let mut state = 7u32;
    let values = (0..image.len() * examples)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    Batch {
        features: Features::Pixels { values, width: image.len() },
        labels: (0..examples as u32).map(|example| example * 5 % 7).collect(),
    }
}

fn slice(batch: &Batch, from: usize, to: usize) -> Batch {
    let Features::Pixels { values, width } = &batch.features else { unreachable!() };
    Batch {
        features: Features::Pixels {
            values: values[from * width..to * width].to_vec(),
            width: *width,
        },
        labels: batch.labels[from..to].to_vec(),
    }
}

fn floats(batch: &Batch) -> Batch {
    let Features::Pixels { values, width } = &batch.features else { unreachable!() };
    Batch {
        features: Features::Dense {
            values: values.iter().map(|&byte| f32::from(byte) / 255.0).collect(),
            width: *width,
        },
        labels: batch.labels.clone(),
    }
}

fn step(model: &mut dyn Model, params: &[f32], batch: &Batch, scale: f32) -> (Vec<f32>, StepLoss) {
    let mut params = params.to_vec();
    let mut grad = vec![f32::NAN; params.len()];
    let context = StepContext { seed: 1, step: 0, first_example: 0, scale, keeps_gradient: true };
    let mut covered = vec![false; params.len()];
    let mut last_start = usize::MAX;
    let loss = model
        .loss_and_grad(&mut params, batch, &context, &mut grad, &mut |range, params, grad| {
            assert_eq!((params.len(), grad.len()), (range.len(), range.len()));
            assert!(grad.iter().all(|value| value.is_finite()), "reported before it was final");
            assert!(covered[range.clone()].iter().all(|&seen| !seen), "reported twice");
            covered[range.clone()].fill(true);
            last_start = range.start;
        })
        .unwrap();
    assert!(covered.iter().all(|&seen| seen), "part of the gradient was never reported");
    (grad, loss)
}

/// Models without batch statistics, whose examples do not see each other.
fn models() -> impl Iterator<Item = &'static &'static ModelEntry> {
    registry::ALL.iter().filter(|entry| !["mobilenet-v2", "resnet-20"].contains(&entry.name))
}

fn assert_close(found: &[f32], wanted: &[f32], tolerance: f32, what: &str) {
    let size = wanted.iter().fold(0f32, |size, value| size.max(value.abs()));
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (found - wanted).abs();
        assert!(error <= tolerance * size, "{what}: element {at} is {found}, not {wanted}");
    }
}

#[test]
fn a_gradient_that_need_not_stay_is_the_same() {
    for (entry, threads) in models().flat_map(|entry| [(entry, 1), (entry, 2)]) {
        let mut model = build(entry, threads);
        let batch = bytes(entry, 3);
        let mut before = vec![0.0; model.layout().len()];
        model.init(3, &mut before);
        let mut after = |keeps_gradient| {
            let mut params = before.clone();
            let mut grad = vec![0.0; params.len()];
            let context =
                StepContext { seed: 1, step: 0, first_example: 0, scale: 0.3, keeps_gradient };
            let mut reported = 0;
            let mut update =
                |range: std::ops::Range<usize>, params: &mut [f32], grad: &mut [f32]| {
                    reported += range.len();
                    assert_eq!(params, &before[range], "the place of these weights");
                    params.iter_mut().zip(grad).for_each(|(param, grad)| *param -= 0.1 * *grad);
                };
            model.loss_and_grad(&mut params, &batch, &context, &mut grad, &mut update).unwrap();
            assert_eq!(reported, params.len());
            params
        };
        assert!(after(true) == after(false), "{} on {threads} threads", entry.name);
    }
}

#[test]
fn gradients_agree_with_differences_of_the_loss() {
    for entry in models() {
        let mut model = build(entry, 2);
        let batch = bytes(entry, 3);
        let mut params = vec![0.0; model.layout().len()];
        model.init(3, &mut params);
        let (grad, _) = step(&mut *model, &params, &batch, 1.0);
        for parameter in model.layout().clone().entries() {
            let range = parameter.range();
            // Along the gradient itself: the derivative is its squared norm.
            let slope: f64 = grad[range.clone()].iter().map(|&g| f64::from(g) * f64::from(g)).sum();
            let reach = (4e-4 / slope.sqrt()) as f32; // small against most kinks of relu
            let mut loss_at = |sign: f32| {
                let mut moved = params.clone();
                for at in range.clone() {
                    moved[at] += sign * reach * grad[at] / slope.sqrt().max(1e-9) as f32;
                }
                let mut score = Score::default();
                model.score(&moved, &batch, &mut score).unwrap();
                score.total.loss_sum
            };
            let found = (loss_at(1.0) - loss_at(-1.0)) / f64::from(2.0 * reach);
            let wanted = slope.sqrt();
            assert!(
                (found - wanted).abs() <= 0.15 * wanted + 1e-4,
                "{} {}: differences say {found}, the gradient {wanted}",
                entry.name,
                parameter.name
            );
        }
    }
}

#[test]
fn parts_of_a_batch_add_up_to_the_whole() {
    for entry in models() {
        let mut model = build(entry, 2);
        let batch = bytes(entry, 5);
        let mut params = vec![0.0; model.layout().len()];
        model.init(4, &mut params);
        let (whole, loss) = step(&mut *model, &params, &batch, 0.2);
        let (mut sum, first) = step(&mut *model, &params, &slice(&batch, 0, 2), 0.2);
        let (rest, second) = step(&mut *model, &params, &slice(&batch, 2, 5), 0.2);
        sum.iter_mut().zip(&rest).for_each(|(sum, rest)| *sum += rest);
        assert_close(&sum, &whole, 1e-5, entry.name);
        assert!((first.loss_sum + second.loss_sum - loss.loss_sum).abs() < 1e-4, "{}", entry.name);
        assert_eq!(loss.examples, 5);
    }
}

#[test]
fn threads_and_form_of_pixels_change_rounding_only_and_repeats_nothing() {
    for entry in models() {
        let batch = bytes(entry, 4);
        let mut model = build(entry, 1);
        let mut params = vec![0.0; model.layout().len()];
        model.init(5, &mut params);
        let (alone, _) = step(&mut *model, &params, &batch, 0.25);
        let mut two = build(entry, 2);
        let (shared, _) = step(&mut *two, &params, &batch, 0.25);
        let (again, _) = step(&mut *two, &params, &batch, 0.25);
        assert!(
            shared.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()),
            "{}",
            entry.name
        );
        assert_close(&shared, &alone, 1e-5, entry.name);
        let (from_floats, _) = step(&mut *two, &params, &floats(&batch), 0.25);
        assert_close(&from_floats, &alone, 1e-5, entry.name);
    }
}

#[test]
fn initial_weights_follow_from_the_seed() {
    for entry in models() {
        let model = build(entry, 1);
        let draw = |seed| {
            let mut params = vec![f32::NAN; model.layout().len()];
            model.init(seed, &mut params);
            params
        };
        let params = draw(1);
        assert!(params.iter().all(|value| value.is_finite()));
        assert_eq!(params, draw(1));
        assert_ne!(params, draw(2));
    }
}

#[test]
fn bad_batches_and_schemas_are_refused() {
    for entry in &registry::ALL {
        let mut model = build(entry, 1);
        let mut params = vec![0.0; model.layout().len()];
        model.init(1, &mut params);
        let mut batch = bytes(entry, 2);
        batch.labels[1] = 7;
        let error = model.score(&params, &batch, &mut Score::default()).unwrap_err();
        assert_eq!(error, ModelError::Label { example: 1, label: 7, classes: 7 });
        let error = model.score(&params, &Batch::sparse(), &mut Score::default()).unwrap_err();
        assert!(matches!(error, ModelError::Mismatch { .. }), "{error}");
        let sparse =
            Schema { features: FeatureKind::Sparse { width: 9 }, labels: LabelKind::Binary };
        assert!((entry.build)(&sparse, &ModelOptions::default()).is_err(), "{}", entry.name);
        let none = Schema { labels: LabelKind::Classes { names: vec![] }, ..schema(entry) };
        assert!((entry.build)(&none, &ModelOptions::default()).is_err(), "{}", entry.name);
    }
}

/// With the head alone to train, all other gradients are zero and statistics stay. The head's gradient is what it was,
/// except above batch normalisation: a frozen trunk uses its statistics and not those of the batch.
#[test]
fn frozen_layers_have_no_gradient_and_the_head_its_own() {
    for entry in registry::ALL.iter().filter(|entry| entry.name != "sparse_logistic") {
        let batch = bytes(entry, 4);
        let mut whole = build(entry, 2);
        let options = ModelOptions {
            threads: 2,
            dropout: Some(0.0),
            head_only: true,
            ..ModelOptions::default()
        };
        let mut frozen = (entry.build)(&schema(entry), &options).unwrap();
        let mut params = vec![0.0; whole.layout().len()];
        whole.init(3, &mut params);
        let (wanted, _) = step(&mut *whole, &params, &batch, 0.25);
        let (found, _) = step(&mut *frozen, &params, &batch, 0.25);
        let layout = whole.layout();
        let normalises = layout.entries().iter().any(|entry| !entry.trained);
        let last = layout.entries().iter().rev().find(|entry| entry.trained).unwrap();
        let head = last.name.rsplit_once('.').map_or("", |(layer, _)| layer);
        for tensor in layout.entries() {
            let (found, wanted) = (&found[tensor.range()], &wanted[tensor.range()]);
            let what = format!("{} {}", entry.name, tensor.name);
            let in_head = tensor.name.rsplit_once('.').map_or("", |(layer, _)| layer) == head;
            if in_head && normalises {
                assert!(found.iter().any(|&value| value != 0.0), "{what} is trained");
            } else if in_head {
                assert_eq!(found, wanted, "{what}");
            } else {
                assert!(found.iter().all(|&value| value == 0.0), "{what} is frozen");
            }
        }
    }
}

/// Scaling inside the model equals scaling before it; models without such weights refuse.
#[test]
fn pixels_are_scaled_as_imagenet_weights_expect() {
    let (mean, deviation) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    for entry in registry::ALL.iter().filter(|entry| entry.name != "sparse_logistic") {
        let options = ModelOptions {
            threads: 2,
            dropout: Some(0.0),
            pixels: PixelScale::Imagenet,
            ..ModelOptions::default()
        };
        let scaled = (entry.build)(&schema(entry), &options);
        if matches!(entry.name, "softmax" | "lenet") {
            assert!(matches!(scaled, Err(ModelError::Option { .. })), "{}", entry.name);
            continue;
        }
        let mut grey = schema(entry);
        let FeatureKind::Image(image) = &mut grey.features else { unreachable!() };
        image.channels = 1;
        let error = (entry.build)(&grey, &options).err().unwrap();
        assert!(error.to_string().contains("red, green and blue"), "{error}");
        let mut scaled = scaled.unwrap();
        let batch = bytes(entry, 3);
        let mut by_hand = floats(&batch);
        let Features::Dense { values, .. } = &mut by_hand.features else { unreachable!() };
        for (at, value) in values.iter_mut().enumerate() {
            *value = (*value - mean[at % 3]) / deviation[at % 3];
        }
        let mut plain = build(entry, 2);
        let mut params = vec![0.0; plain.layout().len()];
        plain.init(3, &mut params);
        for (one, other) in [(&batch, &by_hand), (&floats(&batch), &by_hand)] {
            let (mut a, mut b) = (Score::default(), Score::default());
            scaled.score(&params, one, &mut a).unwrap();
            plain.score(&params, other, &mut b).unwrap();
            let error = (a.total.loss_sum - b.total.loss_sum).abs() / b.total.loss_sum;
            assert!(error < 1e-5, "{}: {a:?} {b:?}", entry.name);
            if ["mobilenet-v2", "resnet-20"].contains(&entry.name) {
                continue; // statistics of three images of one pixel make much of rounding
            }
            let (found, wanted) =
                (step(&mut *scaled, &params, one, 0.3).1, step(&mut *plain, &params, other, 0.3).1);
            let error = (found.loss_sum - wanted.loss_sum).abs() / wanted.loss_sum;
            assert!(error < 1e-4, "{}: {found:?} {wanted:?}", entry.name);
        }
    }
}

/// Every model says where its time goes.
#[test]
fn every_model_times_its_layers() {
    for entry in registry::ALL.iter().filter(|entry| entry.name != "sparse_logistic") {
        let mut model = build(entry, 1);
        let mut params = vec![0.0; model.layout().len()];
        model.init(3, &mut params);
        model.profile().unwrap().set(true);
        step(&mut *model, &params, &bytes(entry, 2), 0.5);
        let layers = model.profile().unwrap().layers().to_vec();
        let flops: f64 = layers.iter().map(|time| time.flops).sum();
        let forward: usize = model.shapes().iter().map(|shape| 2 * shape.flops).sum();
        // Forward once, backward at most twice.
        let forward = forward as f64;
        assert!(
            (2.0 * forward..=3.0 * forward).contains(&flops),
            "{}: {flops} {forward}",
            entry.name
        );
        assert!(layers.iter().all(|time| time.calls >= 1), "{layers:?}");
    }
}
