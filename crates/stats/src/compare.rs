//! Two sets of measurements: how many times faster is one, and could that be chance?
//!
//! Ratios are taken on logarithms, since noise of a timing is a percentage and "twice as fast" and "half as fast" should weigh alike.

use serde::{Deserialize, Serialize};

use crate::describe::{mean_interval, median, quantile_of_sorted, summary};
use crate::distribution::{normal_two_sided, t_critical, t_two_sided};
use crate::estimate::{Interval, LEVEL, NotEstimable, check_finite};
use crate::random::Random;

/// A ratio of two sets of measurements, first over second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// p-value of "the ratio is 1"; absent where the method gives none.
    pub p: Option<f64>,
    /// Measurements (or pairs) it rests on: of the first and of the second set.
    pub n: (usize, usize),
    /// How it was computed.
    pub method: RatioMethod,
}

/// How a [`Ratio`] was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RatioMethod {
    /// Geometric means of two independent sets, Welch's t-interval on logarithms.
    WelchOnLogs,
    /// Geometric mean of the ratios of pairs, t-interval on logarithms.
    PairedOnLogs,
    /// Geometric mean over settings of the ratios of geometric means, t-interval on logarithms from the repeats within settings.
    WithinSettings,
    /// Medians, percentile bootstrap.
    BootstrapOfMedians,
}

fn logs(values: &[f64]) -> Result<Vec<f64>, NotEstimable> {
    check_finite(values.iter().copied())?;
    if let Some(index) = values.iter().position(|&value| value <= 0.0) {
        return Err(NotEstimable::NotPositive { index, value: values[index] });
    }
    Ok(values.iter().map(|value| value.ln()).collect())
}

/// Ratio of the geometric means of two independent sets.
///
/// # Errors
/// Fewer than two measurements in a set, or a number that is not positive and finite.
pub fn ratio(first: &[f64], second: &[f64]) -> Result<Ratio, NotEstimable> {
    let (a, b) = (two_or_more(&logs(first)?)?, two_or_more(&logs(second)?)?);
    let part = |set: &crate::describe::Summary| set.standard_deviation.powi(2) / set.n as f64;
    let (va, vb) = (part(&a), part(&b));
    let difference = a.mean - b.mean;
    let n = (a.n, b.n);
    if va + vb == 0.0 {
        let p = if difference == 0.0 { 1.0 } else { 0.0 };
        return finite(difference, 0.0, Some(p), n, RatioMethod::WelchOnLogs);
    }
    let freedom = (va + vb).powi(2) / (va * va / (a.n - 1) as f64 + vb * vb / (b.n - 1) as f64);
    let error = (va + vb).sqrt();
    let p = t_two_sided(difference / error, freedom);
    finite(
        difference,
        t_critical(1.0 - LEVEL, freedom) * error,
        Some(p),
        n,
        RatioMethod::WelchOnLogs,
    )
}

/// Geometric mean of `first / second` over pairs measured under the same conditions; differences between conditions cancel.
///
/// # Errors
/// Fewer than two pairs, or a number that is not positive and finite.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Result<Ratio, NotEstimable> {
    let first = logs(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>())?;
    let second = logs(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>())?;
    let differences: Vec<f64> = first.iter().zip(&second).map(|(a, b)| a - b).collect();
    let set = two_or_more(&differences)?;
    let interval = mean_interval(set.mean, set.standard_deviation, set.n)?;
    let p = if set.standard_deviation > 0.0 {
        t_two_sided(set.mean / (set.standard_deviation / (set.n as f64).sqrt()), (set.n - 1) as f64)
    } else if set.mean == 0.0 {
        1.0
    } else {
        0.0
    };
    finite(set.mean, interval.high - set.mean, Some(p), (set.n, set.n), RatioMethod::PairedOnLogs)
}

/// Geometric mean of `first / second` over settings that were each measured several times on both sides.
///
/// The interval rests on the repeats within settings alone: that the ratio is large in one setting and small in another is a
/// property of the settings, not noise. Each setting and side has a variance of its own, and the freedom is Welch's.
///
/// # Errors
/// No setting, one measured once, repeats that never vary, or a number that is not positive and finite.
pub fn ratio_within_settings(settings: &[(Vec<f64>, Vec<f64>)]) -> Result<Ratio, NotEstimable> {
    if settings.is_empty() {
        return Err(NotEstimable::TooFewPoints { found: 0, needed: 1 });
    }
    let (mut difference, mut variance, mut squares) = (0.0, 0.0, 0.0);
    let mut n = (0, 0);
    for (first, second) in settings {
        let (a, b) = (two_or_more(&logs(first)?)?, two_or_more(&logs(second)?)?);
        difference += a.mean - b.mean;
        for set in [&a, &b] {
            let part = set.standard_deviation.powi(2) / set.n as f64;
            variance += part;
            squares += part * part / (set.n - 1) as f64;
        }
        n = (n.0 + a.n, n.1 + b.n);
    }
    if variance == 0.0 {
        return Err(NotEstimable::NothingVaried);
    }
    let count = settings.len() as f64;
    let freedom = variance * variance / squares;
    let (mean, error) = (difference / count, variance.sqrt() / count);
    let half = t_critical(1.0 - LEVEL, freedom) * error;
    finite(mean, half, Some(t_two_sided(mean / error, freedom)), n, RatioMethod::WithinSettings)
}

fn two_or_more(values: &[f64]) -> Result<crate::describe::Summary, NotEstimable> {
    if values.len() < 2 {
        return Err(NotEstimable::TooFewPoints { found: values.len(), needed: 2 });
    }
    summary(values)
}

fn finite(
    log: f64,
    half: f64,
    p: Option<f64>,
    n: (usize, usize),
    method: RatioMethod,
) -> Result<Ratio, NotEstimable> {
    let ratio = Ratio {
        value: log.exp(),
        interval: Interval { low: (log - half).exp(), high: (log + half).exp() },
        p,
        n,
        method,
    };
    let usable =
        [ratio.value, ratio.interval.low, ratio.interval.high].iter().all(|part| part.is_finite());
    if usable { Ok(ratio) } else { Err(NotEstimable::OutOfRange) }
}

/// Ratio of medians with a percentile bootstrap interval; for benchmarks, where a few runs are disturbed.
///
/// The same seed gives the same interval.
///
/// # Errors
/// Fewer than two measurements in a set, or a number that is not positive and finite.
pub fn ratio_of_medians(first: &[f64], second: &[f64], seed: u64) -> Result<Ratio, NotEstimable> {
    const RESAMPLES: usize = 4000;
    for set in [first, second] {
        two_or_more(&logs(set)?)?;
    }
    let mut random = Random::after(seed);
    let mut resample = |set: &[f64], room: &mut Vec<f64>| {
        room.clear();
        room.extend((0..set.len()).map(|_| set[random.below(set.len())]));
        median(room)
    };
    let mut room = Vec::new();
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| resample(first, &mut room) / resample(second, &mut room)).collect();
    ratios.sort_by(f64::total_cmp);
    let tail = (1.0 - LEVEL) / 2.0;
    Ok(Ratio {
        value: median(first) / median(second),
        interval: Interval {
            low: quantile_of_sorted(&ratios, tail),
            high: quantile_of_sorted(&ratios, 1.0 - tail),
        },
        p: None,
        n: (first.len(), second.len()),
        method: RatioMethod::BootstrapOfMedians,
    })
}

/// Rank test of two independent sets (Mann–Whitney, also called Wilcoxon's rank sum): no assumption about the shape of the noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankTest {
    /// Pairs (one of each set) where the first is larger; ties count half.
    pub u: f64,
    /// The same as a share: probability that a measurement of the first set exceeds one of the second.
    pub probability_first_larger: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Counted exactly (small sets without ties), or by the normal approximation.
    pub exact: bool,
}

/// Runs the rank test.
///
/// # Errors
/// An empty set, a NaN, or all measurements equal.
pub fn rank_test(first: &[f64], second: &[f64]) -> Result<RankTest, NotEstimable> {
    check_finite(first.iter().chain(second).copied())?;
    let (n, m) = (first.len(), second.len());
    if n == 0 || m == 0 {
        return Err(NotEstimable::TooFewPoints { found: 0, needed: 1 });
    }
    let mut all: Vec<(f64, bool)> =
        first.iter().map(|&v| (v, true)).chain(second.iter().map(|&v| (v, false))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut tie_term, mut below) = (0.0, 0.0, 0usize);
    for tied in all.chunk_by(|a, b| a.0 == b.0) {
        let size = tied.len() as f64;
        let rank = below as f64 + (size + 1.0) / 2.0;
        rank_sum += rank * tied.iter().filter(|entry| entry.1).count() as f64;
        tie_term += size.powi(3) - size;
        below += tied.len();
    }
    let (nf, mf) = (n as f64, m as f64);
    let u = rank_sum - nf * (nf + 1.0) / 2.0;
    let probability_first_larger = u / (nf * mf);
    let exact = tie_term == 0.0 && n * m <= 400;
    let p = if exact {
        exact_rank_p(n, m, u.min(nf * mf - u) as usize)
    } else {
        let total = nf + mf;
        let variance = nf * mf / 12.0 * (total + 1.0 - tie_term / (total * (total - 1.0)));
        if variance <= 0.0 {
            return Err(NotEstimable::ConstantResponse { value: first[0] });
        }
        let away = ((u - nf * mf / 2.0).abs() - 0.5).max(0.0);
        normal_two_sided(away / variance.sqrt()).min(1.0)
    };
    Ok(RankTest { u, probability_first_larger, p, exact })
}

/// Twice the share of orderings with a statistic of at most `u`, counted by Gauss's recursion over the larger element.
fn exact_rank_p(n: usize, m: usize, u: usize) -> f64 {
    // counts[i][k]: orderings of i of the first and j of the second set with statistic k, for the current j.
    let most = n * m;
    let mut counts = vec![vec![0.0_f64; most + 1]; n + 1];
    counts.iter_mut().for_each(|row| row[0] = 1.0);
    for j in 1..=m {
        for i in 1..=n {
            // The largest of all is of the first set (it beats all j) or of the second.
            let shifted = counts[i - 1].clone();
            let row = &mut counts[i];
            for k in (0..=most).rev() {
                let of_second = row[k];
                row[k] = of_second + if k >= j { shifted[k - j] } else { 0.0 };
            }
        }
    }
    let total: f64 = counts[n].iter().sum();
    let tail: f64 = counts[n][..=u].iter().sum();
    (2.0 * tail / total).min(1.0)
}
