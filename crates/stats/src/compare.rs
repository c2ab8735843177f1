//! Two sets of measurements: how many times faster is one, and could that be chance?
//!
//! Ratios are taken on logarithms, since noise of a timing is a percentage and "twice as fast" and "half as fast" should weigh alike.

use serde::{Deserialize, Serialize};

use crate::describe::summary;
use crate::distribution::{t_critical, t_two_sided};
use crate::estimate::{Interval, LEVEL, NotEstimable, check_finite};

/// A ratio of two sets of measurements, first over second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// p-value of "the ratio is 1"; absent where the method gives none.
    pub p: Option<f64>,
    /// Measurements it rests on: of the first and of the second set.
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
    /// Geometric mean over settings of the ratios of geometric means, t-interval on logarithms from the repeats within settings.
    WithinSettings,
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
    let (difference, half, p) = welch(&a, &b);
    finite(difference, half, Some(p), (a.n, b.n), RatioMethod::WelchOnLogs)
}

/// A difference of two sets of measurements, first less second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub value: f64,
    /// Its 95 % interval, Welch's.
    pub interval: Interval,
    /// p-value of "there is none".
    pub p: f64,
    /// Measurements it rests on: of the first and of the second set.
    pub n: (usize, usize),
}

/// Difference of the means of two independent sets, for what may be zero or negative: accuracies, losses.
///
/// # Errors
/// Fewer than two measurements in a set, or a number that is not finite.
pub fn difference(first: &[f64], second: &[f64]) -> Result<Difference, NotEstimable> {
    check_finite(first.iter().chain(second).copied())?;
    let (a, b) = (two_or_more(first)?, two_or_more(second)?);
    let (value, half, p) = welch(&a, &b);
    let interval = Interval { low: value - half, high: value + half };
    Ok(Difference { value, interval, p, n: (a.n, b.n) })
}

/// The difference of two means, half its 95 % interval, and the p-value of none, by Welch.
fn welch(a: &crate::describe::Summary, b: &crate::describe::Summary) -> (f64, f64, f64) {
    let part = |set: &crate::describe::Summary| set.standard_deviation.powi(2) / set.n as f64;
    let (va, vb) = (part(a), part(b));
    let difference = a.mean - b.mean;
    if va + vb == 0.0 {
        return (difference, 0.0, if difference == 0.0 { 1.0 } else { 0.0 });
    }
    let freedom = (va + vb).powi(2) / (va * va / (a.n - 1) as f64 + vb * vb / (b.n - 1) as f64);
    let error = (va + vb).sqrt();
    let p = t_two_sided(difference / error, freedom);
    (difference, t_critical(1.0 - LEVEL, freedom) * error, p)
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
