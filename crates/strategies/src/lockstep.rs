//! The update of workers in lockstep: their gradients become one, block by block.
//!
//! Gradients are added in the order of the ranks, so that the same seed gives the same bits on every run, and a block is
//! updated while its sums are in the cache. Changes of running statistics add up as well: a model weighs them by its share of the
//! batch. Only where gradients are summed instead of averaged are they not multiplied.

use paceline_models::Layout;
use std::ops::Range;

/// Values added up at a time; sums, weights and state of a block stay in the first-level cache.
pub(crate) const BLOCK: usize = 2048;

/// The entries that no optimiser trains: running statistics.
#[derive(Debug, Clone)]
pub(crate) struct UntrainedEntries(Vec<Range<usize>>);

impl UntrainedEntries {
    /// Those that are not trained.
    pub(crate) fn of(layout: &Layout) -> Self {
        let untrained = layout.entries().iter().filter(|entry| !entry.trained);
        Self(untrained.map(paceline_models::LayoutEntry::range).collect())
    }

    /// The first entry that does not end before `range`.
    fn from(&self, range: &Range<usize>) -> &[Range<usize>] {
        &self.0[self.0.partition_point(|entry| entry.end <= range.start)..]
    }

    /// The values of all of them, which are zero in `values` afterwards.
    pub(crate) fn take(&self, values: &mut [f32]) -> Vec<f32> {
        let taken = self.0.iter().flat_map(|entry| &values[entry.clone()]).copied().collect();
        self.0.iter().for_each(|entry| values[entry.clone()].fill(0.0));
        taken
    }

    /// Puts back what was taken.
    pub(crate) fn put(&self, taken: &[f32], values: &mut [f32]) {
        let mut rest = taken;
        for entry in &self.0 {
            let (own, after) = rest.split_at(entry.len());
            values[entry.clone()].copy_from_slice(own);
            rest = after;
        }
    }

    /// Divides those of `sums`, which stand at `range`.
    pub(crate) fn divide(&self, sums: &mut [f32], range: &Range<usize>, by: f32) {
        for entry in self.from(range).iter().take_while(|entry| entry.start < range.end) {
            let inside =
                entry.start.max(range.start) - range.start..entry.end.min(range.end) - range.start;
            for value in &mut sums[inside] {
                *value /= by;
            }
        }
    }
}

/// What sums are multiplied by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SumFactor {
    /// Makes them means over the examples that came.
    pub(crate) mean: f32,
    /// How many means gradients add up to; running statistics are one.
    pub(crate) times: f32,
}

impl SumFactor {
    /// All examples came, and their mean is wanted.
    pub(crate) const NONE: Self = Self { mean: 1.0, times: 1.0 };
}

/// Adds up the gradients of a part of the weights.
#[derive(Debug)]
pub(crate) struct LockstepSum {
    statistics: UntrainedEntries,
    block: Vec<f32>,
}

impl LockstepSum {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { statistics: UntrainedEntries::of(layout), block: vec![0.0; BLOCK] }
    }

    /// Adds up gradients of `part`, multiplies the sums by `factor`, and hands them to `update` with where they stand in the
    /// whole layout.
    pub(crate) fn each_block(
        &mut self,
        part: &Range<usize>,
        gradients: &[&[f32]],
        factor: SumFactor,
        mut update: impl FnMut(Range<usize>, &[f32]),
    ) {
        let Some((first, others)) = gradients.split_first() else { return };
        for start in (0..part.len()).step_by(BLOCK) {
            let end = (start + BLOCK).min(part.len());
            let sums = &mut self.block[..end - start];
            sums.copy_from_slice(&first[start..end]);
            for gradient in others {
                for (sum, value) in sums.iter_mut().zip(&gradient[start..end]) {
                    *sum += value;
                }
            }
            let SumFactor { mean, times } = factor;
            if mean * times != 1.0 {
                sums.iter_mut().for_each(|sum| *sum *= mean * times);
            }
            let range = part.start + start..part.start + end;
            if times != 1.0 {
                self.statistics.divide(sums, &range, times);
            }
            update(range, sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(statistics: Vec<Range<usize>>) -> LockstepSum {
        LockstepSum { statistics: UntrainedEntries(statistics), block: vec![0.0; BLOCK] }
    }

    /// Over the edges of blocks, for a part that does not begin at zero; half of the examples came.
    #[test]
    fn statistics_are_one_mean_where_gradients_are_several() {
        let part = 100..100 + 2 * BLOCK + 5;
        let statistics = vec![0..90, 98..103, 99 + BLOCK..110 + BLOCK, 4000..4001, 9000..9001];
        let (ones, threes) = (vec![1.0; part.len()], vec![3.0; part.len()]);
        for (times, wanted) in [(1.0, 8.0), (2.0, 16.0)] {
            let mut found = vec![f32::NAN; part.len()];
            let factor = SumFactor { mean: 2.0, times };
            sum(statistics.clone()).each_block(&part, &[&ones, &threes], factor, |range, sums| {
                found[range.start - 100..range.end - 100].copy_from_slice(sums);
            });
            for (at, value) in part.clone().zip(found) {
                let is_statistic = statistics.iter().any(|entry| entry.contains(&at));
                assert_eq!(value, if is_statistic { 8.0 } else { wanted }, "at {at}");
            }
        }
    }
}
