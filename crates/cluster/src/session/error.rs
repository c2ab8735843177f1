//! Why a task could not take part in a run, or had to leave it.

use super::message::Loss;
use paceline_wire::{LinkError, TaskId};
use std::{fmt, io};

/// Why a task could not take part in a run, or had to leave it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Some tasks did not join in time.
    #[error("the run did not start within {seconds} s: {}", list(.missing))]
    NotStarted {
        /// How long was waited.
        seconds: u64,
        /// Who is missing, where, and why as far as is known.
        missing: Vec<Loss>,
    },
    /// The chief could not be reached in time.
    #[error("{chief} at {address} could not be joined within {seconds} s: {reason}")]
    NoChief {
        chief: TaskId,
        /// Where it should be.
        address: String,
        /// How long was tried.
        seconds: u64,
        /// The last error.
        reason: String,
    },
    /// The chief did not let this task in.
    #[error("{chief} at {address} refused {me}: {reason}")]
    Refused { chief: TaskId, address: String, me: TaskId, reason: String },
    /// The chief does not answer any more.
    #[error("lost {chief} at {address}: {reason}; no task can continue without the chief")]
    ChiefLost { chief: TaskId, address: String, reason: String },
    /// A task was lost, and the run does not go on without it.
    #[error("lost {0}")]
    Lost(Loss),
    /// Another task failed in a way that concerns all.
    #[error("{task} failed: {reason}")]
    Failed { task: TaskId, reason: String },
    /// The others went on without this task.
    #[error("{me} was left behind; the other tasks continue without it: {reason}")]
    Expelled { me: TaskId, reason: String },
    /// This task was asked to stop.
    #[error("{me} was asked to stop while {phase}")]
    Cancelled {
        me: TaskId,
        /// What was going on.
        phase: &'static str,
    },
    /// A new generation did not form in time.
    #[error("{me} waited {seconds} s for the tasks to form again after {reason}")]
    NotRegrouped {
        me: TaskId,
        /// How long.
        seconds: u64,
        reason: String,
    },
    /// A connection was needed to a task that does not take part.
    #[error("{task} does not take part any more")]
    Gone { task: TaskId },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::sync::Arc<io::Error>),
    /// A connection failed.
    #[error(transparent)]
    Link(std::sync::Arc<LinkError>),
}

impl SessionError {
    /// Whether starting the same thing again may well succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::NotStarted { .. }
                | Self::NoChief { .. }
                | Self::ChiefLost { .. }
                | Self::Lost(_)
                | Self::Expelled { .. }
                | Self::Cancelled { .. }
                | Self::NotRegrouped { .. }
                | Self::Gone { .. }
        )
    }

    /// Whether the chief did not answer, at the start or any more.
    #[must_use]
    pub fn is_without_chief(&self) -> bool {
        matches!(self, Self::NoChief { .. } | Self::ChiefLost { .. })
    }

    /// Whether this only repeats what another task has to say.
    #[must_use]
    pub fn is_echo(&self) -> bool {
        matches!(
            self,
            Self::ChiefLost { .. } | Self::Lost(_) | Self::Failed { .. } | Self::Gone { .. }
        )
    }
}

impl From<LinkError> for SessionError {
    fn from(error: LinkError) -> Self {
        Self::Link(std::sync::Arc::new(error))
    }
}

fn list(missing: &[Loss]) -> String {
    struct Missing<'a>(&'a Loss);
    impl fmt::Display for Missing<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Loss { task, address, reason } = self.0;
            if address.is_empty() {
                write!(f, "{task} is missing ({reason})")
            } else {
                write!(f, "{task} at {address} is missing ({reason})")
            }
        }
    }
    missing.iter().map(|loss| Missing(loss).to_string()).collect::<Vec<_>>().join("; ")
}
