//! How an epoch is cut into global batches, and a global batch into the shares of workers.
//!
//! A position counts examples, not batches, so that the batch size may change in the middle of an
//! epoch and a checkpoint stays valid under another size.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::DataError;

/// What happens to the examples at the end of an epoch that do not fill a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// They form a smaller batch: every example is seen exactly once.
    #[default]
    Keep,
    /// They are left out of this epoch; another epoch's shuffle leaves out others.
    Drop,
    /// The batch is filled up from the beginning of the same epoch's order, so these few come twice.
    Pad,
}

/// A place in the endless sequence of epochs; what a checkpoint stores to resume exactly.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position {
    /// Epochs completed.
    pub epoch: u64,
    /// Examples of the current epoch already taken.
    pub example: u64,
}

/// The places in an epoch's order that one batch (or one worker's share of it) covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GlobalBatch {
    /// The epoch whose order applies.
    pub epoch: u64,
    /// Places in that order; those beyond the last example wrap around (only with [`LastBatch::Pad`]).
    pub places: Range<u64>,
}

impl GlobalBatch {
    /// The contiguous part of this batch that belongs to one of `workers` workers.
    ///
    /// Parts differ by at most one example; together they are exactly the batch. A worker beyond the
    /// number of examples gets none, so gradients must be weighted by example counts.
    #[must_use]
    pub fn share(&self, worker: u64, workers: u64) -> Self {
        let (start, len) = (self.places.start, self.len());
        let cut = |w: u64| start + (u128::from(len) * u128::from(w) / u128::from(workers)) as u64;
        Self { epoch: self.epoch, places: cut(worker)..cut(worker + 1) }
    }

    /// Number of examples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.places.end - self.places.start
    }

    /// Whether this share holds no example.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// Cuts epochs of a data set into global batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    examples: u64,
    last: LastBatch,
}

impl Batches {
    /// Batches over `examples` examples.
    ///
    /// # Errors
    /// A data set without examples has no batches.
    pub fn new(examples: u64, last: LastBatch) -> Result<Self, DataError> {
        if examples == 0 {
            return Err(DataError::NothingToBatch);
        }
        Ok(Self { examples, last })
    }

    /// Whether batches of `size` exist at all; called once, before a run starts.
    ///
    /// # Errors
    /// No batch has size 0, and [`LastBatch::Drop`] leaves nothing of a set smaller than a batch.
    pub fn check(&self, size: u64) -> Result<(), DataError> {
        if size == 0 || (self.last == LastBatch::Drop && size > self.examples) {
            return Err(DataError::NoWholeBatch { examples: self.examples, size });
        }
        Ok(())
    }

    /// Number of batches of `size` in an epoch that is cut from its start.
    #[must_use]
    pub fn per_epoch(&self, size: u64) -> u64 {
        match self.last {
            LastBatch::Keep | LastBatch::Pad => self.examples.div_ceil(size),
            LastBatch::Drop => self.examples / size,
        }
    }

    /// The batch numbered `batch` of `epoch`, where all batches have `size`; `None` beyond the last.
    #[must_use]
    pub fn global_batch(&self, epoch: u64, batch: u64, size: u64) -> Option<GlobalBatch> {
        if batch >= self.per_epoch(size) {
            return None;
        }
        let (global, _) = self.next(Position { epoch, example: batch * size }, size);
        Some(global)
    }

    /// The batch of `size` that starts at `from`, and where the one after it starts.
    ///
    /// `size` must have passed [`Batches::check`].
    #[must_use]
    pub fn next(&self, from: Position, size: u64) -> (GlobalBatch, Position) {
        let mut from = from;
        let left = self.examples.saturating_sub(from.example);
        if left == 0 || (self.last == LastBatch::Drop && left < size) {
            from = Position { epoch: from.epoch + 1, example: 0 };
        }
        let whole = from.example.saturating_add(size);
        let end = match self.last {
            LastBatch::Pad => whole,
            LastBatch::Keep | LastBatch::Drop => whole.min(self.examples),
        };
        let batch = GlobalBatch { epoch: from.epoch, places: from.example..end };
        let exhausted =
            end >= self.examples || (self.last == LastBatch::Drop && self.examples - end < size);
        let next = if exhausted {
            Position { epoch: from.epoch + 1, example: 0 }
        } else {
            Position { epoch: from.epoch, example: end }
        };
        (batch, next)
    }
}
