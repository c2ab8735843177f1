//! The question as people ask it: a network and a cluster in, projections and their ranking out.

use super::{Answer, Calibration, Job, Machines, MeasuredStep, Network, check, rank};
use crate::doublings;
use crate::error::ForecastError;
use crate::measure::stepping::Subject;
use crate::measure::{LayerTimes, LinkOrigin, LinkSettings};
use std::path::PathBuf;

/// Which way of parallelising suits a network and a cluster?
#[derive(Debug, Clone)]
pub struct ParallelQuestion {
    pub subject: Subject,
    /// Examples of one update, over all workers.
    pub batch: usize,
    /// Examples of an epoch.
    pub examples: u64,
    /// Places for workers on each host.
    pub workers_per_host: Vec<usize>,
    /// Largest number of workers to consider; without it all places.
    pub workers: Option<usize>,
    /// Bytes of memory of a host; without it what this process may use here.
    pub memory: Option<f64>,
    pub links: LinkSettings,
    /// Share of the backward pass during which gradients already travel.
    pub overlap: f64,
    pub layers: LayerSource,
    /// Steps of data parallel training on such machines that were timed.
    pub measured_steps: Vec<MeasuredStep>,
}

/// Where the times of layers come from.
#[derive(Debug, Clone)]
pub enum LayerSource {
    /// Measured before.
    File(PathBuf),
    /// Measured now.
    Measure {
        /// Examples of a measured step.
        examples: usize,
        /// Threads of each worker; without it the cores are divided among those of a host.
        threads: Option<usize>,
        /// Where they are kept.
        save: Option<PathBuf>,
    },
}

/// The answer and all it rests on.
#[derive(Debug, Clone)]
pub struct ParallelForecast {
    pub network: Network,
    pub machines: Machines,
    pub job: Job,
    /// Numbers of workers that were projected.
    pub counts: Vec<usize>,
    pub answer: Answer,
    /// What the measured steps say, if there were any; network and machines are then as they turned out.
    pub calibration: Option<Calibration>,
    /// Where the link between hosts comes from.
    pub origin: LinkOrigin,
}

impl ParallelQuestion {
    /// Measures where needed, projects, ranks.
    pub fn answer(&self) -> Result<ParallelForecast, ForecastError> {
        let places: usize = self.workers_per_host.iter().sum();
        let most = self.workers.unwrap_or(places).max(1);
        let fullest = self.workers_per_host.iter().copied().max().unwrap_or(1).min(most);
        let times = self.layer_times(fullest)?;
        let links = self.links.decide(times.local)?;
        let machines = Machines {
            tasks_per_host: self.workers_per_host.clone(),
            cores: paceline_batch::cores().count as f64,
            sharing: times.sharing,
            memory: self.memory.unwrap_or_else(|| paceline_batch::memory_limit().bytes as f64),
            // Nearly all messages of the strategies are sums and exchanges among all.
            network: links.sums.unwrap_or(links.network),
            local: links.local,
        };
        let job = Job {
            examples: self.examples as f64,
            batch: self.batch as f64,
            value_bytes: 4.0,
            overlap: self.overlap,
        };
        let counts = doublings(most);
        let (mut network, mut machines, mut calibration) = (times.network, machines, None);
        if !self.measured_steps.is_empty() {
            check(&network, &machines, job, &counts)?;
            let found = Calibration::fit(&network, &machines, job, &self.measured_steps)?;
            (network, machines) = (found.network(&network), found.machines(&machines));
            calibration = Some(found);
        }
        let answer = rank(&network, &machines, job, &counts)?;
        let origin = links.origin;
        Ok(ParallelForecast { network, machines, job, counts, answer, calibration, origin })
    }

    fn layer_times(&self, fullest: usize) -> Result<LayerTimes, ForecastError> {
        match &self.layers {
            LayerSource::File(path) => LayerTimes::read(path, &self.subject.model),
            LayerSource::Measure { examples, threads, save } => {
                let times = LayerTimes::measure(&self.subject, *examples, *threads, fullest)?;
                if let Some(path) = save {
                    times.write(path)?;
                }
                Ok(times)
            }
        }
    }
}
