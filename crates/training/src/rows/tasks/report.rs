//! What tasks did, and the summary of the whole run.

use super::{Tasks, worker::Course};
use crate::rows::{Metrics, Report, Spec, Totals, outcome};
use paceline_runs::{
    self as runs, Final, Learning, PhaseSeconds, PhaseShares, Status, Summary, Traffic,
};
use serde::{Deserialize, Serialize};

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
    /// The loss of its last rows, where it had exploded.
    #[serde(default)]
    pub(super) exploded: Option<f64>,
}

impl Told {
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
            exploded: course.guard.at_end().map(|found| found.loss),
        }
    }
}

/// What only the chief knows.
pub(super) struct Known {
    pub(super) version: u64,
    pub(super) cancelled: bool,
    pub(super) held_out: Option<Metrics>,
    pub(super) nonzero: u64,
    /// Rows in the weights that this run brought there. Workers that were lost had some of them; after a
    /// server was lost, some were learned from twice and are there once.
    pub(super) learned: u64,
    pub(super) reached: Option<runs::Reached>,
    pub(super) lost: Vec<String>,
    pub(super) warnings: Vec<String>,
    /// How rows were predicted in earlier stretches of the run.
    pub(super) before: Option<Totals>,
}

/// The report of the whole run.
pub(super) fn report(spec: &Spec, tasks: &Tasks, told: &[Told], known: Known) -> Report {
    let mut totals = Totals::default();
    let mut staleness: Vec<u64> = Vec::new();
    for one in told {
        totals.merge(&one.totals);
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
    let examples = totals.rows.max(known.learned);
    if let Some(before) = &known.before {
        totals.merge(before);
    }
    let progressive = totals.metrics();
    let learning = (!known.cancelled)
        .then(|| outcome::of_end(spec, &progressive, known.held_out.as_ref(), known.version))
        .flatten();
    let mut warnings = known.warnings;
    warnings.extend(learning.as_ref().and_then(Learning::warning));
    let summary = Summary {
        status: if known.cancelled { Status::Cancelled } else { Status::Done },
        global_batch: spec.batch_size,
        global_steps: known.version,
        examples,
        last: Final {
            train_loss: progressive.loss,
            test_loss: known.held_out.map_or(f64::NAN, |metrics| metrics.loss),
            test_accuracy: known.held_out.map_or(f64::NAN, |metrics| metrics.accuracy),
        },
        learning,
        reached: known.reached,
        workers: told.iter().map(|one| one.worker.clone()).collect(),
        traffic,
        staleness,
        lost: known.lost,
        warnings,
        ..Summary::default()
    };
    Report {
        summary,
        progressive,
        held_out: known.held_out,
        nonzero: known.nonzero,
        rejected: sum(|one| one.rejected),
        bytes: sum(|one| one.bytes),
        bytes_per_second: 0.0,
        delay: [0.0; 2],
        most_behind: None,
        exchange: Some(exchange),
    }
}
