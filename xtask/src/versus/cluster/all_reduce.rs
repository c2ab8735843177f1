//! All-reduce between two processes of this machine, against Open MPI and PyTorch's Gloo.

use crate::environment;
use crate::versus::contest::{self, Outcome, Side};
use crate::versus::{TORCH, benchmarks};
use anyhow::Context;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROUNDS: usize = 5;

const CAVEATS: &[&str] = &[
    "Two processes on two cores, float32, in place, warm; the rate of the slower process, the best of five repetitions on every side. Open MPI 4.1 polls continuously and is therefore restarted for each measurement; ours and Gloo stay up and sleep between turns.",
];

const SHARED: &[&str] = &[
    "\"shared buffers\": data in memory allocated by the group, as the strategies use it; \"ordinary memory\": data anywhere, copied through slots that both processes map.",
    "The buffers keep the previous sum, so each process finds its share of shared buffers in its own caches. In the rows \"written before every sum\" both sides write all values each time, which is timed, as in a training step; the data then has to cross between the cores.",
];

const TCP: &[&str] = &[
    "The last side of each row is our own encrypted link: its ratio is the cost of encryption. Loopback TCP costs little more than memory copies; on a real network encryption matters less.",
];

/// Sizes of the buffers: name, numbers, operations of one repetition.
const SIZES: &[(&str, &str, &str)] = &[
    ("4 KB", "1024", "2000"),
    ("1 MB", "262144", "64"),
    ("64 MB", "16777216", "2"),
    ("244 MB", "61100840", "1"),
];

/// Over shared memory.
pub fn shared(root: &Path) -> anyhow::Result<()> {
    build(root)?;
    let torch = TORCH.ensure(root)?;
    let mpi = Mpi::build(root)?;
    let mut outcomes = Vec::new();
    for (name, floats, operations) in SIZES {
        let gloo = || {
            let script = root.join("xtask/peers/allreduce_gloo.py");
            // Gloo needs hundreds of microseconds for the smallest sum.
            let operations = if *floats == "1024" { "200" } else { operations };
            Side::peer(Command::new(&torch).arg(script).args([floats, operations]))
        };
        let buffers = vec![
            own(root, "shared", floats, operations)?,
            mpi.side("vader", floats, operations, &[]),
            gloo()?,
        ];
        outcomes.push(compare(name, "shared buffers", buffers)?);
        let fresh = vec![
            own(root, "fresh", floats, operations)?,
            mpi.side("vader", floats, operations, &["fresh"]),
        ];
        outcomes.push(compare(name, "shared buffers, written before every sum", fresh)?);
        let ordinary = vec![
            own(root, "private", floats, operations)?,
            mpi.side("vader", floats, operations, &[]),
        ];
        outcomes.push(compare(name, "ordinary memory", ordinary)?);
    }
    benchmarks::write(root, "cluster/all-reduce", &[CAVEATS, SHARED].concat(), &outcomes)
}

/// Over loopback TCP, plain and encrypted.
pub fn tcp(root: &Path) -> anyhow::Result<()> {
    build(root)?;
    let mpi = Mpi::build(root)?;
    let mut outcomes = Vec::new();
    for (name, floats, operations) in SIZES {
        let sides = vec![
            own(root, "tcp", floats, operations)?,
            mpi.side("tcp", floats, operations, &[]),
            own(root, "tls", floats, operations)?,
        ];
        outcomes.push(compare(name, "loopback TCP", sides)?);
    }
    benchmarks::write(root, "cluster/tcp", &[CAVEATS, TCP].concat(), &outcomes)
}

fn build(root: &Path) -> anyhow::Result<()> {
    let words = ["build", "--release", "-p", "paceline-wire", "--example", "allreduce_speed"];
    environment::run(environment::cargo(root).args(words))
}

fn own(root: &Path, carrier: &str, floats: &str, operations: &str) -> anyhow::Result<Side> {
    let program = root.join("target/release/examples/allreduce_speed");
    Side::peer(Command::new(program).args([carrier, floats, operations]))
}

fn compare(size: &str, how: &str, sides: Vec<Side>) -> anyhow::Result<Outcome> {
    let work = format!("all-reduce of {size}, 2 processes, {how}");
    contest::run(&work, "operations/s", ROUNDS, sides)
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

    /// A side that starts two processes with that byte transfer layer of Open MPI; `more` are further arguments.
    fn side(
        &self,
        transfer: &'static str,
        floats: &'static str,
        operations: &'static str,
        more: &'static [&'static str],
    ) -> Side {
        let program = self.program.clone();
        let name = if transfer == "tcp" { "Open MPI, TCP" } else { "Open MPI, shared memory" };
        Side::own(name, move || {
            let output = Command::new("mpirun")
                .args(["--oversubscribe", "--bind-to", "none", "-np", "2", "--mca", "pml", "ob1"])
                .args(["--mca", "btl", &format!("self,{transfer}")])
                .args(["--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"])
                .arg(&program)
                .args([floats, operations])
                .args(more)
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
