//! Float buffers that start on a cache line, on huge pages where they are large.
//!
//! A quarter of a gigabyte of weights on 4 KiB pages costs a translation miss every few rows; Linux
//! gives huge pages to memory that asks for them.

#![allow(unsafe_code)] // memory of an alignment that `Vec` cannot promise

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::Arc,
};

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of floats, zero at first.
pub struct Buffer(Memory);

enum Memory {
    Own(Own),
    /// An exclusive range of a larger allocation: its start and length.
    Part(Arc<Own>, usize, usize),
    Lent(Box<dyn DerefMut<Target = [f32]> + Send + Sync>),
}

impl Buffer {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self(Memory::Own(Own::zeroed(len)))
    }

    /// `len` zeros, or nothing where there is not that much memory.
    #[must_use]
    pub fn try_zeroed(len: usize) -> Option<Self> {
        Own::try_zeroed(len).map(|own| Self(Memory::Own(own)))
    }

    /// Buffers of zeros side by side: several small ones that are used together. On huge pages they lie evenly in the second-level cache,
    /// on scattered small pages some of its places are wanted too often.
    #[must_use]
    pub fn together<const N: usize>(lengths: [usize; N]) -> [Self; N] {
        const LINE: usize = CACHE_LINE / size_of::<f32>();
        let sum = lengths.iter().map(|len| len.next_multiple_of(LINE)).sum::<usize>();
        let huge = HUGE_PAGE / size_of::<f32>();
        // Half a huge page is worth a whole one.
        let whole = if sum < huge / 2 { sum } else { sum.max(huge) };
        let whole = Arc::new(Own::zeroed(whole));
        let mut end = 0;
        lengths.map(|len| {
            let start = end;
            end += len.next_multiple_of(LINE);
            Self(Memory::Part(Arc::clone(&whole), start, len))
        })
    }

    /// Floats in memory of another kind: such as other processes see.
    #[must_use]
    pub fn lent(memory: impl DerefMut<Target = [f32]> + Send + Sync + 'static) -> Self {
        Self(Memory::Lent(Box::new(memory)))
    }

    /// Makes room for `len` floats; contents are lost when the buffer grows, and it never shrinks.
    pub fn reserve(&mut self, len: usize) {
        if len > self.len() {
            *self = Self::zeroed(0); // gives the old memory back before taking the new
            *self = Self::zeroed(len);
        }
    }
}

/// Memory of our own.
struct Own {
    start: NonNull<f32>,
    len: usize,
}

// SAFETY: it owns its memory, like a boxed slice.
unsafe impl Send for Own {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Own {}

impl Own {
    fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|| handle_alloc_error(Self::layout(len)))
    }

    fn try_zeroed(len: usize) -> Option<Self> {
        if len == 0 {
            return Some(Self { start: NonNull::dangling(), len });
        }
        let layout = Self::layout(len);
        let raw = if layout.align() == HUGE_PAGE {
            huge::zeroed(layout.size())
        } else {
            // SAFETY: the layout is not empty.
            unsafe { alloc_zeroed(layout) }
        };
        Some(Self { start: NonNull::new(raw.cast::<f32>())?, len })
    }

    fn layout(len: usize) -> Layout {
        let bytes = len.checked_mul(size_of::<f32>()).expect("buffer fits the address space");
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        Layout::from_size_align(bytes, align).expect("buffer fits the address space")
    }
}

/// Memory on huge pages, straight from the system (Miri knows no mapping that is given back in parts). An allocator would write zeros before anybody could ask for huge
/// pages, and pages that have been written to stay as they are.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::HUGE_PAGE;
    use libc::{MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE};
    use std::ptr::null_mut;

    /// Zeros that begin on a huge page, or nothing.
    pub(super) fn zeroed(bytes: usize) -> *mut u8 {
        let Some(whole) = room(bytes).checked_add(HUGE_PAGE) else { return null_mut() };
        let (access, kind) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: a new mapping, of which the parts before the first huge page and behind the last are given back
        // at once. The advice changes no contents; where it is not taken, ordinary pages remain.
        unsafe {
            let raw = libc::mmap(null_mut(), whole, access, kind, -1, 0);
            if raw == MAP_FAILED {
                return null_mut();
            }
            let before = raw.cast::<u8>().align_offset(HUGE_PAGE);
            let start = raw.cast::<u8>().add(before);
            if before > 0 {
                libc::munmap(raw, before);
            }
            libc::munmap(start.add(room(bytes)).cast(), HUGE_PAGE - before);
            libc::madvise(start.cast(), room(bytes), libc::MADV_HUGEPAGE);
            start
        }
    }

    /// Gives back what [`zeroed`] gave for as many bytes.
    ///
    /// # Safety
    /// `start` came from `zeroed(bytes)`, was not given back before, and is not used afterwards.
    pub(super) unsafe fn free(start: *mut u8, bytes: usize) {
        // SAFETY: the caller's part; all of the mapping is given back.
        unsafe { libc::munmap(start.cast(), room(bytes)) };
    }

    fn room(bytes: usize) -> usize {
        bytes.next_multiple_of(HUGE_PAGE)
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
mod huge {
    use super::HUGE_PAGE;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, HUGE_PAGE).expect("checked by the caller")
    }

    pub(super) fn zeroed(bytes: usize) -> *mut u8 {
        // SAFETY: only large buffers come here, so it is not empty.
        unsafe { alloc_zeroed(layout(bytes)) }
    }

    /// Gives back what [`zeroed`] gave for as many bytes.
    ///
    /// # Safety
    /// `start` came from `zeroed(bytes)`, was not given back before, and is not used afterwards.
    pub(super) unsafe fn free(start: *mut u8, bytes: usize) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(start, layout(bytes)) };
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        let (start, layout) = (self.start.as_ptr().cast(), Self::layout(self.len));
        // SAFETY: allocated by `zeroed` in this very way.
        unsafe {
            if layout.align() == HUGE_PAGE {
                huge::free(start, layout.size());
            } else {
                dealloc(start, layout);
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match &self.0 {
            // SAFETY: `len` initialised floats from `start` on, owned by the buffer.
            Memory::Own(own) => unsafe { std::slice::from_raw_parts(own.start.as_ptr(), own.len) },
            // SAFETY: `together` has cut the whole into parts that do not overlap, all within it.
            Memory::Part(whole, start, len) => unsafe {
                std::slice::from_raw_parts(whole.start.as_ptr().add(*start), *len)
            },
            Memory::Lent(memory) => memory,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            // SAFETY: as in `deref`, and borrowed mutably.
            Memory::Own(own) => unsafe {
                std::slice::from_raw_parts_mut(own.start.as_ptr(), own.len)
            },
            // SAFETY: as in `deref`; no other buffer has this part.
            Memory::Part(whole, start, len) => unsafe {
                std::slice::from_raw_parts_mut(whole.start.as_ptr().add(*start), *len)
            },
            Memory::Lent(memory) => memory,
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_grow() {
        let mut buffer = Buffer::default();
        assert!(buffer.is_empty());
        for len in [3, 1 << 10, 2 << 20] {
            buffer.reserve(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&value| value == 0.0));
            assert_eq!(buffer.as_ptr() as usize % CACHE_LINE, 0);
            buffer.fill(1.0);
        }
        buffer.reserve(5);
        assert_eq!(buffer.clone().len(), 2 << 20);
    }

    #[test]
    #[cfg(not(miri))]
    fn more_memory_than_any_machine_has_is_not_given_and_no_abort() {
        assert!(Buffer::try_zeroed(1 << 56).is_none());
        assert_eq!(Buffer::try_zeroed(3).unwrap().len(), 3);
        assert_eq!(Buffer::try_zeroed(0).unwrap().len(), 0);
    }

    #[test]
    fn buffers_side_by_side_do_not_touch_each_other() {
        for lengths in [[0, 1, 17, 100], [200_000, 3, 0, 300_000], [1 << 20, 5, 16, 16]] {
            let mut buffers = Buffer::together(lengths);
            for (value, buffer) in (1u8..).zip(&mut buffers) {
                assert!(buffer.iter().all(|&value| value == 0.0));
                assert_eq!(buffer.as_ptr() as usize % CACHE_LINE, 0);
                buffer.fill(value.into());
            }
            for ((value, buffer), len) in (1u8..).zip(&buffers).zip(lengths) {
                assert!(buffer.len() == len && buffer.iter().all(|&it| it == f32::from(value)));
            }
            let [first, .., last] = buffers;
            drop(first);
            assert!(last.iter().all(|&value| value == 4.0), "the others live on");
        }
    }

    #[test]
    fn lent_memory_is_used_and_given_back() {
        let mut buffer = Buffer::lent(vec![1.0, 2.0, 3.0]);
        let place = buffer.as_ptr();
        buffer[1] = 5.0;
        assert_eq!((&*buffer, buffer.as_ptr()), (&[1.0, 5.0, 3.0][..], place));
        buffer.reserve(2);
        assert_eq!(buffer.as_ptr(), place);
        buffer.reserve(4);
        assert_eq!(&*buffer, [0.0; 4]);
    }
}
