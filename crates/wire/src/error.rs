//! What can go wrong between two tasks.
//!
//! A cluster that hangs without an error message is the most frequent complaint of users, so every variant names the
//! task, its address and what was being waited for.

use crate::TaskId;
use std::fmt;
use std::io;
use std::time::Duration;

/// A conversation with another task failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The deadline passed.
    #[error("{task} at {address} did not answer within {} while {phase}", Seconds(*.waited))]
    TimedOut {
        task: TaskId,
        address: String,
        /// What was waited for.
        phase: String,
        waited: Duration,
    },
    /// The connection ended: the process died, its host went away, or it closed.
    #[error("lost {task} at {address} while {phase}: {cause}")]
    Lost {
        task: TaskId,
        address: String,
        /// What was going on.
        phase: String,
        cause: io::Error,
    },
    /// The caller's flag told to stop waiting.
    #[error("gave up on {task} at {address} while {phase}: told to stop")]
    Cancelled {
        /// Who was waited for.
        task: TaskId,
        address: String,
        /// What was waited for.
        phase: String,
    },
    /// A message claims a length that no message may have.
    #[error("{task} at {address} announces a message of {length} bytes; the most is {most}")]
    TooLong {
        task: TaskId,
        address: String,
        /// The length claimed, in bytes.
        length: u64,
        /// The most that is accepted, in bytes.
        most: u64,
    },
    /// The bytes are not what this point of the conversation allows.
    #[error("{task} at {address} does not keep to the protocol: {found}, expected {expected}")]
    Protocol {
        task: TaskId,
        address: String,
        /// What came.
        found: String,
        /// What should have come.
        expected: String,
    },
    /// One side does not want to talk to the other.
    #[error("{task} at {address} and this task do not go together: {reason}")]
    Refused { task: TaskId, address: String, reason: Refusal },
    /// No process listens there, or the network blocks the way.
    #[error("cannot reach {task} at {address}: {cause}")]
    Unreachable {
        /// Who should be there.
        task: TaskId,
        address: String,
        cause: io::Error,
    },
    /// The own address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Bind { address: String, cause: io::Error },
    /// No task connected.
    #[error("no task connected to {address} within {} while {phase}", Seconds(*.waited))]
    NoConnection {
        /// Where this task listens.
        address: String,
        /// What was waited for.
        phase: String,
        waited: Duration,
    },
    /// The caller's flag told to stop listening.
    #[error("stopped listening on {address} while {phase}")]
    Stopped {
        /// Where this task listens.
        address: String,
        /// What was waited for.
        phase: String,
    },
    /// Encryption could not be set up.
    #[error("cannot set up encryption: {0}")]
    Tls(#[from] rustls::Error),
}

/// Why two tasks do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The other side could not prove that it has our cluster key.
    #[error("the cluster keys differ")]
    Key,
    /// Different releases of the program.
    #[error("this is version {ours}, that is version {theirs}")]
    Version {
        /// Version of this program.
        ours: String,
        /// Version of the other.
        theirs: String,
    },
    /// Another run's task.
    #[error("this is run `{ours}`, that is run `{theirs}`")]
    Run { ours: String, theirs: String },
    /// The two were started to do different things.
    #[error("this task's plan is {}, that task's plan is {}", short(ours), short(theirs))]
    Plan {
        /// Hash of this task's plan.
        ours: [u8; 32],
        /// Hash of the other's.
        theirs: [u8; 32],
    },
    /// Another task answers at that address.
    #[error("that address belongs to {found}, not to {wanted}")]
    Task {
        found: TaskId,
        /// Who was looked for.
        wanted: TaskId,
    },
    /// Builds with different ciphers.
    #[error("this build encrypts with {ours}, that one with {theirs}")]
    Suite {
        /// The cipher of this build.
        ours: String,
        /// That of the other.
        theirs: String,
    },
    /// One side encrypts, the other does not.
    #[error("one of them encrypts and the other does not")]
    Security,
}

/// The first bytes of a hash, enough to tell two apart.
fn short(hash: &[u8; 32]) -> String {
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl LinkError {
    /// Whether the other task is gone, as opposed to silent or wrong.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether a deadline passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::NoConnection { .. })
    }

    /// The task it is about.
    #[must_use]
    pub fn task(&self) -> Option<TaskId> {
        match self {
            Self::TimedOut { task, .. }
            | Self::Lost { task, .. }
            | Self::Cancelled { task, .. }
            | Self::TooLong { task, .. }
            | Self::Protocol { task, .. }
            | Self::Refused { task, .. }
            | Self::Unreachable { task, .. } => Some(*task),
            _ => None,
        }
    }
}

/// A duration as people say it.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0.as_secs_f64() * 10.0).round() / 10.0;
        if tenths >= 0.1 { write!(f, "{tenths} s") } else { write!(f, "{} ms", self.0.as_millis()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    #[test]
    fn a_timeout_names_task_address_and_phase() {
        let error = LinkError::TimedOut {
            task: TaskId::new(Role::Worker, 2),
            address: "10.0.0.3:7000".into(),
            phase: "waiting for the gradient of step 17".into(),
            waited: Duration::from_millis(5_012),
        };
        assert_eq!(
            error.to_string(),
            "worker/2 at 10.0.0.3:7000 did not answer within 5 s while waiting for the gradient of step 17"
        );
        assert!(!error.is_lost() && error.is_timeout());
        assert_eq!(error.task(), Some(TaskId::new(Role::Worker, 2)));
    }
}
