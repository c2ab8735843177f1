//! Training steps per second on random pixels: `step_speed MODEL BATCH [THREADS] [ROUNDS]`.
//!
//! A step is forward, backward and plain SGD, applied range by range as gradients become final.
//! `--side PIXELS` and `--width SHARE` are those of MobileNet-v2. With `--serve STEPS` at the end it measures once for every line `go` on standard input, in
//! images per second: our side of `cargo xtask versus models` (see `xtask/peers/contest.py`).

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // a tool for the terminal

mod drawn;

use drawn::{Drawn, drawn};
use paceline_models::{ModelOptions, StepContext};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let name = args.first().map_or("softmax", String::as_str);
    let (examples, threads, rounds) = (number(1, 100), number(2, 2), number(3, 7));
    let (side, channels, classes) = match name {
        "softmax" | "lenet" => (28, 1, 10),
        "mobilenet-v2" => (224, 3, 5),
        _ => (224, 3, 1000),
    };
    let flag = |name: &str| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)).and_then(|value| value.parse::<f32>().ok())
    };
    let side = flag("--side").map_or(side, |side| side as usize);
    let width = flag("--width").unwrap_or(1.0);
    let options = ModelOptions { threads, width, dropout: Some(0.0), ..ModelOptions::default() };
    let shape = (side, channels, classes);
    let Drawn { mut model, batch, mut params, mut grad } = drawn(name, shape, examples, &options);
    let pool = model.pool().cloned();
    let mut step = |number: u64| {
        let scale = 1.0 / examples as f32;
        let context =
            StepContext { seed: 1, step: number, first_example: 0, scale, keeps_gradient: false };
        let mut update = |_, params: &mut [f32], grad: &mut [f32]| {
            let apply = |params: &mut [f32], grad: &[f32]| {
                params.iter_mut().zip(grad).for_each(|(p, g)| *p -= 0.01 * g);
            };
            match &pool {
                Some(pool) if params.len() > 1 << 16 => {
                    let share = params.len().div_ceil(pool.threads());
                    pool.for_chunks(params, share, |number, piece| {
                        apply(piece, &grad[number * share..][..piece.len()]);
                    });
                }
                _ => apply(params, grad),
            }
        };
        model.loss_and_grad(&mut params, &batch, &context, &mut grad, &mut update)
    };
    if let Some(at) = args.iter().position(|arg| arg == "--serve") {
        let steps = number(at + 1, 1) as u64;
        step(0).expect("the batch fits");
        println!("{{\"ready\": \"Paceline\"}}");
        for line in std::io::stdin().lines() {
            if line.map_or(true, |line| line.trim() != "go") {
                break;
            }
            let start = Instant::now();
            for number in 0..steps {
                step(number).expect("the batch fits");
            }
            let rate = steps as f64 * examples as f64 / start.elapsed().as_secs_f64();
            println!("{{\"value\": {rate}}}");
        }
        return;
    }
    let start = Instant::now();
    let loss = step(0).expect("the batch fits");
    let once = start.elapsed().as_secs_f64();
    // Rounds of about a fifth of a second, after a warm-up of the same length.
    let steps = (0.2 / once).clamp(1.0, 2000.0) as u64;
    let mut rates: Vec<f64> = (0..=rounds)
        .map(|_| {
            let start = Instant::now();
            for number in 0..steps {
                step(number).expect("the batch fits");
            }
            steps as f64 / start.elapsed().as_secs_f64()
        })
        .skip(1)
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    println!(
        "{name} b{examples}, {threads} threads: {median:.1} steps/s, {:.1} images/s ({:.1}-{:.1}), first loss {:.4}",
        median * examples as f64,
        rates[0] * examples as f64,
        rates[rates.len() - 1] * examples as f64,
        loss.loss_sum / examples as f64,
    );
}
