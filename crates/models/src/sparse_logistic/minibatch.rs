//! The weights a batch touches, and the gradient over them.
//!
//! A worker of a parameter server pulls only these and pushes only their gradients; mini-batches on
//! one machine use the same code.

use std::ops::Range;

use paceline_batch::{Batch, Features};

use super::{RowLoss, Size, SparseLogistic};

/// Slots of the table that finds duplicates, at first; a power of two. It grows with the weights that batches
/// touch, not with their features, so that it stays in a core's cache.
const LEAST_SLOTS: usize = 1 << 12;

/// Which weights a batch touches, and where each of its features finds its weight among them. Reused
/// from batch to batch: nothing is allocated once it has grown to its size.
#[derive(Debug, Default)]
pub struct Minibatch {
    /// Sorted numbers of the weights touched; the bias is always the last.
    pub touched: Vec<u32>,
    /// The gradient of each, after [`Minibatch::gradient`].
    pub grads: Vec<f32>,
    /// How large the values behind each were; none where all values are 1.
    pub sizes: Vec<Size>,
    /// For each feature of the batch, the place of its weight in `touched`.
    places: Vec<u32>,
    /// Open addressing: the number of a weight and, beside it, its place plus one; 0 for nothing.
    seen: Vec<u64>,
    /// Scratch of the sort.
    sorted: Vec<u64>,
    spare: Vec<u64>,
    order: Vec<u32>,
}

impl Minibatch {
    /// Finds the weights that some rows of `batch` touch, `bias` included.
    pub fn prepare(&mut self, batch: &Batch, rows: Range<usize>, bias: u32) {
        let Features::Sparse { offsets, indices, .. } = &batch.features else {
            unreachable!("this model is fed rows of sparse features");
        };
        let indices = &indices[offsets[rows.start]..offsets[rows.end]];
        self.places.clear();
        self.sorted.clear();
        // The last batch tells how many weights this one will touch.
        let slots = self.seen.len().max(LEAST_SLOTS);
        self.seen.clear();
        self.seen.resize(slots, 0);
        for &index in indices {
            let place = self.place_of(index);
            self.places.push(place);
        }
        radix_sort(&mut self.sorted, &mut self.spare);
        self.order.clear();
        self.order.resize(self.sorted.len(), 0);
        self.touched.clear();
        for (rank, &entry) in self.sorted.iter().enumerate() {
            self.touched.push((entry >> 32) as u32);
            self.order[(entry & 0xffff_ffff) as usize] = rank as u32;
        }
        for place in &mut self.places {
            *place = self.order[*place as usize];
        }
        self.touched.push(bias);
    }

    /// The place of a weight among those seen so far, itself included.
    #[inline(always)]
    fn place_of(&mut self, index: u32) -> u32 {
        let mask = self.seen.len() - 1;
        let mut at = slot_of(index, mask);
        loop {
            let seen = self.seen[at];
            if seen == 0 {
                break;
            }
            if (seen >> 32) as u32 == index {
                return seen as u32 - 1;
            }
            at = (at + 1) & mask;
        }
        let place = self.sorted.len() as u32;
        self.seen[at] = u64::from(index) << 32 | u64::from(place + 1);
        self.sorted.push(u64::from(index) << 32 | u64::from(place));
        if 2 * self.sorted.len() > self.seen.len() {
            self.grow();
        }
        place
    }

    /// Doubles the table, so that it stays half empty.
    #[cold]
    fn grow(&mut self) {
        let slots = 2 * self.seen.len();
        self.seen.clear();
        self.seen.resize(slots, 0);
        for entry in &self.sorted {
            let mut at = slot_of((entry >> 32) as u32, slots - 1);
            while self.seen[at] != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.seen[at] = entry + 1;
        }
    }

    /// Computes the logits of the rows that were prepared, and the gradient of their summed `loss` times
    /// `scale`, from the weights of `touched`.
    ///
    /// # Panics
    /// If there is not one weight for each number in `touched`.
    pub fn gradient(
        &mut self,
        batch: &Batch,
        rows: Range<usize>,
        weights: &[f32],
        (loss, scale): (RowLoss, f32),
        logits: &mut Vec<f32>,
    ) {
        let Features::Sparse { offsets, values, .. } = &batch.features else {
            unreachable!("this model is fed rows of sparse features");
        };
        assert_eq!(weights.len(), self.touched.len(), "weights of another batch");
        self.grads.clear();
        self.grads.resize(self.touched.len(), 0.0);
        logits.clear();
        self.measure(values, offsets[rows.start]..offsets[rows.end], rows.len());
        let bias = weights.len() - 1;
        let first = offsets[rows.start];
        for row in rows {
            let label = batch.labels[row];
            let range = offsets[row]..offsets[row + 1];
            let places = &self.places[range.start - first..range.end - first];
            let value = |at: usize| if values.is_empty() { 1.0 } else { values[range.start + at] };
            let mut sums = [weights[bias], 0.0, 0.0, 0.0];
            for (at, &place) in places.iter().enumerate() {
                sums[at % 4] += value(at) * weights[place as usize];
            }
            let logit = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            logits.push(logit);
            let slope = loss.slope(logit, label) * scale;
            self.grads[bias] += slope;
            for (at, &place) in places.iter().enumerate() {
                self.grads[place as usize] += slope * value(at);
            }
        }
    }

    /// Finds how large the values of each weight are.
    fn measure(&mut self, values: &[f32], features: Range<usize>, rows: usize) {
        self.sizes.clear();
        if values.is_empty() {
            return;
        }
        self.sizes.resize(self.touched.len(), Size::default());
        for (&place, &value) in self.places.iter().zip(&values[features]) {
            let size = &mut self.sizes[place as usize];
            *size = size.join(Size::of(value));
        }
        if let Some(bias) = self.sizes.last_mut() {
            *bias = Size::new(1.0, rows.min(usize::from(Size::MOST)) as u16);
        }
    }

    /// One update of `model` from the summed gradient of some rows times `scale`; gives their logits before it.
    pub fn learn(
        &mut self,
        model: &SparseLogistic,
        batch: &Batch,
        rows: Range<usize>,
        scale: f32,
        weights: &mut Vec<f32>,
        logits: &mut Vec<f32>,
    ) {
        let (table, rule) = (model.table(), model.rule());
        self.prepare(batch, rows.clone(), table.bias() as u32);
        weights.clear();
        weights.extend(self.touched.iter().map(|&index| rule.weight(table.get(index as usize))));
        self.gradient(batch, rows, weights, (model.loss(), scale), logits);
        model.apply(0, &self.touched, &self.grads, &self.sizes, 1.0);
    }
}

/// Where a weight is looked for first: the high bits of the product depend on all bits of its number.
#[inline(always)]
fn slot_of(index: u32, mask: usize) -> usize {
    (u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask
}

/// Sorts by the upper half, eleven bits at a time; a comparison sort takes several times as long.
fn radix_sort(entries: &mut Vec<u64>, spare: &mut Vec<u64>) {
    if entries.len() < 64 {
        entries.sort_unstable();
        return;
    }
    spare.clear();
    spare.resize(entries.len(), 0);
    // The third digit is there only for large numbers.
    let most = entries.iter().fold(0, |most, entry| most | entry) >> 32;
    let shifts: &[u32] = if most < 1 << 22 { &[32, 43] } else { &[32, 43, 54] };
    for &shift in shifts {
        let mut starts = [0_u32; 1 << 11];
        for &entry in entries.iter() {
            starts[(entry >> shift) as usize & 0x7ff] += 1;
        }
        let mut total = 0;
        for start in &mut starts {
            total += std::mem::replace(start, total);
        }
        for &entry in entries.iter() {
            let start = &mut starts[(entry >> shift) as usize & 0x7ff];
            spare[*start as usize] = entry;
            *start += 1;
        }
        std::mem::swap(entries, spare);
    }
}
