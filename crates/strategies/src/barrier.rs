//! A meeting point for threads that meet tens of thousands of times a second.
//!
//! A small step takes 30 µs and putting a thread to sleep and waking it takes 10: so a waiter first
//! spins, then yields (there may be more threads than cores), and sleeps only when the others are
//! really late. A member that leaves permanently breaks the barrier, so that no thread waits forever.

use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Spins before yielding: some 10 µs.
const SPINS: usize = 2_000;
/// Yields before sleeping: some 100 µs on an idle machine.
const YIELDS: usize = 200;
/// A sleeper looks by itself now and then, so that a lost wake-up could cost no more than this.
const NAP: Duration = Duration::from_millis(5);

/// A member left permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

#[derive(Debug)]
pub(crate) struct Barrier {
    size: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    broken: AtomicBool,
    sleepers: Mutex<usize>,
    wake: Condvar,
}

impl Barrier {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            sleepers: Mutex::new(0),
            wake: Condvar::new(),
        }
    }

    /// Returns when all members have called it. What they wrote before is visible after.
    pub(crate) fn wait(&self) -> Result<(), Broken> {
        if self.size == 1 {
            return Ok(());
        }
        // The member that left has finished its last meeting, so this one can never be complete.
        if self.broken.load(Ordering::Acquire) {
            return Err(Broken);
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.size {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.wake_all();
            return self.verdict(generation);
        }
        for _ in 0..SPINS {
            if self.is_over(generation) {
                return self.verdict(generation);
            }
            std::hint::spin_loop();
        }
        for _ in 0..YIELDS {
            if self.is_over(generation) {
                return self.verdict(generation);
            }
            std::thread::yield_now();
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        while !self.is_over(generation) {
            (sleepers, _) =
                self.wake.wait_timeout(sleepers, NAP).unwrap_or_else(PoisonError::into_inner);
        }
        *sleepers -= 1;
        drop(sleepers);
        self.verdict(generation)
    }

    /// A member leaves permanently: every thread that waits, now or later, gets an error.
    pub(crate) fn break_up(&self) {
        self.broken.store(true, Ordering::Release);
        self.wake_all();
    }

    fn is_over(&self, generation: usize) -> bool {
        self.generation.load(Ordering::Acquire) != generation || self.broken.load(Ordering::Acquire)
    }

    /// A meeting that took place counts, even if a member left right after it.
    fn verdict(&self, generation: usize) -> Result<(), Broken> {
        if self.generation.load(Ordering::Acquire) == generation { Err(Broken) } else { Ok(()) }
    }

    fn wake_all(&self) {
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        if *sleepers > 0 {
            self.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_thread_passes_before_all_have_arrived() {
        for size in [1, 2, 3, 5] {
            let barrier = Barrier::new(size);
            let counter = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..size {
                    scope.spawn(|| {
                        for round in 0..2_000u64 {
                            counter.fetch_add(1, Ordering::Relaxed);
                            barrier.wait().unwrap();
                            let seen = counter.load(Ordering::Relaxed);
                            assert_eq!(seen, (round + 1) * size as u64);
                            barrier.wait().unwrap();
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_member_that_leaves_frees_the_waiting() {
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| barrier.wait());
            std::thread::sleep(Duration::from_millis(30));
            barrier.break_up();
            assert_eq!(waiter.join().unwrap(), Err(Broken));
        });
        assert_eq!(barrier.wait(), Err(Broken), "later arrivals are told too");
    }
}
