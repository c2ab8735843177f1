//! The weights of all threads: a weight and its optimiser's state in each slot.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{ModelError, kernels::Buffer};

/// Floats of the smallest page.
const PAGE: usize = 1024;

/// `2^bits` slots and one for the bias; each holds two floats and is read and written as one word, so
/// that threads never see a weight with another's state.
#[derive(Debug)]
pub struct Table {
    /// Owns the memory; touched through `slots` only.
    _memory: Buffer,
    slots: NonNull<AtomicU64>,
    bits: u32,
}

// SAFETY: all access goes through atomics; the memory lives as long as the table.
#[allow(unsafe_code)]
unsafe impl Send for Table {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Table {}

#[allow(unsafe_code)] // one bounds check per weight would be a tenth of the time of learning
impl Table {
    /// A table of zeros, touched once: the system hands out memory at the first touch, and rows come in an order that would make
    /// learning wait for it again and again.
    ///
    /// # Errors
    /// More bits than indices have.
    pub fn new(bits: u32) -> Result<Self, ModelError> {
        if !(1..=31).contains(&bits) {
            return Err(ModelError::Option {
                model: super::NAME,
                option: "the number of bits",
                found: bits.to_string(),
                wanted: "between 1 and 31",
            });
        }
        let mut memory = Buffer::zeroed(2 * ((1 << bits) + 1));
        memory.iter_mut().step_by(PAGE).for_each(|value| *value = 0.0);
        // A buffer starts on a cache line, and two floats have the size of a word.
        let slots = NonNull::from(&mut memory[..]).cast::<AtomicU64>();
        Ok(Self { _memory: memory, slots, bits })
    }

    /// Weights without the bias, as a power of two.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Slots, the bias included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bias() + 1
    }

    /// Never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The number of the bias.
    #[inline]
    #[must_use]
    pub fn bias(&self) -> usize {
        1 << self.bits
    }

    /// Numbers beyond the bias wrap around; there are none unless a parser is wrong.
    #[inline(always)]
    fn slot(&self, index: usize) -> &AtomicU64 {
        let index = if index > self.bias() { index & (self.bias() - 1) } else { index };
        // SAFETY: the index is at most the bias, and the memory holds one slot more than that, aligned
        // to a cache line, initialised, and accessed only through these atomics.
        unsafe { &*self.slots.as_ptr().add(index) }
    }

    /// What a slot holds.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, index: usize) -> [f32; 2] {
        let word = self.slot(index).load(Ordering::Relaxed);
        [f32::from_bits(word as u32), f32::from_bits((word >> 32) as u32)]
    }

    /// Fills a slot.
    #[inline(always)]
    pub fn set(&self, index: usize, [first, second]: [f32; 2]) {
        let word = u64::from(first.to_bits()) | u64::from(second.to_bits()) << 32;
        self.slot(index).store(word, Ordering::Relaxed);
    }

    /// Asks for a slot that will be needed soon.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch changes nothing and cannot fail.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self.slot(index)).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = index;
    }
}
