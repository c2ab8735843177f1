//! How good is the advice? Recorded runs are replayed as if they were made now.
//!
//! Protocol: the history holds no run of the same application, whatever its input or framework; a
//! run's result is seen only after it was paid for; failures stay among the candidates and are charged;
//! every figure is averaged over seeds first, then over jobs.

mod acceptance;
mod batch;
mod nested;
mod replay;
mod scaling;
mod scout;
mod study;
mod summary;

pub use acceptance::{Check, acceptance};
pub use batch::{BatchSummary, evaluate_batch};
pub use nested::{NestedSummary, evaluate_nested};
pub use replay::{JobTraces, ReplaySettings, Trace, replay};
pub use scaling::{ScalingSummary, evaluate_scaling};
pub use scout::{Half, Prices, RecordedSet};
pub use study::{MethodDifference, Study, StudyExtras, StudyQuestion, StudySource};
pub use summary::{BUDGETS, CHECKPOINTS, Spread, Summary, compare};
