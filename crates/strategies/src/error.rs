//! Why an exchange could not be set up or went wrong.

use paceline_cluster::{LinkError, Seat, TaskId};

/// Why an exchange could not be set up or went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// No strategy has that name.
    #[error("no strategy is named `{name}`; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The number of replicas does not fit.
    #[error("strategy `{strategy}` works with {wanted} replicas, not {found}")]
    Replicas {
        /// The strategy.
        strategy: &'static str,
        /// What was asked for.
        found: usize,
        /// What it can do.
        wanted: &'static str,
    },
    /// Another replica of this process ended in the middle of a step.
    #[error("replica {replica} of {replicas} stopped: another replica ended at step {step}")]
    ReplicaLost {
        /// The one that was left waiting.
        replica: usize,
        /// How many there are.
        replicas: usize,
        /// The step it was in.
        step: u64,
    },
    /// The strategy needs other tasks, and this process is alone.
    #[error("this strategy needs several processes: there is no seat in a job")]
    NoSeat,
    /// A task that is no server was asked to serve.
    #[error("{task} is no server of this job")]
    NoServer {
        /// The task.
        task: TaskId,
    },
    /// A strategy with servers and none in the job.
    #[error("strategy `{strategy}` needs at least one server (ps) and the job has none")]
    NoServers {
        /// The strategy.
        strategy: &'static str,
    },
    /// A task that does not train was asked to.
    #[error("{task} is no worker of this job")]
    NoWorker {
        /// The task.
        task: TaskId,
    },
    /// A conversation with another task failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The others cannot go on without a task.
    #[error(
        "step {step} could not be finished: {}",
        .task.map_or_else(|| "the job was told to stop".to_owned(), |task| format!("{task} was lost"))
    )]
    PeerLost {
        /// Who is missing, where that is known.
        task: Option<TaskId>,
        /// The step.
        step: u64,
    },
    /// The group cannot be formed anew.
    #[error("this strategy cannot go on without a lost member")]
    NoReform,
    /// A choice is out of range.
    #[error("{option} is {found}, must be {wanted}")]
    Option {
        /// The choice.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        wanted: String,
    },
}

impl StrategyError {
    /// What a failed conversation means. Whoever notices a loss first hangs up, so that nobody waits:
    /// the task that a link names may be well. The seat knows who is gone, if anybody does yet.
    pub(crate) fn explain(error: LinkError, seat: &dyn Seat, step: u64) -> Self {
        let alarmed = matches!(error, LinkError::Cancelled { .. } | LinkError::Stopped { .. });
        match seat.lost().last() {
            Some(task) if alarmed || error.is_lost() => Self::PeerLost { task: Some(*task), step },
            None if alarmed => Self::PeerLost { task: None, step },
            _ => error.into(),
        }
    }

    /// The task whose loss caused it, where one did.
    #[must_use]
    pub fn lost(&self) -> Option<TaskId> {
        match self {
            Self::Link(error) if error.is_lost() || error.is_timeout() => error.task(),
            Self::PeerLost { task, .. } => *task,
            _ => None,
        }
    }
}
