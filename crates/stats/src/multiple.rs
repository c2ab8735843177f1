//! Regression on several parameters at once: what each does while the others are held fixed.

use serde::{Deserialize, Serialize};

use crate::distribution::{f_upper, t_critical, t_two_sided};
use crate::estimate::{Coefficient, Estimate, LEVEL, NotEstimable, check_finite, constant};
use crate::line::is_rounding;
use crate::orthogonal::{Factors, norm};

/// One parameter with its value at every measurement.
#[derive(Debug, Clone, Copy)]
pub struct Predictor<'a> {
    /// Name, for messages and results.
    pub name: &'a str,
    /// One value per measurement.
    pub values: &'a [f64],
}

/// A least-squares plane through measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MultipleFit {
    /// Number of measurements.
    pub n: usize,
    /// Response where all parameters are 0.
    pub intercept: Term,
    /// One entry per parameter, in the given order.
    pub terms: Vec<NamedTerm>,
    /// Share of the variance explained.
    pub r_squared: f64,
    /// The same, corrected for the number of parameters.
    pub adjusted_r_squared: f64,
    /// F statistic of all parameters together; absent for an exact fit.
    pub f: Option<f64>,
    /// Its p-value; 0 for an exact fit.
    pub f_p: f64,
    /// Typical distance of a measurement from the plane.
    pub residual_standard_error: f64,
    /// Degrees of freedom left for the noise.
    pub residual_freedom: usize,
    /// How well the parameters can be told apart.
    pub collinearity: Collinearity,
    /// All points lie on the plane to within rounding.
    pub exact: bool,
}

/// A parameter's name with its coefficient, or with the reason why it has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedTerm {
    pub name: String,
    pub estimate: Estimate<Term>,
}

/// One coefficient with its test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Estimate, standard error and interval.
    #[serde(flatten)]
    pub coefficient: Coefficient,
    /// The estimate in standard errors; absent for an exact fit.
    pub t: Option<f64>,
    /// Two-sided p-value; 0 for an exact fit.
    pub p: f64,
    /// Variance inflation: how many times larger the coefficient's variance is than with independent parameters. 1 for the intercept.
    pub variance_inflation: f64,
}

/// How well the parameters can be told apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Collinearity {
    /// Ratio of the extreme singular values of the centred and scaled parameters; 1 is ideal, above 30 is doubtful.
    pub condition_number: f64,
    /// Largest variance inflation; above 10 is doubtful.
    pub largest_inflation: f64,
    /// Parameters that are exact linear combinations of earlier ones, and were left out.
    pub left_out: Vec<String>,
}

/// Fits `y = b0 + b1 · x1 + …` by least squares.
///
/// A parameter that never changes, or follows exactly from earlier ones, gets a reason instead of a coefficient; the rest are fitted
/// without it.
///
/// # Errors
/// Unequal lengths, a NaN, a constant response, no parameter that changes, or no degree of freedom left for the noise.
pub fn fit_multiple(
    response: &[f64],
    predictors: &[Predictor<'_>],
) -> Result<MultipleFit, NotEstimable> {
    check_measurements(response, predictors)?;
    let n = response.len();
    let mut reasons: Vec<Option<NotEstimable>> = predictors
        .iter()
        .map(|predictor| {
            constant(predictor.values.iter().copied())
                .map(|value| NotEstimable::ConstantPredictor { value })
        })
        .collect();
    let varying: Vec<usize> =
        (0..predictors.len()).filter(|&index| reasons[index].is_none()).collect();
    let Some(&first) = varying.first() else {
        let value = predictors.first().and_then(|predictor| predictor.values.first());
        let value = value.copied().unwrap_or(0.0);
        return Err(NotEstimable::ConstantPredictor { value });
    };
    let columns: Vec<Centred> =
        varying.iter().map(|&index| Centred::of(predictors[index].values)).collect();
    if columns.iter().any(|column| !(column.length > 0.0 && column.length.is_finite())) {
        return Err(NotEstimable::OutOfRange);
    }
    let units: Vec<Vec<f64>> = columns.iter().map(|column| column.unit.clone()).collect();
    let factors = Factors::of(&units);
    for (dependent, from) in &factors.dependent {
        let with = from.iter().map(|&column| predictors[varying[column]].name.to_owned()).collect();
        reasons[varying[*dependent]] = Some(NotEstimable::Collinear { with });
    }
    let kept = factors.kept.len();
    if n < kept + 2 {
        return Err(too_few(n, kept));
    }
    debug_assert_eq!(
        varying[factors.kept[0]], first,
        "the first varying column depends on nothing"
    );

    let whole = Plane::through(response, &columns, &factors)?;
    let mut terms = whole.terms.iter();
    let named = reasons.into_iter().zip(predictors).map(|(reason, predictor)| NamedTerm {
        name: predictor.name.to_owned(),
        estimate: match reason {
            Some(not_estimable) => Estimate::Unknown { not_estimable },
            None => Estimate::Known(*terms.next().expect("one term per kept column")),
        },
    });
    let named: Vec<NamedTerm> = named.collect();
    let largest_inflation =
        whole.terms.iter().map(|term| term.variance_inflation).fold(1.0, f64::max);
    let name = |(column, _): &(usize, _)| predictors[varying[*column]].name.to_owned();
    let left_out = factors.dependent.iter().map(name).collect();
    let collinearity =
        Collinearity { condition_number: factors.condition_number(), largest_inflation, left_out };
    Ok(MultipleFit { terms: named, collinearity, ..whole.fit })
}

/// Refuses measurements that do not belong together, are not numbers, too few, or all the same.
fn check_measurements(response: &[f64], predictors: &[Predictor<'_>]) -> Result<(), NotEstimable> {
    let expected = response.len();
    check_finite(response.iter().copied())?;
    for (column, predictor) in predictors.iter().enumerate() {
        let found = predictor.values.len();
        if found != expected {
            return Err(NotEstimable::UnequalLengths { column, found, expected });
        }
        check_finite(predictor.values.iter().copied())?;
    }
    if expected < 3 {
        return Err(too_few(expected, 1));
    }
    match constant(response.iter().copied()) {
        Some(value) => Err(NotEstimable::ConstantResponse { value }),
        None => Ok(()),
    }
}

fn too_few(found: usize, parameters: usize) -> NotEstimable {
    NotEstimable::TooFewPoints { found, needed: parameters + 2 }
}

/// A column moved to mean 0 and scaled to length 1.
struct Centred {
    mean: f64,
    length: f64,
    unit: Vec<f64>,
}

impl Centred {
    fn of(values: &[f64]) -> Centred {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let mut unit: Vec<f64> = values.iter().map(|value| value - mean).collect();
        // The mean itself is rounded; taking the mean of the deviations out again leaves it exact to the last digit.
        let rest = unit.iter().sum::<f64>() / unit.len() as f64;
        unit.iter_mut().for_each(|value| *value -= rest);
        let length = norm(&unit);
        unit.iter_mut().for_each(|value| *value /= length);
        Centred { mean: mean + rest, length, unit }
    }
}

/// The fit on the kept columns, before names are put to them.
struct Plane {
    fit: MultipleFit,
    terms: Vec<Term>,
}

impl Plane {
    fn through(
        response: &[f64],
        columns: &[Centred],
        factors: &Factors,
    ) -> Result<Plane, NotEstimable> {
        let n = response.len();
        let kept = factors.kept.len();
        let centred = Centred::of(response);
        let mut residuals = centred.unit.clone();
        let parts = factors.project(&mut residuals);
        // In units of the response's own length: total sum of squares is 1.
        let scaled = factors.solve(&parts);
        let slopes: Vec<f64> = scaled
            .iter()
            .zip(&factors.kept)
            .map(|(slope, &column)| slope * centred.length / columns[column].length)
            .collect();

        let mut unexplained: f64 = residuals.iter().map(|value| value * value).sum();
        let reach =
            slopes.iter().zip(&factors.kept).map(|(slope, &column)| slope * columns[column].mean);
        let sizes = response.iter().copied().chain(reach).map(|size| size / centred.length);
        let exact = is_rounding(unexplained, n, sizes);
        if exact {
            unexplained = 0.0;
        }
        let freedom = (n - kept - 1) as f64;
        let scaled_error = (unexplained / freedom).sqrt();
        let residual_standard_error = scaled_error * centred.length;
        let critical = t_critical(1.0 - LEVEL, freedom);

        let inverse = factors.inverse();
        let term = |value: f64, error: f64, variance_inflation: f64| {
            let t = (!exact).then(|| value / error);
            Term {
                coefficient: Coefficient::new(value, error, critical),
                t,
                p: t.map_or(0.0, |t| t_two_sided(t, freedom)),
                variance_inflation,
            }
        };
        let mut terms = Vec::with_capacity(kept);
        for (row, &column) in factors.kept.iter().enumerate() {
            // Row of R⁻¹: its squared length is the inflation, as the columns have length 1.
            let inflation: f64 = inverse.iter().map(|column| column[row] * column[row]).sum();
            let error = residual_standard_error * inflation.sqrt() / columns[column].length;
            terms.push(term(slopes[row], error, inflation));
        }

        let mean_over_length: Vec<f64> = factors
            .kept
            .iter()
            .map(|&column| columns[column].mean / columns[column].length)
            .collect();
        let leverage: f64 = inverse
            .iter()
            .map(|column| {
                column.iter().zip(&mean_over_length).map(|(a, b)| a * b).sum::<f64>().powi(2)
            })
            .sum();
        let at_zero: f64 = slopes
            .iter()
            .zip(&factors.kept)
            .map(|(slope, &column)| slope * columns[column].mean)
            .sum();
        let intercept = term(
            centred.mean - at_zero,
            residual_standard_error * (1.0 / n as f64 + leverage).sqrt(),
            1.0,
        );

        let explained: f64 = parts.iter().map(|part| part * part).sum();
        let f = (!exact).then(|| explained / kept as f64 / (unexplained / freedom));
        let fit = MultipleFit {
            n,
            intercept,
            terms: Vec::new(),
            r_squared: (1.0 - unexplained).clamp(0.0, 1.0),
            adjusted_r_squared: 1.0 - unexplained * (n - 1) as f64 / freedom,
            f,
            f_p: f.map_or(0.0, |f| f_upper(f, kept as f64, freedom)),
            residual_standard_error,
            residual_freedom: n - kept - 1,
            collinearity: Collinearity {
                condition_number: 1.0,
                largest_inflation: 1.0,
                left_out: Vec::new(),
            },
            exact,
        };
        let finite = |term: &Term| {
            term.coefficient.is_finite() && term.t.is_none_or(f64::is_finite) && term.p.is_finite()
        };
        let usable =
            terms.iter().all(finite) && finite(&fit.intercept) && fit.f.is_none_or(f64::is_finite);
        if usable { Ok(Plane { fit, terms }) } else { Err(NotEstimable::OutOfRange) }
    }
}
