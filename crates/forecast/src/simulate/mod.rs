//! What a cluster would do with a job that was measured on a smaller one.
//!
//! Discrete events: workers compute for times drawn from the measured steps, tasks of a host queue for its
//! cores, messages share cables, servers apply one update after the other. One file per strategy in
//! [`strategies`]. Nothing here knows the trainer: a [`Workload`] is plain numbers, a [`Plan`] what to try.
//!
//! Messages between hosts take time on both their cables; messages inside a host take time of its
//! cores, because there a message is a copy and a wake-up. All-reduces follow the production schedule: buckets in the
//! order in which the backward pass finishes them, each a ring or a tree.

mod agenda;
mod cables;
mod due;
mod engine;
mod host;
mod outcome;
mod placement;
mod question;
pub mod strategies;
mod tasks;

pub use outcome::{SimulationOutcome, Staleness, knee};
pub use question::{ClusterForecast, ClusterQuestion};

use crate::error::ForecastError;
use crate::oracle::Link;
use paceline_stats::random::Random;
use serde::{Deserialize, Serialize};

/// Seconds that a task which waits for a message looks for it before it gives its core away: the production
/// transport's patience.
const PATIENCE: f64 = 5e-6;
/// Seconds lost when a core goes from one waiting task to the next: the patience, and some 3 us for the switch.
const HANDOVER: f64 = PATIENCE + 3e-6;
/// Most seconds to refill a core's own caches: 2 MB at 4 GB/s. However long a step, it is well below the
/// time slice that a task then has for its work.
const REFILL: f64 = 0.5e-3;

/// A part of the gradient, and when the backward pass has finished it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Share of the step's computing after which it is final, 0 to 1.
    pub at: f64,
    /// Share of the gradient's bytes.
    pub share: f64,
}

/// A job as it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Seconds of input and compute of measured steps, in any order; one worker alone on its cores.
    pub steps: Vec<f64>,
    /// Examples of each of those steps.
    pub examples: f64,
    /// Share of their time that went into input, 0 to 1.
    #[serde(default)]
    pub input: f64,
    /// Seconds of steps of several sizes, `(examples, seconds)` by rising size, timed anywhere. Only their ratios
    /// count; without two of them, a step takes its time in proportion to its examples.
    #[serde(default)]
    pub sizes: Vec<(f64, f64)>,
    /// Threads of the worker that was measured.
    pub threads: f64,
    /// Share of a step's work that more threads make faster, 0 to 1.
    pub parallel: f64,
    /// Workers on the host that was measured.
    pub neighbours: f64,
    /// How much longer a step takes while all cores of its host work on such steps: they share caches and
    /// memory. 1 or above.
    pub contended: f64,
    /// How much longer a step takes on a core that another worker had before it. 1 or above.
    pub cold: f64,
    /// Each measured worker's mean step time over the average one's: who is always slow.
    pub factors: Vec<f64>,
    /// Bytes a worker sends per step: its gradient.
    pub gradient_bytes: f64,
    /// Bytes a worker receives per step: the weights.
    pub weight_bytes: f64,
    /// Seconds a server's core needs to take one gradient and update the weights with it.
    pub apply: f64,
    /// When which part of the gradient is final; empty: all at the end.
    pub buckets: Vec<Bucket>,
}

impl Workload {
    /// How much longer than a measured step one of `examples` takes.
    fn scale(&self, examples: f64) -> f64 {
        if self.sizes.len() < 2 {
            return examples / self.examples;
        }
        self.seconds_of(examples) / self.seconds_of(self.examples)
    }

    /// Seconds that a step of `seconds` loses when its core was another's meanwhile.
    fn handover(&self, seconds: f64) -> f64 {
        HANDOVER + ((self.cold - 1.0) * seconds).min(REFILL)
    }

    /// Along the lines between timed sizes, and on from the outermost two; in proportion below the smallest
    /// where its line would end at nothing.
    fn seconds_of(&self, examples: f64) -> f64 {
        let above = self.sizes.partition_point(|(size, _)| *size < examples);
        let second = above.clamp(1, self.sizes.len() - 1);
        let [(small, less), (large, more)] = [self.sizes[second - 1], self.sizes[second]];
        let along = less + (more - less) * (examples - small) / (large - small);
        along.max(less.min(more) * (examples / small).min(1.0))
    }
}

/// Where tasks run and what lies between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Cores of each host.
    pub cores: f64,
    /// Tasks on each host, servers first; `usize::MAX` puts all on one.
    pub per_host: usize,
    /// Between hosts.
    pub network: Link,
    /// Between hosts, for rounds of a sum of all workers at once, where that is known: the network's else.
    #[serde(default)]
    pub sums: Option<Link>,
    /// Inside a host: what waking the other side takes of a core, and what a core copies.
    pub local: Link,
    /// Seconds until a thread that sleeps runs on a core that has nothing else to do.
    #[serde(default)]
    pub wake: f64,
}

/// How an all-reduce goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// `2(p−1)` rounds of `1/p` of the bytes.
    Ring,
    /// `2 log2 p` rounds of all bytes, to a root and back: fewer rounds, more bytes.
    Tree,
    /// As the production code chooses: two ranks swap all bytes in one round, more take a tree up to so
    /// many bytes and a ring beyond.
    BySize {
        /// Largest message of a tree.
        tree_up_to: f64,
    },
}

/// What to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub workers: usize,
    /// Servers; strategies without them ignore it.
    pub servers: usize,
    /// Synchronous servers wait for all workers but so many.
    pub backup: usize,
    /// Examples of each worker in one step, as the production order cuts a batch; the last one stands
    /// for all further workers.
    pub shares: Vec<f64>,
    /// Steps to simulate, in updates.
    pub steps: u64,
    /// Threads of each worker; nothing: the host's cores, divided among its workers.
    pub threads: Option<f64>,
    /// How gradients are added up without servers.
    pub collective: Collective,
    /// Seed of all draws.
    pub seed: u64,
}

impl Plan {
    /// Every worker with the same number of examples.
    #[must_use]
    pub fn even(workers: usize, servers: usize, examples: f64) -> Self {
        Self {
            workers,
            servers,
            backup: 0,
            shares: vec![examples],
            steps: 100,
            threads: None,
            collective: Collective::BySize { tree_up_to: 65536.0 },
            seed: 0,
        }
    }

    pub(crate) fn share(&self, worker: usize) -> f64 {
        self.shares.get(worker).or(self.shares.last()).copied().unwrap_or(0.0)
    }
}

/// Everything a strategy needs, checked.
pub struct Setting<'a> {
    pub workload: &'a Workload,
    pub cluster: &'a Cluster,
    pub plan: &'a Plan,
    /// Whether batches are cut beforehand, not dealt on demand.
    known_order: bool,
    draws: Draws<'a>,
}

/// Draws step times: from all measured steps, times the factor of a measured worker each.
struct Draws<'a> {
    workload: &'a Workload,
    random: Random,
    factors: Vec<f64>,
}

impl Setting<'_> {
    /// Tasks on the fullest host.
    fn tasks_per_host(&self, servers: usize) -> usize {
        self.cluster.per_host.min(self.plan.workers + servers).max(1)
    }

    /// Threads of each worker: the host's cores, divided among its tasks; servers sleep mostly and do
    /// not count.
    fn threads(&self, servers: usize) -> f64 {
        if let Some(threads) = self.plan.threads {
            return threads;
        }
        let tasks = self.tasks_per_host(servers);
        let workers = tasks.saturating_sub(servers).max(1) as f64;
        (self.cluster.cores / workers).floor().clamp(1.0, self.cluster.cores.max(1.0))
    }

    /// How much longer steps take for sharing caches and memory with so many busy threads of their host:
    /// nothing for one, all of it when every core is busy.
    fn crowding(&self, threads: f64) -> f64 {
        let cores = self.cluster.cores;
        if cores <= 1.0 {
            return 1.0;
        }
        let busy = (threads.min(cores) - 1.0).max(0.0) / (cores - 1.0);
        1.0 + (self.workload.contended - 1.0) * busy
    }

    /// Whether another thread reads ahead: production does so where the order of batches is known beforehand
    /// and a host has more cores than there are workers.
    fn input_is_hidden(&self) -> bool {
        self.known_order && self.cluster.cores > self.plan.workers as f64
    }

    /// Seconds of `worker`'s next step on as many threads, with cores enough.
    fn draw(&mut self, worker: usize, threads: f64) -> f64 {
        let plan = self.plan;
        let workers = self.cluster.per_host.min(plan.workers) as f64;
        let crowding = self.crowding(workers * threads)
            / self.crowding(self.workload.neighbours * self.workload.threads);
        let hidden = self.input_is_hidden();
        let Draws { workload, random, factors } = &mut self.draws;
        let sample = workload.steps[random.below(workload.steps.len())];
        // Beside each other, the longer one counts.
        let beside = workload.input.max(1.0 - workload.input);
        let sample = sample * if hidden { beside } else { 1.0 };
        let seconds = sample * workload.scale(plan.share(worker));
        // Amdahl, from the threads measured to those used.
        let cost = |threads: f64| (1.0 - workload.parallel) + workload.parallel / threads;
        seconds * crowding * factors[worker] * cost(threads) / cost(workload.threads)
    }
}

/// Runs a strategy by name.
pub fn simulate(
    strategy: &str,
    workload: &Workload,
    cluster: &Cluster,
    plan: &Plan,
) -> Result<SimulationOutcome, ForecastError> {
    let entry = strategies::find(strategy)?;
    check(workload, cluster, plan, entry.servers)?;
    let mut random = Random::new(plan.seed, 0x51a0);
    // Who is slow is drawn once: a slow machine stays slow.
    let factors = (0..plan.workers)
        .map(|worker| match workload.factors.as_slice() {
            [] => 1.0,
            known if worker < known.len() => known[worker],
            known => known[random.below(known.len())],
        })
        .collect();
    let draws = Draws { workload, random, factors };
    let known_order = entry.shares_batch;
    let mut setting = Setting { workload, cluster, plan, known_order, draws };
    Ok((entry.run)(&mut setting))
}

fn check(
    workload: &Workload,
    cluster: &Cluster,
    plan: &Plan,
    servers: bool,
) -> Result<(), ForecastError> {
    let range = |what: &'static str, found: f64, holds: bool, wanted: &'static str| {
        let sound = found.is_finite() && holds;
        if sound { Ok(()) } else { Err(ForecastError::OutOfRange { what, found, wanted }) }
    };
    const ABOVE: &str = "above zero and finite";
    const NOT_BELOW: &str = "zero or above and finite";
    range(
        "the number of measured steps",
        workload.steps.len() as f64,
        !workload.steps.is_empty(),
        ABOVE,
    )?;
    for &seconds in &workload.steps {
        range("the time of a measured step", seconds, seconds > 0.0, ABOVE)?;
    }
    for &factor in &workload.factors {
        range("the speed of a measured worker", factor, factor > 0.0, ABOVE)?;
    }
    let positive = [
        ("the examples of a measured step", workload.examples),
        ("the threads of a measured worker", workload.threads),
        ("the workers of the measured host", workload.neighbours),
        ("the threads of a worker", plan.threads.unwrap_or(1.0)),
        ("the cores of a host", cluster.cores),
        ("the tasks of a host", cluster.per_host as f64),
        ("the bandwidth of the network", cluster.network.bandwidth),
        ("the bandwidth inside a host", cluster.local.bandwidth),
        ("the number of workers", plan.workers as f64),
        ("the number of steps", plan.steps as f64),
    ];
    for (what, found) in positive {
        range(what, found, found > 0.0, ABOVE)?;
    }
    let not_negative = [
        ("the size of the gradient", workload.gradient_bytes),
        ("the size of the weights", workload.weight_bytes),
        ("the time of an update", workload.apply),
        ("the latency of the network", cluster.network.latency),
        ("the latency inside a host", cluster.local.latency),
        ("the time to wake a thread", cluster.wake),
    ];
    for (what, found) in not_negative {
        range(what, found, found >= 0.0, NOT_BELOW)?;
    }
    for (what, factor) in [
        ("the cost of busy neighbours", workload.contended),
        ("the cost of cold caches", workload.cold),
    ] {
        range(what, factor, factor >= 1.0, "1 or above and finite")?;
    }
    let share = workload.parallel;
    range("the parallel share of a step", share, (0.0..=1.0).contains(&share), "between 0 and 1")?;
    let share = workload.input;
    range(
        "the input's share of a step",
        share,
        (0.0..1.0).contains(&share),
        "0 or above, below 1",
    )?;
    if let Some(link) = cluster.sums {
        range("the bandwidth of sums", link.bandwidth, link.bandwidth > 0.0, ABOVE)?;
        range("the latency of sums", link.latency, link.latency >= 0.0, NOT_BELOW)?;
    }
    for (at, &(size, seconds)) in workload.sizes.iter().enumerate() {
        let rising = at == 0 || workload.sizes[at - 1].0 < size;
        range("the examples of a timed step", size, size > 0.0 && rising, "above zero and rising")?;
        range("the time of a timed step", seconds, seconds > 0.0, ABOVE)?;
    }
    for &share in &plan.shares {
        range("the examples of a worker", share, share > 0.0, ABOVE)?;
    }
    range("the examples of a worker", plan.share(0), !plan.shares.is_empty(), ABOVE)?;
    if servers {
        range("the number of servers", plan.servers as f64, plan.servers > 0, ABOVE)?;
        let fewer = plan.backup < plan.workers;
        range(
            "the number of backup workers",
            plan.backup as f64,
            fewer,
            "below the number of workers",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
