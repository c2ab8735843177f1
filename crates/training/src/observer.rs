//! What watches a run: a progress bar, a test, nothing.

use crate::RunPlan;
use paceline_runs::{Evaluation, RunFolder};
use serde::{Deserialize, Serialize};

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Updates done.
    pub step: u64,
    /// Updates planned, where that is known.
    pub planned: Option<u64>,
    /// Passes over the training data.
    pub epochs: f64,
    /// Mean training loss over the last few steps.
    pub loss: f64,
    /// Training accuracy over the last few steps.
    pub accuracy: f64,
    /// Learning rate of the last step.
    pub rate: f32,
    /// Examples per second over the last few steps.
    pub examples_per_second: f64,
}

/// Told what happens, a few times a second at most; every call has a default that does nothing.
pub trait Observer: Sync {
    /// The first step is next.
    fn started(&self, _plan: &RunPlan, _run: &RunFolder, _first_step: u64) {}
    /// Some steps were done.
    fn progressed(&self, _progress: &Progress) {}
    /// The model was scored.
    fn evaluated(&self, _evaluation: &Evaluation) {}
    /// A checkpoint was committed.
    fn saved(&self, _step: u64) {}
    /// The run folder was renamed; the run continues there.
    fn moved(&self, _run: &RunFolder) {}
    /// Something the user should know.
    fn warned(&self, _text: &str) {}
}

/// An observer that does nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
