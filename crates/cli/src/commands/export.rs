//! `paceline export`: a run's weights as one safetensors file, or what happened in it as a trace.

use super::runs::NAME_RULES;
use crate::arguments::{train_flags::find_run, train_rules::Choice};
use crate::{
    arguments::idle_flags::Typed,
    terminal::Terminal,
    terminal::failure::{Exit, FailureExt, usage},
};
use paceline_data::store::Staging;
use paceline_runs::{RunFolder, RunView, trace, write_atomically};
use paceline_training::{TrainError, Which, export};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `paceline export`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// The run, by folder or name
    run: String,
    /// File to write
    file: PathBuf,
    /// The weights of this step [default: the best on the test examples, else the latest]
    #[arg(long)]
    step: Option<u64>,
    /// The latest weights instead of the best
    #[arg(long, conflicts_with = "step")]
    latest: bool,
    /// A Chrome trace (for Perfetto or chrome://tracing) of tasks, phases, resources and events instead of weights
    #[arg(long, conflicts_with_all = ["step", "latest"])]
    trace: bool,
    /// Folder of run folders
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
}

/// Writes the file.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    args.typed.check(std::slice::from_ref(&args.run), NAME_RULES)?;
    let mut staging = Staging::default();
    let (out, name) = staging.run(&args.runs, &args.run, &|_| true)?;
    let file = staging.output_file(&args.file)?;
    let outcome = find_run(&out, &name).and_then(|run| {
        if args.trace {
            return write_trace(&run, &file, terminal);
        }
        if Choice::of_run(&run).is_ok_and(|choice| choice.is_sparse()) {
            return Err(usage(
                format!(
                    "run `{}` is of a sparse model, whose weights are not exported",
                    run.name()
                ),
                "`paceline predict` scores rows with it as it is",
            ));
        }
        write(args, &run, &file, terminal)
    });
    terminal.settle(staging, outcome)
}

/// Writes a trace.
fn write_trace(run: &RunFolder, file: &Path, terminal: &Terminal) -> anyhow::Result<Exit> {
    let trace = trace::export(&RunView::read(run.path())?);
    let events = trace["traceEvents"].as_array().map_or(0, Vec::len);
    write_atomically(file, &serde_json::to_vec(&trace)?)?;
    terminal.data(format!(
        "`{}`: {events} events of run `{}`; open it at ui.perfetto.dev or in chrome://tracing",
        file.display(),
        run.name()
    ))?;
    terminal.json(&json!({ "file": file, "run": run.name(), "events": events }))?;
    Ok(Exit::Done)
}

/// Writes a file of this machine.
fn write(args: &Args, run: &RunFolder, file: &Path, terminal: &Terminal) -> anyhow::Result<Exit> {
    let which = match args.step {
        Some(step) => Which::Step(step),
        None if args.latest => Which::Latest,
        None => Which::Best,
    };
    let exported = export(run, which, file);
    let of_file = matches!(&exported, Err(TrainError::CheckpointWrite { .. }));
    let hint = "`paceline runs` lists the runs; a run keeps its latest and its best checkpoints";
    let exported = exported.hint_if_any((!of_file).then_some(hint))?;
    terminal.data(format!(
        "{} tensors of `{}`, step {}, in `{}`",
        exported.tensors,
        exported.model,
        exported.step,
        args.file.display()
    ))?;
    terminal.json(&json!({
        "run": run.name(),
        "model": exported.model,
        "step": exported.step,
        "tensors": exported.tensors,
        "file": args.file,
    }))?;
    Ok(Exit::Done)
}
