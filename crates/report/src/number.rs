//! How many decimals an axis needs.

pub(crate) use paceline_stats::words::grouped;

/// Decimals needed to tell multiples of `step` apart.
pub(crate) fn decimals_for_step(step: f64) -> usize {
    let enough = |decimals: &i32| {
        let scaled = step * 10f64.powi(*decimals);
        (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1.0) && scaled.round() >= 1.0
    };
    (0..12).find(enough).map_or(12, i32::unsigned_abs) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_how_many_decimals_its_multiples_need() {
        let steps = [(0.25, 2), (500.0, 0), (0.1, 1), (2.5, 1)];
        for (step, decimals) in steps {
            assert_eq!(decimals_for_step(step), decimals, "{step}");
        }
    }
}
