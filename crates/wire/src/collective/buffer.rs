//! Numbers that the other ranks of the machine can see.

#![allow(unsafe_code)]

use crate::transport::shared::region::Region;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A buffer of `f32` that a [group](super::Group) gives out. Within one machine the other ranks have
/// it mapped, and sums over it copy nothing; elsewhere it is ordinary memory. Either way it is used like
/// a slice, and collectives recognise it, or any part of it, by its address.
///
/// Other ranks write to it only while this rank is inside a collective that it was passed to.
#[derive(Debug)]
pub struct SharedBuffer(Memory);

#[derive(Debug)]
enum Memory {
    Own(Vec<f32>),
    Shared { region: Arc<Region>, length: usize },
}

impl SharedBuffer {
    pub(super) fn own(length: usize) -> Self {
        Self(Memory::Own(vec![0.0; length]))
    }

    pub(super) fn shared(region: Arc<Region>, length: usize) -> Self {
        Self(Memory::Shared { region, length })
    }

    /// Whether other ranks have it mapped.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Memory::Shared { .. })
    }
}

impl Deref for SharedBuffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Memory::Own(numbers) => numbers,
            Memory::Shared { region, length } => {
                // SAFETY: the region has room for that many numbers and lives as long as `self`; it is
                // page-aligned, and any bits are a number. Other ranks write to it only during collectives, which take
                // a unique reference to it.
                unsafe { std::slice::from_raw_parts(region.payload().cast().as_ptr(), *length) }
            }
        }
    }
}

impl DerefMut for SharedBuffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Memory::Own(numbers) => numbers,
            Memory::Shared { region, length } => {
                // SAFETY: as above; `self` is the only handle of this process through which the numbers are
                // reached outside collectives.
                unsafe { std::slice::from_raw_parts_mut(region.payload().cast().as_ptr(), *length) }
            }
        }
    }
}
