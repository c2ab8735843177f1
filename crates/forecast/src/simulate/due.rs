//! Things that end or happen at a time, for heaps that yield the earliest first.

use std::cmp::Ordering;

/// Something and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due<T> {
    pub(super) at: f64,
    /// Decides among those of the same time: the lowest comes first.
    pub(super) number: u64,
    pub(super) what: T,
}

impl<T> Ord for Due<T> {
    /// The earliest is the greatest, since heaps yield that.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then_with(|| other.number.cmp(&self.number))
    }
}

impl<T> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Due<T> {}
