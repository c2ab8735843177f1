//! What the tasks of a job do, and what comes of it: the one place where the two kinds of training are told apart.

use crate::{JobError, JobNotice, JobObserver, notice::LoopNotices};
use paceline_cluster::session::OnLoss;
use paceline_runs::{RecordedPlan, RunFolder, Summary, diagnosis};
use paceline_strategies::{StrategyEntry, find};
use paceline_training::rows::{RowsReport, RowsSpec};
use paceline_training::{Parts, RunSpec, TrainError};
use serde::{Deserialize, Serialize};

/// What the tasks of a job do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Train a model on examples.
    Examples(Box<RunSpec>),
    /// Learn from rows of sparse features.
    Rows(Box<RowsSpec>),
}

impl From<RunSpec> for Work {
    fn from(spec: RunSpec) -> Self {
        Self::Examples(Box::new(spec))
    }
}

impl From<RowsSpec> for Work {
    fn from(spec: RowsSpec) -> Self {
        Self::Rows(Box::new(spec))
    }
}

impl Work {
    pub(crate) fn model(&self) -> &str {
        match self {
            Self::Examples(spec) => &spec.model,
            Self::Rows(spec) => &spec.model,
        }
    }

    pub(crate) fn strategy(&self) -> Result<&'static StrategyEntry, JobError> {
        match self {
            Self::Examples(spec) => Ok(find(&spec.strategy).map_err(TrainError::from)?),
            Self::Rows(spec) => {
                find(spec.strategy()).map_err(|error| JobError::of_rows(error.into()))
            }
        }
    }

    /// What happens when a worker is lost.
    pub(crate) fn on_loss(&self) -> OnLoss {
        match self {
            Self::Examples(spec) => spec.on_loss,
            Self::Rows(spec) => spec.tasks.as_ref().map_or_else(OnLoss::default, |t| t.on_loss),
        }
    }

    /// Finds model and data, and says what was assumed about them.
    pub(crate) fn open(&self, observer: &dyn JobObserver) -> Result<OpenedWork<'_>, JobError> {
        match self {
            Self::Examples(spec) => {
                let parts = Box::new(Parts::open(spec)?);
                for remark in parts.train.remarks() {
                    let data = spec.data.clone();
                    observer.notice(JobNotice::DataRemark { data, remark });
                }
                Ok(OpenedWork::Examples { spec, parts })
            }
            Self::Rows(spec) => Ok(OpenedWork::Rows { spec }),
        }
    }
}

/// Work whose model and data were found.
pub(crate) enum OpenedWork<'a> {
    Examples { spec: &'a RunSpec, parts: Box<Parts> },
    Rows { spec: &'a RowsSpec },
}

impl OpenedWork<'_> {
    /// Every check that needs no other task, so that what is wrong is said once and before any process starts.
    pub(crate) fn check(&self) -> Result<(), JobError> {
        match self {
            Self::Examples { spec, parts } => paceline_training::check(spec, parts).map(drop)?,
            Self::Rows { spec } => spec.check().map_err(JobError::of_rows)?,
        }
        Ok(())
    }

    /// What can only be checked where all tasks are on this machine.
    pub(crate) fn check_one_machine(&self) -> Result<(), JobError> {
        match self {
            Self::Examples { .. } => Ok(()),
            Self::Rows { spec } => spec.check_one_machine().map_err(JobError::of_rows),
        }
    }

    /// Whether a run can continue with these settings.
    pub(crate) fn check_resume(&self, run: &RunFolder) -> Result<(), JobError> {
        match self {
            Self::Examples { spec, parts } => {
                Ok(paceline_training::check_resume(spec, parts, run)?)
            }
            Self::Rows { spec } => {
                paceline_training::rows::check_resume(spec, run).map_err(JobError::of_rows)
            }
        }
    }

    /// Whether a host has enough of a run's records to check that. One without a shared disk has not; it learns
    /// from the chief how far the run is.
    pub(crate) fn has_records(&self, run: &RunFolder) -> bool {
        match self {
            Self::Examples { .. } => {
                run.is_resumable() && run.summary().is_ok_and(|found| found.is_some())
            }
            Self::Rows { .. } => run.is_resumable(),
        }
    }

    /// The settings that all tasks must share.
    pub(crate) fn shared(&self) -> Result<serde_json::Value, JobError> {
        match self {
            Self::Examples { spec, parts } => Ok(parts.shared(spec)),
            Self::Rows { spec } => spec.shared().map_err(JobError::of_rows),
        }
    }

    /// Leaves the plan in the folder of a host without a shared disk, which needs it to resume together with the
    /// others.
    pub(crate) fn leave_plan(&self, run: &RunFolder) -> Result<(), JobError> {
        if RecordedPlan::open(run).is_ok() {
            return Ok(());
        }
        match self {
            Self::Examples { spec, parts } => {
                run.write_plan(&paceline_training::check(spec, parts)?)?;
            }
            Self::Rows { spec } => run.write_plan(&spec.plan_of_a_task())?,
        }
        Ok(())
    }
}

/// How a job ended.
#[derive(Debug, Clone)]
pub struct JobOutcome {
    /// Where its records are.
    pub run: RunFolder,
    pub result: JobResult,
}

/// What a job, or one task of it, has to show.
#[derive(Debug, Clone)]
pub enum JobResult {
    /// Of training on examples.
    Examples(Box<Summary>),
    /// Of learning from rows.
    Rows(Box<RowsReport>),
}

impl JobResult {
    /// What every run says.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        match self {
            Self::Examples(summary) => summary,
            Self::Rows(report) => &report.summary,
        }
    }

    pub(crate) fn summary_mut(&mut self) -> &mut Summary {
        match self {
            Self::Examples(summary) => summary,
            Self::Rows(report) => &mut report.summary,
        }
    }

    /// Puts the full verdict into the summary, here and in the run's folder: all tasks' records are written by now.
    pub(crate) fn conclude(&mut self, run: &RunFolder, observer: &dyn JobObserver) {
        if let Err(error) = diagnosis::conclude(run, self.summary_mut()) {
            LoopNotices(observer).warn(format!("the verdict does not know the machines: {error}"));
        }
    }
}

/// The report that a run on rows has left in its folder.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn recorded_report(run: &RunFolder) -> Result<RowsReport, JobError> {
    let path = run.path().join("summary.json");
    let text = std::fs::read(&path)
        .map_err(|source| JobError::ReadReport { path: path.clone(), source })?;
    serde_json::from_slice(&text).map_err(|source| JobError::Report { path, source })
}
