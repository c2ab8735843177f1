//! The update of workers in lockstep: their gradients become one, block by block.
//!
//! Gradients are added in the order of the ranks, so that the same seed gives the same bits on every run, and a block is
//! updated while its sums are in the cache. Running statistics are averaged instead: each worker sees only its own share of the
//! batch.

use paceline_models::Layout;
use std::ops::Range;

/// Values added up at a time; sums, weights and state of a block stay in the first-level cache.
pub(crate) const BLOCK: usize = 2048;

/// The entries that are averaged over the workers and not summed.
#[derive(Debug, Clone)]
pub(crate) struct AveragedEntries(Vec<Range<usize>>);

impl AveragedEntries {
    /// Those that are not trained.
    pub(crate) fn of(layout: &Layout) -> Self {
        let untrained = layout.entries().iter().filter(|entry| !entry.trained);
        Self(untrained.map(paceline_models::LayoutEntry::range).collect())
    }

    /// The first entry that does not end before `range`.
    fn from(&self, range: &Range<usize>) -> &[Range<usize>] {
        &self.0[self.0.partition_point(|entry| entry.end <= range.start)..]
    }

    /// Whether some of them lie in `range`.
    pub(crate) fn meets(&self, range: &Range<usize>) -> bool {
        self.from(range).first().is_some_and(|entry| entry.start < range.end)
    }

    /// Divides those of `sums` (which stand at `range`) that are averaged.
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

/// Adds up the gradients of a part of the weights.
#[derive(Debug)]
pub(crate) struct LockstepSum {
    averaged: AveragedEntries,
    block: Vec<f32>,
}

impl LockstepSum {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { averaged: AveragedEntries::of(layout), block: vec![0.0; BLOCK] }
    }

    /// Adds up gradients of `part`, multiplies the sums by `factor`, and hands them to `update` with where they stand in the
    /// whole layout.
    pub(crate) fn each_block(
        &mut self,
        part: &Range<usize>,
        gradients: &[&[f32]],
        factor: f32,
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
            if factor != 1.0 {
                sums.iter_mut().for_each(|sum| *sum *= factor);
            }
            let range = part.start + start..part.start + end;
            self.averaged.divide(sums, &range, gradients.len() as f32 * factor);
            update(range, sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(averaged: Vec<Range<usize>>) -> LockstepSum {
        LockstepSum { averaged: AveragedEntries(averaged), block: vec![0.0; BLOCK] }
    }

    /// Over the edges of blocks, for a part that does not begin at zero.
    #[test]
    fn entries_that_are_averaged_are_divided_wherever_blocks_end() {
        let part = 100..100 + 2 * BLOCK + 5;
        let averaged = vec![0..90, 98..103, 99 + BLOCK..110 + BLOCK, 4000..4001, 9000..9001];
        let (ones, threes) = (vec![1.0; part.len()], vec![3.0; part.len()]);
        let mut found = vec![f32::NAN; part.len()];
        sum(averaged.clone()).each_block(&part, &[&ones, &threes], 1.0, |range, sums| {
            found[range.start - 100..range.end - 100].copy_from_slice(sums);
        });
        for (at, value) in part.zip(found) {
            let is_averaged = averaged.iter().any(|entry| entry.contains(&at));
            assert_eq!(value, if is_averaged { 2.0 } else { 4.0 }, "at {at}");
        }
    }

    #[test]
    fn a_range_meets_the_entries_that_lie_in_it() {
        let averaged = AveragedEntries(vec![10..20, 40..50]);
        for (range, meets) in [(0..10, false), (0..11, true), (19..40, true), (20..40, false)] {
            assert_eq!(averaged.meets(&range), meets, "{range:?}");
        }
    }
}
