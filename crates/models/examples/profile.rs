//! Where a training step's time goes: `profile MODEL BATCH [THREADS]`.

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // a tool for the terminal

mod drawn;

use drawn::{Drawn, drawn};
use paceline_models::{
    ModelOptions, StepContext,
    kernels::{Compute, peak::peak_flops},
};
use std::{ops::Range, time::Instant};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let name = args.first().map_or("alexnet", String::as_str);
    let (examples, threads) = (number(1, 32), number(2, 2));
    let (side, channels, classes) = if name == "lenet" { (28, 1, 10) } else { (224, 3, 1000) };
    let options = ModelOptions { threads, dropout: Some(0.0), ..ModelOptions::default() };
    let shape = (side, channels, classes);
    let Drawn { mut model, batch, mut params, mut grad } = drawn(name, shape, examples, &options);
    let context =
        StepContext { seed: 1, step: 0, first_example: 0, scale: 1e-3, keeps_gradient: false };
    let peak = peak_flops(&Compute::new(threads).expect("an instruction set")) / 1e9;
    // As one device does it; counted as part of the layer.
    let mut update = |_: Range<usize>, params: &mut [f32], grad: &mut [f32]| {
        params.iter_mut().zip(grad).for_each(|(param, grad)| *param -= 1e-6 * *grad);
    };
    let mut steps = |count: usize, on: bool| {
        if let Some(profile) = model.profile() {
            profile.set(on);
        }
        let start = Instant::now();
        for _ in 0..count {
            model
                .loss_and_grad(&mut params, &batch, &context, &mut grad, &mut update)
                .expect("the batch fits");
        }
        start.elapsed().as_secs_f64() / count as f64
    };
    steps(1, false);
    let rounds = 3;
    let seconds = steps(rounds, true);
    println!("{name} b{examples}: {:.1} ms a step, peak {peak:.0} GFLOP/s", 1e3 * seconds);
    for time in model.profile().expect("the model collects").layers() {
        let rate = time.flops / time.seconds / 1e9;
        println!(
            "{:14} {:16} {:8.2} ms {:4.1} % {rate:7.1} GFLOP/s {:.2} of peak",
            time.layer,
            time.pass.name(),
            1e3 * time.seconds / rounds as f64,
            100.0 * time.seconds / rounds as f64 / seconds,
            rate / peak
        );
    }
}
