//! `paceline import`: a profiler's traces as a run that can be reported, served and compared.

use crate::{
    arguments::paths::local_path,
    terminal::Terminal,
    terminal::failure::{Exit, FailureExt, forecast::explain},
};
use paceline_forecast::measure::StepProfile;
use paceline_runs::{
    RunView,
    trace::{self, TracedJob},
};
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
    /// Examples of each rank's step, which a trace does not say: `simulate` and `advise` need them
    #[arg(long, value_name = "EXAMPLES", value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: Option<u64>,
    /// Trained values of the model: so many travel between workers
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    parameters: Option<u64>,
    /// Keep the step times in a file for `paceline simulate --profile`, beside those of other batch sizes that it has
    #[arg(long, value_name = "FILE", requires_all = ["batch_size", "parameters"], value_parser = local_path())]
    profile: Option<PathBuf>,
}

/// Reads the traces and says what they show.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = TracedJob { batch_size: args.batch_size, parameters: args.parameters };
    let imported = trace::import(&args.traces, &args.out, &job);
    let hint = imported.as_ref().err().filter(|error| error.is_of_contents()).map(|_| {
        "export_chrome_trace of torch.profiler writes such files; call prof.step() after every training step"
    });
    let imported = imported.hint_if_any(hint)?;
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
    if let Some(path) = &args.profile {
        StepProfile::add_run(path, &imported.run).map_err(explain)?;
        terminal.note(format!("step times in `{}`", path.display()));
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
