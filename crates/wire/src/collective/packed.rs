//! Parts of a larger buffer, packed one after the other into a shared buffer and summed there.
//!
//! Ranks pack the same parts in the same order, so an offset means the same on every rank. Packed numbers count in
//! units; as soon as all ranks have completed a unit, each rank sums its share of it, while the numbers are still
//! in the caches. The shared buffer is as large as the previous round needed; the first round has none.

use super::buffer::SharedBuffer;
use super::core::Core;
use super::local::Local;
use crate::error::LinkError;
use crate::link::Wait;
use std::ops::Range;

/// Numbers of a unit: 1 MiB, half a core's second-level cache.
const UNIT: usize = 256 << 10;

/// The packed part of a round.
#[derive(Debug)]
pub(super) struct Packed {
    buffer: SharedBuffer,
    ranges: Vec<Range<usize>>,
    /// Numbers packed in this round.
    filled: usize,
    /// Units of this round that this rank has summed its share of.
    reduced: usize,
    /// Units of all rounds before.
    before: u64,
    /// What did not fit in this round.
    missed: usize,
    /// Sharing was tried and is not to be had.
    hopeless: bool,
}

impl Packed {
    pub(super) fn new() -> Self {
        Self {
            buffer: SharedBuffer::own(0),
            ranges: Vec::new(),
            filled: 0,
            reduced: 0,
            before: 0,
            missed: 0,
            hopeless: false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.filled == 0
    }

    /// Whether something of this round did not fit.
    pub(super) fn has_missed(&self) -> bool {
        self.missed > 0
    }

    /// Packs a part if there is room; all ranks come to the same answer.
    pub(super) fn pack(&mut self, local: &mut Local, range: &Range<usize>, data: &[f32]) -> bool {
        if self.missed > 0 || self.filled + data.len() > self.buffer.len() {
            self.missed += data.len();
            return false;
        }
        let (mut at, mut rest) = (self.filled, data);
        while !rest.is_empty() {
            // Up to the end of a unit, so that it can be summed while it is fresh.
            let count = rest.len().min(UNIT - at % UNIT);
            self.buffer[at..at + count].copy_from_slice(&rest[..count]);
            (at, rest) = (at + count, &rest[count..]);
            if at.is_multiple_of(UNIT) {
                local.ready(self.before + (at / UNIT) as u64);
                self.advance(local, at / UNIT);
            }
        }
        self.filled = at;
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range.clone()),
        }
        true
    }

    /// Sums the units that all ranks have completed, without waiting.
    fn advance(&mut self, local: &mut Local, complete: usize) {
        while self.reduced < complete && local.all_ready(self.before + self.reduced as u64 + 1) {
            self.reduce_next(local, (self.reduced + 1) * UNIT);
        }
    }

    fn reduce_next(&mut self, local: &mut Local, end: usize) {
        let range = self.reduced * UNIT..end;
        self.reduced += 1;
        local.reduce_unit(&self.buffer, range, self.before + self.reduced as u64);
    }

    /// Ends the round: waits for all ranks, sums the rest, hands out the sums.
    pub(super) fn finish(
        &mut self,
        local: &mut Local,
        trailer: &mut [f64],
        wait: &Wait<'_>,
        mut each: impl FnMut(Range<usize>, &[f32]),
    ) -> Result<(), LinkError> {
        let units = self.filled.div_ceil(UNIT);
        local.ready(self.before + units as u64);
        local.meet_packed(self.filled, trailer, wait)?;
        while self.reduced < units {
            self.reduce_next(local, self.filled.min((self.reduced + 1) * UNIT));
        }
        local.meet_reduced(self.before + units as u64, wait)?;
        let mut at = 0;
        for range in self.ranges.drain(..) {
            let end = at + range.len();
            each(range, &self.buffer[at..end]);
            at = end;
        }
        self.before += units as u64;
        (self.filled, self.reduced) = (0, 0);
        Ok(())
    }

    /// Gets a larger buffer if this round did not fit. All ranks call it after the same rounds.
    pub(super) fn grow(&mut self, core: &mut Core, wait: &Wait<'_>) -> Result<(), LinkError> {
        let missed = std::mem::take(&mut self.missed);
        if missed == 0 || self.hopeless {
            return Ok(());
        }
        let length = self.buffer.len() + missed;
        self.buffer = SharedBuffer::own(0);
        let buffer = core.buffer(length, wait)?;
        self.hopeless = !buffer.is_shared();
        if buffer.is_shared() {
            self.buffer = buffer;
        }
        Ok(())
    }
}
