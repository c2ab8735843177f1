//! One straight line through measurements.

use serde::{Deserialize, Serialize};

use crate::describe::levels;
use crate::distribution::{f_upper, t_critical, t_two_sided};
use crate::estimate::{Coefficient, Interval, LEVEL, NotEstimable, check_finite, constant};
use crate::repeats::Scale;

/// A least-squares line, with what is needed to judge and to draw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineFit {
    /// Number of measurements.
    pub n: usize,
    /// Change of the response per unit of the parameter.
    pub slope: Coefficient,
    /// Response where the parameter is 0.
    pub intercept: Coefficient,
    /// Pearson's correlation.
    pub r: f64,
    /// Share of the variance that the line explains.
    pub r_squared: f64,
    /// Two-sided p-value of the slope: how often chance alone gives one at least this steep. 0 for an exact fit.
    pub p: f64,
    /// The slope in standard errors; absent for an exact fit, which has no error.
    pub t: Option<f64>,
    /// Residual standard error: the typical distance of a measurement from the line.
    pub residual_standard_error: f64,
    /// All points lie on the line to within rounding, so intervals have no width.
    pub exact: bool,
    /// Mean of the parameter; with `spread_x` this gives the band of the line.
    pub mean_x: f64,
    /// Sum of squared deviations of the parameter from its mean.
    pub spread_x: f64,
    /// Smallest and largest parameter value measured.
    pub range_x: Interval,
}

impl LineFit {
    /// Height of the line at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept.value + self.slope.value * x
    }

    /// 95 % interval of the line (of the mean response, not of single measurements) at `x`.
    pub fn band_at(&self, x: f64) -> Interval {
        let freedom = (self.n - 2) as f64;
        let away = x - self.mean_x;
        let error = self.residual_standard_error
            * (1.0 / self.n as f64 + away * away / self.spread_x).sqrt();
        Interval::around(self.at(x), t_critical(1.0 - LEVEL, freedom) * error)
    }

    /// How far the line rises or falls over the measured range, in units of the response.
    pub fn effect(&self) -> f64 {
        self.slope.value * (self.range_x.high - self.range_x.low)
    }
}

/// Fits `y = intercept + slope · x` by least squares.
///
/// Sums run over deviations from the means, so a large common offset costs no digits.
///
/// # Errors
/// Fewer than three points, a constant coordinate, a NaN, or numbers whose squares overflow.
pub fn fit_line(points: &[(f64, f64)]) -> Result<LineFit, NotEstimable> {
    check_points(points)?;
    let n = points.len();
    let count = n as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let (mut spread_x, mut spread_y, mut together) = (0.0, 0.0, 0.0);
    for &(x, y) in points {
        let (dx, dy) = (x - mean_x, y - mean_y);
        spread_x += dx * dx;
        spread_y += dy * dy;
        together += dx * dy;
    }
    if !(spread_x > 0.0
        && spread_y > 0.0
        && spread_x.is_finite()
        && spread_y.is_finite()
        && together.is_finite())
    {
        return Err(NotEstimable::OutOfRange);
    }
    let slope = together / spread_x;
    let intercept = mean_y - slope * mean_x;
    let r = (together / spread_x.sqrt() / spread_y.sqrt()).clamp(-1.0, 1.0);

    // The residuals themselves, not spread_y - slope·together, which would cancel on good fits.
    let residual = |&(x, y): &(f64, f64)| (y - mean_y) - slope * (x - mean_x);
    let mut residual_squares = points.iter().map(|point| residual(point).powi(2)).sum::<f64>();
    let exact = is_rounding(residual_squares, n, points.iter().flat_map(|&(x, y)| [y, slope * x]));
    if exact {
        residual_squares = 0.0;
    }

    let freedom = count - 2.0;
    let residual_standard_error = (residual_squares / freedom).sqrt();
    let slope_error = residual_standard_error / spread_x.sqrt();
    let intercept_error =
        residual_standard_error * (1.0 / count + mean_x * mean_x / spread_x).sqrt();
    let critical = t_critical(1.0 - LEVEL, freedom);
    let t = (!exact).then(|| slope / slope_error);
    let fit = LineFit {
        n,
        slope: Coefficient::new(slope, slope_error, critical),
        intercept: Coefficient::new(intercept, intercept_error, critical),
        r,
        r_squared: r * r,
        p: t.map_or(0.0, |t| t_two_sided(t, freedom)),
        t,
        residual_standard_error,
        exact,
        mean_x,
        spread_x,
        range_x: range(points.iter().map(|point| point.0)),
    };
    let finite = fit.slope.is_finite()
        && fit.intercept.is_finite()
        && fit.p.is_finite()
        && fit.t.is_none_or(f64::is_finite);
    if finite { Ok(fit) } else { Err(NotEstimable::OutOfRange) }
}

/// Refuses points that no line goes through in one way.
fn check_points(points: &[(f64, f64)]) -> Result<(), NotEstimable> {
    check_finite(points.iter().flat_map(|&(x, y)| [x, y])).map_err(|error| match error {
        NotEstimable::NotFinite { index } => NotEstimable::NotFinite { index: index / 2 },
        other => other,
    })?;
    if points.len() < 3 {
        return Err(NotEstimable::TooFewPoints { found: points.len(), needed: 3 });
    }
    if let Some(value) = constant(points.iter().map(|point| point.0)) {
        return Err(NotEstimable::ConstantPredictor { value });
    }
    match constant(points.iter().map(|point| point.1)) {
        Some(value) => Err(NotEstimable::ConstantResponse { value }),
        None => Ok(()),
    }
}

/// Whether a residual sum of squares is no more than the rounding of numbers of the given sizes.
pub(crate) fn is_rounding(
    residual_squares: f64,
    n: usize,
    sizes: impl IntoIterator<Item = f64>,
) -> bool {
    let largest = sizes.into_iter().fold(0.0_f64, |most, size| most.max(size.abs()));
    residual_squares <= n as f64 * (4.0 * f64::EPSILON * largest).powi(2)
}

fn range(values: impl Iterator<Item = f64> + Clone) -> Interval {
    Interval {
        low: values.clone().fold(f64::INFINITY, f64::min),
        high: values.fold(f64::NEG_INFINITY, f64::max),
    }
}

/// Whether the averages per value leave the line by more than the repeats leave their averages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LackOfFit {
    /// The F statistic; absent where the repeats agree exactly, so that the noise is 0.
    pub f: Option<f64>,
    /// Its p-value; a small one says that a straight line is the wrong shape.
    pub p: f64,
    /// Distinct values of the parameter.
    pub values: usize,
}

/// Tests a straight line against one free average per value.
///
/// # Errors
/// What [`fit_line`] refuses; fewer than three distinct values; no value measured twice.
pub fn lack_of_fit(points: &[(f64, f64)]) -> Result<LackOfFit, NotEstimable> {
    let fit = fit_line(points)?;
    let levels = levels(points, Scale::Linear)?;
    if levels.len() < 3 {
        return Err(NotEstimable::TooFewValues { found: levels.len() });
    }
    if levels.len() == points.len() {
        return Err(NotEstimable::NoRepeats);
    }
    let misfit: f64 = levels
        .iter()
        .map(|level| level.repeats.n as f64 * (level.mean - fit.at(level.value)).powi(2))
        .sum();
    let mut noise: f64 = levels.iter().map(|level| level.squares).sum();
    if is_rounding(noise, points.len(), points.iter().map(|point| point.1)) {
        noise = 0.0;
    }
    let numerator = (levels.len() - 2) as f64;
    let denominator = (points.len() - levels.len()) as f64;
    let f = (misfit / numerator) / (noise / denominator);
    let (f, p) = match (fit.exact, noise == 0.0) {
        (true, _) => (None, 1.0),
        (false, true) => (None, 0.0),
        (false, false) => (Some(f), f_upper(f, numerator, denominator)),
    };
    if f.is_some_and(|f| !f.is_finite()) {
        return Err(NotEstimable::OutOfRange);
    }
    Ok(LackOfFit { f, p, values: levels.len() })
}
