//! Threads that fill batches ahead of time.
//!
//! Jobs are taken in order and every thread works on the oldest unfinished one, so batches become
//! ready in order and the first one soon. A thread takes the lock once per batch, not per example.
//! Dropping the pool stops the threads after the example at hand; nothing they wait for can keep
//! them, because they never wait for the consumer, only for jobs.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::slots::Slots;
use crate::{Augment, DataError, Scratch, Source, source::image_shape};

/// Bytes a thread claims at once: small examples are handed out by the handful.
const CLAIM_BYTES: usize = 64 << 10;

/// A batch to be filled.
#[derive(Debug)]
pub(super) struct Job {
    indices: Vec<u64>,
    epoch: u64,
    labels: Vec<AtomicU32>,
    slots: Slots,
    failures: Mutex<Vec<(usize, DataError)>>,
    /// Set when the batch is no longer wanted.
    abandoned: AtomicBool,
}

/// A filled batch.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) values: Vec<u8>,
    pub(super) labels: Vec<u32>,
    /// Slots that could not be filled, in order.
    pub(super) failures: Vec<(usize, DataError)>,
    pub(super) indices: Vec<u64>,
}

/// The threads and their queue.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    source: Arc<dyn Source>,
    width: usize,
    /// How images are changed, and the seed of that.
    augment: Option<(Augment, u64)>,
    queue: Mutex<VecDeque<Arc<Job>>>,
    /// A job was queued, or the pool stops.
    work: Condvar,
    /// A job was finished.
    done: Condvar,
    stop: AtomicBool,
}

impl Pool {
    /// Starts `threads` threads, which change images by a seed where that is asked for.
    pub(super) fn start(
        source: Arc<dyn Source>,
        threads: usize,
        augment: Option<(Augment, u64)>,
    ) -> Result<Self, DataError> {
        let shared = Arc::new(Shared {
            width: image_shape(source.schema()).len(),
            source,
            augment,
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self { shared, threads: Vec::new() };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new()
                .name(format!("loader-{number}"))
                .spawn(move || shared.run())
                .map_err(|source| DataError::Thread { source })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues a batch; `buffer` is memory to reuse.
    pub(super) fn submit(&self, indices: Vec<u64>, epoch: u64, buffer: Vec<u8>) -> Arc<Job> {
        let count = indices.len();
        let job = Arc::new(Job {
            indices,
            epoch,
            labels: (0..count).map(|_| AtomicU32::new(0)).collect(),
            slots: Slots::new(buffer, self.shared.width, count),
            failures: Mutex::default(),
            abandoned: AtomicBool::new(false),
        });
        lock(&self.shared.queue).push_back(Arc::clone(&job));
        self.shared.work.notify_all();
        job
    }

    /// Waits until a job is finished and takes its results; once per job.
    pub(super) fn finish(&self, job: &Arc<Job>) -> Filled {
        if !job.slots.is_finished() {
            let mut queue = lock(&self.shared.queue);
            while !job.slots.is_finished() {
                queue = self.shared.done.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let mut failures = std::mem::take(&mut *lock(&job.failures));
        failures.sort_by_key(|(slot, _)| *slot);
        Filled {
            values: job.slots.take().expect("a finished job is taken once"),
            labels: job.labels.iter().map(|label| label.load(Ordering::Relaxed)).collect(),
            failures,
            indices: job.indices.clone(),
        }
    }

    /// Forgets all queued jobs; threads stop working on them after the example at hand.
    pub(super) fn abandon<'a>(&self, jobs: impl Iterator<Item = &'a Arc<Job>>) {
        lock(&self.shared.queue).clear();
        jobs.for_each(|job| job.abandoned.store(true, Ordering::Relaxed));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            // Under the lock, so that no thread misses it between looking and waiting.
            let _queue = lock(&self.shared.queue);
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread cannot have panicked outside of a read, which is caught.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut scratch = Scratch::default();
        while let Some(job) = self.next_job() {
            // Small enough that all threads get some of every batch.
            let share = job.indices.len().div_ceil(16);
            let most = (CLAIM_BYTES / self.width.max(1)).clamp(1, share.max(1));
            while let Some(mut claim) = job.slots.claim(most) {
                let range = claim.range();
                for (slot, pixels) in range.zip(claim.bytes().chunks_exact_mut(self.width)) {
                    if self.stop.load(Ordering::Relaxed) || job.abandoned.load(Ordering::Relaxed) {
                        break;
                    }
                    self.fill(&job, slot, pixels, &mut scratch);
                }
                drop(claim);
                if job.slots.is_finished() {
                    // The lock orders this before or after the consumer's look, never in between.
                    drop(lock(&self.queue));
                    self.done.notify_all();
                }
            }
        }
    }

    fn fill(&self, job: &Job, slot: usize, pixels: &mut [u8], scratch: &mut Scratch) {
        let index = job.indices[slot];
        // A source that panics is a bug, but one that must not leave the consumer waiting for ever.
        let read = catch_unwind(AssertUnwindSafe(|| self.source.read(index, scratch, pixels)));
        let read = read.unwrap_or_else(|_| {
            *scratch = Scratch::default();
            Err(DataError::Panicked { index })
        });
        match read {
            Ok(label) => {
                job.labels[slot].store(label, Ordering::Relaxed);
                if let Some((augment, seed)) = &self.augment {
                    let shape = image_shape(self.source.schema());
                    let key = (*seed, job.epoch, index);
                    augment.apply(shape, key, &mut scratch.copy, pixels);
                }
            }
            Err(error) => lock(&job.failures).push((slot, error)),
        }
    }

    /// The oldest job with something left to do; `None` when the pool stops.
    fn next_job(&self) -> Option<Arc<Job>> {
        let mut queue = lock(&self.queue);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            while queue.front().is_some_and(|job| job.slots.is_exhausted()) {
                queue.pop_front();
            }
            if let Some(job) = queue.front() {
                return Some(Arc::clone(job));
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Locks whatever happened to another holder: every critical section here leaves the data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
