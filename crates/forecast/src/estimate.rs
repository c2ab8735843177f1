//! A number that is not known exactly.

use serde::Serialize;

/// A value with the interval that holds it nine times in ten.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The middle.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}
