//! Tests for paired results of few jobs: no distribution is assumed.

use crate::normal;
use crate::random::Random;

/// Two-sided p of Wilcoxon's signed-rank test; exact up to 25 differences, then by the normal
/// approximation with the correction for ties. Zero differences are dropped.
#[must_use]
pub fn wilcoxon(a: &[f64], b: &[f64]) -> f64 {
    let mut gaps: Vec<f64> =
        a.iter().zip(b).map(|(a, b)| a - b).filter(|gap| *gap != 0.0).collect();
    if gaps.is_empty() {
        return 1.0;
    }
    gaps.sort_by(|x, y| x.abs().total_cmp(&y.abs()));
    // Ranks doubled, so that the average ranks of ties stay whole numbers.
    let mut doubled = vec![0usize; gaps.len()];
    let mut ties = 0.0;
    let mut from = 0;
    while from < gaps.len() {
        let same = |at: usize| (gaps[at].abs() - gaps[from].abs()).abs() < 1e-12;
        let to = (from..gaps.len()).find(|&at| !same(at)).unwrap_or(gaps.len());
        doubled[from..to].fill(from + 1 + to);
        let size = (to - from) as f64;
        ties += size * size * size - size;
        from = to;
    }
    let positive: usize =
        gaps.iter().zip(&doubled).filter(|(gap, _)| **gap > 0.0).map(|(_, rank)| rank).sum();
    let total: usize = doubled.iter().sum();
    let smaller = positive.min(total - positive);
    let n = gaps.len() as f64;
    if gaps.len() > 25 {
        let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0).sqrt();
        let z = (smaller as f64 / 2.0 - n * (n + 1.0) / 4.0) / sd;
        return (2.0 * normal::below(z)).min(1.0);
    }
    // How many of the 2^n choices of signs give each sum of positive ranks.
    let mut ways = vec![0.0; total + 1];
    ways[0] = 1.0;
    for &rank in &doubled {
        for sum in (rank..=total).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let tail: f64 = ways[..=smaller].iter().sum();
    (2.0 * tail / 2f64.powf(n)).min(1.0)
}

/// Holm's correction for several tests at once.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![0.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, &at) in order.iter().enumerate() {
        largest = largest.max((p[at] * (p.len() - rank) as f64).min(1.0));
        corrected[at] = largest;
    }
    corrected
}

/// Cliff's delta: how much more often a value of `a` exceeds one of `b` than the other way round.
#[must_use]
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> f64 {
    let sum: f64 =
        a.iter().flat_map(|a| b.iter().map(move |b| f64::from(a > b) - f64::from(a < b))).sum();
    sum / (a.len() * b.len()).max(1) as f64
}

/// 90 % confidence interval of the mean by drawing whole groups with replacement: jobs of one application
/// are not independent.
#[must_use]
pub fn group_bootstrap(values: &[f64], groups: &[&str], draws: usize) -> [f64; 2] {
    let mut names: Vec<&str> = groups.to_vec();
    names.sort_unstable();
    names.dedup();
    let members: Vec<Vec<f64>> = names
        .iter()
        .map(|name| {
            groups.iter().zip(values).filter(|(g, _)| *g == name).map(|(_, v)| *v).collect()
        })
        .collect();
    if members.is_empty() {
        return [f64::NAN; 2];
    }
    let mut random = Random::new(1, 0xb007);
    let mut means: Vec<f64> = (0..draws)
        .map(|_| {
            let (mut sum, mut count) = (0.0, 0.0);
            for _ in 0..members.len() {
                let group = &members[random.below(members.len())];
                sum += group.iter().sum::<f64>();
                count += group.len() as f64;
            }
            sum / count
        })
        .collect();
    means.sort_by(f64::total_cmp);
    [means[draws / 20], means[draws - 1 - draws / 20]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilcoxon_matches_values_of_scipy() {
        // scipy.stats.wilcoxon(a, b, method="exact"): statistic 22.
        let a = [125.0, 115.0, 130.0, 140.0, 140.5, 115.5, 140.25, 125.5, 139.75, 135.0];
        let b = [110.0, 122.0, 125.0, 120.0, 140.0, 124.0, 123.0, 137.0, 135.5, 145.0];
        assert!((wilcoxon(&a, &b) - 0.625).abs() < 1e-9, "{}", wilcoxon(&a, &b));
        // All of six differences have one sign: 2 / 2^6.
        let up = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert!((wilcoxon(&up, &[0.0; 6]) - 2.0 / 64.0).abs() < 1e-12);
        assert_eq!(wilcoxon(&up, &up), 1.0);
    }

    #[test]
    fn holm_keeps_the_order_and_never_falls() {
        let corrected = holm(&[0.01, 0.04, 0.03]);
        for (got, wanted) in corrected.iter().zip([0.03, 0.06, 0.06]) {
            assert!((got - wanted).abs() < 1e-12, "{corrected:?}");
        }
    }

    #[test]
    fn delta_is_one_when_everything_is_larger() {
        assert_eq!(cliffs_delta(&[3.0, 4.0], &[1.0, 2.0]), 1.0);
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
    }

    #[test]
    fn resampling_groups_is_wider_than_one_point() {
        let values = [1.0, 1.0, 2.0, 2.0];
        let [low, high] = group_bootstrap(&values, &["a", "a", "b", "b"], 500);
        assert!((low - 1.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9, "{low} {high}");
    }
}
