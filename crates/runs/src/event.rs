//! What can happen during a run.
//!
//! The enum is closed, the format grows: fields and kinds may be added, none may change its meaning
//! or go away without a new envelope version. So every field added later needs a default, and
//! readers ignore what they do not know. `testdata/events-v1.jsonl` is a log that must stay readable
//! for ever.
//!
//! Times are seconds. A loss that is not a number is `null`, since JSON has no word for it.

use crate::PhaseTimes;
use serde::{Deserialize, Serialize};

/// Version of the envelope; raised only when old readers would misunderstand.
pub const ENVELOPE_VERSION: u32 = 1;

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// The run was about to take its first step.
    RunStarted(RunStarted),
    /// A task of the cluster took its place.
    TaskJoined(TaskJoined),
    /// One or several steps were done.
    Step(Step),
    /// The model was scored on held-out examples.
    Evaluation(Evaluation),
    /// A worker scored the weights that it ended with.
    WorkerEvaluation(Evaluation),
    /// How the weights were spread at an evaluation.
    Histograms(Histograms),
    /// A reading of the machine's resources.
    Resource(Resource),
    /// A checkpoint was saved, restored, deleted, refused, or could not be saved.
    Checkpoint(Checkpoint),
    /// A task stopped answering.
    TaskLost(TaskLost),
    /// A lost task came back.
    TaskRecovered(TaskRecovered),
    /// The run is over.
    RunEnded(RunEnded),
}

impl Event {
    /// Whether the event is one sample of many, which may be dropped when the disk cannot keep up.
    /// All others mark a change and are always kept.
    #[must_use]
    pub fn is_sample(&self) -> bool {
        matches!(self, Self::Step(_) | Self::Resource(_) | Self::Histograms(_))
    }
}

/// The run was about to take its first step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStarted {
    /// Name of the run folder.
    pub run: String,
    pub model: String,
    pub strategy: String,
    /// Seed that everything random follows from.
    pub seed: u64,
    /// Version of the program.
    pub version: String,
    /// Trained and untrained weights.
    pub parameters: u64,
    /// Examples of one update, over all workers.
    pub global_batch: u64,
    /// First step of this process: 0, or where a checkpoint left off.
    pub first_step: u64,
    /// Steps planned, where the stop rule fixes them.
    pub planned_steps: Option<u64>,
    /// Where the data come from, in runs that have no `plan.json`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// What the run was trained with, such as `PyTorch 2.15`, where that is another program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub framework: String,
    /// Anything else that tells this run from others, by name: an object, or null.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub settings: serde_json::Value,
}

/// A task of the cluster took its place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskJoined {
    pub role: String,
    /// Where it listens, if it does.
    pub address: Option<String>,
    pub process: u32,
    pub host: String,
    /// Seconds its clock is ahead of the chief's, where that was measured.
    pub clock_offset: Option<f64>,
}

/// One or several steps in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// Global step after the last of them: the number of updates done.
    pub step: u64,
    /// How many steps this event covers; one where it is not said.
    #[serde(default = "one")]
    pub steps: u64,
    /// Examples this task worked on in them.
    pub examples: u64,
    /// Seconds they took.
    pub seconds: f64,
    /// Mean training loss over them, in nats.
    #[serde(with = "nullable", default = "unknown")]
    pub loss: f64,
    /// Share of their examples that were classified correctly.
    #[serde(with = "nullable", default = "unknown")]
    pub accuracy: f64,
    /// Learning rate of the last of them.
    pub learning_rate: f64,
    /// Examples of one update over all workers, at the last of them.
    pub global_batch: u64,
    /// Where the time went, in seconds.
    pub phases: PhaseTimes,
}

fn one() -> u64 {
    1
}

/// A figure that an event does not give.
fn unknown() -> f64 {
    f64::NAN
}

/// The model was scored on held-out examples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    /// Global step at which it happened.
    pub step: u64,
    /// Passes over the training data so far.
    pub epochs: f64,
    pub examples: u64,
    /// Mean loss, in nats.
    #[serde(with = "nullable", default = "unknown")]
    pub loss: f64,
    /// Share classified correctly.
    #[serde(with = "nullable", default = "unknown")]
    pub accuracy: f64,
    /// Seconds the evaluation took.
    pub seconds: f64,
    /// Whether no evaluation of this run had a lower loss before.
    pub best: bool,
    /// Area under the receiver operating characteristic, for models that answer yes or no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auc: Option<f64>,
    /// Loss over that of always predicting the mean, for such models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalised_entropy: Option<f64>,
    /// The task that scored, where it is another than the one that writes this log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scored_by: Option<String>,
}

/// A reading of the machine's resources since the last one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Cores busy, on average.
    pub cpu_cores: f64,
    /// Memory of this process, in bytes.
    pub resident_bytes: u64,
    /// Bytes received from the network, per second.
    pub received_per_second: f64,
    /// Bytes sent to the network, per second.
    pub sent_per_second: f64,
    /// Bytes read from disk, per second.
    pub read_per_second: f64,
    /// Bytes written to disk, per second.
    pub written_per_second: f64,
}

/// What happened to a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointAction {
    /// Written and committed.
    Saved,
    /// Training went on from it.
    Restored,
    /// Removed because newer or better ones are kept.
    Deleted,
    /// Found damaged or half-written, and not used.
    Refused,
    /// Could not be written; the older ones stay.
    Failed,
    /// An action that this version does not know.
    #[serde(other)]
    Unknown,
}

/// How the weights were spread at an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histograms {
    /// Global step at which they were counted.
    pub step: u64,
    /// The largest tensors of the model, in its order.
    pub tensors: Vec<Tensor>,
}

/// The weights of one tensor, counted in buckets of equal width.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tensor {
    pub name: String,
    /// Lower edge of the first bucket.
    pub min: f64,
    /// Upper edge of the last bucket.
    pub max: f64,
    /// Weights in each bucket; those that are not finite are in none.
    pub counts: Vec<u64>,
}

/// A checkpoint was saved, restored, deleted, refused, or could not be saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub action: CheckpointAction,
    /// Global step it holds.
    pub step: u64,
    /// Seconds it took.
    #[serde(default)]
    pub seconds: f64,
    /// Bytes on disk.
    #[serde(default)]
    pub bytes: u64,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A task stopped answering.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskLost {
    /// The task that is missing.
    pub lost: String,
    pub address: Option<String>,
    /// Global step by then.
    pub step: u64,
    /// What was waited for, and the last error.
    pub reason: String,
}

/// A lost task came back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRecovered {
    /// The task that came back.
    pub recovered: String,
    /// Global step by then.
    pub step: u64,
    /// Seconds without it.
    pub seconds: f64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its stop rule was met.
    Done,
    /// It was asked to stop.
    Cancelled,
    /// Something went wrong.
    Failed,
    /// A state that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        })
    }
}

/// The run is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnded {
    pub status: Status,
    /// Global step reached.
    pub step: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Why, in words, unless it simply was done.
    pub reason: Option<String>,
    /// Events that the disk was too slow to take.
    pub dropped_events: u64,
}

/// Numbers that may be NaN or infinite: `null` in JSON, and NaN again when read.
pub(crate) mod nullable {
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
    pub(crate) fn serialize<S: Serializer>(value: &f64, out: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { out.serialize_f64(*value) } else { out.serialize_none() }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::NAN))
    }
}
