//! Which ranges of the parameters an update may touch, and how.

use crate::layout::Layout;
use std::ops::Range;

/// What an update does to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Follow the optimiser's rule.
    Train,
    /// Add the gradient slot as it is: the change of a running statistic.
    Add,
    /// Leave alone.
    Freeze,
}

/// Trained, frozen and merely averaged ranges of a layout.
///
/// Freezing a layer freezes its running statistics too: a frozen layer computes what it computed before, and it is
/// normalised as in inference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mask {
    /// Where each run of equal treatment ends; sorted, covers the layout.
    runs: Vec<(usize, Treatment)>,
}

impl Mask {
    /// Everything the layout calls trained is trained.
    #[must_use]
    pub fn of(layout: &Layout) -> Self {
        Self::freezing(layout, |_| false)
    }

    /// Freezes the entries whose name `frozen` accepts, running statistics included.
    pub fn freezing(layout: &Layout, mut frozen: impl FnMut(&str) -> bool) -> Self {
        let mut runs: Vec<(usize, Treatment)> = Vec::new();
        for entry in layout.entries() {
            let treatment = match (entry.trained, frozen(&entry.name)) {
                (_, true) => Treatment::Freeze,
                (false, false) => Treatment::Add,
                (true, false) => Treatment::Train,
            };
            match runs.last_mut() {
                // Neighbours of the same kind become one long pass.
                Some(last) if last.1 == treatment => last.0 = entry.range().end,
                _ => runs.push((entry.range().end, treatment)),
            }
        }
        Self { runs }
    }

    /// Elements covered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.0)
    }

    /// Whether nothing is covered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements the optimiser updates.
    #[must_use]
    pub fn trained(&self) -> usize {
        self.parts(0..self.len())
            .filter(|part| part.1 == Treatment::Train)
            .map(|part| part.0.len())
            .sum()
    }

    /// Cuts `range` where the treatment changes.
    pub(super) fn parts(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Treatment)> + '_ {
        assert!(range.end <= self.len(), "range {range:?} leaves the layout of {}", self.len());
        let first = self.runs.partition_point(|run| run.0 <= range.start);
        let mut start = range.start;
        self.runs[first..].iter().map_while(move |&(end, treatment)| {
            let part = start..end.min(range.end);
            start = part.end;
            (!part.is_empty()).then_some((part, treatment))
        })
    }
}
