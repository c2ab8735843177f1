//! The normal distribution, and what one more look is expected to gain under it.

use crate::erf::erfc;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Density of the standard normal.
#[must_use]
pub fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

/// Probability that a standard normal is below `z`.
#[must_use]
pub fn below(z: f64) -> f64 {
    0.5 * erfc(-z * FRAC_1_SQRT_2)
}

/// Expected amount by which a normal variable falls below `best`.
#[must_use]
pub fn expected_improvement(mean: f64, sd: f64, best: f64) -> f64 {
    let gap = best - mean;
    if sd <= 1e-12 {
        return gap.max(0.0);
    }
    let z = gap / sd;
    // Far below the mean the two terms cancel; the true value is positive and tiny.
    (gap * below(z) + sd * density(z)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Simpson's rule over twelve standard deviations.
    fn by_quadrature(mean: f64, sd: f64, best: f64) -> f64 {
        let steps = 40_000;
        let (low, high) = (mean - 12.0 * sd, best.min(mean + 12.0 * sd));
        if high <= low {
            return 0.0;
        }
        let width = (high - low) / f64::from(steps);
        (0..=steps)
            .map(|step| {
                let y = low + width * f64::from(step);
                let weight = match step {
                    0 => 1.0,
                    s if s == steps => 1.0,
                    s if s % 2 == 1 => 4.0,
                    _ => 2.0,
                };
                weight * (best - y) * density((y - mean) / sd) / sd
            })
            .sum::<f64>()
            * width
            / 3.0
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn expected_improvement_equals_its_integral(
            mean in -3.0..3.0f64, sd in 0.01..2.0f64, best in -3.0..3.0f64,
        ) {
            let exact = expected_improvement(mean, sd, best);
            let integral = by_quadrature(mean, sd, best);
            prop_assert!((exact - integral).abs() < 1e-8, "{exact} {integral}");
        }
    }

    #[test]
    fn certainty_leaves_only_the_gap() {
        assert_eq!(expected_improvement(1.0, 0.0, 3.0), 2.0);
        assert_eq!(expected_improvement(3.0, 0.0, 1.0), 0.0);
    }

    #[test]
    fn probabilities_match_tables() {
        assert!((below(0.0) - 0.5).abs() < 1e-12);
        assert!((below(1.959_963_984_540_054) - 0.975).abs() < 1e-9);
        assert!((below(-3.0) - 0.001_349_898_031_630).abs() < 1e-9);
    }
}
