//! Why a job could not start, or failed.

use crate::local::TasksFailed;
use paceline_cluster::{
    SpecError,
    launch::{local::LaunchError, spark::SparkError},
    session::SessionError,
};
use paceline_runs::RunsError;
use paceline_training::TrainError;
use paceline_wire::{KeyError, LinkError, Role, TaskId};
use std::{io, path::PathBuf};

/// Why a job could not start, or failed.
///
/// Errors of the session and of the run folder have the same variant whatever is trained, so that a caller gives
/// one piece of advice for each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// Training on examples failed.
    #[error(transparent)]
    Train(Box<TrainError>),
    /// Learning from rows failed.
    #[error(transparent)]
    Rows(Box<TrainError>),
    /// The tasks did not meet, or did not hold together.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The run folder could not be written or read.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// The task could not listen for the others.
    #[error(transparent)]
    Listen(LinkError),
    /// A task that was started for this job could not listen where its launcher meant it to.
    #[error(transparent)]
    Endpoint(LinkError),
    /// The socket that the launcher opened for this task could not be taken over.
    #[error("cannot take over the socket that the launcher opened for this task")]
    InheritedSocket(#[source] io::Error),
    /// The key of a job could not be made, or was damaged on its way to a task.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The file of the cluster key could not be used.
    #[error(transparent)]
    KeyFile(KeyError),
    /// There is no cluster key.
    #[error("no cluster key: tasks prove to each other that they belong together")]
    NoKey,
    /// Neither the environment nor a file describes a cluster.
    #[error("nothing describes the cluster")]
    NotDescribed,
    /// The environment describes the cluster wrongly, or contradicts another description.
    #[error(transparent)]
    Description(#[from] SpecError),
    /// The cluster file could not be read.
    #[error("cannot read cluster file `{}`", .path.display())]
    ClusterFile {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cluster file is wrong.
    #[error("`{}`", .path.display())]
    ClusterFileContent {
        path: PathBuf,
        /// What is wrong with it.
        source: SpecError,
    },
    /// The described cluster lacks the task at which all others join.
    #[error("{origin}: there is no {chief} to meet at")]
    ChiefNotListed {
        /// What described the cluster.
        origin: String,
        chief: TaskId,
    },
    /// Servers and evaluator would take all ranks, so that no worker is left.
    #[error("{origin} has {ranks} tasks, and servers and evaluator take {taken} of them")]
    NoRankLeft {
        /// What described the cluster.
        origin: String,
        /// Its number of ranks.
        ranks: u32,
        /// Ranks that would not train.
        taken: u32,
        /// Whether one of them is an evaluator.
        evaluator: bool,
    },
    /// The cluster has another number of tasks than was asked for.
    #[error("{given} {} tasks were asked for, but {origin} has {found}", .role.name())]
    OtherSize {
        /// Whose number it is.
        role: Role,
        given: usize,
        /// As described.
        found: usize,
        /// What described the cluster.
        origin: String,
    },
    /// A name has no address.
    #[error("`{address}` does not resolve")]
    Unresolved { address: String },
    /// No interface of this host leads there.
    #[error("there is no route to `{address}`")]
    NoRoute {
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The strategy has only one process, so there is nothing to start.
    #[error("strategy `{strategy}` trains in one process, without a cluster")]
    OneProcess { strategy: &'static str },
    /// The executable that tasks shall run could not be found.
    #[error("cannot find this program")]
    Program(#[source] io::Error),
    /// A path could not be made absolute.
    #[error("cannot find the absolute path of `{}`", .path.display())]
    Absolute {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A task could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The launcher of this task sent no order.
    #[error("the launcher sent no order")]
    NoOrder(#[source] io::Error),
    /// The order of the launcher is not one.
    #[error("the order cannot be read")]
    Order(#[source] serde_json::Error),
    /// The order could not be written as JSON.
    #[error("the order cannot be written")]
    WriteOrder(#[source] serde_json::Error),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// A task of a local job failed, and the run with it.
    #[error(transparent)]
    Tasks(Box<TasksFailed>),
    /// The report of a run could not be read.
    #[error("cannot read {}", .path.display())]
    ReadReport {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The report of a run is not one.
    #[error("{} is not a report", .path.display())]
    Report { path: PathBuf, source: serde_json::Error },
    /// Spark could not run the job.
    #[error(transparent)]
    Spark(#[from] SparkError),
    /// Spark ended without an answer of the first worker.
    #[error("Spark reported no task")]
    NoSparkTask,
    /// The first worker's answer through Spark is not a summary.
    #[error("the first worker's answer is not a summary")]
    SparkAnswer(#[source] serde_json::Error),
}

impl From<TrainError> for JobError {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Session(error) => Self::Session(error),
            TrainError::Runs(error) => Self::Runs(error),
            error => Self::Train(Box::new(error)),
        }
    }
}

impl JobError {
    /// An error of learning from rows: what could be done about it differs from training on examples.
    pub(crate) fn of_rows(error: TrainError) -> Self {
        match error.into() {
            Self::Train(error) => Self::Rows(error),
            other => other,
        }
    }

    /// Whether the run had nothing left to do. Not a failure: nothing was changed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Train(error) | Self::Rows(error) => {
                matches!(**error, TrainError::Finished { .. })
            }
            _ => false,
        }
    }

    /// Whether the same job may succeed when it is started again as it is.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Session(error) => error.is_retryable(),
            Self::Runs(error) => {
                matches!(error, RunsError::Owned { .. } | RunsError::LogHeld { .. })
            }
            Self::Rows(error) => error.is_peer(),
            Self::Train(error) => match &**error {
                TrainError::Link(_) => true,
                TrainError::Strategy(error) => error.lost().is_some(),
                _ => false,
            },
            Self::Tasks(failed) => failed.exit() == TasksFailed::RETRY,
            _ => false,
        }
    }
}
