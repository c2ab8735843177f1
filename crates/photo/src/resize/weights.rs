//! Which source pixels make a target pixel, and how much each counts.

/// Weights are in units of 2^-14, and those of a target pixel sum up to exactly 1: a plain area stays
/// plain, and no sum can pass 255.
pub(super) const ONE: i32 = 1 << 14;

/// Places are padded to a multiple of this, with weights of zero.
pub(super) const GROUP: usize = 4;

/// The filter along one axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Axis {
    start: f64,
    length: f64,
    source: usize,
    target: usize,
    /// Weights per target pixel, padding included.
    pub(super) taps: usize,
    /// First source pixel of each target pixel.
    pub(super) firsts: Vec<usize>,
    /// `taps` weights for each target pixel.
    pub(super) weights: Vec<i16>,
}

impl Axis {
    /// Computes the filter for `target` pixels that show `length` source pixels from `start` on, of
    /// `source` in all; keeps what it has if that is the same.
    pub(super) fn prepare(&mut self, start: f64, length: f64, source: usize, target: usize) {
        if (self.start, self.length, self.source, self.target) == (start, length, source, target) {
            return;
        }
        (self.start, self.length, self.source, self.target) = (start, length, source, target);
        let step = length / target as f64;
        // The triangle reaches one step to both sides when reducing, one pixel when enlarging.
        let reach = step.max(1.0);
        // So many pixels' centres can lie inside, however the triangle falls.
        self.taps = ((2.0 * reach).floor() as usize + 1).next_multiple_of(GROUP);
        self.firsts.clear();
        self.weights.clear();
        let mut exact = Vec::with_capacity(self.taps);
        for index in 0..target {
            let centre = start + (index as f64 + 0.5) * step;
            let first = ((centre - reach + 0.5).floor().max(0.0) as usize).min(source - 1);
            let end = ((centre + reach + 0.5).floor().max(0.0) as usize)
                .clamp(first + 1, source.min(first + self.taps));
            exact.clear();
            exact.extend(
                (first..end).map(|at| (1.0 - ((at as f64 + 0.5 - centre) / reach).abs()).max(0.0)),
            );
            self.firsts.push(first);
            self.push(&exact);
        }
    }

    /// Appends weights in proportion to `exact`, which has at least one and at most `taps` places.
    fn push(&mut self, exact: &[f64]) {
        let total: f64 = exact.iter().sum();
        let begin = self.weights.len();
        let mut left = ONE;
        for &weight in exact {
            // A source pixel at the very rim may be the only one; it then counts fully.
            let share = if total > 0.0 { weight / total } else { 1.0 / exact.len() as f64 };
            let weight = (share * f64::from(ONE)).round() as i32;
            left -= weight;
            self.weights.push(weight as i16);
        }
        // What rounding left over goes to the largest, where it matters least.
        let mut largest = begin;
        for at in begin..self.weights.len() {
            if self.weights[at] > self.weights[largest] {
                largest = at;
            }
        }
        self.weights[largest] += left as i16;
        self.weights.resize(begin + self.taps, 0);
    }

    /// The source pixels that are looked at: first and end.
    pub(super) fn span(&self) -> (usize, usize) {
        let first = self.firsts.first().copied().unwrap_or(0);
        let end = self.firsts.last().map_or(0, |last| last + self.taps).min(self.source);
        (first, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_and_stay_inside() {
        for source in [1usize, 2, 3, 7, 100, 375] {
            for target in [1usize, 2, 5, 64, 192, 500] {
                let mut axis = Axis::default();
                axis.prepare(0.0, source as f64, source, target);
                for (first, weights) in axis.firsts.iter().zip(axis.weights.chunks(axis.taps)) {
                    assert_eq!(weights.iter().map(|&weight| i32::from(weight)).sum::<i32>(), ONE);
                    assert!(weights.iter().all(|&weight| weight >= 0));
                    let used = weights.iter().rposition(|&weight| weight > 0).unwrap();
                    assert!(first + used < source);
                }
            }
        }
    }

    #[test]
    fn the_same_size_changes_nothing() {
        let mut axis = Axis::default();
        axis.prepare(0.0, 9.0, 9, 9);
        for (index, weights) in axis.weights.chunks(axis.taps).enumerate() {
            let own = index - axis.firsts[index];
            assert_eq!(i32::from(weights[own]), ONE);
        }
    }
}
