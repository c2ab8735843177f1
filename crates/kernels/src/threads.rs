//! A small fork-join pool for kernels that run for microseconds.
//!
//! A general task queue costs more than a small layer's arithmetic. Here a job is one closure and a
//! number of tasks; threads take task numbers from a shared counter, the caller takes part, and
//! between jobs the others spin briefly before they sleep. Which thread runs which task is left to
//! chance; kernels are deterministic because a task's share of the work follows from shape and
//! thread count alone, and sums of tasks are added in task order.

mod placement;

use self::placement::Placement;
use std::{
    any::Any,
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::Instant,
};

/// Rounds of the spin loop before a thread sleeps, some tens of microseconds: longer than the gap
/// between two layers, short enough not to starve the data loader while a step waits for input.
const SPIN_ROUNDS: u32 = 1500;

/// Job state: bit 0 = open, bits 1..16 = threads inside, above = number of the job.
const OPEN: u64 = 1;
const INSIDE: u64 = 2;
const INSIDE_MASK: u64 = 0xfffe;
const NUMBER_SHIFT: u32 = 16;
/// The counter of threads inside has 15 bits.
const MOST_THREADS: usize = 1 << 14;

/// Threads for fork-join loops; clones share the same threads.
///
/// The last clone to go ends them. Pools are independent of each other, so several models may train
/// side by side, each on its own.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

type Job = *const (dyn Fn(usize, usize) + Sync);

struct Shared {
    /// See the bit constants above.
    state: AtomicU64,
    /// The running job and its number of tasks; written only while no job is open.
    job: UnsafeCell<Option<(Job, usize)>>,
    /// The next task to take.
    next: AtomicUsize,
    /// A job is being run: another caller, or a task that forks again, runs its own tasks alone.
    busy: AtomicBool,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    caller: Mutex<Option<Thread>>,
    placement: Placement,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written by the one caller that holds `busy`, before it opens the job by a
// release store to `state`, and read by workers that entered through an acquire operation on
// `state`; the caller does not return (or write again) before every worker has left.
#[allow(unsafe_code)]
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is only used between open and close, while the caller keeps it alive.
#[allow(unsafe_code)]
unsafe impl Send for Shared {}

impl Pool {
    /// A pool in which `threads` threads work, the caller included; 0 counts as 1.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            caller: Mutex::new(None),
            placement: Placement::new(threads.clamp(1, MOST_THREADS)),
            panic: Mutex::new(None),
        });
        // A thread that cannot be started is a thread less, not a failed run.
        let workers = (1..threads.min(MOST_THREADS))
            .map_while(|thread| {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name(format!("kernel-{thread}"))
                    .spawn(move || shared.work(thread))
                    .ok()
            })
            .collect();
        Self { inner: Arc::new(Inner { shared, workers }) }
    }

    /// Threads that work on a job, the caller included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.inner.workers.len() + 1
    }

    /// Calls `task(number, thread)` once for every number below `tasks`, and returns when all are
    /// done. `thread` is below [`Pool::threads`] and differs between tasks that run at the same time.
    ///
    /// # Panics
    /// Passes on the panic of a task, after all others have ended.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        let shared = &self.inner.shared;
        if self.inner.workers.is_empty() || tasks <= 1 || shared.busy.swap(true, Ordering::Acquire)
        {
            for number in 0..tasks {
                task(number, 0);
            }
            return;
        }
        shared.lead(tasks, task, &self.inner.workers);
    }

    /// Cuts `data` into pieces of `chunk` elements and calls `task(number, piece)` for each.
    pub fn for_chunks<T: Send>(
        &self,
        data: &mut [T],
        chunk: usize,
        task: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let len = data.len();
        let chunk = chunk.max(1);
        let base = SendPtr(data.as_mut_ptr());
        self.run(len.div_ceil(chunk), &|number, _| {
            let start = number * chunk;
            // SAFETY: pieces of different tasks do not overlap, lie within `data`, and `data` is
            // borrowed mutably for the whole call.
            #[allow(unsafe_code)]
            let piece = unsafe {
                std::slice::from_raw_parts_mut(base.get().add(start), chunk.min(len - start))
            };
            task(number, piece);
        });
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of tasks, so it ends normally.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The caller's side of a job. `busy` is held.
    fn lead(&self, tasks: usize, task: &(dyn Fn(usize, usize) + Sync), workers: &[JoinHandle<()>]) {
        // SAFETY: the lifetime is erased only until this function returns, and it returns after the
        // job is closed and the last worker has left.
        #[allow(unsafe_code)]
        unsafe {
            let erased: Job = std::mem::transmute::<
                *const (dyn Fn(usize, usize) + Sync + '_),
                *const (dyn Fn(usize, usize) + Sync + 'static),
            >(task);
            *self.job.get() = Some((erased, tasks));
        }
        self.next.store(0, Ordering::Relaxed);
        let number = (self.state.load(Ordering::Relaxed) >> NUMBER_SHIFT) + 1;
        self.placement.settle(0, number, &mut None);
        self.state.store((number << NUMBER_SHIFT) | OPEN, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            for worker in workers.iter().take(tasks - 1) {
                worker.thread().unpark();
            }
        }
        self.take_tasks(tasks, 0, task);
        // Workers that have not come by now are not waited for: on a busy machine one may be asleep.
        let mut inside = self.state.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE_MASK;
        let mut rounds = 0;
        while inside != 0 {
            if rounds < SPIN_ROUNDS {
                rounds += 1;
                std::hint::spin_loop();
            } else {
                *self.caller.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(thread::current());
                if self.state.load(Ordering::SeqCst) & INSIDE_MASK != 0 {
                    thread::park();
                }
            }
            inside = self.state.load(Ordering::Acquire) & INSIDE_MASK;
        }
        if rounds == SPIN_ROUNDS {
            *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn take_tasks(&self, tasks: usize, thread: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                if number >= tasks {
                    return;
                }
                task(number, thread);
            }
        }));
        if let Err(panic) = result {
            self.next.store(tasks, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    /// A worker's life: wait for a job not seen yet, enter it if it is still open, leave.
    fn work(&self, thread: usize) {
        let mut seen = 0;
        let mut aside: Option<Instant> = None;
        while let Some(number) = self.await_job(seen) {
            seen = number;
            if !self.enter(number) {
                continue;
            }
            self.placement.settle(thread, number, &mut aside);
            // SAFETY: inside an open job, so the caller keeps the closure alive and unchanged.
            #[allow(unsafe_code)]
            let job = unsafe { (*self.job.get()).map(|(task, tasks)| (&*task, tasks)) };
            if let Some((task, tasks)) = job {
                self.take_tasks(tasks, thread, task);
            }
            let before = self.state.fetch_sub(INSIDE, Ordering::SeqCst);
            if before & (INSIDE_MASK | OPEN) == INSIDE {
                // Last one out of a closed job; the caller may have gone to sleep.
                if let Some(caller) = &*self.caller.lock().unwrap_or_else(PoisonError::into_inner) {
                    caller.unpark();
                }
            }
        }
    }

    /// The number of the next job after `seen`, or `None` when the pool ends.
    fn await_job(&self, seen: u64) -> Option<u64> {
        let mut rounds = 0;
        loop {
            let number = self.state.load(Ordering::Acquire) >> NUMBER_SHIFT;
            if number != seen {
                return Some(number);
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            if rounds < SPIN_ROUNDS {
                rounds += 1;
                std::hint::spin_loop();
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // Looked at again after announcing to sleep, so that no wake-up is lost.
            if self.state.load(Ordering::SeqCst) >> NUMBER_SHIFT == seen
                && !self.stop.load(Ordering::SeqCst)
            {
                thread::park();
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, number: u64) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state >> NUMBER_SHIFT != number || state & OPEN == 0 {
                return false;
            }
            match self.state.compare_exchange_weak(
                state,
                state + INSIDE,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }
}

/// A pointer that tasks on several threads may use; each use argues why it is sound.
pub struct SendPtr<T>(pub *mut T);

impl<T> SendPtr<T> {
    /// The pointer. A method, so that closures capture the wrapper and not its field.
    #[inline]
    #[must_use]
    pub fn get(&self) -> *mut T {
        self.0
    }
}

impl<T> Clone for SendPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SendPtr<T> {}

// SAFETY: only a pointer; dereferencing it is unsafe and argued where it happens.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for SendPtr<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for SendPtr<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_task_runs_exactly_once() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            for tasks in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|task, thread| {
                    assert!(thread < threads);
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn many_short_jobs_lose_no_wake_up() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        for round in 0..20_000 {
            pool.run(3, &|_, _| {
                total.fetch_add(1, Ordering::Relaxed);
            });
            if round % 5_000 == 0 {
                thread::sleep(Duration::from_millis(5)); // lets the workers fall asleep
            }
        }
        assert_eq!(total.load(Ordering::Relaxed), 60_000);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(2);
        for _ in 0..10 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, &|task, _| assert_ne!(task, 5, "task five"));
            }));
            assert!(result.is_err());
        }
        let done = AtomicUsize::new(0);
        pool.run(8, &|_, _| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_task_may_fork_again_and_pools_may_be_shared() {
        let pool = Pool::new(2);
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        pool.clone().run(4, &|_, _| {
                            pool.run(2, &|_, _| {
                                done.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 3 * 200 * 8);
    }

    #[test]
    fn chunks_cover_a_slice_that_does_not_divide() {
        let pool = Pool::new(2);
        let mut data = vec![0usize; 103];
        pool.for_chunks(&mut data, 10, |number, piece| {
            for value in piece {
                *value += number + 1;
            }
        });
        assert!(data.iter().enumerate().all(|(at, &value)| value == at / 10 + 1));
    }
}
