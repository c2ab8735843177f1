//! What a run on rows did, from its workers to its summary: the same for one process and for several tasks.

use super::tasks::LoopState;
use crate::{
    TrainError,
    rows::{Earlier, Metrics, RowsSpec, Tasks, Totals, outcome},
    summarize::{Conclusion, Heading},
};
use paceline_runs::{
    self as runs, Final, Learning, PhaseTimes, Recorder, RunFolder, Status, Summary, Traffic,
    diagnosis::Examples, figures::rate,
};
use serde::{Deserialize, Serialize};

/// How a run ended: the summary every run has, and what only streams have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RowsReport {
    /// What every run says.
    #[serde(flatten)]
    pub summary: Summary,
    /// Every row judged before it was learned from.
    pub progressive: Metrics,
    /// Held-out rows, at the end.
    pub held_out: Option<Metrics>,
    /// Weights that are not zero.
    pub nonzero: u64,
    /// Malformed lines.
    pub rejected: u64,
    /// Bytes of text that were read.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes of text per second, over the same time as `examples_per_second`.
    pub bytes_per_second: f64,
    /// Seconds between the arrival of a row and its being learned from: mean and most.
    pub delay: [f64; 2],
    /// The most bytes that waited in a followed file.
    pub most_behind: Option<u64>,
    /// What went between tasks, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchanged>,
}

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
    pub task: String,
    /// Steps it did.
    pub iterations: u64,
    pub seconds_per_iteration: f64,
}

/// What one worker did; those of several tell the chief at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkerReport {
    pub(crate) worker: runs::WorkerSummary,
    pub(crate) phases: PhaseTimes,
    pub(crate) totals: Totals,
    pub(crate) sparse_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) rejected: u64,
    pub(crate) staleness: Vec<u64>,
    /// The loss of its last rows, where it had exploded.
    #[serde(default)]
    pub(crate) exploded: Option<f64>,
}

impl WorkerReport {
    /// Of a worker that made so many steps, with what it measured of its rows and its time.
    pub(crate) fn new(task: String, iterations: u64, totals: Totals, phases: PhaseTimes) -> Self {
        let own = totals.metrics();
        let worker = runs::WorkerSummary {
            task,
            iterations,
            examples: totals.rows,
            seconds: phases.total(),
            loss: own.loss,
            accuracy: own.accuracy,
            phases: phases.shares(),
            ..runs::WorkerSummary::default()
        };
        let (sparse_bytes, bytes, rejected, staleness, exploded) = Default::default();
        Self { worker, phases, totals, sparse_bytes, bytes, rejected, staleness, exploded }
    }
}

impl From<(String, &LoopState)> for WorkerReport {
    fn from((task, loop_state): (String, &LoopState)) -> Self {
        let mut report =
            Self::new(task, loop_state.iterations, loop_state.totals.clone(), loop_state.phases);
        report.worker.finished = loop_state.finished;
        report.worker.traffic = Traffic {
            sent_bytes: loop_state.traffic.sent,
            received_bytes: loop_state.traffic.received,
        };
        Self {
            sparse_bytes: loop_state.sparse_bytes,
            bytes: loop_state.bytes,
            rejected: loop_state.rejected,
            staleness: loop_state.staleness.clone(),
            exploded: loop_state.guard.at_end().map(|found| found.loss),
            ..report
        }
    }
}

/// What is known of the run as a whole.
#[derive(Default)]
pub(crate) struct RunFacts {
    pub(crate) version: u64,
    pub(crate) cancelled: bool,
    /// It failed: whether it learned is not asked.
    pub(crate) failed: bool,
    pub(crate) held_out: Option<Metrics>,
    pub(crate) nonzero: u64,
    /// Rows in the weights that this run brought there. Workers that were lost had some of them; after a
    /// server was lost, some were learned from twice and are there once.
    pub(crate) learned: u64,
    pub(crate) reached: Option<runs::Reached>,
    pub(crate) lost: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// How rows were predicted in earlier stretches of the run.
    pub(crate) before: Option<Totals>,
    /// Of a stream: seconds between the arrival of a row and its being learned from (mean and most), and the most
    /// bytes that waited in a followed file.
    pub(crate) delay: [f64; 2],
    pub(crate) most_behind: Option<u64>,
}

/// The report of the whole run.
pub(crate) fn report(spec: &RowsSpec, reports: &[WorkerReport], known: RunFacts) -> RowsReport {
    let mut totals = Totals::default();
    let mut staleness: Vec<u64> = Vec::new();
    for one in reports {
        totals.merge(&one.totals);
        staleness.resize(staleness.len().max(one.staleness.len()), 0);
        for (sum, count) in staleness.iter_mut().zip(&one.staleness) {
            *sum += count;
        }
    }
    let sum = |of: fn(&WorkerReport) -> u64| reports.iter().map(of).sum::<u64>();
    let iterations = sum(|one| one.worker.iterations);
    let per_iteration = |bytes: u64| bytes as f64 / iterations.max(1) as f64;
    let traffic = Traffic {
        sent_bytes: sum(|one| one.worker.traffic.sent_bytes),
        received_bytes: sum(|one| one.worker.traffic.received_bytes),
    };
    let weights = (1_u64 << spec.hashing.bits) + 1;
    let pace = |one: &WorkerReport| Pace {
        task: one.worker.task.clone(),
        iterations: one.worker.iterations,
        seconds_per_iteration: one.phases.stepping() / one.worker.iterations.max(1) as f64,
    };
    let exchange = |tasks: &Tasks| Exchanged {
        transfer: tasks.transfer.to_string(),
        bytes_per_iteration: per_iteration(traffic.sent_bytes + traffic.received_bytes),
        sparse_bytes_per_iteration: per_iteration(sum(|one| one.sparse_bytes)),
        dense_bytes_per_iteration: (2 * 4 * weights) as f64,
        tasks: reports.iter().map(pace).collect(),
    };
    let examples = totals.rows.max(known.learned);
    if let Some(before) = &known.before {
        totals.merge(before);
    }
    let progressive = totals.metrics();
    let learning = (!known.cancelled && !known.failed)
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
        workers: reports.iter().map(|one| one.worker.clone()).collect(),
        traffic,
        staleness,
        lost: known.lost,
        warnings,
        ..Summary::default()
    };
    RowsReport {
        summary,
        progressive,
        held_out: known.held_out,
        nonzero: known.nonzero,
        rejected: sum(|one| one.rejected),
        bytes: sum(|one| one.bytes),
        bytes_per_second: 0.0,
        delay: known.delay,
        most_behind: known.most_behind,
        exchange: spec.tasks.as_ref().map(exchange),
    }
}

impl RowsReport {
    /// Completes the report and ends the log of a run, or of a worker's part in one. Returns why nothing was left to do,
    /// where no update was made.
    pub(crate) fn conclude(
        &mut self,
        spec: &RowsSpec,
        home: &RunFolder,
        (started, seconds): (f64, f64),
        failure: Option<&TrainError>,
        (earlier, first_step): (Earlier, u64),
        recorder: Recorder,
    ) -> Option<String> {
        let heading = Heading {
            run: home.name(),
            model: &spec.model,
            data: spec.data.to_string(),
            strategy: spec.strategy(),
            seed: 0,
            started,
            seconds,
        };
        heading.put(&mut self.summary);
        self.bytes_per_second = rate(self.bytes, seconds);
        let conclusion = Conclusion {
            failure,
            tried: outcome::tried(spec),
            threads: 1,
            examples: Examples::Rows,
            first_step,
        };
        let steps = conclusion.put(&mut self.summary, recorder);
        if steps == 0 && failure.is_none() && earlier.report.is_some() {
            return Some(self.keep(earlier, spec));
        }
        self.summary.add_legs(&earlier.legs, steps);
        None
    }

    /// Writes it into the run's folder.
    pub(crate) fn write(&self, home: &RunFolder) -> Result<(), TrainError> {
        Ok(home.write_summary(self)?)
    }
}
