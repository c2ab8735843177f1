//! Memory that all threads share.
//!
//! One photo of 60 megapixels can take 180 MB as pixels; one on every core of a large machine would
//! take gigabytes. So a thread asks for what decoding will take before it decodes, and large photos
//! wait for each other while small ones pass.

use std::sync::{Condvar, Mutex};

/// Bytes that may be in use at once.
#[derive(Debug)]
pub(super) struct Budget {
    total: u64,
    free: Mutex<u64>,
    returned: Condvar,
}

impl Budget {
    /// For the bytes of files being read.
    pub(super) fn files() -> Self {
        Self::new(64 << 20)
    }

    /// For pixels being decoded.
    pub(super) fn pixels() -> Self {
        Self::new(288 << 20)
    }

    pub(super) fn new(total: u64) -> Self {
        Self { total, free: Mutex::new(total), returned: Condvar::new() }
    }

    /// The most that one thread can take.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Waits until `bytes` are free and takes them; a request for more than the total gets all of it.
    pub(super) fn take(&self, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(self.total);
        let mut free = self.free.lock().expect("no code that can panic runs under this lock");
        while *free < bytes {
            free = self.returned.wait(free).expect("no code that can panic runs under this lock");
        }
        *free -= bytes;
        Share { budget: self, bytes }
    }
}

/// Bytes in use; dropping gives them back.
#[derive(Debug)]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut free =
            self.budget.free.lock().expect("no code that can panic runs under this lock");
        *free += self.bytes;
        drop(free);
        self.budget.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
    };

    #[test]
    fn use_never_exceeds_the_budget() {
        let budget = Budget::new(100);
        let used = AtomicU64::new(0);
        thread::scope(|scope| {
            for worker in 0..8u64 {
                let (budget, used) = (&budget, &used);
                scope.spawn(move || {
                    for round in 0..200 {
                        let want = 1 + (worker * 31 + round * 17) % 120;
                        let share = budget.take(want);
                        let now = used.fetch_add(share.bytes, Ordering::SeqCst) + share.bytes;
                        assert!(now <= 100);
                        used.fetch_sub(share.bytes, Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
