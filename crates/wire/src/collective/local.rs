//! Collectives of ranks that all run on one machine and map each other's memory.
//!
//! Numbers in a [shared buffer](super::SharedBuffer) are summed where they lie: each rank sums its share of all
//! ranks' buffers and writes the result into all of them. That is one pass over memory, with nothing
//! copied in between. Numbers that lie elsewhere go through slots, each rank summing all.
//!
//! Waiting is for counters, first looking, then asleep; a rank that dies is noticed through the connection that
//! belongs to its link.

#![allow(unsafe_code)]

use super::arena::{Arena, Note, RIDERS, SLOT, SMALL};
use super::number::{Number, add, add_both, bytes, bytes_mut, sum_of};
use crate::error::LinkError;
use crate::frame::Peer;
use crate::link::Wait;
use crate::transport::patience::Patience;
use crate::transport::shared::Pair;
use crate::transport::shared::counter::Counter;
use crate::transport::shared::region::Region;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A sleeper looks around at least this often.
const GLANCE: Duration = Duration::from_millis(20);
/// Shares begin at multiples of this many numbers: two ranks never write the same line of cache.
const LINE: usize = 32;
/// Numbers summed at once when there are more than two ranks; they stay in the first-level cache.
const BLOCK: usize = 1024;

/// Another rank as seen from here.
pub(super) struct Other {
    pub(super) rank: usize,
    pub(super) peer: Peer,
    pub(super) pair: Arc<Pair>,
    pub(super) arena: Arena,
}

/// A buffer that all ranks have mapped from each other.
struct Registered {
    number: u64,
    /// In order of rank, the own one included.
    regions: Vec<Arc<Region>>,
    bytes: usize,
}

/// A group within one machine.
pub(super) struct Local {
    rank: usize,
    own: Arena,
    others: Vec<Other>,
    buffers: Vec<Registered>,
    next_buffer: u64,
    operation: u64,
    posted: u64,
    summed: u64,
    patience: Patience,
    /// Bytes read from the others' memory, and by them from ours: what would cross a network.
    pub(super) moved: u64,
}

impl Local {
    pub(super) fn new(rank: usize, own: Arena, others: Vec<Other>) -> Self {
        Self {
            rank,
            own,
            patience: Patience::among(others.len() + 1),
            others,
            buffers: Vec::new(),
            next_buffer: 0,
            operation: 0,
            posted: 0,
            summed: 0,
            moved: 0,
        }
    }

    fn size(&self) -> usize {
        self.others.len() + 1
    }

    /// Makes a buffer known that all ranks have mapped, `regions` in order of rank. All ranks do so at
    /// the same point, so its number is the same everywhere.
    pub(super) fn register(&mut self, regions: Vec<Arc<Region>>, bytes: usize) {
        // Drops unused buffers: those whose region only our own list still refers to.
        let rank = self.rank;
        self.buffers.retain(|buffer| Arc::strong_count(&buffer.regions[rank]) > 1);
        self.buffers.push(Registered { number: self.next_buffer, regions, bytes });
        self.next_buffer += 1;
    }

    /// Where the numbers lie in a shared buffer of this rank: its number and the offset in bytes.
    fn locate<T: Number>(&self, data: &[T]) -> Option<(u64, usize)> {
        let at = data.as_ptr().addr();
        self.buffers.iter().find_map(|buffer| {
            let start = buffer.regions[self.rank].payload().addr().get();
            let offset = at.checked_sub(start)?;
            (offset + size_of_val(data) <= buffer.bytes).then_some((buffer.number, offset))
        })
    }

    pub(super) fn all_reduce<T: Number>(
        &mut self,
        data: &mut [T],
        trailer: &mut [f64],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        if trailer.len() > RIDERS {
            self.all_reduce(trailer, &mut [], wait)?;
            return self.all_reduce(data, &mut [], wait);
        }
        let length = size_of_val(data);
        // `f64` is for a few numbers; only `f32` is worth a path of its own.
        let place = if size_of::<T>() == 4 && length > 0 { self.locate(data) } else { None };
        let early = place.is_none() && length <= SMALL;
        if early {
            self.own.lay(self.operation + 1, bytes(data));
        }
        self.announce(length, place, trailer);
        self.post_and_meet(wait)?;
        self.compare_notes(length)?;
        self.sum_trailers(trailer);
        if length == 0 {
            return Ok(());
        }
        self.moved += length as u64;
        let all_direct = {
            let operation = self.operation;
            let direct = |note: &Note| note.buffer.load(Relaxed) > 0;
            place.is_some() && self.others.iter().all(|other| direct(other.arena.note(operation)))
        };
        if all_direct {
            return self.direct(length, wait);
        }
        let all_early = early
            && self
                .others
                .iter()
                .all(|other| other.arena.note(self.operation).buffer.load(Relaxed) == 0);
        if all_early {
            let operation = self.operation;
            // SAFETY: all ranks have announced it, and this rank announces the next only after this call.
            self.sum_each(data, |arena, length| unsafe { arena.laid(operation, length) });
            return Ok(());
        }
        self.through_slots(data, wait)
    }

    /// Sums numbers of a shared buffer into neither: hands the sums to `each`, a block that is still in the
    /// first-level cache at a time. All ranks meet once and then read each other's.
    pub(super) fn sum_open(
        &mut self,
        data: &[f32],
        trailer: &mut [f64],
        wait: &Wait<'_>,
        mut each: impl FnMut(Range<usize>, &[f32], &[f64]),
    ) -> Result<(), LinkError> {
        assert!(trailer.len() <= RIDERS, "more riders than there is room for");
        let length = size_of_val(data);
        let place = self.locate(data);
        assert!(place.is_some(), "numbers in a shared buffer");
        self.announce(length, place, trailer);
        self.post_and_meet(wait)?;
        self.compare_notes(length)?;
        self.sum_trailers(trailer);
        self.moved += length as u64;
        let starts = self.places(length)?;
        let part = |rank: usize, range: &Range<usize>| {
            let start: *mut f32 = starts[rank];
            // SAFETY: `place` has checked that the numbers lie in their buffer; its owner does not change them until
            // all ranks have entered a later collective.
            unsafe { std::slice::from_raw_parts(start.add(range.start), range.len()) }
        };
        let mut sums = [0.0; BLOCK];
        for at in (0..data.len()).step_by(BLOCK) {
            let range = at..data.len().min(at + BLOCK);
            let sums = &mut sums[..range.len()];
            // In order of rank, so that all ranks get the same bits.
            sum_of(sums, part(0, &range), part(1, &range));
            for rank in 2..self.size() {
                add(sums, part(rank, &range));
            }
            each(range, sums, trailer);
        }
        Ok(())
    }

    /// Whether the numbers lie in a shared buffer.
    pub(super) fn is_open(&self, data: &[f32]) -> bool {
        self.locate(data).is_some()
    }

    /// Says what this rank's part in the next operation is.
    fn announce(&mut self, length: usize, place: Option<(u64, usize)>, trailer: &[f64]) {
        self.operation += 1;
        let note = self.own.note(self.operation);
        note.number.store(self.operation, Relaxed);
        note.length.store(length as u64, Relaxed);
        note.buffer.store(place.map_or(0, |(number, _)| number + 1), Relaxed);
        note.offset.store(place.map_or(0, |(_, offset)| offset as u64), Relaxed);
        note.write_trailer(trailer);
    }

    fn post_and_meet(&mut self, wait: &Wait<'_>) -> Result<(), LinkError> {
        self.posted += 1;
        self.own.control().posted.set(self.posted);
        self.meet(|arena| &arena.control().posted, self.posted, wait)
    }

    /// All ranks must be at the same operation with as many numbers.
    fn compare_notes(&self, length: usize) -> Result<(), LinkError> {
        for other in &self.others {
            let note = other.arena.note(self.operation);
            let (number, theirs) = (note.number.load(Relaxed), note.length.load(Relaxed));
            if number != self.operation || theirs != length as u64 {
                let found = format!("collective {number} of {theirs} bytes");
                let expected = format!("collective {} of {length} bytes", self.operation);
                return Err(other.peer.protocol(found, &expected));
            }
        }
        Ok(())
    }

    fn sum_trailers(&self, trailer: &mut [f64]) {
        for (index, sum) in trailer.iter_mut().enumerate() {
            // In order of rank, so that all ranks get the same bits.
            *sum = (0..self.size())
                .map(|rank| self.arena(rank).note(self.operation).trailer(index))
                .fold(0.0, |a, b| a + b);
        }
    }

    fn arena(&self, rank: usize) -> &Arena {
        let found = self.others.iter().find(|other| other.rank == rank);
        found.map_or(&self.own, |other| &other.arena)
    }

    /// Sums what all ranks lay open at `place` into `data`, in order of rank.
    fn sum_each<T: Number>(&self, data: &mut [T], place: impl Fn(&Arena, usize) -> &[u8]) {
        let length = size_of_val(data);
        let pair = self.size() == 2;
        for rank in 0..self.size() {
            if pair && rank == self.rank {
                // A sum of two is the same either way round, and the own half is in `data`.
                continue;
            }
            let slot = place(self.arena(rank), length);
            if rank == 0 && !pair {
                if self.rank > 0 {
                    bytes_mut(data).copy_from_slice(slot);
                }
                continue;
            }
            // SAFETY: every pattern of bits is a `Number`; what is laid open is aligned far beyond it, so that all
            // bytes are in the middle part.
            let numbers = unsafe { slot.align_to::<T>().1 };
            add(data, numbers);
        }
    }

    /// Numbers of any length through the slots, one piece ahead of the sums.
    fn through_slots<T: Number>(
        &mut self,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let piece = SLOT / size_of::<T>();
        let count = data.len().div_ceil(piece);
        let range = |index: usize| index * piece..data.len().min((index + 1) * piece);
        let ranges: Vec<Range<usize>> = (0..count).map(range).collect();
        let first = self.posted + 1;
        for (index, range) in ranges.iter().enumerate() {
            while self.posted < first + index as u64 + 1 && self.posted < first + count as u64 - 1 {
                let next = &ranges[(self.posted + 1 - first) as usize];
                self.own.fill(self.posted + 1, bytes(&data[next.clone()]));
                self.posted += 1;
                self.own.control().posted.set(self.posted);
            }
            let post = first + index as u64;
            self.meet(|arena| &arena.control().posted, post, wait)?;
            self.sum_each(&mut data[range.clone()], |arena, length| {
                // SAFETY: all ranks have posted it, and this rank is one post ahead at most.
                unsafe { arena.filled(post, length) }
            });
        }
        Ok(())
    }

    /// Each rank copies the others' parts: small ones after one meeting, others through the slots, one piece ahead.
    pub(super) fn all_gather<T: Number>(
        &mut self,
        data: &mut [T],
        lengths: &[usize],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let starts: Vec<usize> = (0..lengths.len()).map(|r| lengths[..r].iter().sum()).collect();
        let part = |rank: usize| starts[rank]..starts[rank] + lengths[rank];
        let small = lengths.iter().all(|length| length * size_of::<T>() <= SMALL);
        if small {
            self.own.lay(self.operation + 1, bytes(&data[part(self.rank)]));
        }
        self.announce(size_of_val(data), None, &[]);
        self.post_and_meet(wait)?;
        self.compare_notes(size_of_val(data))?;
        if small {
            for other in &self.others {
                let into = bytes_mut(&mut data[part(other.rank)]);
                // SAFETY: all ranks have announced it, and this rank announces the next only after this call.
                into.copy_from_slice(unsafe { other.arena.laid(self.operation, into.len()) });
                self.moved += into.len() as u64;
            }
            return Ok(());
        }
        let piece = SLOT / size_of::<T>();
        let range = |rank: usize, index: usize| {
            let at = |index: usize| starts[rank] + lengths[rank].min(index * piece);
            at(index)..at(index + 1)
        };
        // All ranks post as often as the longest part needs, so that they count the same posts.
        let count = lengths.iter().map(|length| length.div_ceil(piece)).max().unwrap_or(0);
        let first = self.posted + 1;
        for index in 0..count {
            let ahead = (index + 2).min(count);
            while self.posted + 1 < first + ahead as u64 {
                let next = (self.posted + 1 - first) as usize;
                self.own.fill(self.posted + 1, bytes(&data[range(self.rank, next)]));
                self.posted += 1;
                self.own.control().posted.set(self.posted);
            }
            let post = first + index as u64;
            self.meet(|arena| &arena.control().posted, post, wait)?;
            for other in &self.others {
                let into = bytes_mut(&mut data[range(other.rank, index)]);
                // SAFETY: all ranks have posted it, and this rank is one post ahead of it at most.
                let slot = unsafe { other.arena.filled(post, into.len()) };
                into.copy_from_slice(slot);
                self.moved += into.len() as u64;
            }
        }
        Ok(())
    }

    /// Sums where the numbers lie.
    fn direct(&mut self, length: usize, wait: &Wait<'_>) -> Result<(), LinkError> {
        let starts = self.places(length)?;
        let share = share(length / 4, self.rank, self.size());
        // SAFETY: `place` has checked that all places lie in their buffers; their owners are in this
        // operation and do not change them until all ranks have summed; shares of ranks do not overlap.
        unsafe { sum_share(&starts, share) };
        self.summed += 1;
        self.own.control().summed.set(self.summed);
        self.meet(|arena| &arena.control().summed, self.summed, wait)
    }

    /// Where the numbers of all ranks for this operation start, `length` bytes each, in order of rank.
    fn places(&self, length: usize) -> Result<Vec<*mut f32>, LinkError> {
        let place = |rank: usize| {
            let note = self.arena(rank).note(self.operation);
            let number = note.buffer.load(Relaxed).wrapping_sub(1);
            let offset = usize::try_from(note.offset.load(Relaxed)).unwrap_or(usize::MAX);
            self.place(rank, number, offset, length).ok_or_else(|| self.nonsense(rank))
        };
        (0..self.size()).map(place).collect()
    }

    /// A place in a rank's buffer; nothing if there is no such place.
    fn place(&self, rank: usize, number: u64, offset: usize, length: usize) -> Option<*mut f32> {
        let buffer = self.buffers.iter().find(|buffer| buffer.number == number)?;
        let end = offset.checked_add(length)?;
        // SAFETY: checked to lie within the mapping.
        let start = || unsafe { buffer.regions[rank].payload().add(offset).cast().as_ptr() };
        (end <= buffer.bytes && offset.is_multiple_of(4)).then(start)
    }

    fn nonsense(&self, rank: usize) -> LinkError {
        let found = self.others.iter().find(|other| other.rank == rank);
        let peer = &found.unwrap_or(&self.others[0]).peer;
        peer.protocol("a place outside the shared buffers", "a place in one of them")
    }

    /// Begins a round of packed numbers in the newest buffer at the given count of units.
    pub(super) fn ready(&self, units: u64) {
        self.own.control().ready.set(units);
    }

    /// Whether all ranks have completed that many units.
    pub(super) fn all_ready(&self, units: u64) -> bool {
        self.others.iter().all(|other| other.arena.control().ready.get() >= units)
    }

    /// Sums this rank's share of a unit of packed numbers: `range` of the buffer that `data` begins.
    pub(super) fn reduce_unit(&mut self, buffer: &[f32], range: Range<usize>, units: u64) {
        let Some((number, offset)) = self.locate(&buffer[range.clone()]) else {
            unreachable!("packed numbers lie in a shared buffer")
        };
        let starts: Vec<*mut f32> = (0..self.size())
            .map(|rank| self.place(rank, number, offset, range.len() * 4))
            .map(|place| place.expect("packed buffers have the same length everywhere"))
            .collect();
        self.moved += range.len() as u64 * 4;
        // SAFETY: as in `direct`: all ranks have reported the unit as complete and do not touch it
        // until all shares of the round are summed.
        unsafe { sum_share(&starts, share(range.len(), self.rank, self.size())) };
        self.own.control().reduced.set(units);
    }

    /// Meets the others at the end of a round of packed numbers; all must have packed as many.
    pub(super) fn meet_packed(
        &mut self,
        packed: usize,
        trailer: &mut [f64],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let (riding, rest) = trailer.split_at_mut(trailer.len().min(RIDERS));
        self.announce(packed * 4, None, riding);
        self.post_and_meet(wait)?;
        self.compare_notes(packed * 4)?;
        self.sum_trailers(riding);
        if rest.is_empty() { Ok(()) } else { self.all_reduce(rest, &mut [], wait) }
    }

    /// Waits until every rank has summed its shares of that many units.
    pub(super) fn meet_reduced(&mut self, units: u64, wait: &Wait<'_>) -> Result<(), LinkError> {
        self.meet(|arena| &arena.control().reduced, units, wait)
    }

    /// Waits until a counter of all others has reached a number.
    fn meet(
        &mut self,
        counter: impl Fn(&Arena) -> &Counter,
        target: u64,
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let mut began = None;
        for index in 0..self.others.len() {
            let other = &self.others[index];
            let counter = counter(&other.arena);
            let enough = || counter.get() >= target;
            while !enough() {
                let began = *began.get_or_insert_with(Instant::now);
                if self.patience.look_again() {
                    continue;
                }
                if wait.cancelled() {
                    return Err(other.peer.cancelled(wait.phase));
                }
                let left = wait.left();
                if left.is_zero() {
                    return Err(other.peer.timed_out(wait.phase, began.elapsed()));
                }
                let before = Instant::now();
                counter.sleep(left.min(GLANCE), enough);
                self.patience.slept(before.elapsed());
                if !enough() {
                    self.check_all(wait)?;
                }
            }
            self.patience.moved();
        }
        Ok(())
    }

    /// An error that names a lost rank, if there is one. Any rank counts, because ranks that wait for the lost one
    /// never arrive either.
    fn check_all(&self, wait: &Wait<'_>) -> Result<(), LinkError> {
        let gone = |other: &Other| {
            let error: Option<io::Error> = other.pair.check().err();
            error.map(|cause| other.peer.lost(wait.phase, cause))
        };
        self.others.iter().find_map(gone).map_or(Ok(()), Err)
    }
}

/// A rank's share of that many numbers.
fn share(length: usize, rank: usize, size: usize) -> Range<usize> {
    let lines = length.div_ceil(LINE);
    let at = |rank: usize| (rank * lines / size * LINE).min(length);
    at(rank)..at(rank + 1)
}

/// Sums the `share` of the numbers at all `starts`, in their order, into all of them.
///
/// # Safety
/// Every start is valid for the whole share, they do not overlap, and no other thread or process uses the share of any of them.
unsafe fn sum_share(starts: &[*mut f32], share: Range<usize>) {
    let part = |start: *mut f32, range: Range<usize>| {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start.add(range.start), range.len()) }
    };
    if let [a, b] = starts {
        return add_both(part(*a, share.clone()), part(*b, share));
    }
    let mut sums = [0.0; BLOCK];
    let mut at = share.start;
    while at < share.end {
        let range = at..share.end.min(at + BLOCK);
        at = range.end;
        let sums = &mut sums[..range.len()];
        sums.copy_from_slice(part(starts[0], range.clone()));
        for start in &starts[1..] {
            add(sums, part(*start, range.clone()));
        }
        for start in starts {
            part(*start, range.clone()).copy_from_slice(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_begin_on_lines() {
        for size in 1..=7 {
            for length in [0, 1, 31, 32, 33, 1000, 4096, 100_003] {
                let mut next = 0;
                for rank in 0..size {
                    let share = share(length, rank, size);
                    assert_eq!(share.start, next);
                    assert!(share.is_empty() || share.start.is_multiple_of(LINE));
                    next = share.end;
                }
                assert_eq!(next, length);
            }
        }
    }
}
