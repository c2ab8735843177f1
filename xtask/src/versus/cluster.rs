//! `versus cluster`: work that several processes do together, against Open MPI and PyTorch.

use super::contest::{self, Outcome, Side};
use super::{TORCH, benchmarks};
use crate::environment;
use anyhow::Context;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: usize = 3;

const CAVEATS: &[&str] = &[
    "All-reduce: two processes on two cores, float32, in place, everything warm; the rate of the slower process. Open MPI 4.1 polls all the time and so is started anew for each measurement (best of five inside it); ours and Gloo stay up and sleep between turns.",
    "\"shared buffers\": numbers in memory that the group gave out, as the strategies use it; \"ordinary memory\": numbers anywhere, copied through slots that both processes map.",
    "Loopback TCP costs little more than memory copies; against a real network encryption weighs less.",
];

/// Sizes of the buffers: name, numbers, operations of one measurement.
const SIZES: &[(&str, &str, &str)] = &[
    ("4 KB", "1024", "2000"),
    ("1 MB", "262144", "64"),
    ("64 MB", "16777216", "2"),
    ("244 MB", "61100840", "1"),
];

/// Runs all comparisons of the area and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    environment::run(Command::new(env!("CARGO")).current_dir(root).args([
        "build",
        "--release",
        "-p",
        "paceline-cluster",
        "--example",
        "allreduce_speed",
    ]))?;
    let torch = TORCH.ensure(root)?;
    let mpi = Mpi::build(root)?;
    let mut outcomes = Vec::new();
    for size in SIZES {
        outcomes.extend(all_reduce(root, &torch, &mpi, *size)?);
    }
    benchmarks::write(root, "cluster", CAVEATS, &outcomes)
}

/// One size over every carrier.
fn all_reduce(
    root: &Path,
    torch: &Path,
    mpi: &Mpi,
    (name, floats, operations): (&str, &'static str, &'static str),
) -> anyhow::Result<Vec<Outcome>> {
    let own = |carrier: &str| {
        let program = root.join("target/release/examples/allreduce_speed");
        Side::peer(Command::new(program).args([carrier, floats, operations]))
    };
    let gloo = || {
        let script = root.join("xtask/peers/allreduce_gloo.py");
        // Gloo needs hundreds of microseconds for the smallest sum.
        let operations = if floats == "1024" { "200" } else { operations };
        Side::peer(Command::new(torch).arg(script).args([floats, operations]))
    };
    let works = [
        ("shared buffers", vec![own("shared")?, mpi.side("vader", floats, operations), gloo()?]),
        ("ordinary memory", vec![own("private")?, mpi.side("vader", floats, operations)]),
        ("loopback TCP", vec![own("tcp")?, mpi.side("tcp", floats, operations), own("tls")?]),
    ];
    works
        .into_iter()
        .map(|(how, sides)| {
            let work = format!("all-reduce of {name}, 2 processes, {how}");
            contest::run(&work, "operations/s", ROUNDS, sides)
        })
        .collect()
}

/// Open MPI and our measurement compiled for it.
struct Mpi {
    program: PathBuf,
}

#[derive(Deserialize)]
struct Measured {
    value: f64,
}

impl Mpi {
    fn build(root: &Path) -> anyhow::Result<Self> {
        if Command::new("mpicc").arg("--version").output().is_err() {
            environment::apt_install(&["openmpi-bin", "libopenmpi-dev"])?;
        }
        let folder = root.join("target/versus");
        std::fs::create_dir_all(&folder)?;
        let program = folder.join("allreduce_mpi");
        let source = root.join("xtask/peers/allreduce_mpi.c");
        environment::run(Command::new("mpicc").args(["-O2", "-o"]).arg(&program).arg(source))?;
        Ok(Self { program })
    }

    /// A side that starts two processes joined by that byte transfer layer of Open MPI.
    fn side(&self, transfer: &'static str, floats: &'static str, operations: &'static str) -> Side {
        let program = self.program.clone();
        let name = if transfer == "tcp" { "Open MPI, TCP" } else { "Open MPI, shared memory" };
        Side::own(name, move || {
            let output = Command::new("mpirun")
                .args(["--oversubscribe", "--bind-to", "none", "-np", "2", "--mca", "pml", "ob1"])
                .args(["--mca", "btl", &format!("self,{transfer}")])
                .args(["--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"])
                .arg(&program)
                .args([floats, operations])
                .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
                .stderr(Stdio::null())
                .output()
                .context("cannot run mpirun")?;
            let text = String::from_utf8_lossy(&output.stdout);
            let measured: Measured = serde_json::from_str(text.trim())
                .with_context(|| format!("mpirun printed no measurement: {text}"))?;
            Ok(measured.value)
        })
    }
}
