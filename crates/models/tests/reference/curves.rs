//! Loss curves on MNIST against PyTorch's: same weights, same order, same hyper-parameters.

use crate::formula::{Case, stored};
use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{
    ModelOptions, StepContext,
    optimizer::{self, Optimizer, OptimizerSettings},
    registry,
};
use std::{path::PathBuf, process::Command};

/// One of MNIST's gzipped files without its header, or nothing where the data is absent.
fn mnist(name: &str, header: usize) -> Option<Vec<u8>> {
    let folder = std::env::var_os("PACELINE_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join("mnist").join(name);
    if !path.exists() {
        eprintln!("skipped: no data at {}", path.display());
        return None;
    }
    let output = Command::new("gzip").arg("-dc").arg(path).output().ok()?;
    output.status.success().then(|| output.stdout[header..].to_vec())
}

#[test]
fn curves_on_mnist_match_pytorch() {
    let (Some(images), Some(labels)) =
        (mnist("train-images-idx3-ubyte.gz", 16), mnist("train-labels-idx1-ubyte.gz", 8))
    else {
        return;
    };
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height: 28, width: 28, channels: 1 }),
        labels: LabelKind::Classes { names: (0..10).map(|class| class.to_string()).collect() },
    };
    for curve in stored("curves") {
        let name = curve["model"].as_str().unwrap();
        let case = stored("models").into_iter().find(|case| case["label"] == name).unwrap();
        let options = ModelOptions { threads: 2, dropout: Some(0.0), ..ModelOptions::default() };
        let mut model = (registry::find(name).unwrap().build)(&schema, &options).unwrap();
        let mut params = Case(case).fill(model.layout());
        let momentum = curve["momentum"].as_f64().unwrap() as f32;
        let settings =
            OptimizerSettings { momentum, ..optimizer::find("momentum").unwrap().defaults };
        let optimizer =
            Optimizer::new(optimizer::find("momentum").unwrap(), settings, model.layout()).unwrap();
        let mut state = optimizer.state();
        let mut grad = vec![0.0; params.len()];
        let count = curve["batch"].as_u64().unwrap() as usize;
        let rate = curve["rate"].as_f64().unwrap() as f32;
        for (step, wanted) in curve["losses"].as_array().unwrap().iter().enumerate() {
            let examples = step * count..(step + 1) * count;
            let batch = Batch {
                features: Features::Pixels {
                    values: images[examples.start * 784..examples.end * 784].to_vec(),
                    width: 784,
                },
                labels: labels[examples].iter().map(|&label| u32::from(label)).collect(),
            };
            let step = step as u64;
            let context = StepContext {
                seed: 0,
                step,
                first_example: 0,
                scale: 1.0 / count as f32,
                keeps_gradient: true,
            };
            let loss = model
                .loss_and_grad(&mut params, &batch, &context, &mut grad, &mut |range, w, g| {
                    optimizer.update(range, w, g, &mut state, rate, step);
                })
                .unwrap();
            let found = loss.loss_sum / count as f64;
            let wanted = wanted.as_f64().unwrap();
            // Rounding grows along the way: two correct programs part slowly.
            let error = (found - wanted).abs() / wanted;
            assert!(error < 0.01, "{name}, step {step}: loss {found}, PyTorch {wanted}");
        }
    }
}
