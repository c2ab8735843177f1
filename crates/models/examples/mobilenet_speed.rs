//! Training steps of MobileNet-v2 per second: `mobilenet_speed [SIZE] [BATCH] [THREADS] [STEPS]`.

#![allow(clippy::print_stdout)] // a measurement for the terminal

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
use paceline_models::{
    ModelOptions, StepContext, mobilenet_v2,
    optimizer::{self, Optimizer},
};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let number = |at: usize, otherwise| numbers.get(at).copied().unwrap_or(otherwise);
    let (size, batch, threads, steps) = (number(0, 224), number(1, 32), number(2, 2), number(3, 5));
    let schema = Schema {
        features: FeatureKind::Image(ImageShape { height: size, width: size, channels: 3 }),
        labels: LabelKind::Classes { names: (0..5).map(|class| class.to_string()).collect() },
    };
    let options = ModelOptions { threads, dropout: Some(0.0), ..ModelOptions::default() };
    let mut model = (mobilenet_v2::ENTRY.build)(&schema, &options)?;
    let width = size * size * 3;
    let examples = Batch {
        features: Features::Dense {
            values: (0..batch * width).map(|i| (i as f32 * 0.37).sin() * 0.5 + 0.5).collect(),
            width,
        },
        labels: (0..batch as u32).map(|i| i % 5).collect(),
    };
    let mut params = vec![0.0; model.layout().len()];
    model.init(1, &mut params);
    let optimizer =
        Optimizer::new(optimizer::find("sgd")?, optimizer::find("sgd")?.defaults, model.layout())?;
    let mut state = optimizer.state();
    let mut grad = vec![0.0; params.len()];
    let mut rates = Vec::new();
    for step in 0..steps as u64 + 1 {
        let start = Instant::now();
        let context = StepContext {
            seed: 1,
            step,
            first_example: 0,
            scale: 1.0 / batch as f32,
            keeps_gradient: false,
        };
        let loss = model.loss_and_grad(
            &mut params,
            &examples,
            &context,
            &mut grad,
            &mut |range, params, grad| {
                optimizer.update(range, params, grad, &mut state, 0.01, step);
            },
        )?;
        let seconds = start.elapsed().as_secs_f64();
        println!("step {step}: {seconds:.3} s, loss {:.4}", loss.loss_sum / batch as f64);
        rates.push(batch as f64 / seconds);
    }
    rates.remove(0); // the first step plans memory and touches it
    rates.sort_by(f64::total_cmp);
    println!(
        "{:.1} images/s (median), {:.1} (best)",
        rates[rates.len() / 2],
        rates[rates.len() - 1]
    );
    Ok(())
}
