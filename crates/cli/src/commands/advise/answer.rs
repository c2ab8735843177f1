//! The answer in words and as JSON.

use crate::terminal::{Terminal, show_dollars, show_seconds};
use paceline_advisor::{Catalogue, Proposal, Recommendation};
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
    best_usd: Option<f64>,
) -> anyhow::Result<()> {
    let Some(outlook) = proposal.outlook else { return Ok(()) };
    if let (Some(saving), Some(usd)) = (outlook.saving, outlook.usd) {
        let pays = best_usd.map(|best| usd / (saving * best)).filter(|runs| runs.is_finite());
        let pays = pays.map_or_else(String::new, |runs| {
            format!("; pays for itself if the job runs {:.0} more times", runs.max(1.0).ceil())
        });
        terminal.data(format!(
            "worth:       {:.1} % of each later run, for about {}{pays}",
            saving * 100.0,
            show_dollars(usd)
        ))?;
    }
    if let Some(limit) = outlook.limit {
        let limit = show_seconds(limit);
        terminal.data(format!("end it:      after {limit}; it cannot be the choice any more, then tell with --timed-out"))?;
    }
    Ok(())
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
    if let Some((at, usd, seconds)) = found.runner_up {
        let name = catalogue.name(at);
        let (usd, seconds) = (show_dollars(usd), show_seconds(seconds));
        terminal.data(format!("runner-up:   {name}, {usd} and {seconds} a run"))?;
    }
    let failed = match found.failed_runs {
        0 => String::new(),
        some => format!(", {some} of them without a result"),
    };
    terminal.data(format!(
        "search:      {} runs{failed}, {}, {}",
        found.runs,
        show_dollars(found.search_usd),
        show_seconds(found.search_seconds)
    ))
}
