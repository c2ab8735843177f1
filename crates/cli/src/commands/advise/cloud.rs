//! `paceline advise cloud`: the whole search, run by run.

use super::answer;
use super::question::Question;
use crate::arguments::paths::local_path;
use crate::arguments::units;
use crate::terminal::failure::{Exit, usage};
use crate::terminal::{Terminal, show_dollars};
use paceline_advisor::{Catalogue, JobCommand, Outcome, SearchBudget, SearchEnd, SearchEvent};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `paceline advise cloud`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  paceline advise cloud --catalog machines.csv --history runs.csv --objective cost \\\n    --exec './run-job.sh {machine} {count}'\n\nAn exit code other than 0 is a failed run: information, not the end of the search. Interrupted, the\nsame command continues where it was."
)]
pub struct Args {
    #[command(flatten)]
    question: Question,
    /// Shell command that runs the job once; `{machine}` and `{count}` are replaced
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// The search is kept here, and continues from here
    #[arg(long, value_name = "FILE", default_value = "advise.json", value_parser = local_path())]
    state: PathBuf,
    /// Most runs to make; fewer if the method finds that more are not worth it
    #[arg(long, default_value_t = 20)]
    max_runs: usize,
    /// Stop a run after this time, such as 90s, 10min or 2h; it counts as timed out
    #[arg(long, value_parser = units::positive_seconds, value_name = "TIME")]
    timeout: Option<f64>,
}

/// Runs the job until the method has enough, the budget is used up, or the user stops it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    // A limit beyond what a clock can count limits nothing.
    let limit = args.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let command = JobCommand { template: args.exec.clone(), limit };
    if !command.has_places() {
        return Err(usage(
            "--exec must say where the machine type and the number go",
            "as in --exec './run-job.sh {machine} {count}'",
        ));
    }
    let mut session = args.question.open(&args.state, terminal)?;
    let catalogue = session.catalogue().clone();
    let interrupt = terminal.interrupt()?;
    let budget = SearchBudget { runs: args.max_runs };
    let ended = session.run(&command, budget, &interrupt, &mut |event| {
        terminal.note(event_words(&event, &catalogue));
    });
    let (end, found) = ended.or_else(|error| args.question.explain(error))?;
    let why = end_words(&end);
    terminal.data(format!("ended:       {why}"))?;
    answer::print(terminal, &catalogue, found.as_ref())?;
    terminal.json(&json!({
        "state": args.state,
        "method": session.method().name,
        "ended": why,
        "recommendation": answer::recommendation_json(&catalogue, found.as_ref()),
    }))?;
    // A search without any completed run has no answer.
    Ok(if found.is_some() { Exit::Done } else { Exit::Failed })
}

fn event_words(event: &SearchEvent<'_>, catalogue: &Catalogue) -> String {
    match event {
        SearchEvent::Begins { run, configuration, reason } => {
            format!("run {run}: {} ({reason})", catalogue.name(*configuration))
        }
        SearchEvent::Ended { run, configuration, outcome } => {
            let seconds = outcome.seconds();
            let ended = match outcome {
                Outcome::Completed { .. } => "completed",
                Outcome::Failed { .. } => "failed",
                Outcome::TimedOut { .. } => "stopped",
            };
            let usd = show_dollars(catalogue.cost(*configuration, seconds));
            format!("run {run}: {ended} after {seconds:.1} s, {usd}")
        }
    }
}

fn end_words(end: &SearchEnd) -> String {
    match end {
        SearchEnd::Budget { runs } => format!("{runs} runs were made"),
        SearchEnd::Exhausted => "everything has been tried".to_owned(),
        SearchEnd::Enough(why) => why.clone(),
        SearchEnd::Interrupted => "interrupted; the run under way was not counted".to_owned(),
    }
}
