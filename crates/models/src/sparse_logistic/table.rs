//! The weights of all threads: a weight and its optimiser's state in each slot.

use std::{
    ops::Range,
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
    /// More bits than indices have; more memory than the system gives.
    pub fn new(bits: u32) -> Result<Self, ModelError> {
        Self::holding(bits, 0..usize::MAX)
    }

    /// The same for a task that holds a part: what lies outside of it takes no memory until it is written to.
    ///
    /// # Errors
    /// As of [`Table::new`].
    pub fn holding(bits: u32, part: Range<usize>) -> Result<Self, ModelError> {
        if !(1..=31).contains(&bits) {
            return Err(ModelError::Option {
                model: super::NAME,
                option: "the number of bits",
                found: bits.to_string(),
                wanted: "between 1 and 31",
            });
        }
        let slots = (1 << bits) + 1;
        let refused = ModelError::Memory { model: super::NAME, bits, bytes: Self::bytes(bits) };
        let mut memory = Buffer::try_zeroed(2 * slots).ok_or(refused)?;
        let part = 2 * part.start.min(slots)..2 * part.end.min(slots);
        memory[part].iter_mut().step_by(PAGE).for_each(|value| *value = 0.0);
        // A buffer starts on a cache line, and two floats have the size of a word.
        let slots = NonNull::from(&mut memory[..]).cast::<AtomicU64>();
        Ok(Self { _memory: memory, slots, bits })
    }

    /// Memory of so many weights and the bias, the optimiser's state included.
    #[must_use]
    pub fn bytes(bits: u32) -> u64 {
        8 * ((1 << bits) + 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in memory of the mapping that holds an address.
    #[cfg(target_os = "linux")]
    fn resident(address: usize) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(a, b)| (number(a), number(b))) {
                inside = (from..to).contains(&address);
            } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| inside) {
                return 1024 * rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        panic!("no mapping holds {address:x}");
    }

    /// Every server of several touched the weights of all of them.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_table_of_a_part_takes_the_memory_of_its_part() {
        let all = Table::bytes(24);
        let table = Table::holding(24, 1 << 20..3 << 20).unwrap();
        assert_eq!(
            (table.len(), table.get(5), table.get(2 << 20)),
            ((1 << 24) + 1, [0.0; 2], [0.0; 2])
        );
        let part = resident(table.slots.as_ptr() as usize);
        assert!(part >= all / 10 && part < all / 2, "{part} of {all} bytes");
        table.set(5, [1.0, 2.0]);
        assert_eq!(table.get(5), [1.0, 2.0]);
        let whole = Table::new(24).unwrap();
        assert!(resident(whole.slots.as_ptr() as usize) >= all / 10 * 9);
    }
}
