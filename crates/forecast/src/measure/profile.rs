//! A job's steps as a file that any program can write: what a simulation rests on where it has no run folder.

use super::Measured;
use crate::error::ForecastError;
use paceline_runs::{RunFolder, RunView, write_atomically};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Seconds that no step takes: rates of such steps come out as zero.
const CENTURY: f64 = 3.2e9;

/// What one worker's steps take, by batch size, and what they exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepProfile {
    /// What the model is called.
    pub name: String,
    /// By rising batch size.
    pub steps: Vec<ProfiledSteps>,
    /// Trained values: each worker sends a gradient of as many.
    pub parameters: f64,
    /// Bytes of one value of the gradient: 2 where it travels in half precision.
    #[serde(default = "whole_float")]
    pub value_bytes: f64,
    /// Parts of the gradient that travel on their own while the backward pass goes on; without them all of it at its end.
    #[serde(default)]
    pub messages: Vec<ProfiledMessage>,
    /// Seconds of a server for one update; without it what reading and writing the weights take in memory.
    #[serde(default)]
    pub update_seconds: Option<f64>,
    /// Share of a step that is input, which a loader beside the step hides.
    #[serde(default)]
    pub input_share: f64,
    /// Threads of the worker.
    #[serde(default = "one")]
    pub threads: usize,
    /// Cores of its host, which workers there will share; without it each has what this one had, as with one accelerator each.
    #[serde(default)]
    pub cores: Option<f64>,
}

/// Steps of one batch size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfiledSteps {
    /// Examples of a step.
    pub batch_size: u64,
    /// Seconds of input and compute, without exchange: of several steps, so that their spread is known.
    pub seconds: Vec<f64>,
}

/// A part of the gradient.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfiledMessage {
    /// Share of the step after which it is final, 0 to 1.
    pub at: f64,
    pub parameters: f64,
}

fn whole_float() -> f64 {
    4.0
}

fn one() -> usize {
    1
}

impl ProfiledSteps {
    /// Their middle one.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl StepProfile {
    /// Reads a file and refuses what cannot be, naming where.
    pub fn read(path: &Path) -> Result<Self, ForecastError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ForecastError::Read { path: path.to_path_buf(), source })?;
        let found: Self = serde_json::from_str(&text).map_err(|source| {
            let what = format!("is not a profile of steps: {source}");
            ForecastError::BadProfile { path: path.to_path_buf(), what }
        })?;
        match found.fault() {
            None => Ok(found),
            Some(what) => Err(ForecastError::BadProfile { path: path.to_path_buf(), what }),
        }
    }

    /// What is wrong with it, if anything is.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let above = |value: f64| value.is_finite() && value > 0.0;
        let share = |value: f64| (0.0..=1.0).contains(&value);
        if self.steps.is_empty() {
            return Some("`steps` is empty: at least one batch size is needed".to_owned());
        }
        for (at, steps) in self.steps.iter().enumerate() {
            let place = format!("steps {}, batch size {}", at + 1, steps.batch_size);
            if at > 0 && self.steps[at - 1].batch_size >= steps.batch_size || steps.batch_size == 0
            {
                return Some(format!("{place}: batch sizes must be above 0 and rise"));
            }
            if steps.seconds.is_empty() {
                return Some(format!("{place}: `seconds` is empty"));
            }
            let can_be = |seconds: &f64| above(*seconds) && *seconds < CENTURY;
            if let Some(bad) = steps.seconds.iter().find(|seconds| !can_be(seconds)) {
                return Some(format!(
                    "{place}: a step of {bad} s, expected above 0 and less than a century"
                ));
            }
        }
        for (name, value) in [
            ("parameters", self.parameters),
            ("value_bytes", self.value_bytes),
            ("threads", self.threads as f64),
            ("cores", self.cores.unwrap_or(1.0)),
        ] {
            if !above(value) {
                return Some(format!("`{name}` is {value}, expected above 0"));
            }
        }
        let update = self.update_seconds.unwrap_or(0.0);
        if !(update.is_finite() && update >= 0.0) {
            return Some(format!("`update_seconds` is {update}, expected 0 or more"));
        }
        if !(share(self.input_share) && self.input_share < 1.0) {
            return Some(format!("`input_share` is {}, expected below 1", self.input_share));
        }
        let mut sum = 0.0;
        for (at, message) in self.messages.iter().enumerate() {
            if !share(message.at) || !above(message.parameters) {
                let what = "`at` must be between 0 and 1, `parameters` above 0";
                return Some(format!("message {}: {what}", at + 1));
            }
            sum += message.parameters;
        }
        // Rounded numbers are still the same gradient.
        if !self.messages.is_empty() && (sum / self.parameters - 1.0).abs() > 0.01 {
            let all = self.parameters;
            return Some(format!("messages of {sum} parameters in all, the model has {all}"));
        }
        None
    }

    /// Adds steps of a batch size, in place of those it had.
    pub fn put(&mut self, batch_size: u64, seconds: Vec<f64>) {
        self.steps.retain(|steps| steps.batch_size != batch_size);
        let at = self.steps.partition_point(|steps| steps.batch_size < batch_size);
        self.steps.insert(at, ProfiledSteps { batch_size, seconds });
    }

    /// Adds the steps of a run to a file, which is made where there is none: those of other batch sizes stay.
    pub fn add_run(path: &Path, run: &Path) -> Result<Self, ForecastError> {
        let measured = Measured::read(&RunFolder::open(run)?, false)?;
        let workload = &measured.workload;
        let parameters = workload.gradient_bytes / whole_float();
        let name = RunView::read(run)?.summary.model;
        let mut profile = if path.exists() {
            Self::read(path)?
        } else {
            Self {
                name,
                steps: Vec::new(),
                parameters,
                value_bytes: whole_float(),
                messages: Vec::new(),
                update_seconds: None,
                input_share: workload.input,
                threads: workload.threads as usize,
                cores: None,
            }
        };
        if profile.parameters != parameters {
            let was = profile.parameters;
            let what = format!("is of a model of {was} parameters, the run of one of {parameters}");
            return Err(ForecastError::BadProfile { path: path.to_path_buf(), what });
        }
        profile.put(workload.examples.round().max(1.0) as u64, workload.steps.clone());
        profile.write(path)?;
        Ok(profile)
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<(), ForecastError> {
        let text = serde_json::to_string_pretty(self).map_err(|source| {
            let what = format!("cannot be written: {source}");
            ForecastError::BadProfile { path: path.to_path_buf(), what }
        })?;
        Ok(write_atomically(path, format!("{text}\n").as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<StepProfile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resnet.json");
        std::fs::write(&path, text).unwrap();
        StepProfile::read(&path).map_err(|error| error.to_string())
    }

    fn with(field: &str) -> String {
        format!(
            r#"{{"name": "resnet50", "steps": [{{"batch_size": 32, "seconds": [0.1, 0.12]}}], "parameters": 25.6e6{field}}}"#
        )
    }

    #[test]
    fn what_is_not_said_has_a_default_and_what_is_written_is_read_again() {
        let mut found = read(&with("")).unwrap();
        assert_eq!((found.value_bytes, found.threads, found.cores), (4.0, 1, None));
        found.put(16, vec![0.06]);
        found.put(32, vec![0.11]);
        let sizes: Vec<u64> = found.steps.iter().map(|steps| steps.batch_size).collect();
        assert_eq!((sizes, found.steps[1].median()), (vec![16, 32], 0.11));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("again.json");
        found.write(&path).unwrap();
        assert_eq!(StepProfile::read(&path).unwrap(), found);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (text, part) in [
            (with(r#", "threads": 0"#), "`threads` is 0"),
            (with(r#", "input_share": 1.5"#), "`input_share` is 1.5"),
            (with(r#", "update_seconds": -1"#), "`update_seconds` is -1"),
            (with(r#", "messages": [{"at": 2, "parameters": 1}]"#), "message 1"),
            (with(r#", "messages": [{"at": 1, "parameters": 1e6}]"#), "the model has 25600000"),
            (with(r#", "batch": 3"#), "unknown field `batch`"),
            (with("").replace("0.12", "-1"), "batch size 32: a step of -1 s"),
            (with("").replace("0.12", "1e308"), "less than a century"),
            (with("").replace("[0.1, 0.12]", "[]"), "`seconds` is empty"),
            (with("").replace("25.6e6", "0"), "`parameters` is 0"),
            (r#"{"name": "x", "steps": [], "parameters": 1}"#.to_owned(), "`steps` is empty"),
            ("[]".to_owned(), "is not a profile of steps"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains("resnet.json") && error.contains(part), "{part}: {error}");
        }
        let falling = with("").replace(
            r#"[{"batch_size": 32"#,
            r#"[{"batch_size": 64, "seconds": [1]}, {"batch_size": 32"#,
        );
        assert!(read(&falling).unwrap_err().contains("must be above 0 and rise"));
    }
}
