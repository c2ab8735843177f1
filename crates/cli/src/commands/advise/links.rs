//! What messages cost: from flags, from a report of `paceline check`, or measured here.

use super::super::staging::local_path;
use crate::failure::{FailureExt, usage};
use crate::units::{self, show_bytes, show_seconds};
use anyhow::Context;
use paceline_forecast::measure::{LOCAL_LATENCY, stepping};
use paceline_forecast::oracle::Link;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Flags that describe links.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LinkArgs {
    /// Bandwidth between hosts, such as 10Gbit [default: 10Gbit]
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    pub(crate) network: Option<f64>,
    /// Time of the smallest message between hosts, such as 50us [default: 50us]
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    pub(crate) latency: Option<f64>,
    /// The same between tasks of one host [default: measured here]
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    pub(crate) local_network: Option<f64>,
    /// The same between tasks of one host [default: measured here, else 10us]
    #[arg(long, value_parser = units::seconds, value_name = "TIME")]
    pub(crate) local_latency: Option<f64>,
    /// Take both from a report of `paceline check --json`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["network", "latency"], value_parser = local_path())]
    check: Option<PathBuf>,
}

/// A guess where nothing is said: an ordinary network of a cloud.
const NETWORK: Link = Link { latency: 50e-6, bandwidth: 1.25e9 };

/// Links between hosts and inside one, and where the former come from.
pub(crate) struct Links {
    pub(crate) network: Link,
    /// Of rounds of a sum over all workers at once, where that was measured.
    pub(crate) sums: Option<Link>,
    pub(crate) local: Link,
    pub(crate) origin: Origin,
}

/// Where the link between hosts comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A report of `paceline check`.
    Report(PathBuf),
    /// Flags; what was not given is assumed.
    Flags { network: bool, latency: bool },
}

impl Origin {
    /// In a few words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Report(path) => format!("`{}`", path.display()),
            Self::Flags { network: true, latency: true } => "given".to_owned(),
            Self::Flags { network: true, latency: false } => {
                "bandwidth given, latency assumed".to_owned()
            }
            Self::Flags { network: false, latency: true } => {
                "latency given, bandwidth assumed".to_owned()
            }
            Self::Flags { network: false, latency: false } => "assumed".to_owned(),
        }
    }

    /// What was assumed, and the flags that would say it; `None` if nothing was.
    pub(crate) fn assumed(&self) -> Option<String> {
        let (bandwidth, latency) = (show_bytes(NETWORK.bandwidth), show_seconds(NETWORK.latency));
        match self {
            Self::Report(_) | Self::Flags { network: true, latency: true } => None,
            Self::Flags { network: true, latency: false } => Some(format!(
                "the network's latency is assumed to be {latency}, not measured: give --latency"
            )),
            Self::Flags { network: false, latency: true } => Some(format!(
                "the network's bandwidth is assumed to be {bandwidth}/s, not measured: give --network"
            )),
            Self::Flags { network: false, latency: false } => Some(format!(
                "the network is assumed ({bandwidth}/s, {latency}), not measured: give --network and --latency"
            )),
        }
    }
}

impl LinkArgs {
    /// Decides both links. Inside a host, `measured` is what messages were found to cost there; without it,
    /// a copy of memory and a wake-up.
    pub(crate) fn decide(&self, measured: Option<Link>) -> anyhow::Result<Links> {
        let (network, sums, origin) = match &self.check {
            Some(path) => {
                let (network, sums) = read(path)?;
                (network, sums, Origin::Report(path.clone()))
            }
            None => {
                let link = Link {
                    latency: self.latency.unwrap_or(NETWORK.latency),
                    bandwidth: self.network.unwrap_or(NETWORK.bandwidth),
                };
                let (network, latency) = (self.network.is_some(), self.latency.is_some());
                (link, None, Origin::Flags { network, latency })
            }
        };
        let local = Link {
            latency: self
                .local_latency
                .unwrap_or_else(|| measured.map_or(LOCAL_LATENCY, |link| link.latency)),
            // A reduction reads two streams and writes one where a copy reads and writes one.
            bandwidth: self.local_network.unwrap_or_else(|| {
                measured
                    .map_or_else(|| stepping::copy_rate(usize::MAX) / 2.0, |link| link.bandwidth)
            }),
        };
        Ok(Links { network, sums, local, origin })
    }
}

/// The worst pair of a report decides what servers and workers can say to each other; beside it, what sums
/// over all workers were found to take.
fn read(path: &Path) -> anyhow::Result<(Link, Option<Link>)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let report: Value = serde_json::from_str(&text)
        .with_context(|| format!("`{}` is not JSON", path.display()))
        .hint("write it with `paceline check --json`")?;
    let pairs = report["pairs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut link: Option<Link> = None;
    for pair in pairs {
        let number = |name: &str| pair[name].as_f64().filter(|value| *value > 0.0);
        let latency = number("round_trip_ms").map(|both_ways| both_ways / 2e3);
        let bandwidth = number("mib_per_second").map(|rate| rate * f64::from(1u32 << 20));
        let (Some(latency), Some(bandwidth)) = (latency, bandwidth) else {
            continue;
        };
        let worst = link.unwrap_or(Link { latency, bandwidth });
        link = Some(Link {
            latency: worst.latency.max(latency),
            bandwidth: worst.bandwidth.min(bandwidth),
        });
    }
    let sums = &report["sums"];
    let sums = match (sums["latency_ms"].as_f64(), sums["mib_per_second"].as_f64()) {
        (Some(ms), Some(rate)) if ms >= 0.0 && rate > 0.0 => {
            Some(Link { latency: ms / 1e3, bandwidth: rate * f64::from(1u32 << 20) })
        }
        _ => None,
    };
    link.map(|link| (link, sums)).ok_or_else(|| {
        usage(
            format!("`{}` holds no measured pair of tasks", path.display()),
            "run `paceline check --json` while the tasks are up, or give --network and --latency",
        )
    })
}
