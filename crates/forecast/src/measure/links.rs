//! What messages between tasks cost: given, read from a report of `paceline check`, assumed, or measured here.

use super::{LOCAL_LATENCY, stepping};
use crate::error::ForecastError;
use crate::oracle::Link;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What is known of the links beforehand; the rest is measured or assumed.
#[derive(Debug, Clone, Default)]
pub struct LinkSettings {
    /// Bytes per second between hosts.
    pub bandwidth: Option<f64>,
    /// Share of that rate which messages get, above 0 and up to 1; a report's rate is what they got.
    pub share: Option<f64>,
    /// Seconds of the smallest message between hosts.
    pub latency: Option<f64>,
    /// Bytes per second between tasks of one host.
    pub local_bandwidth: Option<f64>,
    /// Seconds of the smallest message between tasks of one host.
    pub local_latency: Option<f64>,
    /// A report of `paceline check --json`, which then decides what holds between hosts.
    pub report: Option<PathBuf>,
}

/// The link between hosts where nothing is said: an ordinary network of a cloud.
pub const ASSUMED_NETWORK: Link = Link { latency: 50e-6, bandwidth: 1.25e9 };

/// Links between hosts and inside one, and where the former come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Links {
    pub network: Link,
    /// Of rounds of a sum over all workers at once, where that was measured.
    pub sums: Option<Link>,
    pub local: Link,
    pub origin: LinkOrigin,
}

/// Where the link between hosts comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkOrigin {
    /// A report of `paceline check`.
    Report(PathBuf),
    /// Settings: whether each of the two was given. What was not is [`ASSUMED_NETWORK`]'s.
    Settings { bandwidth: bool, latency: bool },
}

impl LinkSettings {
    /// Decides both links. Inside a host, `measured` is what messages were found to cost there; without it,
    /// a copy of memory and a wake-up.
    pub fn decide(&self, measured: Option<Link>) -> Result<Links, ForecastError> {
        let (network, sums, origin) = match &self.report {
            Some(path) => {
                let (network, sums) = read(path)?;
                (network, sums, LinkOrigin::Report(path.clone()))
            }
            None => {
                let link = Link {
                    latency: self.latency.unwrap_or(ASSUMED_NETWORK.latency),
                    bandwidth: self.bandwidth.unwrap_or(ASSUMED_NETWORK.bandwidth)
                        * self.share.unwrap_or(1.0),
                };
                let (bandwidth, latency) = (self.bandwidth.is_some(), self.latency.is_some());
                (link, None, LinkOrigin::Settings { bandwidth, latency })
            }
        };
        let local = Link {
            latency: self
                .local_latency
                .unwrap_or_else(|| measured.map_or(LOCAL_LATENCY, |link| link.latency)),
            // A reduction reads two streams and writes one where a copy reads and writes one.
            bandwidth: self.local_bandwidth.unwrap_or_else(|| {
                measured
                    .map_or_else(|| stepping::copy_rate(usize::MAX) / 2.0, |link| link.bandwidth)
            }),
        };
        Ok(Links { network, sums, local, origin })
    }
}

/// The worst pair of a report decides what servers and workers can say to each other; beside it, what sums
/// over all workers were found to take.
fn read(path: &Path) -> Result<(Link, Option<Link>), ForecastError> {
    const MIB: f64 = (1u32 << 20) as f64;
    let text = std::fs::read_to_string(path)
        .map_err(|source| ForecastError::Read { path: path.to_path_buf(), source })?;
    let report: Value = serde_json::from_str(&text)
        .map_err(|source| ForecastError::NotJson { path: path.to_path_buf(), source })?;
    let pairs = report["pairs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut link: Option<Link> = None;
    for pair in pairs {
        let number = |name: &str| pair[name].as_f64().filter(|value| *value > 0.0);
        let latency = number("round_trip_ms").map(|both_ways| both_ways / 2e3);
        let bandwidth = number("mib_per_second").map(|rate| rate * MIB);
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
            Some(Link { latency: ms / 1e3, bandwidth: rate * MIB })
        }
        _ => None,
    };
    match link {
        Some(link) => Ok((link, sums)),
        None => Err(ForecastError::NoMeasuredPair { path: path.to_path_buf() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> (tempfile::TempDir, LinkSettings) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("check.json");
        std::fs::write(&path, text).unwrap();
        (folder, LinkSettings { report: Some(path), ..LinkSettings::default() })
    }

    const LOCAL: Option<Link> = Some(Link { latency: 1e-6, bandwidth: 1e10 });

    #[test]
    fn the_worst_pair_of_a_report_decides() {
        let (_folder, settings) = report(
            r#"{"pairs": [{"round_trip_ms": 0.1, "mib_per_second": 1000.0}, {"task": "no figures"},
                {"round_trip_ms": 0.4, "mib_per_second": 2000.0}],
                "sums": {"latency_ms": 1.0, "mib_per_second": 100.0}}"#,
        );
        let links = settings.decide(LOCAL).unwrap();
        assert_eq!(links.network, Link { latency: 2e-4, bandwidth: 1000.0 * 1024.0 * 1024.0 });
        assert_eq!(links.sums, Some(Link { latency: 1e-3, bandwidth: 100.0 * 1024.0 * 1024.0 }));
        assert_eq!(Some(links.local), LOCAL);
    }

    #[test]
    fn a_report_without_figures_is_refused_by_name() {
        let (_folder, settings) = report(r#"{"pairs": []}"#);
        let error = settings.decide(LOCAL).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("check.json"), "{error}");
        let (_folder, settings) = report("pairs: none");
        let error = settings.decide(LOCAL).unwrap_err();
        assert!(!error.is_usage() && error.to_string().contains("not JSON"), "{error}");
    }

    #[test]
    fn what_was_given_stands_and_the_rest_is_known_to_be_assumed() {
        let settings = LinkSettings { bandwidth: Some(5e9), ..LinkSettings::default() };
        let links = settings.decide(LOCAL).unwrap();
        assert_eq!(links.network, Link { bandwidth: 5e9, ..ASSUMED_NETWORK });
        assert_eq!(links.origin, LinkOrigin::Settings { bandwidth: true, latency: false });
        let settings = LinkSettings { share: Some(0.5), ..settings };
        assert_eq!(settings.decide(LOCAL).unwrap().network.bandwidth, 2.5e9);
    }
}
