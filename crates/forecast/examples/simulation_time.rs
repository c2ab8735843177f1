//! How long simulations take: `simulation_time [STRATEGY] [WORKERS…]`, as `paceline simulate` would ask for them.

#![allow(clippy::print_stdout)] // an example prints

use paceline_forecast::oracle::Link;
use paceline_forecast::simulate::{Cluster, Plan, Workload, simulate};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let strategy = words.next().unwrap_or_else(|| "ps-async".to_owned());
    let mut counts = words.map(|word| word.parse()).collect::<Result<Vec<usize>, _>>()?;
    if counts.is_empty() {
        counts = vec![100, 1000, 10_000, 100_000];
    }
    // A small model on an ordinary network: 31 kB of weights, steps of about a millisecond.
    let workload = Workload {
        steps: (0..200).map(|at| 1e-3 * (1.0 + 0.3 * f64::from(at * 37 % 101) / 101.0)).collect(),
        examples: 50.0,
        input: 0.0,
        sizes: Vec::new(),
        threads: 1.0,
        parallel: 0.9,
        neighbours: 1.0,
        contended: 1.0,
        cold: 1.0,
        factors: vec![1.0, 1.02, 0.98],
        gradient_bytes: 31_400.0,
        weight_bytes: 31_400.0,
        apply: 5e-6,
        buckets: Vec::new(),
    };
    let network = Link { latency: 50e-6, bandwidth: 1.25e9 };
    let local = Link { latency: 10e-6, bandwidth: 5e9 };
    let cluster = Cluster { cores: 2.0, per_host: 1, network, sums: None, local, wake: 30e-6 };
    for workers in counts {
        let turns = if workers > 1000 { 6 } else { 20 };
        let plan = Plan {
            steps: if strategy == "ps-async" { 200.max(turns * workers as u64) } else { 200 },
            ..Plan::even(workers, workers.div_ceil(16), 50.0)
        };
        let begun = Instant::now();
        let found = simulate(&strategy, &workload, &cluster, &plan)?;
        println!(
            "{workers} workers: {:.2} s, {} events, {:.1} examples/s",
            begun.elapsed().as_secs_f64(),
            found.events,
            found.examples_per_second,
        );
    }
    Ok(())
}
