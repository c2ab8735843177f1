//! What a job says while it runs: typed notices, so that a caller chooses the words and the place for them.

use paceline_cluster::session::Offset;
use paceline_runs::{Evaluation, RunFolder};
use paceline_training::rows::{Metrics, Plan};
use paceline_training::{Progress, RunPlan};
use paceline_wire::TaskId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Told what happens in a job, from the threads where it happens; must not block for long.
///
/// A closure is an observer too.
pub trait JobObserver: Send + Sync {
    /// Something happened.
    fn notice(&self, notice: JobNotice);
}

impl<F: Fn(JobNotice) + Send + Sync> JobObserver for F {
    fn notice(&self, notice: JobNotice) {
        self(notice);
    }
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl JobObserver for Unobserved {
    fn notice(&self, _notice: JobNotice) {}
}

/// Something that happened in a job. Tasks of a local job send these to the process that started them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobNotice {
    /// Which tasks have joined; a few times a second until all have.
    Waiting {
        /// Tasks that have not joined.
        missing: Vec<MissingTask>,
        /// Number of tasks that have.
        joined: usize,
    },
    /// A task joined, perhaps again.
    Joined {
        task: TaskId,
        /// Where it takes connections.
        address: String,
        host: String,
        /// Its clock against the chief's.
        clock: Option<Offset>,
        /// Whether it had been lost before.
        returned: bool,
    },
    /// A task was not let in.
    Refused {
        /// The task that it said it was.
        task: TaskId,
        reason: String,
    },
    /// A task does not answer any more.
    Lost {
        task: TaskId,
        /// Where its process took connections, which tells it from the one that follows.
        address: String,
        /// Why it was given up.
        reason: String,
    },
    /// A worker holds the others up, or makes no step because its data do not come.
    Slow {
        /// What was observed, in words.
        text: String,
    },
    /// A connection did not prove that it belongs to the job.
    Stranger {
        /// Where it came from and what was wrong with it.
        text: String,
    },
    /// The first step on examples is next.
    Started {
        plan: Box<RunPlan>,
        run: PathBuf,
        /// Number of the step.
        first_step: u64,
    },
    /// Some steps were done.
    Progressed(Progress),
    /// The model was scored.
    Evaluated(Evaluation),
    /// The first row is next.
    RowsStarted {
        plan: Box<Plan>,
        run: PathBuf,
        /// Rows learned from before.
        rows: u64,
    },
    /// Some rows were learned from.
    RowsProgressed {
        /// How well they were predicted.
        recent: Metrics,
        /// Rows learned from, over all workers.
        rows: u64,
        /// Bytes of text that the chief has read.
        done: u64,
        /// Rows a second of the chief.
        speed: f64,
    },
    /// Held-out rows were scored.
    RowsEvaluated {
        /// How well they were predicted.
        metrics: Metrics,
        /// Rows learned from, over all workers.
        rows: u64,
    },
    /// The run folder was renamed; the run continues there.
    Moved {
        /// Where it is now.
        run: PathBuf,
    },
    /// Something was assumed about the data.
    DataRemark { data: String, remark: String },
    /// Something the user should know.
    Warned {
        /// The task that says so, where it is not the chief.
        task: Option<TaskId>,
        text: String,
    },
    /// A task ended because it cannot reach the chief, whose process still runs.
    ChiefUnreachable {
        /// The task that ended.
        task: TaskId,
        error: String,
    },
    /// A task's process ended and is started again.
    Restarting {
        task: TaskId,
        /// How its process ended.
        what: String,
    },
    /// A task's process ended once too often.
    GivenUp {
        task: TaskId,
        /// How its last process ended.
        what: String,
        /// How often it was started.
        starts: u32,
    },
    /// Gradients were added up by MPI.
    SummedByMpi,
}

/// A task that has not joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MissingTask {
    pub task: TaskId,
    /// Its address; empty where it is not known before the task joins.
    pub address: String,
    /// Seconds since it is waited for.
    pub seconds: f64,
    /// Why it is missing, as far as is known.
    pub error: Option<String>,
}

/// Turns what the training loops say into notices.
pub(crate) struct LoopNotices<'a>(pub(crate) &'a dyn JobObserver);

impl LoopNotices<'_> {
    pub(crate) fn warn(&self, text: String) {
        self.0.notice(JobNotice::Warned { task: None, text });
    }
}

impl paceline_training::Observer for LoopNotices<'_> {
    fn started(&self, plan: &RunPlan, run: &RunFolder, first_step: u64) {
        let (plan, run) = (Box::new(plan.clone()), run.path().to_path_buf());
        self.0.notice(JobNotice::Started { plan, run, first_step });
    }

    fn progressed(&self, progress: &Progress) {
        self.0.notice(JobNotice::Progressed(*progress));
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        self.0.notice(JobNotice::Evaluated(evaluation.clone()));
    }

    fn moved(&self, run: &RunFolder) {
        self.0.notice(JobNotice::Moved { run: run.path().to_path_buf() });
    }

    fn warned(&self, text: &str) {
        self.warn(text.to_owned());
    }
}

impl paceline_training::rows::Observer for LoopNotices<'_> {
    fn started(&self, plan: &Plan, run: &RunFolder, rows: u64) {
        let (plan, run) = (Box::new(plan.clone()), run.path().to_path_buf());
        self.0.notice(JobNotice::RowsStarted { plan, run, rows });
    }

    fn progressed(&self, recent: &Metrics, rows: u64, done: u64, speed: f64) {
        self.0.notice(JobNotice::RowsProgressed { recent: *recent, rows, done, speed });
    }

    fn evaluated(&self, metrics: &Metrics, rows: u64) {
        self.0.notice(JobNotice::RowsEvaluated { metrics: *metrics, rows });
    }

    fn moved(&self, run: &RunFolder) {
        self.0.notice(JobNotice::Moved { run: run.path().to_path_buf() });
    }

    fn warned(&self, text: &str) {
        self.warn(text.to_owned());
    }
}
