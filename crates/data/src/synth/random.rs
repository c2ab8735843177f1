//! A small random generator: one stream per (seed, example), cheap to start.

use crate::order::mix;
use paceline_stats::random::STEP;

/// A stream of pseudo-random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of one example of one seed.
    pub fn new(seed: u64, example: u64) -> Self {
        Self { state: mix(seed, example) }
    }

    /// 64 uniform bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state, 0)
    }

    /// Uniform in `0..1`.
    #[inline]
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u32 << 24) as f32
    }

    /// Uniform between two values.
    #[inline]
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Uniform below `limit`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((self.bits() >> 32) * limit) >> 32
    }

    /// About normal: mean 0, standard deviation 1, never beyond 3.5 (a sum of four uniforms).
    #[inline]
    pub fn normal(&mut self) -> f32 {
        let bits = self.bits();
        let sum = (0..4).map(|quarter| ((bits >> (16 * quarter)) & 0xffff) as f32).sum::<f32>();
        (sum / 65_536.0 - 2.0) * 1.732_050_8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_has_the_moments_it_claims() {
        let mut random = Random::new(1, 2);
        let values: Vec<f32> = (0..100_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f32>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
