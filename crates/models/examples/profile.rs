//! Where a training step's time goes: `profile MODEL BATCH [THREADS] [SIDE] [ROUNDS]`, the least time of each layer over all
//! rounds, which says most where other processes disturb.

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // a tool for the terminal

mod drawn;

use drawn::{Drawn, drawn};
use paceline_models::{
    ModelOptions, StepContext,
    kernels::{Compute, peak::peak_flops},
    profile::LayerTime,
};
use std::{ops::Range, time::Instant};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let name = args.first().map_or("alexnet", String::as_str);
    let (examples, threads, rounds) = (number(1, 32), number(2, 2), number(4, 5));
    let (side, channels, classes) = if name == "lenet" { (28, 1, 10) } else { (224, 3, 1000) };
    let options = ModelOptions { threads, dropout: Some(0.0), ..ModelOptions::default() };
    let shape = (number(3, side), channels, classes);
    let Drawn { mut model, batch, mut params, mut grad } = drawn(name, shape, examples, &options);
    let context =
        StepContext { seed: 1, step: 0, first_example: 0, scale: 1e-3, keeps_gradient: false };
    let peak = peak_flops(&Compute::new(threads).expect("an instruction set")) / 1e9;
    // As one device does it; counted as part of the layer.
    let mut update = |_: Range<usize>, params: &mut [f32], grad: &mut [f32]| {
        params.iter_mut().zip(grad).for_each(|(param, grad)| *param -= 1e-6 * *grad);
    };
    let mut least: Vec<LayerTime> = Vec::new();
    let mut seconds = f64::INFINITY;
    for round in 0..=rounds {
        if let Some(profile) = model.profile() {
            profile.set(round > 0); // the first one plans memory and touches it
        }
        let start = Instant::now();
        model
            .loss_and_grad(&mut params, &batch, &context, &mut grad, &mut update)
            .expect("the batch fits");
        if round == 0 {
            continue;
        }
        seconds = seconds.min(start.elapsed().as_secs_f64());
        let layers = model.profile().expect("the model collects").layers();
        if least.is_empty() {
            least = layers.to_vec();
        }
        for (least, now) in least.iter_mut().zip(layers) {
            least.seconds = least.seconds.min(now.seconds);
        }
    }
    let sum: f64 = least.iter().map(|time| time.seconds).sum();
    println!(
        "{name} b{examples}: {:.1} ms the fastest step, {:.1} ms its layers at their fastest, peak {peak:.0} GFLOP/s",
        1e3 * seconds,
        1e3 * sum
    );
    for time in least {
        let rate = time.flops / time.seconds / 1e9;
        println!(
            "{:14} {:16} {:8.2} ms {:4.1} % {rate:7.1} GFLOP/s {:.2} of peak",
            time.layer,
            time.pass.name(),
            1e3 * time.seconds,
            100.0 * time.seconds / sum,
            rate / peak
        );
    }
}
