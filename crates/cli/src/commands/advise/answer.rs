//! The answer in words and as JSON.

use crate::terminal::{Terminal, show_count, show_dollars, show_seconds};
use paceline_advisor::{Catalogue, Objective, Proposal, Recommendation};
use serde_json::{Value, json};

/// A recommendation as JSON; `null` while there is none.
pub(super) fn recommendation_json(catalogue: &Catalogue, found: Option<&Recommendation>) -> Value {
    let Some(found) = found else { return Value::Null };
    json!({
        "machine": catalogue.machine(found.configuration).name,
        "count": catalogue.count(found.configuration),
        "seconds": found.seconds,
        "usd": found.usd,
        "measured": found.measured,
        "reason": found.reason,
        "runner_up": found.runner_up.map(|(at, usd, seconds)| json!({
            "machine": catalogue.machine(at).name,
            "count": catalogue.count(at),
            "usd": usd,
            "seconds": seconds,
        })),
        "runs": found.runs,
        "failed_runs": found.failed_runs,
        "search_seconds": found.search_seconds,
        "search_usd": found.search_usd,
    })
}

/// A proposal as JSON; `null` when everything has been tried.
pub(super) fn proposal_json(catalogue: &Catalogue, proposal: Option<&Proposal>) -> Value {
    let Some(proposal) = proposal else { return Value::Null };
    json!({
        "machine": catalogue.machine(proposal.configuration).name,
        "count": catalogue.count(proposal.configuration),
        "reason": proposal.reason,
        "stop": proposal.stop,
        "outlook": proposal.outlook,
    })
}

/// What the next run is worth, as far as the method has a model: what it may save, what it costs, when to end it.
pub(super) fn print_outlook(
    terminal: &Terminal,
    proposal: &Proposal,
    objective: Objective,
    best: Option<&Recommendation>,
) -> anyhow::Result<()> {
    let Some(outlook) = proposal.outlook else { return Ok(()) };
    if let (Some(saving), Some(usd)) = (outlook.saving, outlook.usd) {
        let worth = match (objective, best) {
            // Time is not saved in dollars: a faster configuration may be the dearer one.
            (Objective::Time, Some(best)) => {
                let saved = show_seconds(saving * best.seconds.value);
                format!(
                    "{:.1} % of each later run's time, {saved}, for about {}",
                    saving * 100.0,
                    show_dollars(usd)
                )
            }
            (_, best) => {
                let pays = best.map(|best| usd / (saving * best.usd.value));
                let pays = pays.filter(|runs| runs.is_finite()).map_or_else(String::new, |runs| {
                    let runs = runs.max(1.0).ceil();
                    format!("; pays for itself if the job runs {runs:.0} more times")
                });
                let usd = show_dollars(usd);
                format!("{:.1} % of each later run, for about {usd}{pays}", saving * 100.0)
            }
        };
        terminal.data(format!("worth:       {worth}"))?;
    }
    if let Some(limit) = outlook.limit {
        let limit = show_seconds(limit);
        terminal.data(format!("end it:      after {limit}; it cannot be the choice any more, then tell with --timed-out"))?;
    }
    Ok(())
}

/// The best so far and the runner-up, while the search goes on.
pub(super) fn print_so_far(
    terminal: &Terminal,
    catalogue: &Catalogue,
    found: Option<&Recommendation>,
) -> anyhow::Result<()> {
    let Some(found) = found.filter(|found| found.measured) else { return Ok(()) };
    let name = catalogue.name(found.configuration);
    let (usd, seconds) = (show_dollars(found.usd.value), show_seconds(found.seconds.value));
    terminal.data(format!("best so far: {name}, {usd} and {seconds} a run"))?;
    print_runner_up(terminal, catalogue, found)
}

fn print_runner_up(
    terminal: &Terminal,
    catalogue: &Catalogue,
    found: &Recommendation,
) -> anyhow::Result<()> {
    let Some((at, usd, seconds)) = found.runner_up else { return Ok(()) };
    let name = catalogue.name(at);
    let (usd, seconds) = (show_dollars(usd), show_seconds(seconds));
    terminal.data(format!("runner-up:   {name}, {usd} and {seconds} a run"))
}

/// Prints the answer so far.
pub(super) fn print(
    terminal: &Terminal,
    catalogue: &Catalogue,
    found: Option<&Recommendation>,
) -> anyhow::Result<()> {
    let Some(found) = found else {
        return terminal.data("no run has completed yet: nothing to recommend");
    };
    terminal.data(format!("recommended: {}", catalogue.name(found.configuration)))?;
    let (usd, seconds) = (found.usd, found.seconds);
    terminal.data(format!(
        "expected:    {} a run ({} to {}), {} ({} to {}), nine times in ten",
        show_dollars(usd.value),
        show_dollars(usd.low),
        show_dollars(usd.high),
        show_seconds(seconds.value),
        show_seconds(seconds.low),
        show_seconds(seconds.high)
    ))?;
    terminal.data(format!("because:     {}", found.reason))?;
    print_runner_up(terminal, catalogue, found)?;
    let failed = match found.failed_runs {
        0 => String::new(),
        some => format!(", {some} of them without a result"),
    };
    terminal.data(format!(
        "search:      {}{failed}, {}, {}",
        show_count(found.runs, "run"),
        show_dollars(found.search_usd),
        show_seconds(found.search_seconds)
    ))
}
