//! `paceline advise ask`: what to run next.

use super::super::staging::local_path;
use super::answer;
use super::question::Question;
use crate::failure::Exit;
use crate::terminal::Terminal;
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
}

/// Proposes, and writes the state file if it is new.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let prepared = args.question.prepare(Some(&args.state))?;
    if !args.state.exists() {
        prepared.state.write(&args.state)?;
    }
    let search = prepared.search()?;
    let catalogue = &prepared.problem.catalogue;
    let proposal = prepared.advisor.propose(&search);
    let found = prepared.advisor.recommend(&search);
    match &proposal {
        Some(proposal) => {
            if let Some(stop) = &proposal.stop {
                terminal.data(format!("enough:      {stop}"))?;
                answer::print(terminal, catalogue, found.as_ref())?;
                terminal.data(format!(
                    "to go on:    {} ({})",
                    catalogue.name(proposal.configuration),
                    proposal.reason
                ))?;
            } else {
                terminal
                    .data(format!("run next:    {}", catalogue.name(proposal.configuration)))?;
                terminal.data(format!("because:     {}", proposal.reason))?;
            }
        }
        None => {
            terminal.data("everything has been tried")?;
            answer::print(terminal, catalogue, found.as_ref())?;
        }
    }
    terminal.json(&json!({
        "state": args.state,
        "method": prepared.state.method,
        "next": answer::proposal_json(catalogue, proposal.as_ref()),
        "recommendation": answer::recommendation_json(catalogue, found.as_ref()),
    }))?;
    Ok(Exit::Done)
}
