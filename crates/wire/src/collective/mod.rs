//! Operations that all ranks of a group do together.
//!
//! Ranks call the same operations in the same order with the same lengths; a rank that does not is an
//! error at the others, not a wrong sum. Results are the same on all ranks to the bit, and for the same
//! group and the same numbers the same every time, whatever the timing. After an
//! error a group is of no use any more: form another.

mod arena;
mod buckets;
mod buffer;
mod core;
mod flow;
mod local;
#[cfg(feature = "mpi")]
mod mpi;
mod number;
mod packed;

/// What a prediction of this exchange must know: the largest tree in bytes, the smallest bucket in numbers.
pub use self::{buckets::FULL as BUCKET_NUMBERS, core::SMALL as TREE_BYTES};
pub use buffer::SharedBuffer;
pub use number::{Number, bytes as number_bytes, bytes_mut as number_bytes_mut};

use self::buckets::Buckets;
use self::core::Core;
use crate::TaskId;
use crate::error::LinkError;
use crate::link::{Link, Wait};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One rank's membership in a group.
pub struct Group {
    rank: usize,
    size: usize,
    core: Arc<Mutex<Core>>,
    buckets: Buckets,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group: rank {} of {}", self.rank, self.size)
    }
}

impl Group {
    /// A group in which this is rank `rank`. `links` has one entry per rank, in the same order
    /// everywhere: a link to each other rank, and `None` for this one.
    ///
    /// # Panics
    /// If `links` is not of that form.
    #[must_use]
    pub fn new(rank: usize, links: Vec<Option<Link>>) -> Self {
        let size = links.len();
        assert!(rank < size, "rank {rank} in a group of {size}");
        let fits = links.iter().enumerate().all(|(i, link)| link.is_none() == (i == rank));
        assert!(fits, "a link to every rank but the own one");
        let core = Arc::new(Mutex::new(Core::new(rank, links)));
        Self { rank, size, buckets: Buckets::new(Arc::clone(&core)), core }
    }

    /// Links this task to all others of a group and forms it. Of every two tasks the lower rank listens, so that no
    /// two tasks wait for each other.
    ///
    /// # Errors
    /// Those of `connect` and `accept`.
    ///
    /// # Panics
    /// If `rank` is not one of the tasks.
    pub fn among<E>(
        rank: usize,
        tasks: &[TaskId],
        connect: impl FnMut(TaskId) -> Result<Link, E>,
        accept: impl FnMut(TaskId) -> Result<Link, E>,
    ) -> Result<Self, E> {
        let lower = tasks[..rank].iter().copied().map(connect).map(|link| link.map(Some));
        let higher = tasks[rank + 1..].iter().copied().map(accept).map(|link| link.map(Some));
        let links = lower.chain([Ok(None)]).chain(higher).collect::<Result<Vec<_>, E>>()?;
        Ok(Self::new(rank, links))
    }

    /// Which rank this is.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The tasks of the other ranks.
    #[must_use]
    pub fn others(&self) -> Vec<TaskId> {
        lock(&self.core).links.iter().flatten().map(|link| link.peer).collect()
    }

    /// Bytes sent and received so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        lock(&self.core).traffic()
    }

    /// Adds up `data` over all ranks; every rank gets the sums.
    pub fn all_reduce<T: Number>(
        &mut self,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        self.all_reduce_with(data, &mut [], wait)
    }

    /// The same, with a few numbers more that ride along: losses, counts, step reports.
    pub fn all_reduce_with<T: Number>(
        &mut self,
        data: &mut [T],
        trailer: &mut [f64],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        self.run(|core| core.all_reduce(data, trailer, wait))
    }

    /// A buffer of zeros that the other ranks of this machine can see, where there are such: sums over it, or parts of it, copy
    /// nothing. All ranks call it together, with the same length.
    pub fn buffer(&mut self, length: usize, wait: &Wait<'_>) -> Result<SharedBuffer, LinkError> {
        self.run(|core| core.buffer(length, wait))
    }

    /// Whether all ranks are on this machine and share memory. Known after the first collective.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        lock(&self.core).local_now().is_some()
    }

    /// Whether the numbers lie in a [buffer](Self::buffer) of this group that the other ranks see.
    #[must_use]
    pub fn is_open(&self, data: &[f32]) -> bool {
        lock(&self.core).local_now().is_some_and(|local| local.is_open(data))
    }

    /// Sums numbers that lie [open](Self::is_open) and hands the sums to `each` with the summed trailer, a block at a
    /// time; nothing can fail any more when the first comes. The numbers stay as they are, and others go on reading them
    /// after this returns, so they must be left alone until another collective is done: use two buffers in turns.
    ///
    /// # Panics
    /// If they do not lie open, or the trailer has more than 16 numbers.
    pub fn sum_open(
        &mut self,
        data: &[f32],
        trailer: &mut [f64],
        wait: &Wait<'_>,
        each: impl FnMut(Range<usize>, &[f32], &[f64]),
    ) -> Result<(), LinkError> {
        self.run(|core| {
            let local = core.local_now().expect("numbers that lie open");
            local.sum_open(data, trailer, wait, each)
        })
    }

    /// Gives rank `root`'s data to all.
    pub fn broadcast<T: Number>(
        &mut self,
        root: usize,
        data: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        self.run(|core| core.broadcast(root, number::bytes_mut(data), wait))
    }

    /// Collects one part from every rank at all of them: `data` holds the parts one after the other in order of rank,
    /// `lengths` numbers each. The own part must be there; on return all are. Parts may be empty.
    ///
    /// # Panics
    /// If `lengths` has not one entry for each rank, or they do not add up to `data`.
    pub fn all_gather<T: Number>(
        &mut self,
        data: &mut [T],
        lengths: &[usize],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        assert_eq!(lengths.len(), self.size, "one length for each rank");
        assert_eq!(lengths.iter().sum::<usize>(), data.len(), "the parts and their lengths");
        self.run(|core| core.all_gather(data, lengths, wait))
    }

    /// Gives every rank one part of `out`, whose parts lie in order of rank, `lengths` numbers each; `into` gets the part of
    /// every rank for this one, in order of rank, its own included.
    ///
    /// # Panics
    /// If `lengths` has not one entry for each rank, or buffers are of other lengths.
    pub fn all_to_all<T: Number>(
        &mut self,
        out: &[T],
        lengths: &[usize],
        into: &mut [T],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        assert_eq!(lengths.len(), self.size, "one length for each rank");
        assert_eq!(lengths.iter().sum::<usize>(), out.len(), "the parts and their lengths");
        assert_eq!(into.len(), self.size * lengths[self.rank], "a part from every rank");
        self.run(|core| core.all_to_all(out, lengths, into, wait))
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&mut self, wait: &Wait<'_>) -> Result<(), LinkError> {
        self.all_reduce::<f64>(&mut [], wait)
    }

    /// Collects bytes of any length from all ranks at `root`, in order of rank. One that sends more
    /// than `most` bytes is an error.
    pub fn gather(
        &mut self,
        root: usize,
        data: &[u8],
        most: u64,
        wait: &Wait<'_>,
    ) -> Result<Option<Vec<Vec<u8>>>, LinkError> {
        self.run(|core| core.gather(root, data, most, wait))
    }

    /// Begins to add up a part of a larger buffer, of which `data` is the part at `range`. Never waits:
    /// a large buffer travels while the caller computes the next part, failures surface in
    /// [`finish`](Self::finish). All ranks begin the same ranges in the same order; ranges do not overlap.
    ///
    /// # Panics
    /// If `data` is not as long as `range`.
    pub fn begin(&mut self, range: Range<usize>, data: &[f32]) {
        assert_eq!(range.len(), data.len(), "a range and its numbers");
        self.buckets.begin(range, data);
    }

    /// Waits until everything begun is added up, and hands each range of sums to `each`, in the order
    /// begun (neighbours may come as one). The trailer is summed too.
    pub fn finish(
        &mut self,
        trailer: &mut [f64],
        wait: &Wait<'_>,
        each: impl FnMut(Range<usize>, &[f32]),
    ) -> Result<(), LinkError> {
        let done = self.buckets.finish(trailer, wait, each);
        if done.is_err() {
            lock(&self.core).hang_up();
        }
        done
    }

    fn run<R>(
        &mut self,
        work: impl FnOnce(&mut Core) -> Result<R, LinkError>,
    ) -> Result<R, LinkError> {
        debug_assert!(self.buckets.is_idle(), "a collective between `begin` and `finish`");
        let mut core = lock(&self.core);
        let done = work(&mut core);
        if done.is_err() {
            core.hang_up();
        }
        done
    }
}

/// Whether `MPI_Allreduce` has added up numbers in this process; never without the feature `mpi`.
#[must_use]
pub fn summed_by_mpi() -> bool {
    #[cfg(feature = "mpi")]
    return mpi::used();
    #[cfg(not(feature = "mpi"))]
    false
}

/// Ends this process's part in an MPI job without the others: for a process that fails. Otherwise the end of the process is a
/// meeting of all ranks, for which those that are gone never come.
pub fn give_up_mpi() {
    #[cfg(feature = "mpi")]
    mpi::give_up();
}

fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    // After a panic in the middle of a collective the links are no longer synchronous; their next use reports it.
    core.lock().unwrap_or_else(PoisonError::into_inner)
}
