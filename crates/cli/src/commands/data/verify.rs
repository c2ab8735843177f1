//! `paceline data verify`: reads everything, compares every checksum, lists every problem.

use super::Opening;
use crate::terminal::failure::Exit;
use crate::terminal::{Terminal, Unit};
use paceline_data::inspect;
use std::path::PathBuf;

/// Arguments of `paceline data verify`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A folder of photos, records, IDX files or prepared rows
    path: PathBuf,
    #[command(flatten)]
    opening: Opening,
}

/// Checks a data set; exits with 1 when something is wrong with it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    args.opening.check(&args.path)?;
    let bar = terminal.progress("verifying", None, Unit::Items("examples"));
    let found = inspect::verify(&args.path, &args.opening.options()?, &|done, total| {
        bar.set_total(total);
        bar.set(done);
    })?;
    drop(bar);
    terminal.json(&found)?;
    for problem in &found.problems {
        let place = match (problem.record, problem.offset) {
            (Some(record), Some(offset)) => format!(", record {record}, byte {offset}"),
            _ => String::new(),
        };
        terminal.data(format!("{}{place}: {}", problem.file, problem.problem))?;
    }
    let verdict = if found.is_whole() { "whole" } else { "damaged" };
    terminal.data(format!(
        "{} ({}): {verdict}: {} examples read, {} checksums compared, {:.1} MB, {} problems",
        found.path,
        found.kind,
        found.examples,
        found.checksums,
        found.bytes as f64 / 1e6,
        found.problems.len()
    ))?;
    Ok(if found.is_whole() { Exit::Done } else { Exit::Failed })
}
