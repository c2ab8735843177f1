//! `paceline advise ask`: what to run next.

use super::answer;
use super::question::Question;
use crate::arguments::paths::local_path;
use crate::terminal::Terminal;
use crate::terminal::failure::Exit;
use paceline_runs::write_atomically;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `paceline advise ask`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  paceline advise ask --state search.json --catalog machines.csv --history runs.csv\n  paceline advise tell --state search.json --catalog machines.csv --machine m4.large --count 4 --seconds 812"
)]
pub struct Args {
    /// The search; begun if the file does not exist
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    state: PathBuf,
    #[command(flatten)]
    question: Question,
    /// Write a page with the search so far and what the model expects of every configuration
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    out: Option<PathBuf>,
}

/// Proposes, and writes the state file if it is new.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut session = args.question.open(&args.state, terminal)?;
    let advice = session.ask().or_else(|error| args.question.explain(error))?;
    let catalogue = session.catalogue();
    let found = advice.recommendation.as_ref();
    match &advice.proposal {
        Some(proposal) => {
            let next = catalogue.name(proposal.configuration);
            if let Some(stop) = &proposal.stop {
                terminal.data(format!("enough:      {stop}"))?;
                answer::print(terminal, catalogue, found)?;
                terminal.data(format!("to continue: {next} ({})", proposal.reason))?;
            } else {
                terminal.data(format!("run next:    {next}"))?;
                terminal.data(format!("because:     {}", proposal.reason))?;
                answer::print_outlook(terminal, proposal, session.objective(), found)?;
                answer::print_so_far(terminal, catalogue, found)?;
            }
        }
        None => {
            terminal.data("everything has been tried")?;
            answer::print(terminal, catalogue, found)?;
        }
    }
    if let Some(path) = &args.out {
        write_atomically(path, super::search_page::html(&session)?.as_bytes())?;
        terminal.note(format!("page in `{}`", path.display()));
    }
    terminal.json(&json!({
        "state": args.state,
        "method": session.method().name,
        "next": answer::proposal_json(catalogue, advice.proposal.as_ref()),
        "recommendation": answer::recommendation_json(catalogue, found),
    }))?;
    Ok(Exit::Done)
}
