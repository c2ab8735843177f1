//! `versus cluster/mpi`: the same `Group` in the same two ranks of `mpirun`, summing over our own links and by `MPI_Allreduce`.

use crate::environment;
use crate::versus::benchmarks;
use crate::versus::contest::{self, Side};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: usize = 5;

const CAVEATS: &[&str] = &[
    "Two ranks started by `mpirun` on two cores, float32, in place, the best of five repetitions within each measurement, on both sides. One build with the feature `mpi`; with `PACELINE_MPI=off` it behaves like a build without it.",
    "With `MPI_Allreduce` the ranks first synchronise over our links (deadline, errors that name a task), and MPI runs on its own thread with its own memory, so that a rank that dies inside a call does not hang the others; sums of up to 16 KB are sent with that synchronisation and never reach MPI.",
    "MPI pays off on networks that were not available here (InfiniBand, Omni-Path). On one machine and on TCP our own links do not need it.",
];

/// Sizes of the buffers: name, numbers, operations of one repetition.
const SIZES: &[(&str, &str, &str)] = &[
    ("4 KB", "1024", "500"),
    ("64 KB", "16384", "200"),
    ("1 MB", "262144", "64"),
    ("64 MB", "16777216", "2"),
];

/// Transports: our name, Open MPI's, and a description.
const CARRIERS: &[(&str, &str, &str)] =
    &[("shared", "vader", "one machine's memory"), ("tcp", "tcp", "loopback TCP")];

#[derive(Deserialize)]
struct Measured {
    value: f64,
    mpi: bool,
}

/// Runs the comparisons and writes their section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    environment::ensure_mpi()?;
    let words = ["build", "--release", "-p", "paceline-cluster", "--features", "mpi"];
    let mut build = environment::cargo(root);
    build.current_dir(root).args(words).args(["--example", "allreduce_mpi"]);
    environment::run(environment::with_mpi(&mut build))?;
    let program = environment::target(root).join("release/examples/allreduce_mpi");
    let mut outcomes = Vec::new();
    for (carrier, layer, how) in CARRIERS {
        for (name, floats, operations) in SIZES {
            let side = |by_mpi| side(&program, [carrier, layer, floats, operations], by_mpi);
            let work = format!("all-reduce of {name}, 2 ranks, {how}");
            let sides = vec![side(false), side(true)];
            outcomes.push(contest::run(&work, "operations/s", ROUNDS, sides)?);
        }
    }
    benchmarks::write(root, "cluster/mpi", CAVEATS, &outcomes)
}

/// Two ranks, summing either way.
fn side(
    program: &Path,
    [carrier, layer, floats, operations]: [&'static str; 4],
    by_mpi: bool,
) -> Side {
    let program: PathBuf = program.to_owned();
    let name = if by_mpi { "`MPI_Allreduce` in the same group" } else { "our own links" };
    Side::own(name, move || {
        let mut command = Command::new("mpirun");
        command
            .args(["--oversubscribe", "--bind-to", "none", "-np", "2", "--mca", "pml", "ob1"])
            .args(["--mca", "btl", &format!("self,{layer}")])
            .args(["--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"])
            .arg(&program)
            .args([carrier, floats, operations])
            .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
            .stderr(Stdio::null());
        if !by_mpi {
            command.env("PACELINE_MPI", "off");
        }
        let output = command.output().context("cannot run mpirun")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let measured: Measured = serde_json::from_str(text.trim())
            .with_context(|| format!("mpirun printed no measurement: {text}"))?;
        if measured.mpi != by_mpi {
            bail!("{name}: another transport was measured");
        }
        Ok(measured.value)
    })
}
