//! Keeps the threads of a pool on cores of their own.
//!
//! A thread that wakes up runs where it was woken as often as on an idle core, and the kernel may
//! take a tenth of a second to move one of two that share a core: on a machine with two cores that is
//! half the speed for as long. Binding threads to cores for good would be worse, as two programs would
//! choose the same cores. So a thread that finds another of its job on its core steps aside once, and
//! may then run anywhere as before.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// A thread does not step aside more often than this: where all cores are busy it would not help.
const PAUSE: Duration = Duration::from_millis(2);
/// Low bits of a place: the core; above: the number of the job.
const CORE_BITS: u32 = 16;

/// On which core each thread of a pool was when it began its latest job.
pub(super) struct Placement {
    places: Box<[AtomicU64]>,
}

impl Placement {
    pub(super) fn new(threads: usize) -> Self {
        Self { places: (0..threads).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes where `thread` begins job number `job`, and steps aside if one of the threads before it
    /// is there already. `last` is when it last did so.
    pub(super) fn settle(&self, thread: usize, job: u64, last: &mut Option<Instant>) {
        let Some(core) = core() else { return };
        let place = |core: usize| (job << CORE_BITS) | core as u64;
        let taken =
            self.places[..thread].iter().any(|other| other.load(Ordering::Relaxed) == place(core));
        let mut now = core;
        if taken && last.is_none_or(|last| last.elapsed() > PAUSE) {
            *last = Some(Instant::now());
            now = step_aside(core, self.places.len()).unwrap_or(core);
        }
        self.places[thread].store(place(now), Ordering::Relaxed);
    }
}

/// The core this thread runs on; Miri has none.
#[cfg(all(target_os = "linux", not(miri)))]
#[allow(unsafe_code)]
fn core() -> Option<usize> {
    // SAFETY: takes nothing and touches no memory of ours.
    let core = unsafe { libc::sched_getcpu() };
    usize::try_from(core).ok().filter(|core| *core < 1 << CORE_BITS)
}

/// Leaves `core` for any other one this thread may use, if there is one for each of `threads`;
/// afterwards it may use all of them as before. Returns where it went.
#[cfg(all(target_os = "linux", not(miri)))]
#[allow(unsafe_code)]
fn step_aside(core: usize, threads: usize) -> Option<usize> {
    // SAFETY: a set of cores is plain bits, of which all zero is one; both calls are told its size.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size, &raw mut allowed) != 0
            || (libc::CPU_COUNT(&allowed) as usize) < threads.max(2)
            || core >= 8 * size
        {
            return None;
        }
        let mut others = allowed;
        libc::CPU_CLR(core, &mut others);
        if libc::sched_setaffinity(0, size, &raw const others) != 0 {
            return None;
        }
        let now = self::core();
        libc::sched_setaffinity(0, size, &raw const allowed);
        now
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
fn core() -> Option<usize> {
    None
}

#[cfg(any(not(target_os = "linux"), miri))]
fn step_aside(_core: usize, _threads: usize) -> Option<usize> {
    None
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[allow(unsafe_code)]
    fn allowed() -> Vec<usize> {
        // SAFETY: as above.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            (0..1024).filter(|core| libc::CPU_ISSET(*core, &set)).collect()
        }
    }

    #[test]
    fn a_thread_steps_aside_and_may_run_everywhere_afterwards() {
        let before = allowed();
        for core in before.clone() {
            let went = step_aside(core, 2);
            if before.len() < 2 {
                assert_eq!(went, None, "there is nowhere to go");
            } else {
                assert_ne!(went, Some(core), "it stayed");
                assert!(before.contains(&went.unwrap()));
            }
            assert_eq!(allowed(), before);
        }
        assert_eq!(step_aside(before[0], before.len() + 1), None, "more threads than cores");
    }

    #[test]
    fn only_a_place_of_the_same_job_counts() {
        let placement = Placement::new(2);
        let here = core().unwrap() as u64;
        placement.places[0].store((6 << CORE_BITS) | here, Ordering::Relaxed);
        let mut last = None;
        placement.settle(1, 7, &mut last);
        assert!(last.is_none(), "stepped aside for a thread of the job before");
    }
}
