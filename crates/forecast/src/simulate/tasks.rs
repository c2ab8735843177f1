//! What workers and servers are in the middle of, and what can happen to them.

use super::cables::Parcel;
use paceline_runs::PhaseTimes;
use std::collections::VecDeque;

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A host's next piece of work ends, if nothing has changed since.
    Host { host: usize, generation: u64 },
    /// Something may be through a host's cable.
    Cable { host: usize, way: Way },
    /// The first byte of a message is at its receiver's host.
    Arriving { message: usize },
    /// The last byte of a message has left its sender, and has had time to travel.
    Left { message: usize },
    /// A worker that has its host to itself has computed.
    Computed { worker: usize },
    /// A worker has the last answer, or its thread at a server of its host has woken and told it so.
    Awake { worker: usize },
}

/// A direction of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    In,
}

/// A message between hosts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// Cables it is not through yet.
    pub(super) missing: u8,
    /// When its last byte has left its sender and has had time to travel, if that is known beforehand.
    pub(super) left: Option<f64>,
    pub(super) to_host: usize,
    /// For its receiver's cable.
    pub(super) parcel: Parcel,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Gradient { server: usize, worker: usize },
    Weights { worker: usize },
}

/// A task's piece of work on its host.
#[derive(Debug, Clone, Copy)]
pub(super) enum Job {
    /// A worker's step in one go: it copies weights from the servers on its host, computes, copies its
    /// gradient to them. No other task gets its core in between.
    Step { worker: usize },
    /// A server on the worker's host wakes and takes its message, one thread for each worker; the
    /// worker, looking for the answer, would keep a core no less busy.
    Take { server: usize, worker: usize },
    /// A server makes an update, one after the other.
    Apply { server: usize, worker: usize },
}

impl Job {
    /// Two numbers in one, because a host knows nothing of jobs.
    pub(super) fn encode(self, workers: usize) -> u64 {
        let (kind, worker, server) = match self {
            Self::Step { worker } => (0, worker, 0),
            Self::Take { server, worker } => (1, worker, server),
            Self::Apply { server, worker } => (2, worker, server),
        };
        kind + 3 * (worker + workers * server) as u64
    }

    pub(super) fn decode(code: u64, workers: usize) -> Self {
        let rest = (code / 3) as usize;
        let (worker, server) = (rest % workers, rest / workers);
        match code % 3 {
            0 => Self::Step { worker },
            1 => Self::Take { server, worker },
            _ => Self::Apply { server, worker },
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedWorker {
    /// Updates that its weights have seen.
    pub(super) version: u64,
    /// Servers that have not answered yet.
    pub(super) missing: usize,
    /// Where it shares its cables with no other: when all that was sent to it is through its own cable, and has left the
    /// servers.
    pub(super) inward_until: f64,
    pub(super) left_by: f64,
    /// When it had everything for its step, and for how long it computes with cores enough.
    pub(super) begun: f64,
    pub(super) own: f64,
    /// When it had computed.
    pub(super) computed: f64,
    /// Seconds of cores it has had since its turn began.
    pub(super) turn: f64,
    pub(super) time: PhaseTimes,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SimulatedServer {
    /// Gradients waiting to be taken.
    pub(super) queue: VecDeque<usize>,
    pub(super) busy: bool,
    /// Gradients of this step, and workers to answer when it is complete.
    pub(super) arrived: usize,
    pub(super) waiting: Vec<usize>,
    /// Steps completed.
    pub(super) step: u64,
    /// Seconds of taking gradients.
    pub(super) worked: f64,
}
