//! A part of a set as a set of its own: what is held out of training examples where the data have no part for that.

use std::sync::Arc;

use paceline_batch::Schema;
use paceline_photo::Fit;
use paceline_stats::random::{STEP, scramble};
use sha2::{Digest, Sha256};

use crate::{DataError, Scratch, Source, rejects::Reject};

/// Some examples of a set, in its order.
#[derive(Debug)]
pub struct Subset {
    inner: Arc<dyn Source>,
    /// Numbers in the whole set.
    numbers: Vec<u64>,
}

/// Cuts a set into the examples to train on and those held out, about `share` of all. Which they are follows from their
/// numbers alone, so that all tasks of a run, and a run that goes on, agree; nothing where one part would be empty.
#[must_use]
pub fn hold_out(
    source: &Arc<dyn Source>,
    share: f64,
) -> Option<(Arc<dyn Source>, Arc<dyn Source>)> {
    let held = |number: &u64| {
        let bits = scramble(number.wrapping_add(1).wrapping_mul(STEP));
        (bits >> 11) as f64 * 0.5f64.powi(53) < share
    };
    let (test, train): (Vec<u64>, Vec<u64>) = (0..source.len()).partition(held);
    if test.is_empty() || train.is_empty() {
        return None;
    }
    let part =
        |numbers| -> Arc<dyn Source> { Arc::new(Subset { inner: Arc::clone(source), numbers }) };
    Some((part(train), part(test)))
}

impl Subset {
    fn number(&self, index: u64) -> u64 {
        let at = usize::try_from(index).ok().and_then(|index| self.numbers.get(index));
        at.copied().unwrap_or(u64::MAX)
    }
}

impl Source for Subset {
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn len(&self) -> u64 {
        self.numbers.len() as u64
    }

    fn read(&self, index: u64, scratch: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        self.inner.read(self.number(index), scratch, pixels)
    }

    fn label(&self, index: u64, scratch: &mut Scratch) -> Result<u32, DataError> {
        self.inner.label(self.number(index), scratch)
    }

    fn resident(&self) -> bool {
        self.inner.resident()
    }

    fn distant(&self) -> bool {
        self.inner.distant()
    }

    fn origin(&self, index: u64) -> String {
        self.inner.origin(self.number(index))
    }

    fn fit(&self) -> Fit {
        self.inner.fit()
    }

    fn remarks(&self) -> Vec<String> {
        self.inner.remarks()
    }

    fn rejects(&self) -> &[Reject] {
        self.inner.rejects()
    }

    fn may_reject(&self) -> bool {
        self.inner.may_reject()
    }

    fn fault(&self, index: u64, error: &DataError) -> Option<Reject> {
        self.inner.fault(self.number(index), error)
    }

    fn identify(&self, sum: &mut Sha256) -> Result<(), DataError> {
        sum.update(self.len().to_le_bytes());
        self.inner.identify(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, open, source::image_shape};

    #[test]
    fn both_parts_are_the_whole_and_about_as_large_as_asked_for() {
        let whole = open("generated:digits?examples=400", &OpenOptions::default()).unwrap();
        let (train, test) = hold_out(&whole, 0.25).unwrap();
        assert_eq!(train.len() + test.len(), whole.len());
        assert!((70..130).contains(&test.len()), "{}", test.len());
        let width = image_shape(whole.schema()).len();
        let read = |source: &Arc<dyn Source>, index| {
            let mut pixels = vec![0; width];
            let label = source.read(index, &mut Scratch::default(), &mut pixels).unwrap();
            assert_eq!(label, source.label(index, &mut Scratch::default()).unwrap());
            (label, pixels)
        };
        let mut parts: Vec<_> = (0..train.len()).map(|at| read(&train, at)).collect();
        parts.extend((0..test.len()).map(|at| read(&test, at)));
        let mut all: Vec<_> = (0..whole.len()).map(|at| read(&whole, at)).collect();
        parts.sort();
        all.sort();
        assert_eq!(parts, all);
        assert!(hold_out(&whole, 0.0).is_none() && hold_out(&whole, 1.0).is_none());
    }
}
