//! Flags that say what messages cost, and what is said of links that were not given.

use crate::arguments::paths::local_path;
use crate::arguments::units;
use crate::terminal::{show_bytes, show_seconds};
use paceline_forecast::measure::{ASSUMED_NETWORK, LinkOrigin, LinkSettings};
use paceline_forecast::oracle::MeasuredStep;
use std::path::PathBuf;

/// Flags that describe links.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LinkArgs {
    /// Bandwidth between hosts, such as 10Gbit [default: 10Gbit]
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    network: Option<f64>,
    /// Time of the smallest message between hosts, such as 50us [default: 50us]
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    latency: Option<f64>,
    /// Share of --network's rate that messages get: 0.7 where a 10Gbit link carries 7 [default: 1]
    #[arg(long, value_parser = units::share, value_name = "SHARE", conflicts_with = "check")]
    network_share: Option<f64>,
    /// The same between tasks of one host [default: measured here]
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    local_network: Option<f64>,
    /// The same between tasks of one host [default: measured here, else 10us]
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    local_latency: Option<f64>,
    /// Take both from a report of `paceline check --json`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["network", "latency"], value_parser = local_path())]
    check: Option<PathBuf>,
    /// A step that was timed, such as 8=120ms, or 8=120ms@512 where its batch was another one: across hosts it says which share of
    /// its rate the network gives
    #[arg(long = "measured-step", value_name = "WORKERS=TIME[@BATCH]", value_parser = step)]
    pub(crate) measured_steps: Vec<MeasuredStep>,
}

/// More workers than any cluster has; each has a place in a projection.
pub(crate) const MOST_WORKERS: usize = 1 << 20;

/// Reads `8=120ms` or `8=120ms@512`.
fn step(text: &str) -> Result<MeasuredStep, String> {
    let parts = text.split_once('=').map(|(workers, rest)| match rest.split_once('@') {
        Some((time, batch)) => (workers, time, Some(batch)),
        None => (workers, rest, None),
    });
    let (workers, time, batch) =
        parts.ok_or("expected workers and the time of a step, such as 8=120ms")?;
    let count = |what: &str, text: &str| match text.parse::<usize>() {
        Ok(number @ 1..=MOST_WORKERS) => Ok(number),
        _ => Err(format!("`{text}` is not a number of {what}; expected 8=120ms or 8=120ms@512")),
    };
    Ok(MeasuredStep {
        workers: count("workers", workers)?,
        seconds: units::positive_seconds(time)?,
        batch: batch.map(|text| count("examples", text)).transpose()?.map(|batch| batch as f64),
    })
}

impl LinkArgs {
    /// The same for the library.
    pub(crate) fn settings(&self) -> LinkSettings {
        LinkSettings {
            bandwidth: self.network,
            latency: self.latency,
            share: self.network_share,
            local_bandwidth: self.local_network,
            local_latency: self.local_latency,
            report: self.check.clone(),
        }
    }
}

/// Where a link comes from, in a few words.
pub(crate) fn origin_words(origin: &LinkOrigin) -> String {
    match origin {
        LinkOrigin::Report(path) => format!("`{}`", path.display()),
        LinkOrigin::Settings { bandwidth: true, latency: true } => "given".to_owned(),
        LinkOrigin::Settings { bandwidth: true, latency: false } => {
            "bandwidth given, latency assumed".to_owned()
        }
        LinkOrigin::Settings { bandwidth: false, latency: true } => {
            "latency given, bandwidth assumed".to_owned()
        }
        LinkOrigin::Settings { bandwidth: false, latency: false } => "assumed".to_owned(),
    }
}

/// What was assumed, and the flags that would say it; `None` if nothing was.
pub(crate) fn assumed(origin: &LinkOrigin) -> Option<String> {
    let bandwidth = show_bytes(ASSUMED_NETWORK.bandwidth);
    let latency = show_seconds(ASSUMED_NETWORK.latency);
    match origin {
        LinkOrigin::Report(_) | LinkOrigin::Settings { bandwidth: true, latency: true } => None,
        LinkOrigin::Settings { bandwidth: true, latency: false } => Some(format!(
            "the network's latency is assumed to be {latency}, not measured: give --latency"
        )),
        LinkOrigin::Settings { bandwidth: false, latency: true } => Some(format!(
            "the network's bandwidth is assumed to be {bandwidth}/s, not measured: give --network"
        )),
        LinkOrigin::Settings { bandwidth: false, latency: false } => Some(format!(
            "the network is assumed ({bandwidth}/s, {latency}), not measured: give --network and --latency"
        )),
    }
}
