//! `paceline advise tell`: how a run went.

use super::answer;
use super::question::Question;
use crate::arguments::paths::local_path;
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, usage};
use paceline_advisor::Outcome;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Arguments of `paceline advise tell`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The search
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    state: PathBuf,
    #[command(flatten)]
    question: Question,
    /// Machine type that ran
    #[arg(long)]
    machine: String,
    /// How many of them
    #[arg(long)]
    count: u32,
    /// Wall time; of a failed run until it broke off, if known
    #[arg(long, required_unless_present = "failed", allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// The run broke off
    #[arg(long, conflicts_with = "timed_out")]
    failed: bool,
    /// The run was stopped because it took too long
    #[arg(long)]
    timed_out: bool,
    /// A resource metric of the run, as in the history's `metric.NAME`
    #[arg(long, value_name = "NAME=NUMBER")]
    metric: Vec<String>,
}

/// Adds the run to the state file and says what follows from it.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let metrics = metrics(&args.metric)?;
    let mut session = args.question.open(&args.state, terminal)?;
    let seconds = args.seconds.unwrap_or(0.0);
    let outcome = match (args.failed, args.timed_out) {
        (true, _) => Outcome::Failed { seconds },
        (_, true) => Outcome::TimedOut { seconds },
        _ => Outcome::Completed { seconds },
    };
    let told = session.tell(&args.machine, args.count, outcome, metrics);
    let found = told.or_else(|error| args.question.explain(error))?;
    let catalogue = session.catalogue();
    answer::print(terminal, catalogue, found.as_ref())?;
    terminal.json(&json!({
        "state": args.state,
        "recommendation": answer::recommendation_json(catalogue, found.as_ref()),
    }))?;
    Ok(Exit::Done)
}

fn metrics(texts: &[String]) -> anyhow::Result<BTreeMap<String, f64>> {
    let read = |text: &String| {
        let (name, number) = text.split_once('=')?;
        let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite())?;
        Some((name.to_owned(), number))
    };
    texts
        .iter()
        .map(|text| {
            read(text).ok_or_else(|| {
                usage(format!("--metric {text} is not a metric"), "use NAME=NUMBER, as in cpu=93.5")
            })
        })
        .collect()
}
