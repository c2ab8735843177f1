//! Ten steps of every optimiser against PyTorch's (see `make_reference.py`).

use crate::formula::{stored, uniform};
use paceline_models::{
    Layout,
    optimizer::{Optimizer, OptimizerSettings, find},
};

#[test]
fn traces_match_pytorch() {
    let mut layout = Layout::default();
    layout.push("weights", &[19], true);
    let target: Vec<f32> = uniform("target", 19).collect();
    for case in stored("optimizers") {
        let name = case["name"].as_str().unwrap();
        let entry = find(if name == "adamw" { "adam" } else { name }).unwrap();
        let settings = OptimizerSettings {
            weight_decay: case["decay"].as_f64().unwrap() as f32,
            decoupled: name == "adamw",
            ..entry.defaults
        };
        let optimizer = Optimizer::new(entry, settings, &layout).unwrap();
        let mut state = optimizer.state();
        let mut params: Vec<f32> = uniform("weights", 19).collect();
        for step in 0..10 {
            let grad: Vec<f32> =
                params.iter().zip(&target).map(|(w, target)| (w - target) * 0.5).collect();
            optimizer.update(0..19, &mut params, &grad, &mut state, 0.1, step);
            for (key, at) in [("first", 0), ("last", 9)] {
                if step != at {
                    continue;
                }
                for (found, wanted) in params.iter().zip(case[key].as_array().unwrap()) {
                    let error = (f64::from(*found) - wanted.as_f64().unwrap()).abs();
                    assert!(error < 1e-6, "{name}, {key} step: {found}, PyTorch {wanted}");
                }
            }
        }
    }
}
