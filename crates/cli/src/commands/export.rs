//! `paceline export`: a run's weights as one safetensors file.

use super::train_flags::find_run;
use crate::{
    failure::{Exit, FailureExt},
    terminal::Terminal,
};
use paceline_trainer::{Which, export};
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `paceline export`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    /// Folder of run folders
    #[arg(long, default_value = "runs")]
    out: PathBuf,
}

/// Writes the file.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let run = find_run(&args.out, &args.run)?;
    let which = match args.step {
        Some(step) => Which::Step(step),
        None if args.latest => Which::Latest,
        None => Which::Best,
    };
    let exported = export(&run, which, &args.file)
        .hint("`paceline runs` lists the runs; a run keeps its latest and its best checkpoints")?;
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
