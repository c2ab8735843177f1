//! Numbers that the two ends of a link both see.
//!
//! One end writes, the other reads; whose turn it is they tell each other by messages over the link. So
//! a large buffer changes hands by a message of a few bytes.

use super::region::{Owned, Pages, Region};
use crate::handshake::Offer;
use std::io;

/// A buffer of `f32` in memory that two processes of one machine map.
#[derive(Debug)]
pub struct Window {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    /// Made here: the file stays open, so that the other side can find it.
    Own(Owned),
    Theirs(Region),
}

impl Window {
    /// New memory for that many numbers, all zero, and what the other side needs to [open](Self::open) it.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn create(length: usize) -> io::Result<(Self, Vec<u8>)> {
        let owned = Region::create(length * size_of::<f32>(), Pages::AtOnce)?;
        let words = serde_json::to_vec(&owned.offer()).map_err(io::Error::other)?;
        Ok((Self { memory: Memory::Own(owned), length }, words))
    }

    /// The other side's memory, which must hold that many numbers.
    ///
    /// # Errors
    /// It is not there, not of that size, or not this process's to see.
    pub fn open(words: &[u8], length: usize) -> io::Result<Self> {
        let offer: Offer = serde_json::from_slice(words)?;
        let region = Region::open(&offer, length * size_of::<f32>(), Pages::AtOnce)?;
        Ok(Self { memory: Memory::Theirs(region), length })
    }

    /// The numbers, for the end that reads, while the other does not write.
    #[must_use]
    pub fn read(&self) -> &[f32] {
        // SAFETY: the region has room for that many numbers, is page-aligned and lives as long as
        // `self`; any bits are a number. The other process writes only after it is told that this
        // end has finished; one that breaks the protocol can spoil numbers and nothing else.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }

    /// The numbers, for the end that writes, while the other does not read.
    #[must_use]
    pub fn write(&mut self) -> &mut [f32] {
        // SAFETY: as above; within this process `self` is the only handle.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }

    fn start(&self) -> *mut f32 {
        let region = match &self.memory {
            Memory::Own(owned) => &owned.region,
            Memory::Theirs(region) => region,
        };
        region.payload().cast().as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_end_writes_the_other_reads() {
        let (mut near, words) = Window::create(1000).unwrap();
        let far = Window::open(&words, 1000).unwrap();
        assert!(far.read().iter().all(|value| *value == 0.0));
        near.write()[999] = 1.5;
        assert_eq!((far.read()[999], far.read().len()), (1.5, 1000));
        assert!(Window::open(&words, 999).is_err(), "another size");
        assert!(Window::open(b"no offer", 1000).is_err());
        drop(near);
        assert_eq!(far.read()[999], 1.5, "it stays mapped while it is in use");
    }
}
