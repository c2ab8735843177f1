//! `paceline import`: a profiler's traces as a run that can be reported, served and compared.

use crate::{
    terminal::Terminal,
    terminal::failure::{Exit, FailureExt},
};
use paceline_runs::{RunView, trace};
use serde_json::json;
use std::path::PathBuf;

/// Below this many steps a verdict is a guess.
const FEW_STEPS: usize = 20;

/// Arguments of `paceline import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Chrome traces of PyTorch's profiler, one per rank: .json or .json.gz
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Run folder to make
    #[arg(long, value_name = "RUN")]
    out: PathBuf,
}

/// Reads the traces and says what they show.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let imported = trace::import(&args.traces, &args.out).hint(
        "export_chrome_trace of torch.profiler writes such files; call prof.step() after every training step",
    )?;
    let view = RunView::read(&imported.run)?;
    terminal.data(format!(
        "{} steps of {} {} in {:.2} s, as run `{}`",
        imported.steps,
        imported.ranks,
        if imported.ranks == 1 { "rank" } else { "ranks" },
        imported.seconds,
        imported.run.display()
    ))?;
    terminal.data(format!("verdict: {}", view.summary.verdict))?;
    if imported.steps < FEW_STEPS {
        terminal.note(format!(
            "a verdict on {} steps is a guess: profile {FEW_STEPS} or more, without the first few",
            imported.steps
        ));
    }
    terminal.json(&json!({
        "run": imported.run,
        "ranks": imported.ranks,
        "steps": imported.steps,
        "seconds": imported.seconds,
        "verdict": view.summary.verdict,
    }))?;
    Ok(Exit::Done)
}
