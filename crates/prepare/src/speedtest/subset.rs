//! The examples of one measurement: so many, chosen by the seed, the same every time.

use std::sync::Arc;

use paceline_batch::Schema;

use paceline_data::{
    DataError, Scratch, Source,
    order::{Order, Shuffle},
    rejects::Reject,
};

/// The first examples of a shuffled source as a source of their own. A loader reads exactly these and nothing ahead of them, so
/// no thread spends measured time on examples that are never delivered.
#[derive(Debug)]
pub(super) struct Subset {
    inner: Arc<dyn Source>,
    indices: Vec<u64>,
}

impl Subset {
    /// `images` examples of `inner`; beyond its length further epochs follow.
    pub(super) fn new(inner: Arc<dyn Source>, images: u64, seed: u64) -> Self {
        let order = Order::new(inner.len(), seed, Shuffle::Full);
        let mut indices = Vec::new();
        let mut missing = images;
        let mut epoch = 0;
        while missing > 0 {
            let take = missing.min(inner.len());
            order.epoch(epoch).extend(0..take, &mut indices);
            missing -= take;
            epoch += 1;
        }
        Self { inner, indices }
    }

    fn place(&self, index: u64) -> u64 {
        self.indices[usize::try_from(index).unwrap_or(usize::MAX)]
    }
}

impl Source for Subset {
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn len(&self) -> u64 {
        self.indices.len() as u64
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        self.inner.read(self.place(index), scratch, pixels)
    }

    fn label(&self, index: u64, scratch: &mut Scratch) -> Result<u32, DataError> {
        self.inner.label(self.place(index), scratch)
    }

    fn resident(&self) -> bool {
        self.inner.resident()
    }

    fn origin(&self, index: u64) -> String {
        self.inner.origin(self.place(index))
    }

    fn rejects(&self) -> &[Reject] {
        self.inner.rejects()
    }

    fn may_reject(&self) -> bool {
        self.inner.may_reject()
    }

    fn fault(&self, index: u64, error: &DataError) -> Option<Reject> {
        self.inner.fault(self.place(index), error)
    }

    fn leave_out(&self, index: u64, error: DataError) -> Result<(), DataError> {
        self.inner.leave_out(self.place(index), error)
    }
}
