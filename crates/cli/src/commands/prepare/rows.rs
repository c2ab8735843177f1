//! `paceline prepare` for rows of sparse features: click logs, libsvm, Vowpal Wabbit text → shards.

use super::Args;
use crate::arguments::{
    idle_flags::Rule,
    limits::share_of_rows,
    rows_flags::{IntegersArg, check_integers},
};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Terminal, Unit};
use paceline_data::rows::{Hashing, Input, expand};
use paceline_data::store::{self, Staging};
use paceline_prepare::rows::{RowsError, RowsOptions, claim, prepare};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags for rows.
#[derive(Debug, clap::Args)]
pub struct RowArgs {
    /// Format of the rows: clicks, vw or libsvm [default: recognised]
    #[arg(long, help_heading = "Rows of sparse features")]
    format: Option<String>,
    /// Hash features into 2^BITS weights [default: 25]
    #[arg(long, help_heading = "Rows of sparse features")]
    bits: Option<u32>,
    /// What becomes of integers in click logs
    #[arg(long, value_enum, help_heading = "Rows of sparse features")]
    integers: Option<IntegersArg>,
}

/// Flags for photos.
pub const PHOTO_RULES: &[Rule<bool>] = &[Rule {
    flags: &[
        "size",
        "fit",
        "encode",
        "quality",
        "split",
        "seed",
        "threads",
        "max-pixels",
        "retry-failed",
    ],
    is_met: |rows| !rows,
    otherwise: "on rows of sparse features",
    instead: "give a folder of photos",
}];

/// Whether the source is rows: a file or a list of files, or a flag says so. Photos are folders.
pub fn are_rows(args: &Args) -> bool {
    let rows = &args.rows;
    let listed = args.src.to_str().is_some_and(|text| !args.src.exists() && text.contains(','));
    rows.format.is_some()
        || rows.bits.is_some()
        || rows.integers.is_some()
        || store::is_file(&args.src)
        || listed
}

/// Prepares rows.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let dst = staging.output(&args.dst)?;
    let outcome = exec_to(args, &dst, terminal);
    terminal.settle(staging, outcome)
}

/// Prepares rows into a folder of this machine.
fn exec_to(args: &Args, dst: &Path, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let defaults = Hashing::default();
    let hashing = Hashing {
        bits: args.rows.bits.unwrap_or(defaults.bits),
        integers: args.rows.integers.map_or(defaults.integers, Into::into),
        labelled: true,
    };
    if !Hashing::BITS.contains(&hashing.bits) {
        return Err(usage(format!("--bits {} is out of range", hashing.bits), "use 1 to 31"));
    }
    let files = expand(&args.src.to_string_lossy())?;
    if args.rows.integers.is_some() {
        check_integers(files.first().map(PathBuf::as_path), args.rows.format.as_deref())?;
    }
    let max_rejects = args.max_rejects.map_or(Ok(0.01), share_of_rows)?;
    claim(&args.dst, args.fresh).or_else(|error| match &error {
        RowsError::AlreadyPrepared { .. } => {
            Err(usage(error.to_string(), "begin again with --fresh, or use another folder"))
        }
        RowsError::Occupied { .. } => Err(error).hint("choose an empty target"),
        _ => Err(error.into()),
    })?;
    let options = RowsOptions {
        format: args.rows.format.clone(),
        hashing,
        shards: args.shards as usize,
        max_rejects,
    };
    let cancel = terminal.interrupt()?;
    let bar = terminal.progress("preparing", None, Unit::Items("rows"));
    let start = Instant::now();
    let made = prepare(&Input::Files(files), dst, &options, &cancel, &|rows, _| {
        bar.set(rows);
    })
    .hint("`--format` names the format; `--max-rejects 5%` allows more malformed lines")?;
    drop(bar);
    let Some(made) = made else { return Ok(Exit::Interrupted) };
    let seconds = start.elapsed().as_secs_f64();
    let bytes: u64 = made.shards.iter().map(|shard| shard.bytes).sum();
    terminal.data(format!(
        "{} rows in {} shards, {:.1} MB, in `{}` ({seconds:.1} s, {:.0} rows/s); {} malformed lines",
        made.rows,
        made.shards.len(),
        bytes as f64 / 1e6,
        args.dst.display(),
        made.rows as f64 / seconds,
        made.rejects
    ))?;
    terminal.json(&made)?;
    Ok(Exit::Done)
}
