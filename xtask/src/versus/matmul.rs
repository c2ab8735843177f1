//! `versus matmul`: large products in single precision, against OpenBLAS and MKL; where the machine has AVX-512,
//! also with every side held to AVX2.

use super::contest::{self, HELD_TO_AVX2, Outcome, Side};
use super::{MISC, TORCH, benchmarks};
use crate::environment;
use std::path::Path;
use std::process::Command;

/// Rows and columns of each comparison.
const SIZES: [&str; 2] = ["4096", "8192"];
/// Threads of every side.
const THREADS: &str = "2";
const ROUNDS: usize = 5;

const CAVEATS: &[&str] = &[
    "C = A B, row-major f32, result overwritten, operands in memory; one product of 8,192 takes about three seconds. `paceline matmul` computes its blocks with the same call.",
    "The limit is what two threads reach with chains of fused multiply-adds without memory access, the median of rounds of a third of a second.",
];

/// Runs the comparison and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let example = match std::env::var_os("PACELINE_BIN") {
        // A program that is built already, with its examples beside it.
        Some(program) => Path::new(&program).with_file_name("examples/gemm_speed"),
        None => {
            environment::run(environment::cargo(root).args([
                "build",
                "--release",
                "-p",
                "paceline-kernels",
                "--example",
                "gemm_speed",
            ]))?;
            root.join("target/release/examples/gemm_speed")
        }
    };
    let (numpy, torch) = (MISC.ensure(root)?, TORCH.ensure(root)?);
    let compare = |size: &str, held: bool| -> anyhow::Result<Outcome> {
        let own = |way: &[&str]| {
            let mut command = Command::new(&example);
            command.arg(THREADS).args(way).env_remove("PACELINE_ISA");
            if held {
                command.env("PACELINE_ISA", "avx2");
            }
            Side::peer(&mut command)
        };
        let peer = |python: &Path, engine: &str| {
            let mut command = Command::new(python);
            command
                .arg(root.join("xtask/peers/matmul.py"))
                .args([engine, "--size", size, "--threads", THREADS])
                .env("OMP_NUM_THREADS", THREADS)
                .env("OPENBLAS_NUM_THREADS", THREADS);
            if held {
                command.envs(HELD_TO_AVX2);
            }
            Side::peer(&mut command)
        };
        let sides = vec![
            own(&["--serve", size])?,
            peer(&torch, "torch")?,
            peer(&numpy, "numpy")?,
            own(&["--serve-peak"])?,
        ];
        let on = if held { ", held to AVX2" } else { "" };
        contest::run(&format!("product {size} x {size} x {size}{on}"), "GFLOP/s", ROUNDS, sides)
    };
    let mut outcomes = Vec::new();
    for held in [false, true] {
        if held && !has_avx512() {
            continue;
        }
        for size in SIZES {
            outcomes.push(compare(size, held)?);
        }
    }
    benchmarks::write(root, "matmul", CAVEATS, &outcomes)
}

/// Whether holding the sides to AVX2 changes anything.
fn has_avx512() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
