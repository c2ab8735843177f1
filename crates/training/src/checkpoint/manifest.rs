//! A checkpoint's `manifest.json`, written last: without it there is no checkpoint.

use paceline_data::order::Position;
use paceline_runs::Leg;
use paceline_store::durable::Parts;
use serde::{Deserialize, Serialize};

/// Version of the checkpoint format; another one is refused.
pub(super) const FORMAT: u32 = 1;

/// What a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// What the state belongs to and where it stands.
    pub meta: Meta,
    /// Size and checksum of every other file.
    pub files: Parts,
}

/// What the state belongs to and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    pub model: String,
    /// Optimiser's name; its state fits no other.
    pub optimizer: String,
    /// Updates done.
    pub step: u64,
    /// Where the next batch starts in the order of examples.
    pub position: Position,
    /// Examples trained on.
    pub examples: u64,
    /// Seconds of training so far, over all processes of the run.
    pub seconds: f64,
    /// Seed that order, initial weights and dropout follow from, together with step and position.
    pub seed: u64,
    /// Hash of everything in the plan that decides the numbers.
    pub plan: String,
    /// Batches that were dealt but are not in the weights; a run that continues does them first.
    #[serde(default)]
    pub outstanding: Vec<u64>,
    /// Score on held-out examples at exactly this step.
    pub evaluation: Option<Evaluated>,
    /// Mean training loss over the last steps, where there was one.
    #[serde(default)]
    pub train_loss: Option<f64>,
    /// The stretches the run was trained in up to here; the last one is not over.
    #[serde(default)]
    pub legs: Vec<Leg>,
}

/// A score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Mean loss.
    pub loss: f64,
    /// Share classified correctly.
    pub accuracy: f64,
}
