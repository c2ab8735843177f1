//! One buffer, filled by several threads at once, without copying it together afterwards.
//!
//! At 224 pixels a batch of 64 is 9.6 MB; gathering it from per-thread pieces would cost a tenth of
//! the decoding. So threads write straight into the batch, each into slots it has claimed.

#![allow(unsafe_code)] // the borrow checker cannot see that claims never overlap

use std::{
    cell::UnsafeCell,
    fmt,
    ops::Range,
    slice,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// A buffer of `count` slots of `width` bytes.
pub(super) struct Slots {
    buffer: UnsafeCell<Vec<u8>>,
    /// The buffer's memory; taken once, so that no thread has to look at the `Vec` itself.
    start: *mut u8,
    width: usize,
    count: usize,
    /// Slots below this number have been handed out.
    claimed: AtomicUsize,
    /// Slots given back.
    finished: AtomicUsize,
    taken: AtomicBool,
}

// SAFETY: `buffer` is touched only by `take`, once, after every slot was given back; `start` points into
// it and is used only through claims, whose ranges never overlap because `claimed` only grows.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// Slots in `buffer`, whose length becomes `width * count`; its contents are arbitrary.
    pub(super) fn new(mut buffer: Vec<u8>, width: usize, count: usize) -> Self {
        buffer.resize(width * count, 0);
        let start = buffer.as_mut_ptr();
        Self {
            buffer: UnsafeCell::new(buffer),
            start,
            width,
            count,
            claimed: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            taken: AtomicBool::new(false),
        }
    }

    /// Takes up to `most` free slots; `None` when all are handed out.
    pub(super) fn claim(&self, most: usize) -> Option<Claim<'_>> {
        let most = most.clamp(1, self.count.max(1));
        // Relaxed: the number alone decides who writes where; the bytes are published by `finished`.
        let first = self.claimed.fetch_add(most, Ordering::Relaxed);
        if first >= self.count {
            return None;
        }
        Some(Claim { slots: self, range: first..self.count.min(first + most) })
    }

    /// Whether every slot is handed out.
    pub(super) fn is_exhausted(&self) -> bool {
        self.claimed.load(Ordering::Relaxed) >= self.count
    }

    /// Whether every slot is filled and given back.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) == self.count
    }

    /// The buffer, once every slot has been given back; `None` before that and the second time.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        if !self.is_finished() || self.taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: all claims have ended (their `Drop` released the bytes, `is_finished` acquired
        // them), no new one can begin since all slots are handed out, and `taken` lets only one
        // caller through.
        Some(std::mem::take(unsafe { &mut *self.buffer.get() }))
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let finished = self.finished.load(Ordering::Relaxed);
        write!(f, "Slots({finished} of {} finished)", self.count)
    }
}

/// Some neighbouring slots that only this claim may write; dropping it gives them back as filled.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    slots: &'a Slots,
    range: Range<usize>,
}

impl Claim<'_> {
    /// Numbers of the slots.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The bytes of all slots of this claim.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        let width = self.slots.width;
        // SAFETY: the range lies within `count`, so within the buffer; no other claim covers it; the
        // buffer is neither moved nor freed before this claim is dropped, since `take` waits for it and
        // `self` borrows the `Slots`.
        unsafe {
            let first = self.slots.start.add(self.range.start * width);
            slice::from_raw_parts_mut(first, self.range.len() * width)
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: the bytes written become visible to the thread that sees this count.
        self.slots.finished.fetch_add(self.range.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_claimed_once_and_the_buffer_waits_for_all() {
        for (count, most) in [(1, 1), (7, 3), (64, 1), (100, 1000), (0, 4)] {
            let slots = Slots::new(Vec::new(), 5, count);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while let Some(mut claim) = slots.claim(most) {
                            assert!(slots.take().is_none());
                            let range = claim.range();
                            for (slot, bytes) in range.zip(claim.bytes().chunks_exact_mut(5)) {
                                bytes.iter_mut().for_each(|byte| *byte += slot as u8 + 1);
                            }
                        }
                    });
                }
            });
            let buffer = slots.take().unwrap();
            let wanted: Vec<u8> = (0..count).flat_map(|slot| [slot as u8 + 1; 5]).collect();
            assert_eq!(buffer, wanted);
            assert!(slots.take().is_none());
        }
    }
}
