//! Parameter servers for rows of sparse features: a batch of clicks touches some thousands of tens of
//! millions of weights, and only those travel.
//!
//! The strategies for models of examples deal batches of a set whose size is known. Rows are files that
//! workers read by themselves, so a worker says with every gradient how far it has read (a
//! [`Bookmark`]), and a worker that comes back is told where to go on. The conversation is one message
//! each way and step:
//!
//! ```text
//! worker ── gradient of this batch, numbers of the next batch's weights ──▶ server
//! worker ◀── these weights, after the update ────────────────────────────── server
//! ```
//!
//! The numbers of the weights go over the wire once: the gradient that follows is in their order. They are
//! ascending distances in few bytes; the servers' parts are ranges, so each gets a stretch of the list.
//!
//! **Asynchronous** (`ps-async`) a gradient is an update at once, on a table that all threads of
//! the server share without locks. **Synchronous** (`ps-sync`) the gradients of all workers are kept, added up
//! in the order of the ranks, and make one update; a worker whose files have ended is waited for no more.
//!
//! Gradients travel as sums over examples, so that one worker equals many, whatever their shares. The server applies
//! the sum, or divides it by the examples of the update ([`SparseOptions::combine`]). The sum is what learning from each
//! row in turn adds up to: most weights are touched by few rows of a batch, and a mean would make their steps
//! smaller by the size of the batch.
//!
//! Beside the workers, the chief has a link to every server for what concerns the whole model
//! ([`Overseer`]): the weights to begin with, copies of one version for checkpoints, scores of held-out rows.

mod client;
mod copies;
mod indices;
mod message;
mod overseer;
mod oversight;
mod server;
mod session;
mod slots;
mod standing;

pub use client::{Answer, Push, SparseClient, Welcome};
pub use message::Bookmark;
pub use overseer::{Beginning, Overseer};
pub use server::{Score, Scores, SparseServer};
pub use slots::{receive_weights, send_weights};

use crate::{Combine, Transfer};
use paceline_models::sparse_logistic::RuleSettings;
use std::time::Duration;

/// What workers and servers of one run have in common.
#[derive(Debug, Clone, Copy)]
pub struct SparseOptions {
    /// Weights without the bias, as a power of two.
    pub bits: u32,
    /// The name of the rule of updates.
    pub rule: &'static str,
    pub settings: RuleSettings,
    /// Whether all workers make every update together.
    pub synchronous: bool,
    /// Whether an update is the sum or the mean of its examples' gradients.
    pub combine: Combine,
    /// Which weights travel.
    pub transfer: Transfer,
    /// How long the end of the run waits for a lost worker to return; zero if lost workers are not restarted.
    pub returning: Duration,
    /// The longest wait for a task that is alive but makes no progress.
    pub patience: Duration,
}

impl SparseOptions {
    /// The factor of the summed gradient of so many examples.
    #[must_use]
    pub fn scale(&self, examples: u64) -> f32 {
        self.combine.scale_of_sum(examples)
    }

    /// Weights, the bias included.
    #[must_use]
    pub fn length(&self) -> usize {
        (1 << self.bits) + 1
    }
}
