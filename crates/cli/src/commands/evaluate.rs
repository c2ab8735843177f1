//! `paceline evaluate`: how good the model of a run is on a data set.

use super::predict;
use crate::arguments::idle_flags::{Rule, Typed};
use crate::terminal::failure::{
    Exit, FailureExt, rows::explain as explain_rows, training::explain,
};
use crate::terminal::{Table, Terminal, Unit, metrics_words};
use paceline_data::store::Staging;
use paceline_data::{Split, rows::Hashing};
use paceline_runs::RunFolder;
use paceline_training::{
    DataScore, Trained, Which,
    rows::{load_model, predict as score_rows, resolve},
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Classes for which the confusion matrix is printed; JSON has it up to 1000.
const MOST_PRINTED: usize = 20;

/// Arguments of `paceline evaluate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// A run folder, its name under `runs`, or a checkpoint of a sparse model; here or in an object store
    run: PathBuf,
    /// A data set as in `paceline train --data`; for a sparse model rows with labels: files and folders, or `-` for standard input
    data: String,
    /// Score this part of the data: train, validation or test [default: the held-out part of the data that the run was trained on,
    /// and all of other data]
    #[arg(long)]
    split: Option<Split>,
    /// The latest weights instead of the best
    #[arg(long)]
    latest: bool,
    /// Format of the rows: clicks, vw or libsvm [default: recognised]
    #[arg(long)]
    format: Option<String>,
}

const RULES: &[Rule<bool>] = &[
    Rule {
        flags: &["format"],
        is_met: |&is_sparse| is_sparse,
        otherwise: "on examples",
        instead: "name a run of `--model sparse-logistic`",
    },
    Rule {
        flags: &["split", "latest"],
        is_met: |&is_sparse| !is_sparse,
        otherwise: "on rows of sparse features",
        instead: "name the rows, and a checkpoint, by their paths",
    },
];

/// Scores.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let run = predict::by_name(staging.input(&args.run, &|_| true)?);
    let dense = predict::dense_run(&run)?;
    args.typed.check(&dense.is_none(), RULES)?;
    let outcome = match dense {
        Some(dense) => examples(args, &dense, terminal),
        None => rows(args, &run, terminal),
    };
    terminal.settle(staging, outcome)
}

fn examples(args: &Args, run: &RunFolder, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let which = if args.latest { Which::Latest } else { Which::Best };
    let mut model = Trained::load(run, which).map_err(explain)?;
    let bar = terminal.progress("scoring", None, Unit::Items("examples"));
    let scored = model.evaluate(&args.data, args.split, &cancel, &mut |done, all| {
        bar.set_total(all);
        bar.set(done);
    });
    drop(bar);
    let Some(score) = scored.map_err(explain)? else { return Ok(Exit::Interrupted) };
    if score.rejected > 0 {
        terminal.warn(format!("{} photos could not be used and were left out", score.rejected));
    }
    terminal.data(describe(&score, &args.run))?;
    terminal.json(&score)?;
    Ok(Exit::Done)
}

/// The figures, the classes, and which are taken for which.
fn describe(score: &DataScore, run: &Path) -> String {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
    row("run", format!("{}, {} at step {}", run.display(), score.model, score.step));
    let part = score.split.map_or("all".to_owned(), |split| format!("its {split} split"));
    row("data", format!("{} ({part}), {} examples", score.data, score.examples));
    row("accuracy", format!("{:.2} %", 100.0 * score.accuracy));
    row("loss", format!("{:.4}", score.loss));
    row("calibration error", format!("{:.4}", score.calibration_error));
    let share =
        |share: Option<f64>| share.map_or("–".to_owned(), |it| format!("{:.1} %", it * 100.0));
    let mut classes = Table::new(["class", "examples", "predicted", "precision", "recall"]);
    for class in &score.classes {
        classes.row([
            class.class.clone(),
            class.examples.to_string(),
            class.predicted.to_string(),
            share(class.precision),
            share(class.recall),
        ]);
    }
    let mut text = format!("{table}\n{classes}");
    if !score.confusion.is_empty() && score.classes.len() <= MOST_PRINTED {
        let names = score.classes.iter().map(|class| class.class.clone());
        let head = std::iter::once("label, prediction".to_owned()).chain(names);
        let mut confusion = Table::new(head);
        for (class, counts) in score.classes.iter().zip(&score.confusion) {
            let counts = counts.iter().map(ToString::to_string);
            confusion.row(std::iter::once(class.class.clone()).chain(counts));
        }
        text.push_str(&format!("\n{confusion}"));
    }
    text
}

/// Scores rows with the weights of a sparse model.
fn rows(args: &Args, run: &Path, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let path = resolve(run).map_err(explain_rows)?;
    let (checkpoint, model) = load_model(&path).map_err(explain_rows)?;
    let hashing = Hashing { labelled: true, ..checkpoint.spec.hashing };
    let format = args.format.as_deref().or(checkpoint.spec.format.as_deref());
    let input = predict::rows_of(std::slice::from_ref(&args.data))?;
    let mut nowhere = std::io::sink();
    let scored = score_rows(&model, input, format, hashing, &mut nowhere, &cancel)
        .map_err(explain_rows)
        .hint("`--format` names the format of the rows")?;
    let Some(metrics) = &scored.metrics else {
        return Err(anyhow::anyhow!("`{}` has no row that can be scored", args.data))
            .hint("rows need labels; `--format` names their format");
    };
    if scored.rejected > 0 {
        terminal.warn(format!("{} malformed lines were left out", scored.rejected));
    }
    terminal.data(format!("{} rows: {}", scored.rows, metrics_words(metrics)))?;
    terminal.json(&json!({
        "run": args.run,
        "rows_learned": checkpoint.rows,
        "data": args.data,
        "rejected": scored.rejected,
        "metrics": metrics,
    }))?;
    Ok(Exit::Done)
}
