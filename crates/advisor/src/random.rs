//! Seeded random numbers and quasi-random points; the same on every machine.

/// SplitMix64: tiny, fast, and every seed is as good as any other.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own for each `(seed, purpose)`.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `bound`, which must not be zero; the bias for small bounds is below 2^-32.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// Points that fill the unit cube evenly: multiples of the powers of the generalised golden ratio,
/// modulo one, from a given shift.
#[derive(Debug, Clone)]
pub(crate) struct EvenPoints {
    at: Vec<f64>,
    step: Vec<f64>,
}

impl EvenPoints {
    pub(crate) fn new(shift: Vec<f64>) -> Self {
        let dimensions = shift.len();
        // The root of x^(d+1) = x + 1 by fixed-point iteration; it contracts for every d.
        let ratio =
            (0..60).fold(1.5f64, |ratio, _| (1.0 + ratio).powf(1.0 / (dimensions as f64 + 1.0)));
        let step = (1..=dimensions).map(|power| ratio.powf(-(power as f64)).fract()).collect();
        Self { at: shift, step }
    }
}

impl Iterator for EvenPoints {
    type Item = Vec<f64>;

    fn next(&mut self) -> Option<Vec<f64>> {
        let point = self.at.clone();
        for (at, step) in self.at.iter_mut().zip(&self.step) {
            *at = (*at + step).fract();
        }
        Some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_points_leave_no_large_gap() {
        let points: Vec<Vec<f64>> = EvenPoints::new(vec![0.3, 0.8]).take(64).collect();
        // Each cell of an 8 x 8 grid would hold one point in the ideal case; quarter cells must.
        for row in 0..4 {
            for column in 0..4 {
                let inside = |point: &&Vec<f64>| {
                    (point[0] * 4.0) as usize == row && (point[1] * 4.0) as usize == column
                };
                assert!(points.iter().filter(inside).count() >= 2, "{row} {column}");
            }
        }
    }

    #[test]
    fn below_reaches_every_value_equally() {
        let mut random = Random::new(7, 1);
        let mut counts = [0usize; 5];
        for _ in 0..50_000 {
            counts[random.below(5)] += 1;
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
    }
}
