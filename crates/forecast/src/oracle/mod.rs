//! Which way of parallelising a network suits a cluster: projected time and memory of each.
//!
//! The formulas are those of ParaDL (Kahira et al., HPDC 2021), one file per strategy in [`parallel`].
//! Their inputs are measured: times of every layer on this machine by our own kernels, latency and
//! bandwidth of the links. Three things are added, because here they are not small: a part of a layer's
//! time that does not shrink with the batch, several tasks that share the cores of a host, and sums
//! inside a host, which are work for those cores.
//!
//! Trust the ranking more than the seconds: no input reading, no congestion, overlap of exchange and
//! backward pass only where it is asked for.

mod calibration;
mod machines;
mod network;
pub mod parallel;
mod question;

pub(crate) use calibration::crossing;
pub use calibration::{Calibration, MeasuredStep};
pub use machines::{Machines, Route};
pub use network::{Layer, Network};
pub use question::{LayerSource, ParallelForecast, ParallelQuestion};

use crate::error::ForecastError;
use parallel::Strategy;
use serde::{Deserialize, Serialize};

/// What moving data costs between two tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Seconds before the first byte arrives.
    pub latency: f64,
    /// Bytes per second after that.
    pub bandwidth: f64,
}

impl Link {
    /// Seconds for one message.
    #[must_use]
    pub fn message(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }

    /// What each of so many messages gets that are on it at the same time.
    #[must_use]
    pub fn shared(&self, messages: f64) -> Self {
        Self { bandwidth: self.bandwidth / messages.max(1.0), ..*self }
    }
}

/// The job: how much data, in which steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Job {
    /// Examples of one epoch.
    pub examples: f64,
    /// Examples of one update, over all workers.
    pub batch: f64,
    /// Bytes of one value.
    pub value_bytes: f64,
    /// Share of the backward pass during which gradients already travel; 0 as in the published model.
    pub overlap: f64,
}

/// What one strategy on one number of workers would take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Projection {
    pub strategy: &'static str,
    pub workers: usize,
    /// How they are arranged, where there is a choice: segments of a pipeline, groups of data x filter.
    pub arrangement: Option<String>,
    /// Seconds of computing in an epoch.
    pub compute: f64,
    /// Seconds of an epoch in which only messages travel.
    pub communication: f64,
    /// Bytes of memory each worker needs.
    pub memory: f64,
    /// Why it cannot be done, if it cannot.
    pub infeasible: Option<String>,
}

impl Projection {
    /// Seconds of an epoch.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.compute + self.communication
    }
}

/// Everything a strategy looks at.
pub struct Situation<'a> {
    pub network: &'a Network,
    pub job: Job,
    pub workers: usize,
    /// Factor on all compute times, from tasks that share a host.
    pub slowdown: f64,
    /// The way around all workers in one ring.
    pub ring: Route,
    pub machines: &'a Machines,
}

impl Situation<'_> {
    /// Updates of an epoch.
    #[must_use]
    pub fn steps(&self) -> f64 {
        self.job.examples / self.job.batch
    }

    /// Seconds of one ring all-reduce of `bytes` among `ranks`.
    #[must_use]
    pub fn all_reduce(&self, ranks: f64, bytes: f64) -> f64 {
        2.0 * (ranks - 1.0) * self.ring.message(bytes / ranks)
    }
}

/// Projects one strategy.
#[must_use]
pub fn project(
    strategy: &Strategy,
    network: &Network,
    machines: &Machines,
    job: Job,
    workers: usize,
) -> Projection {
    let fullest = machines.fullest(workers);
    let (slowdown, ring) = (machines.slowdown(fullest), machines.ring(workers));
    let situation = Situation { network, job, workers, slowdown, ring, machines };
    let mut found = (strategy.project)(&situation);
    let needed = found.memory * fullest as f64;
    if found.infeasible.is_none() && needed > machines.memory {
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        found.infeasible = Some(format!(
            "{fullest} tasks of a host need {:.1} GiB, it has {:.1}",
            gib(needed),
            gib(machines.memory)
        ));
    }
    found
}

/// All strategies over a range of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Every projection: by strategy, then workers.
    pub projections: Vec<Projection>,
    /// Index of each strategy's fastest feasible projection, fastest first.
    pub ranking: Vec<usize>,
}

impl Answer {
    /// The fastest of all, if anything is feasible.
    #[must_use]
    pub fn best(&self) -> Option<&Projection> {
        self.ranking.first().map(|&at| &self.projections[at])
    }
}

/// Projects every strategy on every number of workers in `counts` and ranks them by their best.
pub fn rank(
    network: &Network,
    machines: &Machines,
    job: Job,
    counts: &[usize],
) -> Result<Answer, ForecastError> {
    check(network, machines, job, counts)?;
    let mut projections = Vec::new();
    let mut ranking = Vec::new();
    for strategy in parallel::ALL {
        let first = projections.len();
        for &workers in counts {
            // Serial is one worker by definition; the others are serial on one.
            if (strategy.name == "serial") == (workers == 1) {
                projections.push(project(strategy, network, machines, job, workers));
            }
        }
        let feasible = (first..projections.len())
            .filter(|&at: &usize| projections[at].infeasible.is_none())
            .min_by(|&a, &b| projections[a].seconds().total_cmp(&projections[b].seconds()));
        ranking.extend(feasible);
    }
    ranking.sort_by(|&a, &b| projections[a].seconds().total_cmp(&projections[b].seconds()));
    Ok(Answer { projections, ranking })
}

fn check(
    network: &Network,
    machines: &Machines,
    job: Job,
    counts: &[usize],
) -> Result<(), ForecastError> {
    let positive = |what: &'static str, found: f64| {
        if found.is_finite() && found > 0.0 {
            Ok(())
        } else {
            Err(ForecastError::OutOfRange { what, found, wanted: "above zero and finite" })
        }
    };
    if network.layers.is_empty() {
        return Err(ForecastError::NoLayers { network: network.name.clone() });
    }
    for layer in &network.layers {
        for (what, seconds) in layer.times() {
            if !(seconds.is_finite() && seconds >= 0.0) {
                let layer = layer.name.clone();
                return Err(ForecastError::LayerTime { layer, what, seconds });
            }
        }
    }
    positive("the number of examples", job.examples)?;
    positive("the batch size", job.batch)?;
    positive("the size of a value", job.value_bytes)?;
    positive("the memory of a host", machines.memory)?;
    positive("the number of cores", machines.cores)?;
    for link in [machines.network, machines.local] {
        positive("the bandwidth of a link", link.bandwidth)?;
        if !(link.latency.is_finite() && link.latency >= 0.0) {
            return Err(ForecastError::OutOfRange {
                what: "the latency of a link",
                found: link.latency,
                wanted: "zero or above",
            });
        }
    }
    if !(0.0..=1.0).contains(&job.overlap) {
        return Err(ForecastError::OutOfRange {
            what: "the overlap",
            found: job.overlap,
            wanted: "between 0 and 1",
        });
    }
    if counts.contains(&0) || counts.is_empty() || machines.tasks_per_host.is_empty() {
        return Err(ForecastError::OutOfRange {
            what: "the number of workers",
            found: 0.0,
            wanted: "above zero",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
