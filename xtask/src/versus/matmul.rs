//! `versus matmul`: one large product in single precision, against OpenBLAS and MKL.

use super::contest::{self, Side};
use super::{MISC, TORCH, benchmarks};
use crate::environment;
use std::path::Path;
use std::process::Command;

/// Rows and columns.
const SIZE: &str = "8192";
/// Threads of every side.
const THREADS: &str = "2";
const ROUNDS: usize = 5;

const CAVEATS: &[&str] = &[
    "C = A B, row-major f32, result overwritten, operands in memory; one product takes about three seconds. `paceline matmul` computes its blocks with the same call.",
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
    let own = |way: &[&str]| {
        Side::peer(Command::new(&example).arg(THREADS).args(way).env_remove("PACELINE_ISA"))
    };
    let peer = |python: &Path, engine: &str| {
        Side::peer(
            Command::new(python)
                .arg(root.join("xtask/peers/matmul.py"))
                .args([engine, "--size", SIZE, "--threads", THREADS])
                .env("OMP_NUM_THREADS", THREADS)
                .env("OPENBLAS_NUM_THREADS", THREADS),
        )
    };
    let sides = vec![
        own(&["--serve", SIZE])?,
        peer(&torch, "torch")?,
        peer(&numpy, "numpy")?,
        own(&["--serve-peak"])?,
    ];
    let outcome =
        contest::run(&format!("product {SIZE} x {SIZE} x {SIZE}"), "GFLOP/s", ROUNDS, sides)?;
    benchmarks::write(root, "matmul", CAVEATS, &[outcome])
}
