//! `summary.json`: how a run ended. Also what `train --json` prints; its names are a contract.

use crate::{
    Learning, Leg, PhaseTimes, TaskLoad,
    event::{Status, nullable},
};
use serde::{Deserialize, Deserializer, Serialize};

/// How a run ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Name of the run folder.
    pub run: String,
    pub status: Status,
    #[serde(deserialize_with = "hyphenated")]
    pub model: String,
    /// Where the data came from.
    pub data: String,
    pub strategy: String,
    /// Seed that everything random followed from.
    pub seed: u64,
    /// When it started, in seconds since 1970.
    pub started: f64,
    /// The stretches it was trained in, oldest first: a resumed run has several. Times, examples and rate below
    /// are those of all of them; workers, phases and traffic those of the last.
    pub legs: Vec<Leg>,
    /// Examples of one update over all workers, at the end.
    pub global_batch: u64,
    /// Updates done, over the whole life of the run.
    pub global_steps: u64,
    /// Examples that training used, over all workers and the whole life of the run; see [`crate::figures`].
    pub examples: u64,
    /// Seconds from the first step to the last, evaluations and checkpoints included, over all legs.
    pub seconds: f64,
    /// Seconds that the slowest worker spent in steps, over all legs; 0 where a leg of 0.1 does not say it.
    pub step_seconds: f64,
    /// `examples` over `seconds`.
    pub examples_per_second: f64,
    /// Where it got to.
    #[serde(rename = "final")]
    pub last: Final,
    /// Whether the model learned anything; absent where the run was too short to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<Learning>,
    /// When the loss asked for was reached, if one was asked for and reached.
    pub reached: Option<Reached>,
    /// What each worker did.
    pub workers: Vec<WorkerSummary>,
    /// Shares of the steps' time.
    pub phases: PhaseTimes,
    /// Bytes exchanged with other tasks.
    pub traffic: Traffic,
    /// Updates by staleness: how many others were made between its pull and itself. Empty for
    /// synchronous workers.
    pub staleness: Vec<u64>,
    /// Gradients that came too late and were thrown away.
    pub dropped: u64,
    /// Examples in them; processed, but not trained on.
    pub dropped_examples: u64,
    /// Tasks that were lost on the way, with the reason.
    pub lost: Vec<String>,
    /// Where the time went, in words.
    pub verdict: String,
    /// The verdict in parts, with what it rests on; absent where nothing was measured.
    pub diagnosis: Option<Diagnosis>,
    /// What each task's machine did meanwhile.
    pub tasks: Vec<TaskLoad>,
    /// Anything the reader should know: damaged checkpoints, full disks, dropped events.
    pub warnings: Vec<String>,
}

/// Names of models had underscores once; runs of then and now are compared by the names of now.
fn hyphenated<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    Ok(String::deserialize(input)?.replace('_', "-"))
}

/// The verdict in parts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Diagnosis {
    /// What limits the run, such as `input` or `network`.
    pub limit: String,
    /// The task, disk or link behind it, where one is.
    pub culprit: Option<String>,
    /// Share of the time that removing the limit would save at most.
    pub saving: f64,
    /// Whether there is too little evidence to lean on.
    pub thin: bool,
    /// What it rests on, each in a sentence.
    pub evidence: Vec<String>,
}

/// Losses and accuracy at the end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Final {
    /// Mean training loss over the last steps, in nats.
    #[serde(with = "nullable")]
    pub train_loss: f64,
    /// Mean loss on held-out examples, in nats; null where there was no evaluation.
    #[serde(with = "nullable")]
    pub test_loss: f64,
    /// Share of held-out examples classified correctly.
    #[serde(with = "nullable")]
    pub test_accuracy: f64,
}

impl Default for Final {
    fn default() -> Self {
        Self { train_loss: f64::NAN, test_loss: f64::NAN, test_accuracy: f64::NAN }
    }
}

/// Where a loss was crossed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reached {
    /// The loss asked for.
    pub loss: f64,
    /// Step of crossing, interpolated between the two evaluations around it.
    pub step: f64,
    /// Seconds of training until then, interpolated likewise.
    pub seconds: f64,
    /// The evaluations between which it was crossed, as steps.
    pub between: [u64; 2],
}

/// What one worker did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerSummary {
    /// Its name, such as `worker/0`.
    pub task: String,
    /// Steps it took part in.
    pub iterations: u64,
    /// Examples it worked on.
    pub examples: u64,
    /// Seconds it was busy.
    pub seconds: f64,
    /// Seconds from the start of the run until it had finished.
    pub finished: f64,
    /// Mean training loss over its own examples, at the end.
    #[serde(with = "nullable")]
    pub loss: f64,
    /// Share of its own last examples that were classified correctly.
    #[serde(with = "nullable")]
    pub accuracy: f64,
    /// Mean loss on all held-out examples of the weights it ended with, where every worker was asked to score its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// Share of those examples that were classified correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// Its gradients that came too late and were thrown away.
    pub dropped: u64,
    /// Shares of its steps' time.
    pub phases: PhaseTimes,
    /// Bytes it exchanged with other tasks.
    pub traffic: Traffic,
}

impl Default for WorkerSummary {
    fn default() -> Self {
        Self {
            task: String::new(),
            iterations: 0,
            examples: 0,
            seconds: 0.0,
            finished: 0.0,
            loss: f64::NAN,
            accuracy: f64::NAN,
            test_loss: None,
            test_accuracy: None,
            dropped: 0,
            phases: PhaseTimes::default(),
            traffic: Traffic::default(),
        }
    }
}

/// Bytes exchanged with other tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs read these names: `design.md` lists them.
    #[test]
    fn names_of_the_contract_are_there() {
        let summary = Summary { reached: Some(Reached::default()), ..Summary::default() };
        let value = serde_json::to_value(&summary).unwrap();
        for name in [
            "run",
            "model",
            "strategy",
            "seed",
            "global_steps",
            "examples",
            "seconds",
            "examples_per_second",
            "final",
            "reached",
            "workers",
            "phases",
            "traffic",
            "verdict",
        ] {
            assert!(value.get(name).is_some(), "{name} is missing");
        }
        assert!(value["final"]["test_loss"].is_null(), "no evaluation is null, not a number");
        assert!(value["final"].get("train_loss").is_some());
        assert!(value["phases"].get("wait").is_some());
        assert!(value["traffic"].get("received_bytes").is_some());
        let back: Summary = serde_json::from_value(value).unwrap();
        assert_eq!(back.reached, summary.reached);
        assert!(back.last.test_loss.is_nan());
    }

    #[test]
    fn a_summary_with_the_old_spelling_of_a_model_is_compared_with_new_ones() {
        let old: Summary = serde_json::from_str(r#"{"model":"mobilenet_v2"}"#).unwrap();
        assert_eq!(old.model, "mobilenet-v2");
    }
}
