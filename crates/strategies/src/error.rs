//! Why an exchange could not be set up or went wrong.

use paceline_cluster::JobMembership;
use paceline_models::names::UnknownName;
use paceline_wire::{LinkError, TaskId};
use std::sync::atomic::Ordering;

/// Why an exchange could not be set up or went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// No strategy has that name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The number of replicas does not fit.
    #[error("strategy `{strategy}` works with {wanted} replicas, not {found}")]
    Replicas {
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
    #[error("this strategy needs several processes: this task is not a member of a job")]
    NoSeat,
    /// A task that is not a server was asked to serve.
    #[error("{task} is not a server of this job")]
    NoServer { task: TaskId },
    /// A strategy with servers and none in the job.
    #[error("strategy `{strategy}` needs at least one server (ps) and the job has none")]
    NoServers { strategy: &'static str },
    /// A task that does not train was asked to.
    #[error("{task} is not a worker of this job")]
    NoWorker { task: TaskId },
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
        step: u64,
    },
    /// The group cannot be formed again.
    #[error("this strategy cannot continue after losing a task")]
    NoReform,
    /// A choice is out of range.
    #[error("{option} is {found}, must be {wanted}")]
    Option {
        option: &'static str,
        found: String,
        /// What it may be.
        wanted: String,
    },
}

impl StrategyError {
    /// Whether the caller asked for something that does not exist or does not fit, rather than something going wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Unknown(_) | Self::Replicas { .. } | Self::NoServers { .. } | Self::Option { .. }
        )
    }

    /// What a failed conversation means. The task that notices a loss first closes its links, so that no other task
    /// waits; the task that a link names may therefore be alive. Once the alarm is raised the membership knows which task is
    /// lost; before that, the losses it knows are from earlier generations, and the link is believed.
    pub(crate) fn explain(error: LinkError, membership: &dyn JobMembership, step: u64) -> Self {
        let stopped = matches!(error, LinkError::Cancelled { .. } | LinkError::Stopped { .. });
        let lost = membership.lost().last().copied();
        let alarmed =
            error.is_lost() && lost.is_some() && membership.alarm().load(Ordering::Acquire);
        if stopped || alarmed { Self::PeerLost { task: lost, step } } else { error.into() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_cluster::membership::ThreadedJob;
    use paceline_wire::Role;

    #[test]
    fn the_task_that_hung_up_is_blamed_unless_the_seat_knows_better() {
        let [worker, gone, well, dead] = [
            TaskId::new(Role::Worker, 0),
            TaskId::new(Role::Worker, 1),
            TaskId::new(Role::Ps, 0),
            TaskId::new(Role::Ps, 1),
        ];
        let table = ThreadedJob::new(2, 2);
        let membership = table.membership(worker);
        let hung_up = || LinkError::Lost {
            task: well,
            address: "here".to_owned(),
            phase: "testing".to_owned(),
            cause: std::io::ErrorKind::BrokenPipe.into(),
        };
        let named = || StrategyError::explain(hung_up(), &*membership, 7).lost();
        assert_eq!(named(), Some(well), "no other task is known to be lost");
        table.miss(gone);
        assert_eq!(named(), Some(well), "the others went on without that one");
        table.lose(dead);
        assert_eq!(named(), Some(dead), "that is why the other hung up");
    }
}
