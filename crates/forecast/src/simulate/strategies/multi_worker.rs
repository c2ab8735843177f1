//! All workers add up their gradients among themselves after every step.
//!
//! In a ring of equal links every rank ends `2(p−1)` rounds after the last rank began, whatever the
//! others did before: round k of a rank waits for round k−1 of its neighbour, so after p−1 rounds the
//! latest start has reached every rank. So a step needs no events: it is the slowest worker of
//! each bucket, then the rounds.

use super::super::host::together;
use super::super::{Cluster, Collective, HANDOVER, Setting, SimulationOutcome};
use super::SimulatedStrategy;
use crate::oracle::Link;
use paceline_runs::PhaseTimes;

/// The registry's line.
pub(super) const ENTRY: SimulatedStrategy = SimulatedStrategy {
    name: "multi-worker",
    about: "workers add up gradients among themselves (all-reduce) after every step",
    servers: false,
    shares_batch: true,
    run,
};

/// Bytes that outlast a step in a core's second-level cache: half of a small one.
const CACHED: f64 = 524_288.0;
/// Gradients of more bytes lie in buffers that all ranks of a host see.
const SHARED_FROM: f64 = 1_048_576.0;

fn run(setting: &mut Setting<'_>) -> SimulationOutcome {
    let (workload, cluster, plan) = (setting.workload, setting.cluster, setting.plan);
    let workers = plan.workers;
    let per_host = setting.tasks_per_host(0);
    let threads = setting.threads(0);
    let apart = workers > per_host;
    let mut tasks = vec![PhaseTimes::default(); workers];
    let (mut clock, mut events) = (0.0, 0);
    let mut seconds = vec![0.0; workers];
    let mut ends = vec![0.0; workers];
    for _ in 0..plan.steps {
        for (worker, seconds) in seconds.iter_mut().enumerate() {
            *seconds = setting.draw(worker, threads);
        }
        for (at, host) in seconds.chunks(per_host).enumerate() {
            let first = at * per_host;
            if host.len() == 1 && threads <= cluster.cores {
                ends[first] = host[0];
            } else {
                let pieces: Vec<(f64, f64)> =
                    host.iter().map(|&own| (own, workload.handover(own))).collect();
                let found = together(cluster.cores, threads, &pieces);
                ends[first..first + host.len()].copy_from_slice(&found);
            }
        }
        let last = ends.iter().copied().fold(0.0, f64::max);
        let mut done = last;
        if workers > 1 && apart {
            // Each bucket waits for its slowest worker and for the bucket before it.
            let way = Way::new(cluster, workers);
            let mut free = 0.0f64;
            let whole = [super::super::Bucket { at: 1.0, share: 1.0 }];
            let buckets = if workload.buckets.is_empty() { &whole } else { &*workload.buckets };
            for bucket in buckets {
                let bytes = workload.gradient_bytes * bucket.share;
                free = free.max(last * bucket.at) + among(setting, &way, workers, bytes);
            }
            done = done.max(free) + votes(setting, &way, workers);
        } else if workers > 1 {
            done += within(cluster, workers, workload.gradient_bytes);
        }
        for (task, (&end, &own)) in tasks.iter_mut().zip(ends.iter().zip(&seconds)) {
            // Cores taken by others are waiting, too.
            task.compute += own.min(end);
            task.wait += last - own.min(end);
            task.exchange += done - last;
        }
        events += workers as u64;
        clock += done;
    }
    let examples: f64 = (0..workers).map(|worker| plan.share(worker)).sum();
    let updates = plan.steps as f64;
    let mut outcome =
        SimulationOutcome::new(ENTRY.name, 0, clock, updates, updates * examples, tasks);
    outcome.events = events;
    outcome
}

/// Seconds of one all-reduce inside a host. Its cores move the bytes, so nothing overlaps that they do not
/// also slow down, and with more ranks than cores they take turns, at meeting as at adding.
///
/// If there are few bytes, every rank reads those of all others; bytes from other cores are fetched again for every
/// rank unless they stay in the core's cache. If there are many, each rank sums its share, so its work does not depend
/// on the number of ranks.
fn within(cluster: &Cluster, workers: usize, bytes: f64) -> f64 {
    let p = workers as f64;
    let turns = (p / cluster.cores).max(1.0);
    let passes = if bytes > SHARED_FROM {
        turns
    } else if p * bytes > CACHED {
        (p - turns) * turns
    } else {
        p - turns
    };
    let rounds = turns.ceil();
    cluster.local.latency * rounds
        + HANDOVER * (rounds - 1.0)
        + passes * bytes / cluster.local.bandwidth
}

/// The hops of messages where workers are on several hosts.
struct Way {
    /// Between hosts. A ring crosses each host's card once in each direction, however many of its workers are there.
    network: Link,
    /// Between neighbours of one host, where they take turns at its cores.
    local: Option<Link>,
    per_host: usize,
}

impl Way {
    fn new(cluster: &Cluster, workers: usize) -> Self {
        let per_host = cluster.per_host.min(workers).max(1);
        let turns = (per_host as f64 / cluster.cores).max(1.0);
        let Link { latency, bandwidth } = cluster.local;
        let local = Link { latency: latency * turns, bandwidth: bandwidth / turns };
        // Rounds that were measured among all workers have all hops in them.
        let local = (per_host > 1 && cluster.sums.is_none()).then_some(local);
        Self { network: cluster.sums.unwrap_or(cluster.network), local, per_host }
    }

    /// Seconds of a round of a ring: its slowest hop.
    fn round(&self, bytes: f64) -> f64 {
        let inside = self.local.map_or(0.0, |link| link.message(bytes));
        self.network.message(bytes).max(inside)
    }

    /// Seconds to the root of a binomial tree and back. Neighbours come first, so the first rounds stay on a host; in any later
    /// one at most one message crosses a card in each direction.
    fn tree(&self, workers: usize, bytes: f64) -> f64 {
        let mut seconds = 0.0;
        let mut step = 1;
        while step < workers {
            let crosses = |at: usize| at / self.per_host != (at + step) / self.per_host;
            let senders = (0..workers - step).step_by(2 * step);
            seconds += match self.local {
                Some(local) if !senders.into_iter().any(crosses) => local.message(bytes),
                _ => self.network.message(bytes),
            };
            step *= 2;
        }
        2.0 * seconds
    }
}

/// Seconds of the losses and step reports that follow the gradients in production: a tree of the smallest messages.
/// Two ranks send them along.
fn votes(setting: &Setting<'_>, way: &Way, workers: usize) -> f64 {
    match setting.plan.collective {
        Collective::BySize { .. } if workers > 2 => way.tree(workers, 0.0),
        _ => 0.0,
    }
}

/// Seconds of one all-reduce between hosts.
fn among(setting: &Setting<'_>, way: &Way, workers: usize, bytes: f64) -> f64 {
    let p = workers as f64;
    let ring = || 2.0 * (p - 1.0) * way.round(bytes / p);
    match setting.plan.collective {
        Collective::Ring => ring(),
        Collective::Tree => way.tree(workers, bytes),
        Collective::BySize { .. } if workers == 2 => way.round(bytes),
        Collective::BySize { tree_up_to } if bytes <= tree_up_to => way.tree(workers, bytes),
        Collective::BySize { .. } => ring(),
    }
}
