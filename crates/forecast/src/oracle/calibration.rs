//! What layers and cards promise, held against steps that were timed.
//!
//! Two points tell two unknowns apart. A step within one host says how much longer computing takes than the layers' times
//! add up to; one across hosts then says which share of its nominal speed the network gives.

use super::{Job, Machines, Network, parallel, project};
use crate::error::ForecastError;
use serde::Serialize;

/// A step of data parallel training that was timed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeasuredStep {
    pub workers: usize,
    /// Seconds of one update.
    pub seconds: f64,
    /// Examples of that update; without it the job's.
    pub batch: Option<f64>,
}

/// What measured steps say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Calibration {
    /// Computing takes so much longer than the layers' times add up to; 1 where no step within a host was timed.
    pub compute: f64,
    /// The share of its nominal speed that the network gives; nothing where no step across hosts was timed.
    pub share: Option<f64>,
    /// Most hosts that a timed step was on: beyond them is extrapolated.
    pub hosts: usize,
}

/// The least that may be left of the network, and of computing.
const LEAST: f64 = 1e-4;
/// The most by which computing may be slower than thought.
const MOST: f64 = 1e4;

impl Calibration {
    /// Fits both from what was timed.
    pub fn fit(
        network: &Network,
        machines: &Machines,
        job: Job,
        steps: &[MeasuredStep],
    ) -> Result<Self, ForecastError> {
        for step in steps {
            let timed = [step.seconds, step.batch.unwrap_or(1.0), step.workers as f64];
            if let Some(found) = timed.into_iter().find(|at| !(at.is_finite() && *at > 0.0)) {
                let (what, wanted) = ("a measured step", "above zero and finite");
                return Err(ForecastError::OutOfRange { what, found, wanted });
            }
        }
        let hosts = |step: &&MeasuredStep| machines.places(step.workers).len();
        let (within, across): (Vec<&MeasuredStep>, Vec<&MeasuredStep>) =
            steps.iter().partition(|step| hosts(step) == 1);
        let seconds = |step: &MeasuredStep, compute: f64, share: f64| {
            let found = Self { compute, share: Some(share), hosts: 1 };
            let job = Job { batch: step.batch.unwrap_or(job.batch), ..job };
            let data = parallel::data();
            let (network, machines) = (found.network(network), found.machines(machines));
            project(data, &network, &machines, job, step.workers).seconds() * job.batch
                / job.examples
        };
        let compute = mean(within.iter().map(|step| {
            crossing((LEAST, MOST), |compute| seconds(step, compute, 1.0) >= step.seconds)
        }))
        .unwrap_or(1.0);
        let share = mean(across.iter().map(|step| {
            crossing((LEAST, 1.0), |share| seconds(step, compute, share) <= step.seconds)
        }));
        let hosts = steps.iter().map(|step| hosts(&step)).max().unwrap_or(1);
        Ok(Self { compute, share, hosts })
    }

    /// The layers with times as they turned out.
    #[must_use]
    pub fn network(&self, network: &Network) -> Network {
        let mut network = network.clone();
        for layer in &mut network.layers {
            for seconds in
                [&mut layer.forward, &mut layer.backward, &mut layer.fixed, &mut layer.update]
            {
                *seconds *= self.compute;
            }
        }
        network
    }

    /// The machines with the network as it turned out.
    #[must_use]
    pub fn machines(&self, machines: &Machines) -> Machines {
        let mut machines = machines.clone();
        machines.network.bandwidth *= self.share.unwrap_or(1.0);
        machines
    }
}

/// Geometric mean, if there is anything.
fn mean(factors: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = factors.map(f64::ln).collect();
    let sum: f64 = logarithms.iter().sum();
    (!logarithms.is_empty()).then(|| (sum / logarithms.len() as f64).exp())
}

/// The smallest factor for which something holds that holds for all larger ones; the largest factor if it never does.
pub(crate) fn crossing((mut low, mut high): (f64, f64), holds: impl Fn(f64) -> bool) -> f64 {
    if holds(low) {
        return low;
    }
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, Link};
    use super::*;

    fn network() -> Network {
        let layer = Layer {
            name: "dense".to_owned(),
            input: [1, 1, 1000],
            output: [1, 1, 1000],
            kernel: 1,
            parameters: 1e6,
            forward: 1e-3,
            backward: 2e-3,
            fixed: 1e-3,
            update: 1e-3,
        };
        Network { name: "one".to_owned(), layers: vec![layer] }
    }

    fn machines() -> Machines {
        Machines {
            tasks_per_host: vec![4; 4],
            cores: 64.0,
            sharing: vec![(1, 1.0), (64, 1.0)],
            memory: 1e12,
            network: Link { latency: 0.0, bandwidth: 1e9 },
            local: Link { latency: 0.0, bandwidth: 1e10 },
        }
    }

    const JOB: Job = Job { examples: 6400.0, batch: 64.0, value_bytes: 4.0, overlap: 0.0 };

    fn step(workers: usize, seconds: f64) -> MeasuredStep {
        MeasuredStep { workers, seconds, batch: None }
    }

    #[test]
    fn two_points_tell_slow_computing_from_a_slow_network() {
        // Four workers of a host: 64/4 * 3 ms + 2 ms = 50 ms of computing, 2*3*(4 MB/4)/10 GB/s = 0.6 ms of messages.
        // Here computing takes 1.2 times as long: 60.6 ms.
        // Eight on two hosts: 26 ms * 1.2, and 2*7*(4 MB/8)/1 GB/s = 7 ms of messages at full speed, 14 ms at half.
        let timed = [step(4, 0.0606), step(8, 0.0312 + 0.014)];
        let found = Calibration::fit(&network(), &machines(), JOB, &timed).unwrap();
        assert!((found.compute - 1.2).abs() < 1e-6, "{found:?}");
        assert!((found.share.unwrap() - 0.5).abs() < 1e-6 && found.hosts == 2, "{found:?}");
        // Four hosts: 14 ms * 1.2 of computing, 2*15*(4 MB/16)/0.5 GB/s = 15 ms of messages.
        let (network, machines) = (found.network(&network()), found.machines(&machines()));
        let sixteen = project(parallel::data(), &network, &machines, JOB, 16);
        assert!((sixteen.seconds() / 100.0 - 0.0318).abs() < 1e-7, "{sixteen:?}");
    }

    #[test]
    fn a_step_of_another_batch_is_one_of_that_batch() {
        let timed = MeasuredStep { workers: 4, seconds: 2.0 * 0.098 + 0.0006, batch: Some(128.0) };
        let found = Calibration::fit(&network(), &machines(), JOB, &[timed]).unwrap();
        assert!((found.compute - 2.0).abs() < 1e-6 && found.share.is_none(), "{found:?}");
    }

    #[test]
    fn no_network_is_faster_than_it_says_and_nonsense_is_refused() {
        let fit = |timed: &[MeasuredStep]| Calibration::fit(&network(), &machines(), JOB, timed);
        assert_eq!(fit(&[step(8, 1e-3)]).unwrap().share, Some(1.0));
        assert_eq!(fit(&[]).unwrap(), Calibration { compute: 1.0, share: None, hosts: 1 });
        for bad in [step(0, 1.0), step(8, f64::NAN), step(8, -1.0)] {
            assert!(fit(&[bad]).unwrap_err().to_string().contains("a measured step"));
        }
    }
}
