//! Distribution of a tensor's values.

/// Buckets TensorFlow uses by default.
const BUCKETS: usize = 30;

/// How a tensor's values are spread: equal-width buckets between the smallest and the largest, the
/// way `tf.summary.histogram` cuts them.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Smallest finite value.
    pub min: f64,
    /// Largest finite value.
    pub max: f64,
    /// Values per bucket.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Counts `values`; those that are not finite are left out, since they have no place on an axis.
    #[must_use]
    pub fn of(values: &[f32]) -> Self {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
        for value in finite() {
            min = min.min(value);
            max = max.max(value);
        }
        if min > max {
            return Self { min: 0.0, max: 0.0, counts: Vec::new() };
        }
        let (min, max) = (f64::from(min), f64::from(max));
        if min == max {
            // One value has no width; TensorFlow draws a bucket of width 1 around it.
            let count = finite().count() as u64;
            return Self { min: min - 0.5, max: max + 0.5, counts: vec![count] };
        }
        let mut counts = vec![0u64; BUCKETS];
        let per_unit = BUCKETS as f64 / (max - min);
        for value in finite() {
            let bucket = ((f64::from(value) - min) * per_unit) as usize;
            counts[bucket.min(BUCKETS - 1)] += 1;
        }
        Self { min, max, counts }
    }

    /// Left edge, right edge and count of each bucket.
    pub fn buckets(&self) -> impl Iterator<Item = [f64; 3]> + '_ {
        let width = (self.max - self.min) / self.counts.len().max(1) as f64;
        let last = self.counts.len().saturating_sub(1);
        self.counts.iter().enumerate().map(move |(at, count)| {
            let left = self.min + width * at as f64;
            // The last edge is the maximum itself, not a rounding of it.
            let right = if at == last { self.max } else { self.min + width * (at + 1) as f64 };
            [left, right, *count as f64]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_is_counted_once() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
        let histogram = Histogram::of(&values);
        assert_eq!(histogram.counts.iter().sum::<u64>(), 1000);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets.len(), 30);
        assert_eq!(buckets[29][1], histogram.max);
        for (left, right) in buckets.iter().zip(&buckets[1..]) {
            assert_eq!(left[1], right[0], "buckets must touch");
        }
    }

    #[test]
    fn odd_tensors_do_not_break_it() {
        assert!(Histogram::of(&[]).counts.is_empty());
        assert!(Histogram::of(&[f32::NAN, f32::INFINITY]).counts.is_empty());
        assert_eq!(Histogram::of(&[2.0, 2.0, f32::NAN]).counts, [2]);
        let wide = Histogram::of(&[f32::MIN, f32::MAX]);
        assert_eq!(wide.counts.iter().sum::<u64>(), 2);
        // The width of a subnormal range must not overflow the bucket number.
        let narrow = Histogram::of(&[0.0, f32::from_bits(1)]);
        assert_eq!(narrow.counts.iter().sum::<u64>(), 2);
    }
}
