//! What `paceline speedtest` leaves in its folder: page, tables, numbers.

use super::Args;
use anyhow::Context as _;
use paceline_prepare::speedtest::{JOURNAL, Sample, SpeedTestOutcome, SpeedTestSettings};
use paceline_report::csv::Csv;
use paceline_report::experiment::{self as page, Context};
use paceline_stats::experiment::{Experiment, Findings};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
pub(super) const PAGE: &str = "speedtest.html";
/// Every measurement as a row.
pub(super) const CSV: &str = "speedtest.csv";

/// Writes page, tables and numbers; returns their names.
pub(super) fn write(
    out: &Path,
    args: &Args,
    settings: &SpeedTestSettings,
    outcome: &SpeedTestOutcome,
    experiment: &Experiment,
    findings: &Findings,
    context: &Context,
) -> anyhow::Result<Vec<PathBuf>> {
    let results = serde_json::to_string_pretty(&document(args, settings, outcome, findings, &[]))?;
    let files = [
        (PAGE, page::page(experiment, findings, context)),
        (CSV, samples_csv(&outcome.samples)),
        ("regressions.csv", page::regression_csv(findings)),
        ("speedtest.md", page::markdown(findings, context)),
        ("speedtest.json", results + "\n"),
    ];
    let mut written = vec![out.join(JOURNAL)];
    for (name, text) in files {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

/// What `--json` prints and `speedtest.json` keeps.
pub(super) fn document(
    args: &Args,
    settings: &SpeedTestSettings,
    outcome: &SpeedTestOutcome,
    findings: &Findings,
    files: &[PathBuf],
) -> serde_json::Value {
    json!({
        "complete": true,
        "settings": settings,
        "sources": outcome.sources,
        "cold_method": outcome.cold,
        "resumed": outcome.resumed,
        "samples": outcome.samples,
        "measured_again": args.measure_again,
        "rejects": outcome.rejects,
        "findings": findings,
        "files": files,
    })
}

fn samples_csv(samples: &[Sample]) -> String {
    let mut csv = Csv::new(&[
        "order",
        "source",
        "batch_size",
        "batches",
        "repetition",
        "images",
        "seconds",
        "images_per_second",
        "bytes",
        "storage_bytes",
        "cached",
        "setup_seconds",
        "host",
    ]);
    for s in samples {
        csv.row(&[
            s.order.to_string(),
            s.source.name().to_owned(),
            s.batch_size.to_string(),
            s.batches.to_string(),
            s.repetition.to_string(),
            s.images.to_string(),
            s.seconds.to_string(),
            s.images_per_second.to_string(),
            s.bytes.to_string(),
            s.storage_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            s.cached.to_string(),
            s.setup_seconds.to_string(),
            s.host.clone().unwrap_or_default(),
        ]);
    }
    csv.finish()
}
