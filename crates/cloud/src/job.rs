//! A job to rent machines for: `JOB.toml`.
//!
//! What was measured at hand (examples per second on so many cores), how much there is to do, what may be spent, and what the
//! account allows. Every key is in the user's file or has a default that the plan names.

use crate::error::CloudError;
use crate::quota::Limits;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A job as its file describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub name: String,
    /// The `paceline` command to submit, without `paceline`: `["train", "--model", …]`.
    #[serde(default)]
    pub command: Vec<String>,
    pub data: JobData,
    pub measured: MeasuredRate,
    #[serde(default)]
    pub exchange: Option<GradientExchange>,
    /// What each batch size reached, where it was measured.
    #[serde(default)]
    pub accuracy: Vec<BatchAccuracy>,
    #[serde(default)]
    pub limits: JobLimits,
    #[serde(default)]
    pub quota: Limits,
    #[serde(default)]
    pub shape: ShapeBounds,
}

/// What is to be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobData {
    pub gb: f64,
    pub examples: f64,
    /// Epochs, or 1 for preparing and reading.
    #[serde(default = "one")]
    pub passes: f64,
    /// Single files, such as photos; left out for shards, which are read in large blocks.
    #[serde(default)]
    pub files: Option<f64>,
    /// On each node's disk, or in a bucket.
    #[serde(default)]
    pub place: DataPlace,
}

/// Where the data lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataPlace {
    /// On each node's disk: its throughput bounds reading.
    #[default]
    Disk,
    /// In an object store: the machine's network bounds reading.
    Bucket,
}

/// How fast the job is on a machine at hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRate {
    pub examples_per_second: f64,
    /// Cores that gave that rate; left out where GPUs did.
    #[serde(default)]
    pub cores: Option<f64>,
    /// The GPU that gave it, by its name in the catalogue, and how many of them.
    #[serde(default)]
    pub gpu: Option<String>,
    #[serde(default)]
    pub gpus: Option<f64>,
    /// Memory that one node needs besides its data.
    #[serde(default)]
    pub memory_gib: f64,
}

/// What nodes send each other at every update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradientExchange {
    /// Bytes of one gradient in MB: four per weight.
    pub gradient_mb: f64,
    /// Examples of one update over all nodes.
    pub batch_size: f64,
    #[serde(default)]
    pub strategy: ExchangeStrategy,
}

/// Who sends what to whom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeStrategy {
    /// Ring all-reduce.
    #[default]
    MultiWorker,
    /// One synchronous parameter server.
    PsSync,
    /// One asynchronous parameter server.
    PsAsync,
}

/// The accuracy that training with a batch size reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchAccuracy {
    pub batch_size: f64,
    pub accuracy: f64,
}

/// What the answer must keep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobLimits {
    #[serde(default)]
    pub deadline_minutes: Option<f64>,
    #[serde(default)]
    pub budget_usd: Option<f64>,
    #[serde(default)]
    pub accuracy: Option<f64>,
}

/// Which shapes to consider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeBounds {
    #[serde(default = "sixteen")]
    pub max_nodes: u32,
    /// Machines beside the nodes that work: a Dataproc master, a parameter server of its own.
    #[serde(default)]
    pub extra_nodes: u32,
    /// Machine types; all of the catalogue where empty.
    #[serde(default)]
    pub machines: Vec<String>,
    /// Seconds until the nodes work: booting, fetching the image.
    #[serde(default = "ninety")]
    pub start_seconds: f64,
    #[serde(default)]
    pub gpus_per_node: u32,
    /// The provider's name of the GPU, as its quotas have it.
    #[serde(default)]
    pub gpu: Option<String>,
}

impl Default for ShapeBounds {
    fn default() -> Self {
        Self {
            max_nodes: sixteen(),
            extra_nodes: 0,
            machines: Vec::new(),
            start_seconds: ninety(),
            gpus_per_node: 0,
            gpu: None,
        }
    }
}

fn one() -> f64 {
    1.0
}

fn sixteen() -> u32 {
    16
}

fn ninety() -> f64 {
    90.0
}

/// More nodes than any quota has, and few enough to try them all.
const MOST_NODES: u32 = 1000;

impl MeasuredRate {
    /// Whether it says what gave the rate: cores or GPUs.
    fn check(&self, file: &str) -> Result<(), CloudError> {
        let refuse = |key: &str, found: Option<f64>, needed| {
            let found = found.map_or_else(|| "missing".to_owned(), |found| found.to_string());
            Err(CloudError::Value { file: file.to_owned(), key: key.to_owned(), found, needed })
        };
        match (&self.gpu, self.cores, self.gpus) {
            (None, None, _) => {
                refuse("measured.cores", None, "given, or measured.gpu: what gave the rate")
            }
            (Some(_), Some(_), _) => refuse(
                "measured.cores",
                self.cores,
                "left out beside measured.gpu: what gave the rate",
            ),
            (None, _, Some(_)) => {
                refuse("measured.gpus", self.gpus, "given together with measured.gpu")
            }
            _ => Ok(()),
        }
    }
}

impl Job {
    /// Reads and checks `JOB.toml`.
    pub fn read(path: &Path) -> Result<Self, CloudError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CloudError::Read { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// As [`Job::read`], from text; `file` names it in errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, CloudError> {
        let job: Self = toml::from_str(text).map_err(|source| CloudError::Toml {
            file: file.to_owned(),
            what: "job file",
            source: Box::new(source),
        })?;
        job.check(file)?;
        Ok(job)
    }

    fn check(&self, file: &str) -> Result<(), CloudError> {
        let above = [
            ("data.gb", Some(self.data.gb)),
            ("data.examples", Some(self.data.examples)),
            ("data.passes", Some(self.data.passes)),
            ("data.files", self.data.files),
            ("measured.examples_per_second", Some(self.measured.examples_per_second)),
            ("measured.cores", self.measured.cores),
            ("measured.gpus", self.measured.gpus),
            ("exchange.gradient_mb", self.exchange.as_ref().map(|exchange| exchange.gradient_mb)),
            ("exchange.batch_size", self.exchange.as_ref().map(|exchange| exchange.batch_size)),
            ("limits.deadline_minutes", self.limits.deadline_minutes),
            ("limits.budget_usd", self.limits.budget_usd),
            ("shape.max_nodes", Some(f64::from(self.shape.max_nodes))),
        ];
        let refuse = |key: &str, found: f64, needed| {
            Err(CloudError::Value {
                file: file.to_owned(),
                key: key.to_owned(),
                found: found.to_string(),
                needed,
            })
        };
        for (key, value) in above {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return refuse(key, value, "above zero");
            }
        }
        let least = [
            ("measured.memory_gib", self.measured.memory_gib),
            ("shape.start_seconds", self.shape.start_seconds),
        ];
        for (key, value) in least {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(key, value, "zero or above");
            }
        }
        self.measured.check(file)?;
        if self.shape.max_nodes > MOST_NODES {
            return refuse("shape.max_nodes", f64::from(self.shape.max_nodes), "at most 1000");
        }
        for entry in &self.accuracy {
            if !(0.0..=1.0).contains(&entry.accuracy) {
                return refuse("accuracy.accuracy", entry.accuracy, "between 0 and 1");
            }
            if !(entry.batch_size.is_finite() && entry.batch_size >= 1.0) {
                return refuse("accuracy.batch_size", entry.batch_size, "at least 1");
            }
        }
        if let Some(accuracy) = self.limits.accuracy
            && self.accuracy.is_empty()
        {
            return refuse(
                "limits.accuracy",
                accuracy,
                "left out, or [[accuracy]] given: which batch size reaches what",
            );
        }
        if !self.accuracy.is_empty() && self.exchange.is_none() {
            return Err(CloudError::Missing {
                target: "[[accuracy]]",
                key: "[exchange]: what nodes send each other at every update",
            });
        }
        if (self.shape.gpus_per_node > 0) != self.shape.gpu.is_some() {
            return refuse(
                "shape.gpus_per_node",
                f64::from(self.shape.gpus_per_node),
                "given together with shape.gpu",
            );
        }
        Ok(())
    }

    /// Batch sizes to consider, with the accuracy of each where it is known.
    pub(crate) fn batches(&self) -> Vec<(Option<f64>, Option<f64>)> {
        match &self.exchange {
            None => vec![(None, None)],
            Some(exchange) if self.accuracy.is_empty() => vec![(Some(exchange.batch_size), None)],
            Some(_) => {
                let entry = |entry: &BatchAccuracy| (Some(entry.batch_size), Some(entry.accuracy));
                self.accuracy.iter().map(entry).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "name = 'flowers'\n[data]\ngb = 0.22\nexamples = 3670\n[measured]\nexamples_per_second = 40\ncores = 2\n";

    #[test]
    fn defaults_are_one_pass_from_disk_on_up_to_sixteen_nodes() {
        let job = Job::parse("job.toml", JOB).unwrap();
        assert_eq!((job.data.passes, job.data.place), (1.0, DataPlace::Disk));
        assert_eq!((job.shape.max_nodes, job.shape.start_seconds), (16, 90.0));
    }

    #[test]
    fn values_that_cannot_be_are_refused_with_their_key() {
        let refused = [
            ("gb = 0.22", "gb = -1", "`job.toml`: data.gb is -1, must be above zero"),
            ("cores = 2", "cores = nan", "`job.toml`: measured.cores is NaN, must be above zero"),
            (
                "cores = 2",
                "cores = 2\n[shape]\nmax_nodes = 4000",
                "`job.toml`: shape.max_nodes is 4000, must be at most 1000",
            ),
            (
                "cores = 2",
                "cores = 2\n[limits]\naccuracy = 0.9",
                "`job.toml`: limits.accuracy is 0.9, must be left out, or [[accuracy]] given: which batch size reaches what",
            ),
            (
                "cores = 2",
                "cores = 2\n[shape]\ngpus_per_node = 1",
                "`job.toml`: shape.gpus_per_node is 1, must be given together with shape.gpu",
            ),
        ];
        for (from, to, message) in refused {
            let error = Job::parse("job.toml", &JOB.replace(from, to)).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(error.is_usage());
        }
        assert!(matches!(Job::parse("job.toml", "names = 1"), Err(CloudError::Toml { .. })));
    }
}
