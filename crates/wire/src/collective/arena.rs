//! The memory that each rank shares with the other ranks of its machine: counters, a note on the current operation with
//! room for the numbers of a small one, and slots for larger numbers that are stored elsewhere.
//!
//! Rules that make it safe. An *operation* is one collective; every *post* raises `posted` by one, and an
//! operation has one or more posts. A rank posts `m` only when it has finished with posts up to `m - 2`
//! and has seen all ranks post `m - 2`. So at post `m` no rank still reads the data of post `m - 4`, and four
//! slots suffice; at operation `c + 2` no rank still reads the note of operation `c` or the data beside it, so two suffice.

#![allow(unsafe_code)]

use crate::transport::shared::counter::Counter;
use crate::transport::shared::region::Region;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers outside shared buffers go through slots of this many bytes, four in turns: small
/// enough for the cache of the one that reads, large enough that waiting for each other is rare.
pub(super) const SLOT: usize = 64 << 10;
const SLOTS: u64 = 4;
/// An operation of up to this many bytes lays its numbers beside its note: all ranks meet once and then each sums
/// all of them. Two of these and the two that are read are half of a core's second-level cache.
pub(super) const SMALL: usize = 256 << 10;
/// `f64`s that ride along with an operation.
pub(super) const RIDERS: usize = 16;

/// What a rank says about an operation.
#[repr(C, align(128))]
pub(super) struct Note {
    /// Which operation.
    pub(super) number: AtomicU64,
    /// Bytes of numbers.
    pub(super) length: AtomicU64,
    /// 0: not in a shared buffer; else the buffer's number + 1.
    pub(super) buffer: AtomicU64,
    /// Where in that buffer, in bytes.
    pub(super) offset: AtomicU64,
    trailer: [AtomicU64; RIDERS],
}

impl Note {
    pub(super) fn write_trailer(&self, trailer: &[f64]) {
        for (place, value) in self.trailer.iter().zip(trailer) {
            place.store(value.to_bits(), Ordering::Relaxed);
        }
    }

    pub(super) fn trailer(&self, index: usize) -> f64 {
        f64::from_bits(self.trailer[index].load(Ordering::Relaxed))
    }
}

/// The part with a fixed form. All zero is a valid beginning.
#[repr(C)]
pub(super) struct Control {
    /// Posts so far.
    pub(super) posted: Counter,
    /// Shares summed so far.
    pub(super) summed: Counter,
    /// Units of packed numbers that are complete.
    pub(super) ready: Counter,
    /// Units whose share is summed.
    pub(super) reduced: Counter,
    notes: [Note; 2],
}

/// Bytes of an arena.
pub(super) const BYTES: usize = size_of::<Control>() + SLOTS as usize * SLOT + 2 * SMALL;

/// One rank's arena, mapped here.
pub(super) struct Arena(pub(super) Region);

impl Arena {
    pub(super) fn control(&self) -> &Control {
        // SAFETY: the payload has `BYTES` bytes, is page-aligned and zero at first, and all processes use
        // this part only as the atomics it consists of.
        unsafe { self.0.payload().cast::<Control>().as_ref() }
    }

    pub(super) fn note(&self, operation: u64) -> &Note {
        &self.control().notes[(operation % 2) as usize]
    }

    fn slot(&self, post: u64) -> *mut u8 {
        let place = size_of::<Control>() + (post % SLOTS) as usize * SLOT;
        // SAFETY: within the payload; see `BYTES`.
        unsafe { self.0.payload().add(place).as_ptr() }
    }

    fn beside_note(&self, operation: u64) -> *mut u8 {
        let slots = size_of::<Control>() + SLOTS as usize * SLOT;
        let place = slots + (operation % 2) as usize * SMALL;
        // SAFETY: within the payload; see `BYTES`.
        unsafe { self.0.payload().add(place).as_ptr() }
    }

    /// Lays down the numbers of an operation that this rank is about to announce, in its own arena.
    pub(super) fn lay(&self, operation: u64, bytes: &[u8]) {
        assert!(bytes.len() <= SMALL, "more than there is room for");
        // SAFETY: there is room for that many bytes, and by the rules above no rank reads them now.
        unsafe {
            self.beside_note(operation).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// The numbers of an operation that its rank has announced.
    ///
    /// # Safety
    /// The rank has announced it (and the caller has seen that), and the caller announces no other
    /// while it uses the bytes.
    pub(super) unsafe fn laid(&self, operation: u64, length: usize) -> &[u8] {
        assert!(length <= SMALL, "more than there is room for");
        // SAFETY: there is room for that many bytes, on lines of their own; by the rules above its rank does
        // not write them before the caller has announced twice.
        unsafe { std::slice::from_raw_parts(self.beside_note(operation), length) }
    }

    /// Fills the slot of a post that this rank is about to make, in its own arena.
    pub(super) fn fill(&self, post: u64, bytes: &[u8]) {
        assert!(bytes.len() <= SLOT, "more than a slot holds");
        // SAFETY: a slot has that many bytes, and by the rules above no rank reads it now.
        unsafe { self.slot(post).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The slot of a post that its rank has made.
    ///
    /// # Safety
    /// The rank has posted it (and the caller has seen that), and the caller posts no more than one
    /// further time while it uses the bytes.
    pub(super) unsafe fn filled(&self, post: u64, length: usize) -> &[u8] {
        assert!(length <= SLOT, "more than a slot holds");
        // SAFETY: a slot has that many bytes, aligned to its size; by the rules above its rank does not
        // write it before the caller has posted twice.
        unsafe { std::slice::from_raw_parts(self.slot(post), length) }
    }
}
