//! What tasks did, and the summary of the whole run.

use super::{Tasks, worker::Course};
use crate::{Metrics, Report, Spec, Totals};
use paceline_analysis::verdict::{
    Evidence, Examples, Link, Surroundings, WorkerLoad, judge_within,
};
use paceline_runs::{self as runs, Final, PhaseSeconds, PhaseShares, Status, Summary, Traffic};
use serde::{Deserialize, Serialize};

/// A link is full when it carries this share of the most it was seen to carry, over the whole time.
const LINK_FULL: f64 = 0.7;
/// Fewer bytes a second fill no network that is in use today.
const LEAST_RATE: f64 = 10e6;

/// What went between tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Which weights travelled: `sparse` or `dense`.
    pub transfer: String,
    /// Bytes of an iteration of one worker, sent and received, as measured.
    pub bytes_per_iteration: f64,
    /// What it takes to move only the weights that a batch touches: numbers, weights, gradients.
    pub sparse_bytes_per_iteration: f64,
    /// What it takes to move all of them both ways.
    pub dense_bytes_per_iteration: f64,
    /// How fast each worker was.
    pub tasks: Vec<Pace>,
}

/// How fast a worker was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Its name.
    pub task: String,
    /// Steps it did.
    pub iterations: u64,
    /// Seconds of one.
    pub seconds_per_iteration: f64,
}

/// What one worker tells the chief at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) worker: runs::Worker,
    pub(super) phases: PhaseSeconds,
    pub(super) totals: Totals,
    pub(super) sparse_bytes: u64,
    pub(super) bytes: u64,
    pub(super) rejected: u64,
    pub(super) staleness: Vec<u64>,
    /// The most bytes a second that went over its links in one step, both ways together.
    pub(super) best_rate: f64,
}

impl Told {
    /// Bytes a second over the whole time, and the most that were seen.
    fn link(&self) -> Link {
        let Traffic { sent_bytes, received_bytes } = self.worker.traffic;
        let bytes = (sent_bytes + received_bytes) as f64;
        Link {
            task: self.worker.task.clone(),
            bytes_per_second: bytes / self.phases.total().max(1e-9),
            while_used: bytes / (self.phases.exchange + self.phases.wait).max(1e-9),
            capacity: Some(self.best_rate).filter(|rate| *rate > 0.0),
        }
    }

    pub(super) fn new(task: String, course: &Course) -> Self {
        let own = course.totals.metrics();
        let worker = runs::Worker {
            task,
            iterations: course.iterations,
            examples: course.totals.rows,
            seconds: course.phases.total(),
            finished: course.finished,
            loss: own.loss,
            accuracy: own.accuracy,
            dropped: 0,
            phases: PhaseShares::from(course.phases),
            traffic: Traffic {
                sent_bytes: course.traffic.sent,
                received_bytes: course.traffic.received,
            },
        };
        Self {
            worker,
            phases: course.phases,
            totals: course.totals.clone(),
            sparse_bytes: course.sparse_bytes,
            bytes: course.bytes,
            rejected: course.rejected,
            staleness: course.staleness.clone(),
            best_rate: course.best_rate,
        }
    }
}

/// What only the chief knows.
pub(super) struct Known {
    pub(super) version: u64,
    pub(super) seconds: f64,
    pub(super) cancelled: bool,
    pub(super) held_out: Option<Metrics>,
    pub(super) nonzero: u64,
    /// Rows in the weights that this run brought there. Workers that were lost had some of them; after a
    /// server was lost, some were learned from twice and are there once.
    pub(super) learned: u64,
    pub(super) reached: Option<runs::Reached>,
    pub(super) lost: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// The report of the whole run.
pub(super) fn report(spec: &Spec, tasks: &Tasks, told: &[Told], known: Known) -> Report {
    let mut totals = Totals::default();
    let mut phases = PhaseSeconds::default();
    let mut staleness: Vec<u64> = Vec::new();
    for one in told {
        totals.merge(&one.totals);
        phases.input += one.phases.input;
        phases.compute += one.phases.compute;
        phases.exchange += one.phases.exchange;
        phases.wait += one.phases.wait;
        staleness.resize(staleness.len().max(one.staleness.len()), 0);
        for (sum, count) in staleness.iter_mut().zip(&one.staleness) {
            *sum += count;
        }
    }
    let sum = |of: fn(&Told) -> u64| told.iter().map(of).sum::<u64>();
    let iterations = sum(|one| one.worker.iterations);
    let per_iteration = |bytes: u64| bytes as f64 / iterations.max(1) as f64;
    let traffic = Traffic {
        sent_bytes: sum(|one| one.worker.traffic.sent_bytes),
        received_bytes: sum(|one| one.worker.traffic.received_bytes),
    };
    let weights = (1_u64 << spec.hashing.bits) + 1;
    let paces = told.iter().map(|one| Pace {
        task: one.worker.task.clone(),
        iterations: one.worker.iterations,
        seconds_per_iteration: one.phases.total() / one.worker.iterations.max(1) as f64,
    });
    let exchange = Exchanged {
        transfer: tasks.transfer.to_string(),
        bytes_per_iteration: per_iteration(traffic.sent_bytes + traffic.received_bytes),
        sparse_bytes_per_iteration: per_iteration(sum(|one| one.sparse_bytes)),
        dense_bytes_per_iteration: (2 * 4 * weights) as f64,
        tasks: paces.collect(),
    };
    let seconds = told.iter().map(|one| one.phases.total()).fold(0.0, f64::max);
    let progressive = totals.metrics();
    let examples = totals.rows.max(known.learned);
    let summary = Summary {
        status: if known.cancelled { Status::Cancelled } else { Status::Done },
        global_batch: spec.batch_size,
        global_steps: known.version,
        examples,
        examples_per_second: examples as f64 / seconds.max(1e-9),
        last: Final {
            train_loss: progressive.loss,
            test_loss: known.held_out.map_or(f64::NAN, |metrics| metrics.loss),
            test_accuracy: known.held_out.map_or(f64::NAN, |metrics| metrics.accuracy),
        },
        reached: known.reached,
        workers: told.iter().map(|one| one.worker.clone()).collect(),
        phases: PhaseShares::from(phases),
        traffic,
        staleness,
        lost: known.lost,
        verdict: verdict(tasks, told, phases),
        warnings: known.warnings,
        ..Summary::default()
    };
    Report {
        summary,
        progressive,
        held_out: known.held_out,
        nonzero: known.nonzero,
        rejected: sum(|one| one.rejected),
        bytes_per_second: sum(|one| one.bytes) as f64 / known.seconds.max(1e-9),
        delay: [0.0; 2],
        most_behind: None,
        exchange: Some(exchange),
    }
}

/// Where the time went. A link that carries most of the time as much as it ever did is full. Otherwise, in
/// step, a worker whose weights take long to come holds the others up as much as one that computes slowly:
/// moving them counts as its own work.
fn verdict(tasks: &Tasks, told: &[Told], phases: PhaseSeconds) -> String {
    let shares = PhaseShares::from(phases);
    let full = told.iter().map(Told::link).filter(|link| {
        link.capacity.is_some_and(|capacity| link.bytes_per_second >= LINK_FULL * capacity)
    });
    // Memory that processes share is no network; what goes over it is counted all the same.
    let links: Vec<Link> = full.filter(|link| link.bytes_per_second >= LEAST_RATE).collect();
    let load = |one: &Told| {
        let own = one.phases.input + one.phases.compute + one.phases.exchange;
        WorkerLoad {
            task: one.worker.task.clone(),
            own_seconds_per_step: own / one.worker.iterations.max(1) as f64,
        }
    };
    let waits = tasks.synchronous() && links.is_empty();
    let workers = if waits { told.iter().map(load).collect() } else { Vec::new() };
    let evidence = Evidence {
        steps: told.iter().map(|one| one.worker.iterations).sum(),
        seconds: phases.total(),
        input: shares.input,
        compute: shares.compute,
        exchange: shares.exchange,
        wait: shares.wait,
        threads: 1,
        busy_cores: None,
        examples: Examples::Rows,
    };
    judge_within(&evidence, &Surroundings { workers, links, ..Surroundings::default() }).words
}
