//! All workers add up their gradients among themselves after every step.
//!
//! In a ring of equal links every rank ends `2(p−1)` rounds after the last rank began, whatever the
//! others did before: round k of a rank waits for round k−1 of its neighbour, so after p−1 rounds the
//! latest start has reached every rank. So a step needs no events: it is the slowest worker of
//! each bucket, then the rounds.

use super::super::host::together;
use super::super::{Cluster, Collective, HANDOVER, Setting, SimulationOutcome};
use super::SimulatedStrategy;
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
            let link = cluster.sums.unwrap_or(cluster.network);
            let mut free = 0.0f64;
            let whole = [super::super::Bucket { at: 1.0, share: 1.0 }];
            let buckets = if workload.buckets.is_empty() { &whole } else { &*workload.buckets };
            for bucket in buckets {
                let bytes = workload.gradient_bytes * bucket.share;
                free = free.max(last * bucket.at) + among(setting, link, workers, bytes);
            }
            done = done.max(free) + votes(setting, link, workers);
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

/// Seconds of the losses and step reports that follow the gradients in production: a tree of the smallest messages.
/// Two ranks send them along.
fn votes(setting: &Setting<'_>, link: crate::oracle::Link, workers: usize) -> f64 {
    match setting.plan.collective {
        Collective::BySize { .. } if workers > 2 => {
            2.0 * (workers as f64).log2().ceil() * link.latency
        }
        _ => 0.0,
    }
}

/// Seconds of one all-reduce between hosts.
fn among(setting: &Setting<'_>, link: crate::oracle::Link, workers: usize, bytes: f64) -> f64 {
    let p = workers as f64;
    let ring = 2.0 * (p - 1.0) * link.message(bytes / p);
    let tree = 2.0 * p.log2().ceil() * link.message(bytes);
    match setting.plan.collective {
        Collective::Ring => ring,
        Collective::Tree => tree,
        Collective::BySize { .. } if workers == 2 => link.message(bytes),
        Collective::BySize { tree_up_to } if bytes <= tree_up_to => tree,
        Collective::BySize { .. } => ring,
    }
}
