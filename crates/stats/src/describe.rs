//! One set of numbers, or one per parameter value: means, medians, spread. Intervals of repeats are in [`crate::repeats`].

use serde::{Deserialize, Serialize};

use crate::distribution::t_critical;
use crate::estimate::{Interval, LEVEL, NotEstimable, check_finite};
use crate::repeats::{Repeats, Scale, repeats};

/// A set of measurements in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub n: usize,
    pub mean: f64,
    /// Sample standard deviation (n - 1); 0 for one measurement.
    pub standard_deviation: f64,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// Describes a set of measurements.
///
/// # Errors
/// An empty set, a NaN or infinity, or numbers whose squares overflow.
pub fn summary(values: &[f64]) -> Result<Summary, NotEstimable> {
    check_finite(values.iter().copied())?;
    let n = values.len();
    let Some(mean) = mean(values.iter().copied()) else {
        return Err(NotEstimable::TooFewPoints { found: 0, needed: 1 });
    };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if !(mean.is_finite() && squares.is_finite()) {
        return Err(NotEstimable::OutOfRange);
    }
    let standard_deviation = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
    Ok(Summary {
        n,
        mean,
        standard_deviation,
        median: median(values),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// The arithmetic mean; nothing of an empty set.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.into_iter().fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// Student's interval of a mean; needs two measurements.
pub(crate) fn mean_interval(
    mean: f64,
    standard_deviation: f64,
    n: usize,
) -> Result<Interval, NotEstimable> {
    if n < 2 {
        return Err(NotEstimable::TooFewPoints { found: n, needed: 2 });
    }
    let half = t_critical(1.0 - LEVEL, (n - 1) as f64) * standard_deviation / (n as f64).sqrt();
    Ok(Interval::around(mean, half))
}

/// The median of finite numbers; 0 for an empty set.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The `share` quantile (0 to 1), linear between neighbours as numpy's default; 0 for an empty set.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, share)
}

/// The same of values in ascending order.
pub fn quantile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = place.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// The measurements taken at one value of a parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Level {
    pub value: f64,
    /// What was typical there, and how far that is known.
    #[serde(flatten)]
    pub repeats: Repeats,
    /// Arithmetic mean, for tests of a straight line.
    #[serde(skip)]
    pub(crate) mean: f64,
    /// Sum of squared deviations from the mean, for tests that pool the noise of all levels.
    #[serde(skip)]
    pub(crate) squares: f64,
}

/// Averages per parameter value on a scale, in ascending order of the value.
///
/// # Errors
/// A NaN or infinity, or numbers whose squares overflow.
pub fn levels(points: &[(f64, f64)], scale: Scale) -> Result<Vec<Level>, NotEstimable> {
    check_finite(points.iter().map(|point| point.0))?;
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .map(|chunk| {
            let values: Vec<f64> = chunk.iter().map(|point| point.1).collect();
            let whole = summary(&values)?;
            Ok(Level {
                value: chunk[0].0,
                repeats: repeats(&values, scale)?,
                mean: whole.mean,
                squares: whole.standard_deviation.powi(2) * (whole.n - 1) as f64,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn one_measurement_has_a_mean_but_no_interval() {
        let one = summary(&[7.0]).expect("one number can be described");
        assert_eq!((one.mean, one.median, one.standard_deviation), (7.0, 7.0, 0.0));
        let interval = mean_interval(one.mean, one.standard_deviation, one.n);
        assert_eq!(interval, Err(NotEstimable::TooFewPoints { found: 1, needed: 2 }));
    }

    #[test]
    fn levels_join_equal_values_whatever_the_order() {
        let points = [(2.0, 5.0), (1.0, 1.0), (2.0, 7.0), (1.0, 3.0)];
        let levels = levels(&points, Scale::Linear).expect("finite");
        let means: Vec<(f64, usize, f64)> =
            levels.iter().map(|level| (level.value, level.repeats.n, level.mean)).collect();
        assert_eq!(means, [(1.0, 2, 2.0), (2.0, 2, 6.0)]);
    }
}
