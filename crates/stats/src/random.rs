//! Seeded random numbers and quasi-random points; the same on every machine.

/// What SplitMix64 adds to its state: 2^64 over the golden ratio, so that successive states lie far apart.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finisher of SplitMix64: a bijection in which every bit of the input decides every bit of the output.
#[inline]
#[must_use]
pub const fn scramble(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// SplitMix64: tiny, fast, and every seed is as good as any other. No dependency can change its stream.
///
/// ```
/// use paceline_stats::random::Random;
///
/// let draw = |seed| Random::new(seed, 1).below(1000);
/// assert_eq!(draw(7), draw(7));
/// assert_ne!(draw(7), draw(8));
/// ```
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for each `(seed, purpose)`.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(seed ^ purpose.wrapping_mul(STEP));
        random.bits();
        random
    }

    /// The stream that follows a state, as SplitMix64 is published.
    #[must_use]
    pub fn after(state: u64) -> Self {
        Self(state)
    }

    /// 64 uniform bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scramble(self.0)
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform below `bound`, which must not be zero; the bias for small bounds is below 2^-32.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Puts items into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// Points that fill the unit cube evenly: multiples of the powers of the generalised golden ratio,
/// modulo one, from a given shift.
#[derive(Debug, Clone)]
pub struct EvenPoints {
    at: Vec<f64>,
    step: Vec<f64>,
}

impl EvenPoints {
    /// Points of as many dimensions as `shift` has, which is the first of them.
    #[must_use]
    pub fn new(shift: Vec<f64>) -> Self {
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

    /// The first numbers of the published generator (Vigna's `splitmix64.c`) from the states 0 and 1234567.
    #[test]
    fn stream_is_that_of_splitmix64() {
        let mut random = Random::after(0);
        assert_eq!(random.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.bits(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(Random::after(1_234_567).bits(), 6_457_827_717_110_365_317);
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
