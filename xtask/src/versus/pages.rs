//! `versus pages`: what the live page takes with thousands of runs, long logs and many viewers. No peer: TensorBoard shows one kind
//! of these figures only, and has no list of runs with their settings.

use super::benchmarks;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// Runs the measurement and writes what it prints as the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["run", "--release", "--locked", "-p", "paceline-dashboard", "--example", "measure"])
        .output()
        .context("cannot run the measurement")?;
    if !output.status.success() {
        bail!("the measurement failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    benchmarks::write_body(root, "pages", &String::from_utf8_lossy(&output.stdout))
}
