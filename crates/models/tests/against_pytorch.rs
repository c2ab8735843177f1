//! Forward and backward of whole models against PyTorch in f64 (see `reference/make_reference.py`).

mod reference;

use paceline_models::{ModelOptions, mobilenet_v2};
use reference::{Names, check, same, schema, stored};

fn cases(model: &str) -> Vec<serde_json::Value> {
    stored("models").into_iter().filter(|case| case["model"] == model).collect()
}

#[test]
fn mobilenet_matches_pytorch() {
    for case in cases("mobilenet_v2") {
        let names = Names { ours: str::to_owned, place: |_| same, case: &case };
        let width = case["options"]["width"].as_f64().unwrap_or(1.0) as f32;
        for threads in [1, 2] {
            let options = ModelOptions { threads, width, dropout: 0.0, ..ModelOptions::default() };
            let mut model = mobilenet_v2::build(&schema(&case), &options).unwrap();
            // See `make_reference.py` on kinks.
            let tolerance = if case["smooth"] == true { 1e-4 } else { 0.05 };
            check(&case, &names, &mut *model, tolerance);
        }
    }
}
