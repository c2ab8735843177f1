//! A number in shared memory that one process raises and others wait for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Lies in shared memory on lines of its own, so that waiting for one does not slow the other down. Two
/// lines, because processors fetch them in pairs. All zero is a valid beginning.
#[repr(C, align(128))]
pub(crate) struct Counter {
    value: AtomicU64,
    /// Changes whenever sleepers shall wake; what the system sleeps on.
    bell: AtomicU32,
    /// Who sleeps or is about to. One that dies asleep stays counted, which costs a needless call.
    sleepers: AtomicU32,
}

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }

    /// Raises the number; a reader that sees it also sees everything written before.
    pub(crate) fn set(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        // The store must be seen before `sleepers` is read, or a sleeper could miss both.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            self.wake();
        }
    }

    /// Wakes all sleepers.
    #[allow(unsafe_code)]
    pub(crate) fn wake(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word is mapped as long as `self` lives; waking has no other effect.
        unsafe {
            libc::syscall(libc::SYS_futex, self.bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
        }
    }

    /// Sleeps until woken, at most that long, unless `enough` holds already.
    #[allow(unsafe_code)]
    pub(crate) fn sleep(&self, limit: Duration, enough: impl Fn() -> bool) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let bell = self.bell.load(Ordering::SeqCst);
        if !enough() {
            let time = libc::timespec {
                tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: limit.subsec_nanos().into(),
            };
            // SAFETY: the word is mapped and `time` lives as long as the call. It returns at once if the
            // bell has changed; why it returned does not matter, the caller looks again.
            unsafe {
                let word = self.bell.as_ptr();
                libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, bell, &raw const time);
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
