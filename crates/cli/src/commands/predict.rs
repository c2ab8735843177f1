//! `paceline predict`: scores rows with a checkpoint.

use super::{
    learn::{explain, words},
    staging::Staging,
};
use crate::{
    failure::{Exit, FailureExt, usage},
    terminal::Terminal,
};
use anyhow::Context;
use paceline_data::rows::{Hashing, Input, expand};
use paceline_data::store::{self, durable::AtomicFile};
use paceline_training::rows::{load_model, predict, resolve};
use std::{
    io::{BufWriter, IntoInnerError},
    path::{Path, PathBuf},
};

/// Arguments of `paceline predict`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run folder, or one of its checkpoints; here or in an object store
    run: PathBuf,
    /// Rows to score: files and folders, or `-` for standard input
    #[arg(default_value = "-")]
    data: String,
    /// Format of the rows: clicks, vw or libsvm [default: recognised]
    #[arg(long)]
    format: Option<String>,
    /// The rows have no label
    #[arg(long)]
    unlabelled: bool,
    /// File to write the probabilities to [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Scores.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if terminal.wants_json() && args.out.is_none() {
        return Err(usage(
            "with --json, standard output holds one document",
            "write the probabilities to a file with --out FILE",
        ));
    }
    let mut staging = Staging::default();
    let run = staging.input(&args.run, &|_| true)?;
    let out = args.out.as_deref().map(|out| staging.output_file(out)).transpose()?;
    let outcome = score(args, &run, out.as_deref(), terminal);
    staging.settle(outcome, terminal)
}

/// Scores with a run on this machine, into a file on this machine.
fn score(
    args: &Args,
    run: &Path,
    out: Option<&Path>,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let path = resolve(run).map_err(explain)?;
    let (checkpoint, model) = load_model(&path).map_err(explain)?;
    let hashing = Hashing { labelled: !args.unlabelled, ..checkpoint.spec.hashing };
    let format = args.format.as_deref().or(checkpoint.spec.format.as_deref());
    let input = match args.data.as_str() {
        "-" => Input::Standard,
        list => Input::Files(expand(list)?),
    };
    let shown = if store::is_remote(&args.run) { &args.run } else { &path };
    terminal.note(format!("weights of `{}`, after {} rows", shown.display(), checkpoint.rows));
    let predicted = match out {
        Some(target) => {
            let cannot = || format!("cannot write `{}`", target.display());
            // The file appears whole or not at all.
            let mut out = BufWriter::new(AtomicFile::create(target).with_context(cannot)?);
            let predicted =
                predict(&model, input, format, hashing, &mut out, &cancel).map_err(explain)?;
            let out = out.into_inner().map_err(IntoInnerError::into_error);
            out.and_then(AtomicFile::commit).with_context(cannot)?;
            predicted
        }
        None => {
            let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
            let result = predict(&model, input, format, hashing, &mut out, &cancel);
            result.map_err(explain).hint("`--format` names the format of the rows")?
        }
    };
    if predicted.rejected > 0 {
        terminal.warn(format!("{} malformed lines: `nan` in the output", predicted.rejected));
    }
    if let Some(metrics) = &predicted.metrics {
        terminal.note(format!("{} rows: {}", predicted.rows, words(metrics)));
    }
    terminal.json(&predicted)?;
    Ok(Exit::Done)
}
