//! What a run was going to do, as any reader needs it.
//!
//! Runs over examples, runs over rows and runs of version 0.1 write `plan.json` with different fields, and a run that
//! another program recorded has none: its first `run_started` event says what it can. Every reader goes through this
//! type, so that such a run does not open in one command and fail in the next. What is missing is absent here, never
//! guessed.

use crate::verdict::Examples;
use crate::{Event, Record, RunFolder, RunStarted, RunsError};
use paceline_batch::Schema;
use serde_json::Value;

/// A plan, whichever program or version wrote it.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)] // most fields are what their names say
pub struct RecordedPlan {
    pub model: Option<String>,
    pub data: Option<String>,
    pub strategy: Option<String>,
    pub optimizer: Option<String>,
    pub schedule: Option<String>,
    pub learning_rate: Option<f64>,
    /// Examples of one update over all workers.
    pub batch_size: Option<u64>,
    pub seed: Option<u64>,
    pub workers: Option<u64>,
    pub servers: Option<u64>,
    /// Replicas inside one process.
    pub replicas: Option<u64>,
    /// Threads of each replica.
    pub threads: Option<u64>,
    pub parameters: Option<u64>,
    pub planned_steps: Option<u64>,
    /// Weights of dense layers that the workers share out; absent where each has a copy of everything.
    pub split_parameters: Option<u64>,
    /// Version of the program that recorded the run.
    pub version: Option<String>,
    /// The whole file, for settings that only one kind of run has; null where there is none.
    pub whole: Value,
}

impl RecordedPlan {
    /// The plan of a run, as its `plan.json` says it.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn open(folder: &RunFolder) -> Result<Self, RunsError> {
        Ok(Self::of(folder.plan_value()?))
    }

    /// The plan of a run, with gaps filled from its first `run_started` event.
    #[must_use]
    pub fn read(folder: &RunFolder, records: &[Record]) -> Self {
        let mut plan = Self::open(folder).unwrap_or_else(|_| Self::of(Value::Null));
        let started = records.iter().find_map(|record| match &record.event {
            Some(Event::RunStarted(started)) => Some(started),
            _ => None,
        });
        if let Some(started) = started {
            plan.complete(started);
        }
        plan
    }

    /// From the contents of a `plan.json`.
    #[must_use]
    pub fn of(whole: Value) -> Self {
        let spec = &whole["spec"];
        let text =
            |place: &Value| place.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let data = &spec["data"];
        // Rows say beside their files how these are read.
        let inner = data.as_object().and_then(|kinds| kinds.values().next());
        // And they keep the tasks that carry the strategy out one level down.
        let tasks = &spec["tasks"];
        let number = |name: &str| {
            [&whole[name], &tasks[name], &spec[name]].into_iter().find_map(Value::as_u64)
        };
        Self {
            // Names of models had underscores once.
            model: text(&spec["model"]).map(|name| name.replace('_', "-")),
            data: text(inner.unwrap_or(data)),
            strategy: text(&whole["strategy"])
                .or_else(|| text(&spec["strategy"]))
                .or_else(|| text(&tasks["strategy"])),
            optimizer: text(&spec["optimizer"]),
            schedule: text(&spec["schedule"]),
            learning_rate: whole["learning_rate"].as_f64().or(spec["learning_rate"].as_f64()),
            batch_size: number("batch_size"),
            seed: number("seed"),
            workers: number("workers"),
            servers: number("servers"),
            replicas: number("replicas"),
            threads: number("threads"),
            parameters: number("parameters"),
            planned_steps: number("planned_steps"),
            split_parameters: number("split_parameters").filter(|weights| *weights > 0),
            version: text(&whole["version"]),
            whole,
        }
    }

    /// Fills what the plan does not say from the event with which the run began.
    fn complete(&mut self, started: &RunStarted) {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let number = |number: u64| Some(number).filter(|number| *number > 0);
        let said = |name: &str| started.settings.get(name);
        let or = |slot: &mut Option<String>, other: Option<String>| {
            if slot.is_none() {
                *slot = other;
            }
        };
        or(&mut self.model, text(&started.model));
        or(&mut self.data, text(&started.data));
        or(&mut self.strategy, text(&started.strategy));
        or(&mut self.version, text(&started.version));
        or(&mut self.optimizer, said("optimizer").and_then(Value::as_str).and_then(text));
        self.learning_rate =
            self.learning_rate.or_else(|| said("learning_rate").and_then(Value::as_f64));
        self.batch_size = self.batch_size.or(number(started.global_batch));
        self.parameters = self.parameters.or(number(started.parameters));
        self.planned_steps = self.planned_steps.or(started.planned_steps);
        self.threads = self.threads.or_else(|| said("threads").and_then(Value::as_u64));
        if self.whole.is_null() {
            self.seed = Some(started.seed);
        }
    }

    /// A setting that was asked for, by its name in the plan.
    #[must_use]
    pub fn asked(&self, name: &str) -> Option<&Value> {
        self.whole.get("spec")?.get(name).filter(|value| !value.is_null())
    }

    /// A setting in words, by its name in the plan.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<String> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let known = match name {
            "model" => self.model.clone(),
            "data" => self.data.clone(),
            "strategy" => self.strategy.clone(),
            "optimizer" => self.optimizer.clone(),
            "schedule" => self.schedule.clone(),
            "learning_rate" => self.learning_rate.map(|rate| rate.to_string()),
            "batch_size" => number(self.batch_size),
            "seed" => number(self.seed),
            "workers" => number(self.workers),
            "threads" => number(self.threads),
            _ => None,
        };
        known.or_else(|| match self.asked(name)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })
    }

    /// Threads that all replicas of a worker have together; one where that is not known.
    #[must_use]
    pub fn threads_of_worker(&self) -> usize {
        let threads = self.threads.unwrap_or(1).max(1) * self.replicas.unwrap_or(1).max(1);
        usize::try_from(threads).unwrap_or(1)
    }

    /// What an example looks like, where the plan says it: rows and other programs' runs do not.
    #[must_use]
    pub fn schema(&self) -> Option<Schema> {
        serde_json::from_value(self.whole.get("schema")?.clone()).ok()
    }

    /// What the run reads.
    #[must_use]
    pub fn examples(&self) -> Examples {
        let features = self.whole.pointer("/schema/features");
        let of = |key: &str| features.and_then(|features| features.get(key));
        let generated = self.data.as_deref().is_some_and(|data| data.starts_with("generated:"));
        if of("sparse").is_some() || self.whole.pointer("/spec/hashing").is_some() {
            Examples::Rows
        } else if of("image").is_some_and(|shape| shape["channels"] == 3) && !generated {
            Examples::Images
        } else {
            Examples::Any
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plans_of_examples_and_of_rows_answer_the_same_questions() {
        let dense = RecordedPlan::of(json!({
            "strategy": "multi-worker", "workers": 3, "threads": 2, "replicas": 1, "learning_rate": 0.1,
            "schema": { "features": { "image": { "channels": 3 } } },
            "spec": { "model": "mobilenet_v2", "data": "flowers", "batch_size": 64, "seed": 7 },
        }));
        assert_eq!(dense.model.as_deref(), Some("mobilenet-v2"));
        assert_eq!((dense.workers, dense.batch_size, dense.seed), (Some(3), Some(64), Some(7)));
        assert_eq!((dense.examples(), dense.threads_of_worker()), (Examples::Images, 2));
        let rows = RecordedPlan::of(json!({
            "strategy": "ps-async",
            "spec": {
                "model": "sparse-logistic", "data": { "files": "clicks.tsv" }, "hashing": {},
                "learning_rate": 0.5, "batch_size": 64, "tasks": { "workers": 2, "servers": 1 },
            },
        }));
        assert_eq!(rows.data.as_deref(), Some("clicks.tsv"));
        assert_eq!((rows.workers, rows.servers, rows.learning_rate), (Some(2), Some(1), Some(0.5)));
        assert_eq!(rows.examples(), Examples::Rows);
    }

    #[test]
    fn a_run_without_a_plan_says_what_its_first_event_says_and_nothing_more() {
        let mut plan = RecordedPlan::of(Value::Null);
        plan.complete(&RunStarted {
            model: "resnet50".to_owned(),
            data: "imagenette".to_owned(),
            global_batch: 128,
            settings: json!({ "optimizer": "AdamW", "learning_rate": 0.001 }),
            ..RunStarted::default()
        });
        assert_eq!(plan.model.as_deref(), Some("resnet50"));
        assert_eq!(plan.data.as_deref(), Some("imagenette"));
        assert_eq!((plan.batch_size, plan.learning_rate), (Some(128), Some(0.001)));
        assert_eq!((plan.strategy, plan.workers, plan.parameters), (None, None, None));
    }
}
