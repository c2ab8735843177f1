//! All weights to a worker and its gradient back, against a plain copy of the same bytes.

use crate::environment;
use crate::versus::benchmarks;
use crate::versus::contest::{self, Side};
use std::path::Path;
use std::process::Command;

/// Weights of the comparison.
const FLOATS: &str = "33000000";
const ROUNDS: usize = 7;

const CAVEATS: &[&str] = &[
    "One worker and one server, two processes: the gradient of 33 million weights to the server, the update there, the new weights back. The copy moves the same number of bytes, 132 MB each way, between two warm buffers of one process on one thread, without an update.",
];

/// Runs the comparison and writes its section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let words = ["build", "--release", "-p", "paceline-strategies", "--example", "transfer_speed"];
    environment::run(environment::cargo(root).args(words))?;
    let side = |what: &str| {
        let program = root.join("target/release/examples/transfer_speed");
        Side::peer(Command::new(program).args([what, FLOATS]))
    };
    let sides = vec![side("exchange")?, side("copy")?];
    let outcome = contest::run("dense pull + push of 33 M floats", "steps/s", ROUNDS, sides)?;
    benchmarks::write(root, "cluster/transfer", CAVEATS, &[outcome])
}
