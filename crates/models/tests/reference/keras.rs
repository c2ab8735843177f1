//! Keras's MobileNet-v2 through its weight files: the same logits on the same images.

use crate::formula::{stored, uniform};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{
    Model, ModelOptions, PixelScale, Score, mobilenet_v2,
    pretrained::{self, Convention},
};
use paceline_testing::hdf5::{Hdf5Node, keras_weights};
use serde_json::Value;
use std::path::Path;

/// Scale and shift of a weight, as `make_keras.py` has them.
fn recipe(name: &str, shape: &[usize]) -> (f32, f32) {
    match name.split('/').nth(1).unwrap() {
        "kernel" => {
            let taps = if name.contains("depthwise") { 2 } else { shape.len() - 1 };
            ((1.5 / shape[..taps].iter().product::<usize>() as f64).sqrt() as f32, 0.0)
        }
        "gamma" => (0.25, 1.0),
        "moving_variance" => (0.25, 0.27),
        _ => (0.1, 0.0),
    }
}

/// The file that Keras would write, with values by formula.
fn keras_file(stored: &Value, counted: bool, head: bool) -> Vec<u8> {
    let values = |name: &str, shape: &[usize]| -> Vec<f32> {
        let (scale, shift) = recipe(name, shape);
        uniform(name, shape.iter().product()).map(|u| u * scale + shift).collect()
    };
    keras_weights(stored, &values, counted, head)
}

fn network(stored: &Value, (height, width): (usize, usize), pixels: PixelScale) -> Box<dyn Model> {
    let classes = stored["classes"].as_u64().unwrap();
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height, width, channels: 3 }),
        labels: LabelKind::Classes { names: (0..classes).map(|class| class.to_string()).collect() },
    };
    let width = stored["alpha"].as_f64().unwrap() as f32;
    let options = ModelOptions { threads: 2, width, pixels, ..ModelOptions::default() };
    (mobilenet_v2::ENTRY.build)(&schema, &options).unwrap()
}

/// Largest difference between our logits and Keras's; of both, the mean of an image's logits is taken away first, because
/// scores tell probabilities.
fn distance(case: &Value, model: &mut dyn Model, params: &[f32]) -> f64 {
    let wanted = case["logits"].as_array().unwrap();
    let side = |name: &str| case[name].as_u64().unwrap() as usize;
    let width = side("height") * side("width") * 3;
    let count = wanted.len() * width;
    let values = uniform("pixels", count).map(|u| ((u + 1.0) * 128.0).floor() as u8).collect();
    let features = Features::Pixels { values, width };
    let batch = Batch { features, labels: vec![0; wanted.len()] };
    let mut score = Score { probabilities: Some(Vec::new()), ..Score::default() };
    model.score(params, &batch, &mut score).unwrap();
    let found = score.probabilities.unwrap();
    let centred = |values: Vec<f64>| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.into_iter().map(move |value| value - mean)
    };
    let images = found.chunks_exact(found.len() / wanted.len()).zip(wanted);
    let far = images.flat_map(|(found, wanted)| {
        let wanted = wanted.as_array().unwrap().iter().map(|logit| logit.as_f64().unwrap());
        let found = found.iter().map(|probability| f64::from(*probability).ln()).collect();
        let pairs = centred(found).zip(centred(wanted.collect()));
        pairs.map(|(found, wanted)| (found - wanted).abs()).collect::<Vec<_>>()
    });
    far.fold(0.0, f64::max)
}

#[test]
fn logits_are_those_of_keras_on_images_of_even_and_odd_sides() {
    let stored = &stored("keras")[0];
    for case in stored["cases"].as_array().unwrap() {
        let side = |name: &str| case[name].as_u64().unwrap() as usize;
        let sides = (side("height"), side("width"));
        for counted in [false, true] {
            let bytes = keras_file(stored, counted, true);
            let bytes = pretrained::in_safetensors(Path::new("m.h5"), bytes).unwrap();
            let mut model = network(stored, sides, PixelScale::Keras);
            let mut params = vec![0.0; model.layout().len()];
            let path = Path::new("m.h5");
            let loaded =
                pretrained::load_bytes("mobilenet-v2", model.layout(), path, &bytes, &mut params);
            let loaded = loaded.unwrap();
            assert_eq!((loaded.convention, loaded.other_head), (Convention::Keras, None));
            assert_eq!(loaded.tensors, stored["weights"].as_array().unwrap().len());
            let far = distance(case, &mut *model, &params);
            assert!(far < 1e-3, "{sides:?}: {far}");
            // The two differences count: without them the logits are others.
            let mut upright = network(stored, sides, PixelScale::Imagenet);
            assert!(distance(case, &mut *upright, &params) > 0.1, "{sides:?}");
            for entry in model.layout().entries() {
                if entry.name.ends_with("running_var") {
                    params[entry.range()].iter_mut().for_each(|variance| *variance -= 1e-3 - 1e-5);
                }
            }
            assert!(distance(case, &mut *model, &params) > 2e-3, "{sides:?}");
        }
    }
}

#[test]
fn a_file_of_keras_without_a_head_leaves_the_models_fresh() {
    let stored = &stored("keras")[0];
    let model = network(stored, (32, 32), PixelScale::Keras);
    for counted in [false, true] {
        let path = Path::new("m.weights.h5");
        let bytes = pretrained::in_safetensors(path, keras_file(stored, counted, false)).unwrap();
        let mut params = vec![0.25; model.layout().len()];
        let loaded =
            pretrained::load_bytes("mobilenet-v2", model.layout(), path, &bytes, &mut params)
                .unwrap();
        assert_eq!(loaded.other_head, Some(0));
        let head = model.layout().get("classifier.1.weight").unwrap().offset;
        assert!(params[head..].iter().all(|value| *value == 0.25));
        assert!(params[..head].iter().filter(|value| **value == 0.25).count() < 10);
    }
}

#[test]
fn weights_of_other_networks_of_keras_are_named_as_the_file_names_them() {
    let stored = &stored("keras")[0];
    let model = network(stored, (32, 32), PixelScale::Keras);
    let mut root = Hdf5Node::root();
    root.put("layers/conv2d/vars/0", Hdf5Node::Floats(vec![3, 3, 3, 16], vec![0.5; 432]));
    root.put("layers/stem/vars/0", Hdf5Node::Floats(vec![2, 1], vec![0.5; 2]));
    let path = Path::new("other.weights.h5");
    let bytes = pretrained::in_safetensors(path, root.file()).unwrap();
    let mut params = vec![0.0; model.layout().len()];
    let error = pretrained::load_bytes("mobilenet-v2", model.layout(), path, &bytes, &mut params);
    let error = error.unwrap_err().to_string();
    for needle in ["other.weights.h5", "Conv_1/kernel", "stem/kernel"] {
        assert!(error.contains(needle), "{needle}: {error}");
    }
    assert!(params.iter().all(|value| *value == 0.0));
}
