//! Float buffers that start on a cache line, on huge pages where they are large.
//!
//! A quarter of a gigabyte of weights on 4 KiB pages costs a translation miss every few rows; Linux
//! gives huge pages to memory that asks for them.

#![allow(unsafe_code)] // memory of an alignment that `Vec` cannot promise

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

const CACHE_LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of floats, zero at first.
pub struct Buffer(Memory);

enum Memory {
    Own(Own),
    Lent(Box<dyn DerefMut<Target = [f32]> + Send + Sync>),
}

impl Buffer {
    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self(Memory::Own(Own::zeroed(len)))
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
        if len == 0 {
            return Self { start: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout is not empty.
        let raw = unsafe { alloc_zeroed(layout) }.cast::<f32>();
        let Some(start) = NonNull::new(raw) else { handle_alloc_error(layout) };
        #[cfg(target_os = "linux")]
        if layout.align() == HUGE_PAGE {
            // SAFETY: the range is ours; the call is advice and changes no contents. Where it
            // fails, ordinary pages remain.
            unsafe { libc::madvise(raw.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
        Self { start, len }
    }

    fn layout(len: usize) -> Layout {
        let bytes = len.checked_mul(size_of::<f32>()).expect("buffer fits the address space");
        let align = if bytes >= 2 * HUGE_PAGE { HUGE_PAGE } else { CACHE_LINE };
        Layout::from_size_align(bytes, align).expect("buffer fits the address space")
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated by `zeroed` with this very layout.
            unsafe { dealloc(self.start.as_ptr().cast(), Self::layout(self.len)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match &self.0 {
            // SAFETY: `len` initialised floats from `start` on, owned by the buffer.
            Memory::Own(own) => unsafe { std::slice::from_raw_parts(own.start.as_ptr(), own.len) },
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
