//! What a session tells its observer: a live table at the start, and later every change.

use super::{clock::Offset, message::Loss, starved::Starved, straggler::Straggler};
use paceline_wire::TaskId;
use std::time::Duration;

/// Something changed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A task took its place.
    Joined {
        task: TaskId,
        /// Where it takes data connections.
        address: String,
        host: String,
        process: u32,
        /// Its clock against the chief's.
        offset: Option<Offset>,
        /// How long nothing had been heard of it, where it came back after it had been lost.
        away: Option<Duration>,
    },
    /// A task wanted to take part and was not let in.
    Refused {
        /// Which one it said it was.
        task: TaskId,
        reason: String,
    },
    /// A task does not answer any more.
    Lost(Loss),
    /// A worker holds the others up.
    Straggler(Straggler),
    /// A worker makes no step because its own data do not come.
    Starved(Starved),
    /// All tasks are done.
    Released,
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRowState {
    /// Not there yet, or waited for again.
    Waiting,
    /// Takes part.
    Joined,
    /// Has done its part.
    Finished,
    /// Gone.
    Lost,
}

impl TaskRowState {
    /// One word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Joined => "joined",
            Self::Finished => "finished",
            Self::Lost => "lost",
        }
    }
}

/// A line of the table of tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRow {
    pub task: TaskId,
    /// Its address; empty where it is not known before the task is there.
    pub address: String,
    pub host: String,
    pub state: TaskRowState,
    /// Seconds since that is so.
    pub seconds: f64,
    /// Why it is not there, as far as is known.
    pub error: Option<String>,
    /// Its clock against the chief's.
    pub offset: Option<Offset>,
}

/// Told what happens in a session. Called from the session's own threads; must not block for long.
pub trait SessionObserver: Send + Sync {
    /// The table of tasks, a few times a second until all have joined.
    fn table(&self, _rows: &[TaskRow]) {}
    /// Something changed.
    fn noticed(&self, _notice: &Notice) {}
    /// Another task sent the chief a result, such as an evaluation.
    fn told(&self, _by: TaskId, _value: &serde_json::Value) {}
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl SessionObserver for Unobserved {}
