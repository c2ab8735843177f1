//! Matrix products per second: `gemm_speed [threads] [m,n,k[,ta|tb]]...`
//!
//! `gemm_speed THREADS --serve SIZE` measures one square product, and `gemm_speed THREADS --serve-peak`
//! the peak of the machine, once for every line `go` on standard input: our side of
//! `cargo xtask versus matmul` (see `xtask/peers/contest.py`).

#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // a tool for the terminal

use paceline_kernels::{Buffer, Compute, Finish, Matrix, peak::peak_flops};
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(2);
    let shapes: Vec<String> = args.collect();
    let mut compute = Compute::new(threads).expect("the instruction set was asked for rightly");
    if let Some(way) = shapes.first().filter(|shape| shape.starts_with("--serve")) {
        let size = shapes.get(1).and_then(|size| size.parse().ok()).unwrap_or(8192);
        return serve(&mut compute, way == "--serve-peak", size);
    }
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

fn serve(compute: &mut Compute, peak: bool, size: usize) {
    let len = if peak { 0 } else { size * size };
    let [mut a, mut b, mut c] = [(); 3].map(|()| Buffer::zeroed(len));
    for (at, (a, b)) in a.iter_mut().zip(b.iter_mut()).enumerate() {
        *a = (at % 251) as f32 / 125.0 - 1.0;
        *b = (at % 241) as f32 / 120.0 - 1.0;
    }
    let mut measure = || {
        if peak {
            return peak_flops(compute) / 1e9;
        }
        let (a, b) = (Matrix::new(&a, size, size), Matrix::new(&b, size, size));
        let start = Instant::now();
        compute.gemm(a, b, &mut c, size, &Finish::default());
        2e-9 * (size as f64).powi(3) / start.elapsed().as_secs_f64()
    };
    measure();
    let name = if peak { "fused multiply-adds on registers alone: the limit" } else { "Paceline" };
    println!("{{\"ready\": \"{name}\"}}");
    for line in std::io::stdin().lines() {
        if line.map_or(true, |line| line.trim() != "go") {
            break;
        }
        println!("{{\"value\": {}}}", measure());
    }
}
