//! `cargo xtask verdicts overhead`: what recording an unchanged PyTorch script costs, of steps of about a millisecond.

use crate::versus::{TORCH, benchmarks};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Measurements, and rounds of each: a round has steps of both kinds.
const MEASUREMENTS: usize = 5;
const ROUNDS: usize = 80;
/// The most that recording may cost.
const ALLOWED_PERCENT: f64 = 1.0;

/// Measures, prints and writes the table; an error where recording costs more than it may.
pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let python = TORCH.ensure(root)?;
    let mut rows = Vec::new();
    for _ in 0..MEASUREMENTS {
        let output = Command::new(&python)
            .arg(root.join("xtask/peers/overhead_torch.py"))
            .arg(root.join("crates/cli/python"))
            .arg(ROUNDS.to_string())
            .output()
            .context("cannot run Python")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).context("no figures")?;
        println!("{found}");
        rows.push(found);
    }
    let figure = |row: &Value, name: &str| row[name].as_f64().unwrap_or(f64::NAN);
    rows.sort_by(|a, b| figure(a, "overhead_percent").total_cmp(&figure(b, "overhead_percent")));
    let mut text = String::from(
        "A loop of PyTorch with and without the recorder, in turns within one process (`cargo xtask verdicts overhead`).\n\n\
         | step without | step with | more | quartiles over rounds | more CPU time | the calls alone |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for row in &rows {
        writeln!(
            text,
            "| {:.3} ms | {:.3} ms | {:+.1} % | {:+.1} to {:+.1} % | {:+.1} % | {:.1} µs |",
            figure(row, "step_ms"),
            figure(row, "recorded_ms"),
            figure(row, "overhead_percent"),
            figure(&row["quartiles_percent"], "low"),
            figure(&row["quartiles_percent"], "high"),
            figure(row, "cpu_overhead_percent"),
            figure(row, "calls_us"),
        )?;
    }
    benchmarks::write_body(root, "what recording a script costs", &text)?;
    let middle = figure(&rows[MEASUREMENTS / 2], "overhead_percent");
    ensure!(
        middle < ALLOWED_PERCENT,
        "recording costs {middle:.1} %, not below {ALLOWED_PERCENT} %"
    );
    Ok(())
}
