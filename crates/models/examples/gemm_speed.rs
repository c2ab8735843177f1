//! Matrix products per second: `gemm_speed [threads] [m,n,k[,ta|tb]]...`

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // a tool for the terminal

use paceline_models::kernels::{Buffer, Compute, Finish, Matrix, peak::peak_flops};
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(2);
    let shapes: Vec<String> = args.collect();
    let mut compute = Compute::new(threads).expect("the instruction set was asked for rightly");
    let peak = peak_flops(&compute) / 1e9;
    println!("{} on {threads} threads: peak {peak:.0} GFLOP/s", compute.isa().name());
    for shape in &shapes {
        let parts: Vec<&str> = shape.split(',').collect();
        let size = |at: usize| parts[at].parse::<usize>().expect("sizes are numbers");
        let (m, n, k) = (size(0), size(1), size(2));
        let (ta, tb) = (parts.contains(&"ta"), parts.contains(&"tb"));
        let (mut a, mut b) = (Buffer::zeroed(m * k), Buffer::zeroed(k * n));
        let mut c = Buffer::zeroed(m * n);
        a.fill(0.5);
        b.fill(0.25);
        let a = if ta { Matrix::new(&a, k, m).t() } else { Matrix::new(&a, m, k) };
        let b = if tb { Matrix::new(&b, n, k).t() } else { Matrix::new(&b, k, n) };
        compute.gemm(a, b, &mut c, n, &Finish::default());
        let flops = 2.0 * m as f64 * n as f64 * k as f64;
        let mut best: f64 = 0.0;
        let rounds = (2e11 / flops).clamp(2.0, 2000.0) as usize;
        for _ in 0..rounds {
            let start = Instant::now();
            compute.gemm(a, b, &mut c, n, &Finish::default());
            best = best.max(flops / start.elapsed().as_secs_f64() / 1e9);
        }
        println!("{shape:>24}: {best:7.1} GFLOP/s, {:.2} of peak", best / peak);
    }
}
