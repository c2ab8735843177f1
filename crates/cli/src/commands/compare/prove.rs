//! `paceline compare --prove RUN`: the gain that a verdict speaks of, measured.

use crate::terminal::Terminal;
use crate::terminal::failure::{FailureExt, usage};
use anyhow::Context;
use paceline_runs::RunView;
use paceline_stats::sequential::SpeedRatio;
use paceline_sweep::{Claim, SweepError};
use serde_json::{Value, json};
use std::path::Path;

/// Reads what a run claims.
pub(super) fn claim(run: &Path, steps: u32) -> anyhow::Result<Claim> {
    let view = RunView::read(run)?;
    let program = std::env::current_exe().context("cannot find the program itself")?;
    Claim::of(&view, &run.display().to_string(), &program, steps).map_err(|error| match error {
        SweepError::NoScript { .. } => usage(
            error.to_string(),
            "--prove repeats scripts that `paceline run -- python train.py` recorded",
        ),
        SweepError::NothingToTakeAway { .. } => usage(
            error.to_string(),
            "input, exchange, stragglers and too many threads can be taken away for a measurement",
        ),
        error => {
            let failed: Result<(), SweepError> = Err(error);
            failed.hint("see `paceline runs`").expect_err("it was an error")
        }
    })
}

/// The bound and what was measured, one below the other.
pub(super) fn tell(
    claim: &Claim,
    ratio: Option<&SpeedRatio>,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    terminal.data(format!("verdict     {}", claim.verdict))?;
    terminal.data(format!("bound       at most {} less time", percent(claim.bound)))?;
    let measured = match ratio {
        Some(ratio) => format!(
            "{} it takes {} less time (95 % interval: {} to {})",
            claim.change.words(),
            percent(saved(ratio.value)),
            percent(saved(ratio.interval.low)),
            percent(saved(ratio.interval.high))
        ),
        None => "nothing can be said yet: some ten pairs are needed".to_owned(),
    };
    terminal.data(format!("measured    {measured}"))
}

pub(super) fn document(claim: &Claim, ratio: Option<&SpeedRatio>) -> Value {
    json!({
        "verdict": claim.verdict,
        "change": claim.change.to_string(),
        "bound": claim.bound,
        "saved": ratio.map(|ratio| saved(ratio.value)),
        "low": ratio.map(|ratio| saved(ratio.interval.low)),
        "high": ratio.map(|ratio| saved(ratio.interval.high)),
    })
}

/// Share of the time that something so many times as fast saves.
fn saved(ratio: f64) -> f64 {
    1.0 - 1.0 / ratio
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}
