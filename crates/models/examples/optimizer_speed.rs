//! Memory speed of every optimiser's update: `optimizer_speed [THREADS] [MILLIONS]`.

#![allow(clippy::print_stdout)] // a measurement for the terminal

use paceline_models::{
    Layout,
    optimizer::{ALL, Optimizer},
    threads::Pool,
};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let threads = numbers.first().copied().unwrap_or(2);
    let len = numbers.get(1).copied().unwrap_or(61) * 1_000_000;
    let pool = Pool::new(threads);
    let mut layout = Layout::default();
    layout.push("weights", &[len], true);
    let mut params = vec![1.0f32; len];
    let grad = vec![0.01f32; len];
    for entry in ALL {
        let optimizer = Optimizer::new(entry, entry.defaults, &layout)?;
        let mut state = optimizer.state();
        let mut best = f64::INFINITY;
        for step in 0..6 {
            let start = Instant::now();
            optimizer.update_on(&pool, 0..len, &mut params, &grad, &mut state, 0.01, step);
            best = best.min(start.elapsed().as_secs_f64());
        }
        // Weights are read and written, the gradient is read, each state buffer read and written.
        let bytes = (3 + 2 * entry.slots.len()) * 4 * len;
        let speed = bytes as f64 / best / 1e9;
        println!("{:10} {:6.1} ms {speed:6.1} GB/s, {threads} threads", entry.name, best * 1e3);
    }
    Ok(())
}
