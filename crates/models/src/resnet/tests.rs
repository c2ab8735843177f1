//! The whole network: shapes, gradients, statistics.

use super::*;
use crate::{
    model::{Score, StepContext, StepLoss},
    random::fill_uniform,
};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind};

const IMAGE: ImageShape = ImageShape { height: 13, width: 10, channels: 3 };

fn model(threads: usize, head_only: bool) -> Box<dyn Model> {
    let names = (0..4).map(|class| class.to_string()).collect();
    let schema =
        Schema { features: FeatureKind::Image(IMAGE), labels: LabelKind::Classes { names } };
    let options = ModelOptions { threads, head_only, ..ModelOptions::default() };
    build(&schema, &options).unwrap()
}

fn batch(examples: usize) -> Batch {
    let width = IMAGE.len();
    let mut values = vec![0.0; examples * width];
    fill_uniform(3, 0, 0.5, &mut values);
    values.iter_mut().for_each(|value| *value += 0.5);
    let labels = (0..examples as u32).map(|example| example % 4).collect();
    Batch { features: Features::Dense { values, width }, labels }
}

fn step(model: &mut dyn Model, batch: &Batch, scale: f32) -> (StepLoss, Vec<f32>) {
    let mut params = vec![0.0; model.layout().len()];
    model.init(11, &mut params);
    let mut grad = vec![f32::NAN; params.len()];
    let context = StepContext { seed: 4, step: 7, first_example: 0, scale, keeps_gradient: true };
    let loss =
        model.loss_and_grad(&mut params, batch, &context, &mut grad, &mut |_, _, _| {}).unwrap();
    (loss, grad)
}

#[test]
fn it_has_the_published_number_of_weights() {
    let names = (0..10).map(|class| class.to_string()).collect();
    let image = ImageShape { height: 32, width: 32, channels: 3 };
    let (layers, _) = Layers::new(image, 10);
    let schema =
        Schema { features: FeatureKind::Image(image), labels: LabelKind::Classes { names } };
    let model = build(&schema, &ModelOptions::default()).unwrap();
    let trained = model.layout().entries().iter().filter(|entry| entry.trained);
    // 0.27 million in the paper; 269,722 by every implementation whose ways around have no weights.
    assert_eq!(trained.map(crate::LayoutEntry::len).sum::<usize>(), 269_722);
    assert_eq!(layers.convs.len(), 19);
    let last = layers.convs.last().unwrap().conv;
    assert_eq!((last.out_height(), last.out_width(), last.outputs), (8, 8, 64));
}

#[test]
fn threads_change_rounding_only_and_repeats_nothing() {
    let (wanted, alone) = step(&mut *model(1, false), &batch(5), 0.2);
    let mut two = model(2, false);
    let (loss, shared) = step(&mut *two, &batch(5), 0.2);
    assert!((loss.loss_sum - wanted.loss_sum).abs() < 1e-5);
    let size = alone.iter().fold(0f32, |size, value| size.max(value.abs()));
    assert!(alone.iter().zip(&shared).all(|(a, b)| (a - b).abs() < 1e-3 * size));
    step(&mut *two, &batch(2), 0.5);
    assert_eq!(step(&mut *two, &batch(5), 0.2), (loss, shared), "a smaller batch in between");
}

#[test]
fn changes_of_statistics_are_weighted_by_examples_and_frozen_ones_stay() {
    let mut whole = model(1, false);
    let (_, alone) = step(&mut *whole, &batch(2), 1.0 / 2.0);
    let (_, of_eight) = step(&mut *whole, &batch(2), 1.0 / 8.0);
    let range = whole.layout().get("layer2.0.bn1.running_var").unwrap().range();
    for at in range.clone() {
        assert!((alone[at] * 0.25 - of_eight[at]).abs() <= 1e-6 * alone[at].abs(), "{at}");
    }
    let (_, frozen) = step(&mut *model(1, true), &batch(2), 0.5);
    assert!(frozen[range].iter().all(|&change| change == 0.0));
    let head = whole.layout().get("fc.weight").unwrap().range();
    assert!(frozen[..head.start].iter().all(|&value| value == 0.0));
    assert!(frozen[head].iter().any(|&value| value != 0.0));
}

#[test]
fn evaluation_in_pieces_equals_evaluation_at_once() {
    let mut model = model(2, false);
    let mut params = vec![0.0; model.layout().len()];
    model.init(2, &mut params);
    let examples = ResNet::SCORE_IMAGES + 3;
    let mut pieces = Score { confusion: vec![0; 16], ..Score::default() };
    model.score(&params, &batch(examples), &mut pieces).unwrap();
    assert_eq!(pieces.confusion.iter().sum::<u64>(), examples as u64);
    step(&mut *model, &batch(examples), 0.1);
    let mut whole = Score::default();
    model.score(&params, &batch(examples), &mut whole).unwrap();
    assert!((pieces.total.loss_sum - whole.total.loss_sum).abs() < 1e-4);
}

#[test]
fn a_diverged_run_shows_in_the_loss_and_small_images_are_refused() {
    let mut bad = batch(2);
    let Features::Dense { values, .. } = &mut bad.features else { unreachable!() };
    values[100] = f32::NAN;
    assert!(step(&mut *model(1, false), &bad, 0.5).0.loss_sum.is_nan());
    let image = ImageShape { height: 7, width: 32, channels: 3 };
    let names = vec!["a".to_owned(), "b".to_owned()];
    let schema =
        Schema { features: FeatureKind::Image(image), labels: LabelKind::Classes { names } };
    let error = build(&schema, &ModelOptions::default()).err().unwrap();
    assert!(error.to_string().contains("at least 8x8"), "{error}");
}
