//! What an analysis may answer: a number with its interval, or the reason why there is none.

use serde::{Deserialize, Serialize};

/// Confidence level of every interval in this crate.
pub const LEVEL: f64 = 0.95;

/// Why a quantity cannot be estimated from these data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotEstimable {
    /// Fewer measurements than the method needs.
    #[error("{found} measurements, at least {needed} are needed")]
    TooFewPoints { found: usize, needed: usize },
    /// The parameter never changed, so nothing can be said about its influence.
    #[error("the parameter had one value only ({value})")]
    ConstantPredictor { value: f64 },
    /// The measurement never changed: no noise, so no test either.
    #[error("all measurements are equal ({value})")]
    ConstantResponse { value: f64 },
    /// A NaN or an infinity among the data.
    #[error("measurement {index} is not a finite number")]
    NotFinite {
        /// Position in the data, from 0.
        index: usize,
    },
    /// A ratio or logarithm needs positive numbers.
    #[error("measurement {index} is {value}, but a ratio needs positive numbers")]
    NotPositive {
        /// Position in the data, from 0.
        index: usize,
        /// What was found there.
        value: f64,
    },
    /// Numbers so large or small that their squares leave the range of `f64`.
    #[error("the numbers are too large or too close together for double precision")]
    OutOfRange,
    /// The parameter is an exact linear combination of others.
    #[error("cannot be separated from {}: it is a linear combination of them in these data", .with.join(", "))]
    Collinear {
        /// The parameters it follows from.
        with: Vec<String>,
    },
    /// Columns of unequal length were given.
    #[error("column {column} has {found} values, expected {expected}")]
    UnequalLengths {
        /// Position of the column, from 0.
        column: usize,
        found: usize,
        /// Length of the response.
        expected: usize,
    },
    /// Repeats that are all the same: without noise nothing can be judged.
    #[error("the repeats never vary")]
    NothingVaried,
    /// No value of the parameter was measured twice, so noise cannot be told from misfit.
    #[error("no parameter value was measured more than once")]
    NoRepeats,
    /// Two values of a parameter always lie on a line.
    #[error("{found} different parameter values, at least 3 are needed to see a bend")]
    TooFewValues {
        /// Distinct values found.
        found: usize,
    },
}

/// A result, or the reason why there is none; in JSON either the result's own fields or `{"not_estimable": …}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Estimate<T> {
    /// The data gave no answer. First, so that an untagged reader tries the narrower form before `T`.
    Unknown { not_estimable: NotEstimable },
    /// The answer.
    Known(T),
}

impl<T> Estimate<T> {
    /// The answer, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Estimate::Known(value) => Some(value),
            Estimate::Unknown { .. } => None,
        }
    }

    /// The answer or the reason, to be handled by `match` or `?`.
    pub fn as_result(&self) -> Result<&T, &NotEstimable> {
        match self {
            Estimate::Known(value) => Ok(value),
            Estimate::Unknown { not_estimable } => Err(not_estimable),
        }
    }
}

impl<T> From<Result<T, NotEstimable>> for Estimate<T> {
    fn from(result: Result<T, NotEstimable>) -> Self {
        match result {
            Ok(value) => Estimate::Known(value),
            Err(not_estimable) => Estimate::Unknown { not_estimable },
        }
    }
}

/// A 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The interval `centre ± half_width`.
    pub fn around(centre: f64, half_width: f64) -> Self {
        Interval { low: centre - half_width, high: centre + half_width }
    }

    /// Whether `value` lies inside or on an end.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// One coefficient of a regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Coefficient {
    pub value: f64,
    /// Its standard error; 0 for an exact fit.
    pub standard_error: f64,
    /// Its 95 % interval.
    pub interval: Interval,
}

impl Coefficient {
    /// A coefficient whose interval reaches `t_critical` standard errors to both sides.
    pub(crate) fn new(value: f64, standard_error: f64, t_critical: f64) -> Self {
        Coefficient {
            value,
            standard_error,
            interval: Interval::around(value, t_critical * standard_error),
        }
    }

    pub(crate) fn is_finite(&self) -> bool {
        [self.value, self.standard_error, self.interval.low, self.interval.high]
            .iter()
            .all(|part| part.is_finite())
    }
}

/// Fails on the first NaN or infinity.
pub(crate) fn check_finite(values: impl IntoIterator<Item = f64>) -> Result<(), NotEstimable> {
    match values.into_iter().position(|value| !value.is_finite()) {
        Some(index) => Err(NotEstimable::NotFinite { index }),
        None => Ok(()),
    }
}

/// The common value if all are equal; `None` if they differ (or there are none).
pub(crate) fn constant(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values = values.into_iter();
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}
