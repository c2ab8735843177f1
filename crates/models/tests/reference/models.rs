//! Forward and backward of whole models against PyTorch in f64.

use crate::formula::{Case, stored};
use paceline_models::{Model, ModelOptions, Score, StepContext, registry};

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
    let context = StepContext { seed: 1, step: 0, first_example: 0, scale };
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
            let kinks = entry.name == "mobilenet_v2" && case.0["smooth"] == false;
            for threads in [1, 2] {
                check(&case, &mut *build(&case, threads), if kinks { 0.05 } else { 1e-4 });
            }
            found += 1;
        }
        assert!(found > 0, "there are numbers for {}", entry.name);
    }
}
