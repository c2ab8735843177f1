//! Forward and backward of whole models against PyTorch in f64.

use crate::formula::{Case, stored};
use paceline_models::{Model, ModelOptions, PixelScale, Score, StepContext, pretrained, registry};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// The model of a case, without dropout.
fn build(case: &Case, threads: usize) -> Box<dyn Model> {
    let width = case.0["options"]["width"].as_f64().unwrap_or(1.0) as f32;
    let options = ModelOptions { threads, width, dropout: Some(0.0), ..ModelOptions::default() };
    let entry = registry::find(case.0["model"].as_str().unwrap()).unwrap();
    (entry.build)(&case.schema(), &options).unwrap()
}

/// Loss, gradient, changes of statistics and evaluation.
fn check(case: &Case, model: &mut dyn Model, tolerance: f64) {
    let label = case.0["label"].as_str().unwrap();
    let batch = case.batch();
    let mut params = case.fill(model.layout());
    let close = |what: &str, found: f64, wanted: f64| {
        let error = (found - wanted).abs() / wanted.abs();
        assert!(error < 1e-5, "{label} {what}: {found}, PyTorch {wanted}, error {error:.1e}");
    };
    let mut score = Score::default();
    model.score(&params, &batch, &mut score).unwrap();
    close("score", score.total.loss_sum, case.0["score_loss_sum"].as_f64().unwrap());

    let scale = 1.0 / batch.len() as f32;
    let context = StepContext { seed: 1, step: 0, first_example: 0, scale, keeps_gradient: true };
    let mut grad = vec![f32::NAN; params.len()];
    let mut covered = vec![0u8; params.len()];
    let loss = model
        .loss_and_grad(&mut params, &batch, &context, &mut grad, &mut |range, params, grad| {
            assert_eq!((params.len(), grad.len()), (range.len(), range.len()));
            covered[range].iter_mut().for_each(|count| *count += 1);
            params.fill(f32::NAN); // the model has promised not to read them again
        })
        .unwrap();
    assert!(covered.iter().all(|&count| count == 1), "{label}: ranges cover the buffer once");
    close("loss", loss.loss_sum, case.0["loss_sum"].as_f64().unwrap());
    assert_eq!(loss.correct, case.0["correct"].as_u64().unwrap(), "{label}");
    case.compare(model.layout(), &grad, tolerance);
}

#[test]
fn every_model_matches_pytorch() {
    let cases = stored("models");
    // Sparse rows have no counterpart in PyTorch's modules.
    for entry in registry::ALL.iter().filter(|entry| entry.name != "sparse_logistic") {
        let mut found = 0;
        for case in cases.iter().filter(|case| case["model"] == entry.name) {
            let case = Case(case.clone());
            // See `make_reference.py` on kinks; in shallow models they do no harm.
            let deep = ["mobilenet-v2", "resnet-20"].contains(&entry.name);
            let kinks = deep && case.0["smooth"] == false;
            for threads in [1, 2] {
                check(&case, &mut *build(&case, threads), if kinks { 0.05 } else { 1e-4 });
            }
            found += 1;
        }
        assert!(found > 0, "there are numbers for {}", entry.name);
    }
}

/// torchvision's AlexNet: names and shapes as `torchvision.models.alexnet().state_dict()` has them. The
/// first dense layer's inputs are in channel, row, column order, which the stored numbers would tell
/// from any other: PyTorch made them with weights in this order.
const TORCHVISION_ALEXNET: [(&str, &[usize]); 8] = [
    ("features.0", &[64, 3, 11, 11]),
    ("features.3", &[192, 64, 5, 5]),
    ("features.6", &[384, 192, 3, 3]),
    ("features.8", &[256, 384, 3, 3]),
    ("features.10", &[256, 256, 3, 3]),
    ("classifier.1", &[4096, 256 * 6 * 6]),
    ("classifier.4", &[4096, 4096]),
    ("classifier.6", &[10, 4096]),
];

/// A file as PyTorch writes it goes in, gives PyTorch's loss, and comes out with the same bytes.
#[test]
fn a_file_of_pytorch_gives_its_loss_and_comes_back_unchanged() {
    let case = stored("models").into_iter().find(|case| case["label"] == "alexnet").unwrap();
    let case = Case(case);
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (layer, shape) in TORCHVISION_ALEXNET {
        for (part, shape) in [("weight", shape), ("bias", &shape[..1])] {
            let name = format!("{layer}.{part}");
            let values = case.values(&name);
            assert_eq!(values.len(), shape.iter().product::<usize>(), "{name}");
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.push((name, shape.to_vec(), bytes));
        }
    }
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    let metadata = std::iter::once(("format".to_owned(), "pt".to_owned())).collect();
    let folder = std::env::temp_dir().join(format!("paceline-alexnet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, copy) = (folder.join("alexnet.safetensors"), folder.join("copy.safetensors"));
    std::fs::write(&file, safetensors::serialize(views, Some(metadata)).unwrap()).unwrap();

    let mut model = build(&case, 2);
    let mut params = vec![0.0; model.layout().len()];
    model.init(9, &mut params);
    let loaded = pretrained::load("alexnet", model.layout(), &file, &mut params).unwrap();
    assert_eq!((loaded.tensors, loaded.other_head), (16, None));
    assert_eq!(pretrained::expected_pixels(&file).unwrap(), PixelScale::Imagenet);
    let mut score = Score::default();
    model.score(&params, &case.batch(), &mut score).unwrap();
    let wanted = case.0["score_loss_sum"].as_f64().unwrap();
    let error = (score.total.loss_sum - wanted).abs() / wanted;
    assert!(error < 1e-5, "{}, PyTorch {wanted}", score.total.loss_sum);

    pretrained::export("alexnet", model.layout(), &params, &copy).unwrap();
    let written = std::fs::read(&copy).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let written = SafeTensors::deserialize(&written).unwrap();
    assert_eq!(written.len(), tensors.len());
    for (name, shape, bytes) in &tensors {
        let tensor = written.tensor(name).unwrap();
        assert_eq!((tensor.shape(), tensor.dtype()), (&shape[..], Dtype::F32), "{name}");
        assert!(tensor.data() == bytes, "{name} came back changed");
    }
}
