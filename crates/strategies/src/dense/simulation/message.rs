//! What travels between simulated workers and servers.

use super::servers::Checkpoint;
use crate::dense::{
    message::{GrantHead, PushHead},
    tickets::Progress,
};
use std::{collections::BTreeSet, rc::Rc};

/// What travels. Weights and gradients are the value that all of a part have.
#[derive(Debug)]
pub(super) enum Message {
    /// To a server of weights.
    Ask,
    Fetch(u64),
    Push {
        number: u64,
        head: PushHead,
        value: f32,
    },
    /// What was pushed to be kept is used, with these workers' gradients; the answer has this version at least.
    Apply {
        number: u64,
        least: u64,
        ranks: Vec<usize>,
    },
    Landed,
    Sum,
    Hold,
    Cut(Progress),
    Settle(u64),
    Leave,
    /// From it.
    Grant(Grant),
    Sums,
    Held(Progress),
    State(Box<Copied>),
    Refused,
    /// Between a server and the chief: the lineage held, and what to do with it.
    Holds(u32),
    Keep,
    Take(u32, Rc<Checkpoint>),
}

/// The answer to a worker.
#[derive(Debug, Default)]
pub(super) struct Grant {
    pub(super) head: GrantHead,
    /// Whose gradients are in the update, where the first server decides.
    pub(super) taken: Vec<usize>,
    /// The weights, if they are given.
    pub(super) value: f32,
}

/// A server's part of a copy.
#[derive(Debug, Clone)]
pub(super) struct Copied {
    pub(super) version: u64,
    pub(super) progress: Progress,
    pub(super) outstanding: Vec<u64>,
    /// Of all weights of the part, and of the optimiser's state for them.
    pub(super) value: f32,
    pub(super) slot: f32,
    /// Batches that count as made and are not in the weights.
    pub(super) lacks: BTreeSet<u64>,
}
