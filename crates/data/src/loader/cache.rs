//! Keeps decoded examples in memory, so that later epochs cost a copy instead of a decode.
//!
//! A source around a source. The cap is in bytes; what does not fit is decoded every time. Examples
//! once in stay in: with a random order every example is as likely to come next as any other, so
//! replacing one by another would gain nothing.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use paceline_batch::Schema;
use serde::Serialize;

use crate::{DataError, Scratch, Source, rejects::Reject, source::image_shape};

/// A source whose decoded examples are kept.
#[derive(Debug)]
pub struct Cached {
    inner: Arc<dyn Source>,
    /// Label and pixels; 32 bytes per example even when empty.
    examples: Vec<OnceLock<(u32, Box<[u8]>)>>,
    width: u64,
    most_bytes: u64,
    bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a cache holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// Examples in memory.
    pub examples: u64,
    pub bytes: u64,
    /// The cap.
    pub most_bytes: u64,
    /// What the whole set would need.
    pub needed_bytes: u64,
    /// Reads answered from memory.
    pub hits: u64,
    /// Reads that had to decode.
    pub misses: u64,
}

impl CacheReport {
    /// Whether the whole set fits.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.needed_bytes <= self.most_bytes
    }
}

impl Cached {
    /// Keeps up to `most_bytes` of the examples of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Source>, most_bytes: u64) -> Self {
        let width = image_shape(inner.schema()).len() as u64;
        let slots = usize::try_from(inner.len()).unwrap_or(usize::MAX);
        Self {
            examples: (0..slots).map(|_| OnceLock::new()).collect(),
            inner,
            width,
            most_bytes,
            bytes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// What is in it now.
    #[must_use]
    pub fn report(&self) -> CacheReport {
        let bytes = self.bytes.load(Ordering::Relaxed);
        CacheReport {
            examples: bytes / self.width.max(1),
            bytes,
            most_bytes: self.most_bytes,
            needed_bytes: self.inner.len() * self.width,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
        }
    }

    /// Sets memory for one more example aside, if there is any.
    fn reserve(&self) -> bool {
        let more = |bytes: u64| bytes.checked_add(self.width).filter(|&sum| sum <= self.most_bytes);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl Source for Cached {
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let kept = usize::try_from(index).ok().and_then(|index| self.examples.get(index));
        if let Some((label, stored)) = kept.and_then(OnceLock::get) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            pixels.copy_from_slice(stored);
            return Ok(*label);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let label = self.inner.read(index, scratch, pixels)?;
        if let Some(cell) = kept
            && self.reserve()
            && cell.set((label, Box::from(&*pixels))).is_err()
        {
            // Two threads decoded the same example; one of the two copies is gone.
            self.bytes.fetch_sub(self.width, Ordering::Relaxed);
        }
        Ok(label)
    }

    fn resident(&self) -> bool {
        self.inner.resident()
    }

    fn distant(&self) -> bool {
        self.inner.distant()
    }

    fn origin(&self, index: u64) -> String {
        self.inner.origin(index)
    }

    fn rejects(&self) -> &[Reject] {
        self.inner.rejects()
    }

    fn may_reject(&self) -> bool {
        self.inner.may_reject()
    }

    fn fault(&self, index: u64, error: &DataError) -> Option<Reject> {
        self.inner.fault(index, error)
    }

    fn leave_out(&self, index: u64, error: DataError) -> Result<(), DataError> {
        self.inner.leave_out(index, error)
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = self.inner.remarks();
        let report = self.report();
        if !report.fits() {
            let (needed, most) = (report.needed_bytes, report.most_bytes);
            remarks.push(format!(
                "the decoded set needs {needed} bytes, the cache holds {most}: the rest is decoded every time"
            ));
        }
        remarks
    }
}
