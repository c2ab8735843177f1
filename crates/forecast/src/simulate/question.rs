//! The question as people ask it: a run in, outcomes of ever larger clusters and their doubts out.

use super::strategies::{self, SimulatedStrategy};
use super::{Cluster, Collective, Plan, SimulationOutcome, simulate};
use crate::doublings;
use crate::error::ForecastError;
use crate::measure::{
    LinkOrigin, LinkSettings, Links, Measured, StepProfile, local_sums, stepping,
};
use crate::oracle::{Link, MeasuredStep, crossing};
use paceline_data::order::{Batches, LastBatch};
use paceline_runs::{RecordedPlan, RunFolder};
use std::time::Duration;

/// How long sums inside this machine are timed.
const SPAN: Duration = Duration::from_millis(150);
/// Updates that are simulated unless asked for another number.
const STEPS: u64 = 200;
/// Steps of workers, all together, beyond which updates of many workers are left out: all take about the same time.
const WORKER_STEPS: u64 = 50_000;
/// Beyond so many workers, each has fewer turns.
const MANY_WORKERS: usize = 1000;
/// As many updates are left in any case.
const LEAST_STEPS: u64 = 3;
/// The least share of its rate that a network is believed to give.
const LEAST_SHARE: f64 = 1e-3;
/// Seconds to wake a sleeping thread, where it is not measured.
const WAKE: f64 = 30e-6;

/// What would a bigger cluster do with a job that was measured on a smaller one?
#[derive(Debug, Clone)]
pub struct ClusterQuestion {
    /// The most workers; smaller numbers are simulated, too.
    pub workers: usize,
    /// Without it 1 for 16 workers, where the strategy has any.
    pub servers: Option<usize>,
    /// Without it the run's own.
    pub strategy: Option<String>,
    /// Examples of one update; without it the run's.
    pub batch: Option<u64>,
    /// Synchronous servers wait for all workers but so many.
    pub backup: usize,
    /// Updates to simulate for each number of workers; without it 200, and fewer of many workers with servers, whose slowest one
    /// hardly differs from update to update.
    pub steps: Option<u64>,
    /// Tasks on each host; nothing puts all on one machine such as the one measured.
    pub per_host: Option<usize>,
    /// Cores of each host; without it those of the run's machine.
    pub cores: Option<f64>,
    /// Threads of each worker; without it the host's cores, divided among the workers there.
    pub threads: Option<usize>,
    pub links: LinkSettings,
    /// Steps that were timed: those across hosts say which share of its rate the network gives.
    pub measured_steps: Vec<MeasuredStep>,
    /// Whether the model is timed here for what the run does not say.
    pub measure: bool,
    /// Seed of all draws.
    pub seed: u64,
}

/// The answer and all it rests on.
pub struct ClusterForecast {
    pub strategy: &'static SimulatedStrategy,
    /// Examples of one update.
    pub batch: u64,
    pub cluster: Cluster,
    pub measured: Measured,
    /// The factor on what messages were first thought to cost, where the run could tell.
    pub calibrated: Option<f64>,
    /// The share of its rate that the network gives, where a step across hosts was timed.
    pub network_share: Option<f64>,
    /// By rising number of workers.
    pub outcomes: Vec<SimulationOutcome>,
    /// Where the simulation leaves what was measured.
    pub doubts: Vec<String>,
    /// Where the link between hosts comes from; nothing where no message goes through it.
    pub network_origin: Option<LinkOrigin>,
}

impl ClusterQuestion {
    /// The strategy that is simulated: the one asked for, else the run's own if there is a simulation of it.
    pub fn strategy(
        &self,
        folder: &RunFolder,
    ) -> Result<&'static SimulatedStrategy, ForecastError> {
        if let Some(name) = &self.strategy {
            return strategies::find(name);
        }
        let (records, _) = folder.events()?;
        let own = RecordedPlan::read(folder, &records).strategy.unwrap_or_default();
        strategies::find(&own).or_else(|_| strategies::find("multi-worker"))
    }

    /// Reads the run, times what it does not say, simulates; `watch` hears how many of how many clusters are done.
    pub fn answer(
        &self,
        folder: &RunFolder,
        watch: &dyn Fn(usize, usize),
    ) -> Result<ClusterForecast, ForecastError> {
        let strategy = self.strategy(folder)?;
        watch(0, doublings(self.workers).len());
        let measured = Measured::read(folder, self.measure)?;
        self.forecast(strategy, measured, watch)
    }

    /// The strategy that is simulated of a profile: the one asked for, else sums among all.
    pub fn strategy_of_profile(&self) -> Result<&'static SimulatedStrategy, ForecastError> {
        strategies::find(self.strategy.as_deref().unwrap_or("multi-worker"))
    }

    /// The same from a profile instead of a run. Nothing of the model is timed here.
    pub fn answer_profile(
        &self,
        profile: &StepProfile,
        watch: &dyn Fn(usize, usize),
    ) -> Result<ClusterForecast, ForecastError> {
        let strategy = self.strategy_of_profile()?;
        let largest = profile.steps.last().map_or(1, |steps| steps.batch_size);
        // Weak scaling unless a batch size is asked for: each worker keeps the largest batch that was profiled.
        let batch = self.batch.unwrap_or_else(|| {
            if strategy.shares_batch { largest * self.workers as u64 } else { largest }
        });
        let each =
            if strategy.shares_batch { batch as f64 / self.workers as f64 } else { batch as f64 };
        let measured = Measured::of_profile(profile, each);
        let name = Some(strategy.name.to_owned());
        let mut own = Self { batch: Some(batch), strategy: name, measure: false, ..self.clone() };
        if profile.cores.is_none() && self.cores.is_none() {
            // As with one accelerator each: workers beside each other do not take each other's cores.
            let threads = self.threads.unwrap_or(profile.threads);
            let here = self.per_host.unwrap_or(usize::MAX).min(self.workers);
            (own.cores, own.threads) = (Some((here * threads) as f64), Some(threads));
        }
        own.forecast(strategy, measured, watch)
    }

    fn forecast(
        &self,
        strategy: &'static SimulatedStrategy,
        mut measured: Measured,
        watch: &dyn Fn(usize, usize),
    ) -> Result<ClusterForecast, ForecastError> {
        let counts = doublings(self.workers);
        watch(0, counts.len());
        let batch = self.batch.unwrap_or(measured.batch);
        let plans = counts.iter().map(|&workers| self.plan(strategy, workers, batch));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let links = self.links(strategy, &measured)?;
        let mut cluster = Cluster {
            cores: self.cores.unwrap_or(measured.cores),
            per_host: self.per_host.unwrap_or(usize::MAX),
            network: links.network,
            sums: links.sums,
            local: links.local,
            wake: if self.measure { stepping::wake() } else { WAKE },
        };
        let calibrated = measured.calibrate(&mut cluster)?;
        let network_share = self.network_share(strategy, &measured, &cluster)?;
        for link in [Some(&mut cluster.network), cluster.sums.as_mut()].into_iter().flatten() {
            link.bandwidth *= network_share.unwrap_or(1.0);
        }
        let mut outcomes = Vec::new();
        for plan in &plans {
            outcomes.push(simulate(strategy.name, &measured.workload, &cluster, plan)?);
            watch(outcomes.len(), counts.len());
        }
        let mut doubts = measured.doubts(strategy, &cluster, self.workers, batch);
        if self.strategy.is_none() && strategy.name != measured.strategy {
            let doubt = match measured.strategy.as_str() {
                "" => {
                    format!("the run does not say its strategy; simulated is `{}`", strategy.name)
                }
                own => format!("the run is of `{own}`; simulated is `{}`", strategy.name),
            };
            doubts.insert(0, doubt);
        }
        // Tasks that all fit on one host send nothing through the network.
        let tasks = self.workers + outcomes.last().map_or(0, |last| last.servers);
        let network_origin = (tasks > cluster.per_host).then_some(links.origin);
        Ok(ClusterForecast {
            strategy,
            batch,
            cluster,
            measured,
            calibrated,
            network_share,
            outcomes,
            doubts,
            network_origin,
        })
    }

    /// The share of its rate that the network gives, by the steps that were timed across hosts: the geometric mean of what makes
    /// the simulation of each come out right.
    fn network_share(
        &self,
        strategy: &SimulatedStrategy,
        measured: &Measured,
        cluster: &Cluster,
    ) -> Result<Option<f64>, ForecastError> {
        let across = |step: &&MeasuredStep| step.workers > cluster.per_host;
        let mut logarithms = Vec::new();
        for step in self.measured_steps.iter().filter(across) {
            let batch =
                step.batch.map_or(self.batch.unwrap_or(measured.batch), |batch| batch as u64);
            let plan = self.plan(strategy, step.workers, batch)?;
            let seconds = |share: f64| {
                let mut cluster = cluster.clone();
                for link in
                    [Some(&mut cluster.network), cluster.sums.as_mut()].into_iter().flatten()
                {
                    link.bandwidth *= share;
                }
                simulate(strategy.name, &measured.workload, &cluster, &plan)
                    .map(|found| 1.0 / found.updates_per_second)
            };
            // What cannot be simulated at full speed cannot be at any.
            seconds(1.0)?;
            let in_time = |share: f64| seconds(share).is_ok_and(|found| found <= step.seconds);
            logarithms.push(crossing((LEAST_SHARE, 1.0), in_time).ln());
        }
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        Ok((!logarithms.is_empty()).then(|| mean.exp()))
    }

    /// What messages cost, between hosts and inside one.
    fn links(
        &self,
        strategy: &SimulatedStrategy,
        measured: &Measured,
    ) -> Result<Links, ForecastError> {
        let local = if strategy.servers || !self.measure {
            measured.local
        } else {
            let numbers = (measured.workload.gradient_bytes / 4.0) as usize;
            let link = local_sums::measure(numbers, SPAN)?;
            // Of two ranks: `2(α + m/2β)`; here a round is both ways at once.
            Link { latency: 2.0 * link.latency, ..link }
        };
        self.links.decide(Some(local))
    }

    /// The plan of one size; shares of a batch are cut by the code that cuts them in training.
    fn plan(
        &self,
        strategy: &SimulatedStrategy,
        workers: usize,
        batch: u64,
    ) -> Result<Plan, ForecastError> {
        let shares = if strategy.shares_batch {
            if batch < workers as u64 {
                return Err(ForecastError::BatchTooSmall { workers, batch });
            }
            let whole = Batches::new(batch, LastBatch::Keep)?.global_batch(0, 0, batch);
            let share = |worker: usize| {
                whole.as_ref().map_or(0, |whole| whole.share(worker as u64, workers as u64).len())
                    as f64
            };
            (0..workers).map(share).collect()
        } else {
            vec![batch as f64]
        };
        // Every worker must have its turn several times before a rate means anything.
        let turns = if workers > MANY_WORKERS { 6 } else { 20 };
        let steps = if !strategy.shares_batch {
            self.steps.unwrap_or(STEPS).max(turns * workers as u64)
        } else if strategy.servers && workers > MANY_WORKERS {
            let enough = (WORKER_STEPS / workers as u64).clamp(LEAST_STEPS, STEPS);
            self.steps.unwrap_or(enough)
        } else {
            self.steps.unwrap_or(STEPS)
        };
        Ok(Plan {
            workers,
            servers: self.servers.unwrap_or_else(|| workers.div_ceil(16)),
            backup: self.backup.min(workers - 1),
            shares,
            steps,
            threads: self.threads.map(|threads| threads as f64),
            collective: Collective::BySize {
                tree_up_to: paceline_wire::collective::TREE_BYTES as f64,
            },
            seed: self.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(workers: usize) -> ClusterQuestion {
        ClusterQuestion {
            workers,
            servers: None,
            strategy: None,
            batch: None,
            backup: 3,
            steps: Some(10),
            per_host: Some(1),
            cores: None,
            threads: None,
            links: LinkSettings::default(),
            measured_steps: Vec::new(),
            measure: false,
            seed: 0,
        }
    }

    #[test]
    fn a_batch_is_shared_out_whole_and_workers_of_their_own_have_turns() {
        let shared = strategies::find("ps-sync").unwrap();
        let plan = question(3).plan(shared, 3, 10).unwrap();
        assert_eq!(plan.shares.iter().sum::<f64>(), 10.0);
        assert_eq!((plan.shares.len(), plan.servers, plan.backup, plan.steps), (3, 1, 2, 10));
        let own = question(3).plan(strategies::find("ps-async").unwrap(), 3, 10).unwrap();
        assert_eq!((own.shares, own.steps), (vec![10.0], 60));
        let error = question(3).plan(shared, 3, 2).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("3 workers cannot share a batch of 2")
        );
    }

    /// 200 updates of 100,000 workers once took minutes, though the first few say the same.
    #[test]
    fn work_of_a_large_synchronous_cluster_is_bounded_unless_asked_for() {
        let strategy = strategies::find("ps-sync").unwrap();
        let steps = |asked, workers| {
            let question = ClusterQuestion { steps: asked, ..question(workers) };
            question.plan(strategy, workers, 1 << 20).unwrap().steps
        };
        assert_eq!((steps(None, 1), steps(None, 1000)), (STEPS, STEPS));
        for workers in [1001, 4096, 16_384, 100_000] {
            let work = steps(None, workers) * workers as u64;
            assert!(steps(None, workers) >= LEAST_STEPS);
            assert!(work <= WORKER_STEPS.max(LEAST_STEPS * workers as u64), "{workers}: {work}");
            assert_eq!(steps(Some(500), workers), 500, "asked for");
        }
        let sums = strategies::find("multi-worker").unwrap();
        let question = ClusterQuestion { steps: None, ..question(4096) };
        assert_eq!(question.plan(sums, 4096, 1 << 20).unwrap().steps, STEPS, "needs no events");
    }
}
