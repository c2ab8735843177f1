//! Flags that say what messages cost, and what is said of links that were not given.

use crate::arguments::paths::local_path;
use crate::arguments::units;
use crate::terminal::{show_bytes, show_seconds};
use paceline_forecast::measure::{ASSUMED_NETWORK, LinkOrigin, LinkSettings};
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
    /// The same between tasks of one host [default: measured here]
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    local_network: Option<f64>,
    /// The same between tasks of one host [default: measured here, else 10us]
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    local_latency: Option<f64>,
    /// Take both from a report of `paceline check --json`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["network", "latency"], value_parser = local_path())]
    check: Option<PathBuf>,
}

impl LinkArgs {
    /// The same for the library.
    pub(crate) fn settings(&self) -> LinkSettings {
        LinkSettings {
            bandwidth: self.network,
            latency: self.latency,
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
