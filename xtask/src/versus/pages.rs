//! `versus pages`: what the live page takes with thousands of runs, long logs and many viewers. No peer: TensorBoard shows one kind
//! of these figures only, and has no list of runs with their settings. `PACELINE_BIN` names a build whose `serve` is measured; without
//! it one is built.

use super::benchmarks;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// Runs the measurement and writes what it prints as the section.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).arg("run");
    // The client only waits; what is measured is in a process of its own.
    if std::env::var_os("PACELINE_BIN").is_none() {
        command.arg("--release");
    }
    let output = command
        .args(["--locked", "-p", "paceline-dashboard", "--example", "measure"])
        .output()
        .context("cannot run the measurement")?;
    if !output.status.success() {
        bail!("the measurement failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    benchmarks::write_body(root, "pages", &String::from_utf8_lossy(&output.stdout))
}
