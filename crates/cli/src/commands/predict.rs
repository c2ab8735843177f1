//! `paceline predict`: the classes of photos, or the probabilities of rows, by the weights of a run.

mod photos;

use crate::arguments::idle_flags::{Rule, Typed};
use crate::arguments::train_rules::Choice;
use crate::terminal::{
    Terminal, data_stream,
    failure::{Exit, FailureExt, rows::explain, usage},
    metrics_words as words,
};
use anyhow::Context;
use paceline_data::rows::{Hashing, Input, expand};
use paceline_data::store::{self, Staging, durable::AtomicFile};
use paceline_runs::RunFolder;
use paceline_training::rows::{load_model, predict, resolve};
use std::{
    io::{BufWriter, IntoInnerError},
    path::{Path, PathBuf},
};

/// Arguments of `paceline predict`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// A run folder, its name under `runs`, or a checkpoint of a sparse model; here or in an object store
    run: PathBuf,
    /// Photos, and folders of them; `-` reads their paths from standard input, one a line. For a sparse model rows: files and
    /// folders, or `-` for standard input
    #[arg(default_value = "-", value_name = "PHOTOS|ROWS")]
    data: Vec<String>,
    /// How many classes of each photo are printed, most probable first [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    top: Option<u64>,
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

const SPARSE_RULES: &[Rule<bool>] = &[
    Rule {
        flags: &["format", "unlabelled"],
        is_met: |&is_sparse| is_sparse,
        otherwise: "on photos",
        instead: "name a run of `--model sparse-logistic`",
    },
    Rule {
        flags: &["top"],
        is_met: |&is_sparse| !is_sparse,
        otherwise: "on rows, of which one probability is printed",
        instead: "name a run of another model",
    },
];

/// Predicts.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let run = by_name(staging.input(&args.run, &|_| true)?);
    let dense = dense_run(&run)?;
    args.typed.check(&dense.is_none(), SPARSE_RULES)?;
    let out = args.out.as_deref().map(|out| staging.output_file(out)).transpose()?;
    let outcome = match dense {
        Some(dense) => photos::predict(args, &dense, out.as_deref(), terminal),
        None => score_rows(args, &run, out.as_deref(), terminal),
    };
    terminal.settle(staging, outcome)
}

/// A run by its path, or by its name among those of this folder.
pub(super) fn by_name(run: PathBuf) -> PathBuf {
    let named = Path::new("runs").join(&run);
    if !run.exists() && named.is_dir() { named } else { run }
}

/// The run, if it is one of a model that learns from examples; nothing for sparse models and their checkpoints.
pub(super) fn dense_run(path: &Path) -> anyhow::Result<Option<RunFolder>> {
    if !path.exists() {
        return Err(anyhow::anyhow!("there is no run at `{}`", path.display()))
            .hint("`paceline runs` lists the runs here; name one of their folders");
    }
    if !RunFolder::is_at(path) {
        return Ok(None);
    }
    let run = RunFolder::open(path)?;
    Ok(Choice::of_run(&run).is_ok_and(|choice| !choice.is_sparse()).then_some(run))
}

fn score_rows(
    args: &Args,
    run: &Path,
    out: Option<&Path>,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    if terminal.wants_json() && args.out.is_none() {
        return Err(usage(
            "with --json, standard output holds one document",
            "write the probabilities to a file with --out FILE",
        ));
    }
    score(args, run, out, terminal)
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
    let input = rows_of(&args.data)?;
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
            let mut out = BufWriter::with_capacity(1 << 16, data_stream());
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

/// Rows by their files, or of standard input.
pub(super) fn rows_of(data: &[String]) -> anyhow::Result<Input> {
    Ok(match data {
        [alone] if alone == "-" => Input::Standard,
        files => Input::Files(expand(&files.join(","))?),
    })
}
