//! What a run was asked to do, to tell repeats from other runs.
//!
//! Two runs are repeats of each other if they differ in nothing but the seed: a setting that is left out of the comparison turns
//! its influence into noise. So whole plans are compared, and no list of fields has to follow what the trainer learns.

use crate::Machine;
use serde_json::{Value, json};

/// The seed: what repeats differ in.
const SEED: &[&str] = &["seed"];
/// What runs of one job with more and fewer workers differ in.
const WORKERS: &[&str] = &["seed", "workers"];

/// The settings of a run, as what it has in common with others: thousands of runs are told apart by comparing and looking up
/// these, not by walking through their plans for every pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunSettings {
    /// The same in all repeats of a setting.
    repeats: String,
    /// The same in all runs of a job, with however many workers.
    job: String,
}

impl RunSettings {
    /// From a run's plan, whichever version wrote it, and its machine.
    #[must_use]
    pub fn of(plan: &Value, machine: Option<&Machine>) -> RunSettings {
        // What was asked for; what was decided where nothing was asked; the program and the machine.
        let asked = plan.get("spec").cloned().unwrap_or_default();
        let decided = ["workers", "servers", "replicas", "threads", "learning_rate", "strategy"];
        let decided: Value =
            decided.iter().map(|key| plan.get(key).cloned().unwrap_or_default()).collect();
        let surroundings = json!([
            plan.get("version"),
            machine.map(|machine| json!([machine.cpu, machine.cores])),
        ]);
        RunSettings {
            repeats: json!([without(&asked, SEED), decided, surroundings]).to_string(),
            job: json!([without(&asked, WORKERS), surroundings]).to_string(),
        }
    }

    /// Whether two runs differ in nothing but the seed.
    #[must_use]
    pub fn are_repeats(&self, other: &RunSettings) -> bool {
        self.repeats == other.repeats
    }

    /// What all repeats of a setting have in common and no other run has.
    #[must_use]
    pub fn repeats_key(&self) -> &str {
        &self.repeats
    }

    /// Whether two runs differ in nothing but seed and workers. What follows from the number of workers, such as the threads that
    /// each gets of a machine, may differ.
    #[must_use]
    pub fn differ_in_workers(&self, other: &RunSettings) -> bool {
        self.job == other.job
    }

    /// What all runs of a job have in common, with however many workers and whatever seed, and no other run has.
    #[must_use]
    pub fn job_key(&self) -> &str {
        &self.job
    }
}

/// An object without some keys, at any depth: sparse models keep their workers one level down.
fn without(value: &Value, keys: &[&str]) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !keys.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), without(value, keys)))
            .collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value)] // written in place, where a reference would be noise
    fn settings(spec: Value, threads: u64) -> RunSettings {
        RunSettings::of(&json!({ "spec": spec, "threads": threads, "version": "0.1.0" }), None)
    }

    #[test]
    fn repeats_differ_in_the_seed_and_in_nothing_else() {
        let base = settings(json!({ "model": "lenet", "seed": 1, "optimizer": "sgd" }), 2);
        assert!(
            base.are_repeats(&settings(
                json!({ "model": "lenet", "seed": 9, "optimizer": "sgd" }),
                2
            ))
        );
        for other in [
            settings(json!({ "model": "lenet", "seed": 1, "optimizer": "adam" }), 2),
            settings(json!({ "model": "lenet", "seed": 1, "optimizer": "sgd" }), 1),
            settings(
                json!({ "model": "lenet", "seed": 1, "optimizer": "sgd", "stop": { "epochs": 2 } }),
                2,
            ),
        ] {
            assert!(!base.are_repeats(&other), "{other:?}");
        }
    }

    #[test]
    fn runs_that_scale_differ_in_the_workers_and_what_follows_from_them() {
        let base =
            settings(json!({ "strategy": "multi-worker", "workers": 1, "batch_size": 64 }), 4);
        let more =
            settings(json!({ "strategy": "multi-worker", "workers": 4, "batch_size": 64 }), 1);
        assert!(base.differ_in_workers(&more) && !base.are_repeats(&more));
        let nested =
            |workers: u64| settings(json!({ "tasks": { "workers": workers, "servers": 1 } }), 1);
        assert!(nested(1).differ_in_workers(&nested(3)));
        for spec in [
            json!({ "strategy": "ps-sync", "workers": 4, "batch_size": 64 }),
            json!({ "strategy": "multi-worker", "workers": 4, "batch_size": 32 }),
        ] {
            assert!(!base.differ_in_workers(&settings(spec, 1)));
        }
    }
}
