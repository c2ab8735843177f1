//! Statistics over measurements; pure functions.
//!
//! Measurements become statements here: regressions, averages with intervals, ratios of two sets, and the doubts a careful
//! reader would raise. Everything is `f64` arithmetic on slices: no files, no clock, no threads, the same answer for the same input.
//!
//! Two promises hold throughout. A quantity that the data cannot give is a typed [`NotEstimable`] with its reason, never a NaN, so
//! every result can be written as JSON. And a p-value never travels alone: [`words`] says what it means, because both reports this
//! project started from read theirs backwards.
//!
//! ```
//! use paceline_stats::{fit_line, NotEstimable};
//!
//! let fit = fit_line(&[(1.0, 2.1), (2.0, 3.9), (3.0, 6.2), (4.0, 7.8)])?;
//! assert!((fit.slope.value - 1.94).abs() < 1e-12);
//! assert!(fit.p < 0.01);
//!
//! let one_value = fit_line(&[(5.0, 1.0), (5.0, 2.0), (5.0, 3.0)]);
//! assert_eq!(one_value.unwrap_err(), NotEstimable::ConstantPredictor { value: 5.0 });
//! # Ok::<(), NotEstimable>(())
//! ```

pub mod compare;
pub mod describe;
pub mod distribution;
mod doubt;
mod erf;
mod estimate;
pub mod experiment;
pub mod fnv;
mod line;
pub mod linear;
mod multiple;
pub mod nnls;
pub mod normal;
mod orthogonal;
pub mod paired;
pub mod random;
pub mod repeats;
pub mod scaling;
pub mod sequential;
pub mod shape;
pub mod words;

pub use doubt::{Doubt, WordedDoubt};
pub use erf::erfc;
pub use estimate::{Coefficient, Estimate, Interval, LEVEL, NotEstimable};
pub use line::{LackOfFit, LineFit, fit_line, lack_of_fit};
pub use multiple::{Collinearity, MultipleFit, NamedTerm, Predictor, Term, fit_multiple};
