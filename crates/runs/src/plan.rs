//! `plan.json`: what a run is going to do, written before its first step so that the run can be understood, compared
//! and resumed without the command line that started it.
//!
//! Runs over examples and runs over rows are asked different things (`spec`) and decide different things
//! (`details`); all the rest, the file and the way it is written and read, is the same. [`crate::RecordedPlan`] is for
//! readers that take any plan, whichever program wrote it.

use crate::{Event, RunFolder, RunStarted};
use serde::{Deserialize, Serialize};

/// A run after every check. `S` is what was asked for, `D` what was decided that only this kind of run has; its fields
/// stand beside the others in the file.
///
/// ```
/// use paceline_runs::{RunFolder, RunKind, RunPlan};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
/// # struct Asked { model: String }
/// # #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
/// # struct Decided { train_examples: u64 }
/// # let folder = tempfile::tempdir().unwrap();
/// let plan = RunPlan {
///     kind: RunKind::Examples,
///     spec: Asked { model: "lenet".to_owned() },
///     version: "0.1.0".to_owned(),
///     strategy: "one-device".to_owned(),
///     parameters: 431_080,
///     replicas: 1,
///     threads: 2,
///     planned_steps: Some(900),
///     details: Decided { train_examples: 60_000 },
/// };
/// let run = RunFolder::create(folder.path(), "lenet", "one-device")?;
/// run.write_plan(&plan)?;
/// assert_eq!(run.plan::<Asked, Decided>()?, plan);
/// # Ok::<(), paceline_runs::RunsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunPlan<S, D> {
    /// What it is trained on; runs over examples of 0.1 do not say it.
    #[serde(default)]
    pub kind: RunKind,
    /// What was asked for.
    pub spec: S,
    /// Version of the program that made the plan.
    #[serde(default)]
    pub version: String,
    pub strategy: String,
    /// Trained and untrained weights.
    pub parameters: u64,
    /// Replicas in one process.
    #[serde(default = "one")]
    pub replicas: usize,
    /// Threads of each replica.
    #[serde(default = "one")]
    pub threads: usize,
    /// Steps of the whole run, where the stop rule fixes them.
    #[serde(default)]
    pub planned_steps: Option<u64>,
    /// What was decided that only this kind of run has.
    #[serde(flatten)]
    pub details: D,
}

/// What a run is trained on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Examples of a set of known size, dealt in batches; intervals count steps.
    #[default]
    Examples,
    /// Rows of a stream; intervals count rows.
    #[serde(rename = "stream")]
    Rows,
}

/// What every run is asked, as far as its log says it.
pub trait AskedSettings {
    /// Model's name.
    fn model(&self) -> &str;
    /// Seed of everything random; 0 where nothing is.
    fn seed(&self) -> u64;
    /// Examples of one update over all workers.
    fn batch_size(&self) -> u64;
}

impl<S: AskedSettings, D> RunPlan<S, D> {
    /// What the log of a task begins with.
    #[must_use]
    pub fn started(&self, run: &RunFolder, first_step: u64) -> Event {
        Event::RunStarted(RunStarted {
            run: run.name(),
            model: self.spec.model().to_owned(),
            strategy: self.strategy.clone(),
            seed: self.spec.seed(),
            version: self.version.clone(),
            parameters: self.parameters,
            global_batch: self.spec.batch_size(),
            first_step,
            planned_steps: self.planned_steps,
            ..RunStarted::default()
        })
    }
}

const fn one() -> usize {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordedPlan;
    use serde_json::{Value, json};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Asked {
        model: String,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Rows {
        bytes: Option<u64>,
    }

    /// Both kinds, as they were written before they became one type: without a kind, or without replicas.
    #[test]
    fn plans_of_before_still_open() {
        let rows = json!({
            "kind": "stream", "spec": { "model": "sparse-logistic" }, "version": "0.1.0",
            "strategy": "one-device", "parameters": 1025, "threads": 2, "bytes": 7, "data": [],
        });
        let plan: RunPlan<Asked, Rows> = serde_json::from_value(rows).unwrap();
        assert_eq!((plan.kind, plan.replicas, plan.details.bytes), (RunKind::Rows, 1, Some(7)));
        let examples = json!({
            "spec": { "model": "lenet" }, "version": "0.1.0", "strategy": "mirrored",
            "parameters": 9, "replicas": 2, "threads": 1, "planned_steps": 5, "hash": "ab",
        });
        let plan: RunPlan<Asked, Value> = serde_json::from_value(examples).unwrap();
        assert_eq!((plan.kind, plan.planned_steps), (RunKind::Examples, Some(5)));
        assert_eq!(plan.details["hash"], "ab");
    }

    #[test]
    fn details_stand_beside_the_rest_for_every_reader() {
        let plan = RunPlan {
            kind: RunKind::Rows,
            spec: Asked { model: "sparse-logistic".to_owned() },
            version: "0.1.0".to_owned(),
            strategy: "ps-async".to_owned(),
            parameters: 1025,
            replicas: 1,
            threads: 2,
            planned_steps: None,
            details: Rows { bytes: Some(7) },
        };
        let written = serde_json::to_value(&plan).unwrap();
        assert_eq!((&written["kind"], &written["bytes"]), (&json!("stream"), &json!(7)));
        let read = RecordedPlan::of(written);
        assert_eq!((read.parameters, read.threads), (Some(1025), Some(2)));
        assert_eq!(read.strategy.as_deref(), Some("ps-async"));
    }
}
