//! The whole network: shapes, gradients, statistics.

use super::*;
use crate::{
    kernels::Isa,
    model::{Score, StepContext, StepLoss},
    random::fill_uniform,
};
use paceline_batch::{Batch, FeatureKind, Features, LabelKind};

fn schema(side: usize, channels: usize, classes: usize) -> Schema {
    Schema {
        features: FeatureKind::Image(ImageShape { height: side, width: side + 5, channels }),
        labels: LabelKind::Classes { names: (0..classes).map(|i| i.to_string()).collect() },
    }
}

fn model(isa: Isa, threads: usize, width: f32, dropout: f32) -> ImageModel<MobileNetV2> {
    let image = ImageShape { height: 41, width: 46, channels: 3 };
    let options = ModelOptions { width, dropout: Some(dropout), ..ModelOptions::default() };
    let mut model = super::model((image, 3), &options).unwrap();
    model.core.compute = Compute::with_isa(isa, threads);
    model
}

fn batch(examples: usize) -> Batch {
    let width = 41 * 46 * 3;
    let mut values = vec![0.0; examples * width];
    fill_uniform(3, 0, 0.5, &mut values);
    values.iter_mut().for_each(|value| *value += 0.5);
    Batch {
        features: Features::Dense { values, width },
        labels: (0..examples as u32).map(|i| i % 3).collect(),
    }
}

/// Loss and gradient of a model with initial weights.
fn step(model: &mut dyn Model, batch: &Batch, scale: f32) -> (StepLoss, Vec<f32>) {
    let mut params = vec![0.0; model.layout().len()];
    model.init(11, &mut params);
    let mut grad = vec![f32::NAN; params.len()];
    let context = StepContext { seed: 4, step: 7, first_example: 0, scale, keeps_gradient: true };
    let loss =
        model.loss_and_grad(&mut params, batch, &context, &mut grad, &mut |_, _, _| {}).unwrap();
    (loss, grad)
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: &mut dyn Iterator<Item = f64>| x.map(|v| v * v).sum::<f64>().sqrt();
    square(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)))
        / square(&mut b.iter().map(|&b| f64::from(b)))
}

#[test]
fn instruction_sets_agree_to_rounding() {
    // 0.75 makes channels that end inside a vector.
    for width in [0.35, 0.75] {
        let batch = batch(3);
        let (wanted, grad) =
            step(&mut model(Isa::named("portable").unwrap(), 1, width, 0.2), &batch, 0.3);
        for isa in Isa::available() {
            for threads in [1, 3] {
                let (loss, found) = step(&mut model(isa, threads, width, 0.2), &batch, 0.3);
                let name = format!("{} {threads} {width}", isa.name());
                assert!((loss.loss_sum - wanted.loss_sum).abs() < 1e-4, "{name}");
                // Kinks of relu6 let rounding grow; a wrong remainder would be far larger.
                let error = distance(&found, &grad);
                assert!(error < 0.02, "{name}: {error}");
            }
        }
    }
}

#[test]
fn the_same_threads_give_the_same_bits() {
    let isa = *Isa::available().last().unwrap();
    let mut first = model(isa, 2, 0.35, 0.2);
    let wanted = step(&mut first, &batch(5), 0.2);
    for _ in 0..3 {
        assert_eq!(step(&mut first, &batch(5), 0.2), wanted);
    }
    // Another batch size in between leaves nothing behind.
    step(&mut first, &batch(2), 0.5);
    assert_eq!(step(&mut first, &batch(5), 0.2), wanted);
    assert_eq!(step(&mut model(isa, 2, 0.35, 0.2), &batch(5), 0.2), wanted);
}

#[test]
fn changes_of_statistics_are_weighted_by_examples() {
    let isa = *Isa::available().last().unwrap();
    let mut model = model(isa, 1, 0.35, 0.0);
    let (_, alone) = step(&mut model, &batch(2), 1.0 / 2.0);
    let (_, of_eight) = step(&mut model, &batch(2), 1.0 / 8.0);
    let entry = model.layout().get("features.0.1.running_var").unwrap().range();
    for at in entry {
        assert!((alone[at] * 0.25 - of_eight[at]).abs() <= 1e-6 * alone[at].abs(), "{at}");
    }
}

#[test]
fn evaluation_in_pieces_equals_evaluation_at_once() {
    let isa = *Isa::available().last().unwrap();
    let mut model = model(isa, 2, 0.35, 0.5);
    let mut params = vec![0.0; model.layout().len()];
    model.init(2, &mut params);
    let examples = MobileNetV2::SCORE_IMAGES + 3;
    let mut whole = Score { confusion: vec![0; 9], ..Score::default() };
    model.score(&params, &batch(examples), &mut whole).unwrap();
    assert_eq!(whole.total.examples, examples as u64);
    assert_eq!(whole.confusion.iter().sum::<u64>(), examples as u64);
    let ImageModel { core, network } = &mut model;
    network.reserve(core, examples, false);
    let mut again = Score::default();
    model.score(&params, &batch(examples), &mut again).unwrap();
    assert!((whole.total.loss_sum - again.total.loss_sum).abs() < 1e-5);
}

#[test]
fn bytes_and_floats_are_the_same_images() {
    let isa = *Isa::available().last().unwrap();
    let width = 41 * 46 * 3;
    let bytes: Vec<u8> = (0..2 * width).map(|i| (i * 37 % 256) as u8).collect();
    let floats = bytes.iter().map(|&byte| f32::from(byte) * BYTE).collect();
    let labels = vec![1, 2];
    let pixels =
        Batch { features: Features::Pixels { values: bytes, width }, labels: labels.clone() };
    let dense = Batch { features: Features::Dense { values: floats, width }, labels };
    let mut model = model(isa, 1, 0.35, 0.0);
    assert_eq!(step(&mut model, &pixels, 0.5), step(&mut model, &dense, 0.5));
}

#[test]
fn a_diverged_run_shows_in_the_loss() {
    let isa = *Isa::available().last().unwrap();
    let mut model = model(isa, 1, 0.35, 0.0);
    let mut bad = batch(2);
    let Features::Dense { values, .. } = &mut bad.features else { unreachable!() };
    values[100] = f32::NAN;
    assert!(step(&mut model, &bad, 0.5).0.loss_sum.is_nan());
}

#[test]
fn what_does_not_fit_is_named() {
    let options = ModelOptions { dropout: Some(0.2), ..ModelOptions::default() };
    let error =
        |schema: &Schema, options: &ModelOptions| build(schema, options).err().unwrap().to_string();
    assert!(error(&schema(28, 1, 10), &options).contains("28x33x1"));
    assert!(error(&schema(32, 3, 0), &options).contains("at least 2 classes"));
    let sparse = Schema { features: FeatureKind::Sparse { width: 9 }, labels: LabelKind::Binary };
    assert!(error(&sparse, &options).contains("sparse"));
    let wide = ModelOptions { width: f32::NAN, ..options.clone() };
    assert!(error(&schema(32, 3, 2), &wide).contains("width"));
    let dropped = ModelOptions { dropout: Some(1.0), ..options };
    assert!(error(&schema(32, 3, 2), &dropped).contains("dropout"));

    let isa = *Isa::available().last().unwrap();
    let mut model = model(isa, 1, 0.35, 0.0);
    let mut bad = batch(2);
    bad.labels[1] = 3;
    let error = model.score(&vec![0.0; model.layout().len()], &bad, &mut Score::default());
    assert_eq!(error, Err(ModelError::Label { example: 1, label: 3, classes: 3 }));
    bad.labels.pop();
    assert!(model.score(&vec![0.0; model.layout().len()], &bad, &mut Score::default()).is_err());
}

/// What `--freeze` trains must not hang on which images share a batch.
#[test]
fn a_frozen_trunk_gives_the_same_features_whatever_the_batch_size() {
    let isa = *Isa::available().last().unwrap();
    let mut model = model(isa, 2, 0.35, 0.0);
    model.core.head_only = true;
    let whole = batch(6);
    let part = |from: usize, to: usize| {
        let Features::Dense { values, width } = &whole.features else { unreachable!() };
        let values = values[from * width..to * width].to_vec();
        let labels = whole.labels[from..to].to_vec();
        Batch { features: Features::Dense { values, width: *width }, labels }
    };
    let head = model.layout().get("classifier.1.weight").unwrap().offset;
    let (loss, grad) = step(&mut model, &whole, 1.0);
    assert!(grad[..head].iter().all(|value| *value == 0.0), "nothing of the trunk changes");
    let mut sum = vec![0.0; grad.len()];
    let mut parts = 0.0;
    for (from, to) in [(0, 1), (1, 3), (3, 6)] {
        let (loss, grad) = step(&mut model, &part(from, to), 1.0);
        parts += loss.loss_sum;
        sum.iter_mut().zip(&grad).for_each(|(sum, value)| *sum += value);
    }
    assert!((loss.loss_sum - parts).abs() < 1e-5, "{} {parts}", loss.loss_sum);
    assert!(distance(&sum[head..], &grad[head..]) < 1e-5);
}

/// Numbers between -1 and 1 that any program draws alike: from the name of a tensor and the place in it.
fn drawn(name: &str, length: usize) -> Vec<f32> {
    let hash = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(16_777_619);
    let name = name.bytes().fold(2_166_136_261, hash);
    let value = |place: usize| {
        let mut bits = name ^ (place as u32).wrapping_mul(2_654_435_761);
        bits = bits.wrapping_mul(0x9e37_79b1);
        bits = (bits ^ bits >> 15).wrapping_mul(0x85eb_ca77);
        (f64::from(bits >> 8) / f64::from(1 << 24) * 2.0 - 1.0) as f32
    };
    (0..length).map(value).collect()
}

/// With the same weights, the logits of torchvision 0.29's `mobilenet_v2(num_classes=4, width_mult=0.35)` in evaluation mode.
#[test]
fn logits_are_those_of_torchvision() {
    let logits = [-2.656_012_06_f64, -2.312_283_04, 4.822_612_29, -1.688_623_43];
    let image = ImageShape { height: 41, width: 46, channels: 3 };
    let options = ModelOptions { width: 0.35, ..ModelOptions::default() };
    let mut model = super::model((image, 4), &options).unwrap();
    let mut params = vec![0.0; model.layout().len()];
    for entry in model.layout().entries() {
        let (name, fan_in) = (entry.name.as_str(), entry.shape[1..].iter().product::<usize>());
        let (offset, size) = match name.rsplit_once('.').unwrap().1 {
            "running_var" => (1.0, 0.5),
            "running_mean" => (0.0, 0.1),
            "weight" if entry.shape.len() == 1 => (1.0, 0.25),
            "bias" => (0.0, 0.2),
            _ => (0.0, (6.0 / fan_in as f64).sqrt() as f32),
        };
        let values = drawn(name, entry.range().len());
        let values = values.iter().map(|value| offset + size * value);
        params[entry.range()].iter_mut().zip(values).for_each(|(param, value)| *param = value);
    }
    let values = drawn("pixels", 41 * 46 * 3);
    let batch = Batch { features: Features::Dense { values, width: 41 * 46 * 3 }, labels: vec![0] };
    let mut score = Score { probabilities: Some(Vec::new()), ..Score::default() };
    model.score(&params, &batch, &mut score).unwrap();
    let largest = logits[2];
    let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
    for (found, logit) in score.probabilities.unwrap().iter().zip(logits) {
        let wanted = logit - largest - sum.ln();
        assert!((f64::from(*found).ln() - wanted).abs() < 1e-4, "{found} {wanted}");
    }
}
