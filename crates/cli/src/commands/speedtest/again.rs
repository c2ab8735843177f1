//! `paceline speedtest --measure-again`: every regression from measurements of its own.
//!
//! An engine that keeps no results makes them again for whatever asks for them. Published tests on Spark measured everything once
//! for each of their tables until they kept the results; with and without this flag the two can be compared here.

use super::{Args, distribute, experiment, forget, measure};
use crate::terminal::Terminal;
use paceline_cluster::launch::spark::Spark;
use paceline_prepare::speedtest::{Sample, SpeedTestSettings};
use paceline_stats::experiment::{Findings, analyse};
use std::path::Path;

/// What the page says of it.
pub(super) const WORDS: &str = "Everything was measured again for each regression, as an engine does that keeps no results: \
     each line and each table of averages has measurements of its own (folders `again-…`); the points drawn, and what is said of \
     all settings together, are those of the first time.";

/// Measures for every parameter but the first, which has the measurements that are there, and puts what is found in their place.
/// What there was when it was stopped, if it was.
pub(super) fn measure_for_each(
    args: &Args,
    settings: &SpeedTestSettings,
    out: &Path,
    engine: Option<&Spark>,
    findings: &mut Findings,
    terminal: &mut Terminal,
) -> anyhow::Result<Option<Vec<Sample>>> {
    for at in 1..findings.parameters.len() {
        let folder = out.join(format!("again-{}", findings.parameters[at].key));
        if args.fresh {
            forget(&folder)?;
        }
        if let Some(spark) = engine {
            distribute(settings, &folder, spark, terminal)?;
        }
        let outcome = measure(settings, &folder, terminal)?;
        if !outcome.complete {
            return Ok(Some(outcome.samples));
        }
        let own = analyse(&experiment(settings, &outcome.samples));
        for (group, mut found) in findings.groups.iter_mut().zip(own.groups) {
            group.parameters[at] = found.parameters.swap_remove(at);
        }
    }
    Ok(None)
}
