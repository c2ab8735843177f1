//! What tasks and chief tell each other over control links.
//!
//! JSON: a few hundred bytes a second are not worth a format of their own, and a recording can be
//! read by eye. Everything is data; nothing executable crosses the wire. Fields may be added, and a
//! message of an unknown kind is an error, since both ends are the same version of one program (the
//! handshake has seen to that).

use paceline_wire::TaskId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Kind of the frames that carry control messages.
pub(super) const CONTROL: u8 = 1;
/// Longest control message; reports of long runs stay far below.
pub(super) const LONGEST: u64 = 4 << 20;

/// A task introduces itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) task: TaskId,
    /// Where it takes data connections.
    pub(super) address: String,
    pub(super) host: String,
    pub(super) process: u32,
    /// Differs between two processes that are the same task one after the other; the same when one
    /// process connects again after its connection broke.
    pub(super) incarnation: u64,
    /// The settings it was started with; must equal the chief's.
    pub(super) plan: Value,
}

/// What a task says about its progress, with every heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Global step.
    pub step: u64,
    /// Steps this task has done since it started.
    pub steps: u64,
    /// Seconds it spent reading and computing in them.
    pub busy_seconds: f64,
    /// Seconds it spent waiting for others in them.
    pub wait_seconds: f64,
    /// Seconds of everything in them.
    pub step_seconds: f64,
}

/// From a task to the chief.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "snake_case")]
pub(super) enum ToChief {
    /// First message of a connection.
    Hello(Hello),
    /// Answers a `Ping` with the own clock, in seconds since 1970.
    Pong { number: u32, clock: f64 },
    /// Still there.
    Beat(Beat),
    /// It has waited so long for its own data, in seconds.
    Starved { seconds: u64 },
    /// The connection to another task failed.
    Suspect { task: TaskId, reason: String },
    /// A result while the run goes on, such as an evaluation.
    Note { value: Value },
    /// The part of this task is done, in that generation.
    Finished { report: Value, generation: u32 },
    /// This task cannot go on.
    Failed { reason: String },
}

/// From the chief to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "snake_case")]
pub(super) enum ToMember {
    /// Not admitted.
    Refused { reason: String },
    /// Asks for the clock.
    Ping { number: u32 },
    /// Still there, and still in this generation. Chief and task may be silent for `patience` seconds.
    Beat { step: u64, patience: f64 },
    /// Who takes part now. The first one means that all tasks have joined.
    View(View),
    /// The run ends now.
    Stop { cause: Stop },
    /// All tasks are done: leave.
    Release,
}

/// Who takes part, as the chief sees it. A generation is a set of tasks that work together: when a
/// task is lost or comes back in a way that the others must take part in, a new one begins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Which one, from 1.
    pub generation: u32,
    /// Whether all tasks that this generation needs have joined; if not, it waits for them.
    pub complete: bool,
    /// The generation in which a server last came back without its state. A task from an
    /// earlier one goes back to the last checkpoint.
    pub restored: u32,
    /// The tasks of this generation, in order; those lost since it began included.
    pub circle: Vec<TaskId>,
    /// The tasks that are there, in order.
    pub members: Vec<Member>,
    /// The tasks that do not any more.
    pub lost: Vec<Loss>,
    /// Name of the run, the same for all.
    pub run: String,
    /// The chief has done its part, in that generation: every update is made and saved, and no other generation follows.
    #[serde(default)]
    pub concluded: Option<u32>,
}

/// A task that takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub task: TaskId,
    /// Where it takes data connections.
    pub address: String,
    /// Which process of that task, counted by the chief; another number means that it was restarted.
    pub process: u32,
}

/// A task that does not answer any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    pub task: TaskId,
    pub address: String,
    /// What happened to it, as far as is known.
    pub reason: String,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.task, self.address, self.reason)
    }
}

/// Why a run ends before its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Stop {
    /// A task was lost, and the run cannot or shall not go on without it.
    Lost(Loss),
    /// A task failed in a way that concerns all.
    Failed { task: TaskId, reason: String },
    /// The task it is told to was declared lost: the others go on without it.
    Expelled { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    #[test]
    fn messages_read_back() {
        let loss = Loss {
            task: TaskId::new(Role::Worker, 2),
            address: "10.0.0.3:7000".to_owned(),
            reason: "connection closed".to_owned(),
        };
        let messages = [
            ToMember::View(View { generation: 3, lost: vec![loss.clone()], ..View::default() }),
            ToMember::Stop { cause: Stop::Lost(loss) },
            ToMember::Release,
        ];
        for message in messages {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<ToMember>(&text).unwrap(), message, "{text}");
        }
        let beat = ToChief::Beat(Beat { step: 7, ..Beat::default() });
        let text = serde_json::to_string(&beat).unwrap();
        assert_eq!(serde_json::from_str::<ToChief>(&text).unwrap(), beat);
        assert!(serde_json::from_str::<ToChief>(r#"{"says":"run","code":"x"}"#).is_err());
    }
}
