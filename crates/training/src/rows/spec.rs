//! What was asked for.

use crate::{
    Stop, TrainError,
    checkpoint::Policy,
    rows::{Plan, Tasks},
    spec::Common,
};
use paceline_data::{
    FileMark,
    rows::{Hashing, Input, Prepared, expand},
};
use paceline_models::sparse_logistic::{self, Rule, Settings};
use paceline_runs::{AskedSettings, RunFolder, RunKind};
use paceline_strategies::Combine;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// When rows that have arrived are learned from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Window {
    /// At once.
    #[default]
    None,
    /// When at least so many wait.
    Rows(u64),
    /// At the end of every such span, in seconds.
    Seconds(f64),
}

/// Where rows come from, as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSpec {
    /// Files and folders, separated by commas; `-` is standard input.
    Read(String),
    /// A file that grows.
    Follow(PathBuf),
}

impl DataSpec {
    /// The input it means.
    ///
    /// # Errors
    /// Files that are not there.
    pub fn input(&self) -> Result<Input, TrainError> {
        Ok(match self {
            Self::Read(list) if list == "-" => Input::Standard,
            Self::Read(list) => Input::Files(expand(list)?),
            Self::Follow(path) => Input::Follow(path.clone()),
        })
    }
}

impl std::fmt::Display for DataSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(list) if list == "-" => f.write_str("standard input"),
            Self::Read(list) => f.write_str(list),
            Self::Follow(path) => write!(f, "{} (followed)", path.display()),
        }
    }
}

/// A run as asked for. Unknown keys are errors: a typo must not become a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Model's name: always the same, so that lists of runs can show it.
    pub model: String,
    /// Where rows come from.
    pub data: DataSpec,
    /// Their format; recognised by the first lines where absent.
    pub format: Option<String>,
    /// How features become weight numbers.
    pub hashing: Hashing,
    /// Rule of updates.
    pub optimizer: String,
    /// Learning rate.
    pub learning_rate: f32,
    /// L1 penalty.
    pub l1: f32,
    /// L2 penalty.
    pub l2: f32,
    /// Added to the root of the sum of squares before dividing by it; the rule's own default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<f32>,
    /// Rows of one update; 1 learns from each row as it comes.
    pub batch_size: u64,
    /// Whether an update is the sum or the mean of its rows' gradients.
    #[serde(default)]
    pub combine: Combine,
    /// Passes over the files.
    pub epochs: u64,
    /// When rows that have arrived are learned from.
    pub window: Window,
    /// Held-out rows, scored while training continues.
    pub test: Option<String>,
    /// Stop when the loss on held-out rows has fallen to this.
    pub until_loss: Option<f64>,
    /// Rows between two scores of the held-out rows; by time where absent.
    pub eval_every: Option<u64>,
    /// Rows between two checkpoints; by time where absent.
    pub checkpoint_every: Option<u64>,
    /// Checkpoints to keep.
    pub keep: usize,
    /// Threads to read, parse and learn on; all cores this process may use where absent.
    pub threads: Option<usize>,
    /// Learn on one thread at a time, in order: the same weights on every run, to the bit.
    pub deterministic: bool,
    /// Largest share of malformed lines.
    pub max_rejects: f64,
    /// Whether to write TensorBoard files.
    pub tensorboard: bool,
    /// The tasks that share the work; absent where one process does it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Tasks>,
}

impl Spec {
    /// A run with everything left to its default.
    ///
    /// # Errors
    /// An unknown rule.
    pub fn new(data: DataSpec, optimizer: &str) -> Result<Self, TrainError> {
        let defaults = sparse_logistic::rules::find(optimizer)?.defaults;
        Ok(Self {
            model: sparse_logistic::NAME.to_owned(),
            data,
            format: None,
            hashing: Hashing::default(),
            optimizer: optimizer.to_owned(),
            learning_rate: defaults.rate,
            l1: defaults.l1,
            l2: defaults.l2,
            beta: None,
            batch_size: 1,
            combine: Combine::Sum,
            epochs: 1,
            window: Window::None,
            test: None,
            until_loss: None,
            eval_every: None,
            checkpoint_every: None,
            keep: 2,
            threads: None,
            deterministic: false,
            max_rejects: 0.01,
            tensorboard: true,
            tasks: None,
        })
    }

    /// What it has in common with runs on examples.
    pub(crate) fn common(&self) -> Common {
        Common {
            kind: RunKind::Rows,
            batch_size: self.batch_size,
            stop: Stop {
                epochs: Some(self.epochs as f64),
                steps: self.tasks.as_ref().and_then(|tasks| tasks.steps),
                until_loss: self.until_loss,
            },
            eval_every: self.eval_every,
            checkpoints: Policy::new(self.checkpoint_every, self.keep),
            threads: self.threads,
        }
    }

    /// Strategy's name, in records.
    #[must_use]
    pub fn strategy(&self) -> &str {
        self.tasks.as_ref().map_or("one-device", |tasks| &tasks.strategy)
    }

    /// The rule's settings.
    ///
    /// # Errors
    /// An unknown rule, or settings out of range.
    pub fn rule(&self) -> Result<(Rule, Settings), TrainError> {
        let defaults = sparse_logistic::rules::find(&self.optimizer)?.defaults;
        let beta = self.beta.unwrap_or(defaults.beta);
        let settings = Settings { rate: self.learning_rate, l1: self.l1, l2: self.l2, beta };
        Ok((Rule::new(&self.optimizer, settings)?, settings))
    }

    /// Checks what decides the meaning of weights.
    pub(crate) fn check_model(&self) -> Result<(), TrainError> {
        self.rule()?;
        if Hashing::BITS.contains(&self.hashing.bits) {
            return Ok(());
        }
        let found = self.hashing.bits.to_string();
        Err(TrainError::Setting {
            setting: "the number of bits",
            found,
            wanted: "between 1 and 31".to_owned(),
        })
    }

    /// Takes over how rows were hashed, where they were hashed before.
    ///
    /// # Errors
    /// A description of prepared rows that cannot be read.
    pub fn adopt_prepared(&mut self) -> Result<(), TrainError> {
        let DataSpec::Read(list) = &self.data else { return Ok(()) };
        if let Some(prepared) = Prepared::read(Path::new(list))? {
            self.hashing = prepared.hashing;
        }
        Ok(())
    }

    /// What identifies the files to be read; nothing for rows that come as they are written.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn marks(&self) -> Result<Vec<FileMark>, TrainError> {
        match self.data.input()? {
            Input::Files(files) => Ok(FileMark::of_files(&files)?),
            Input::Standard | Input::Follow(_) => Ok(Vec::new()),
        }
    }

    /// What all tasks of a run must have in common: settings and data. Where the data lie and how fast a task works is
    /// its own affair.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn shared(&self) -> Result<serde_json::Value, TrainError> {
        let mut shared = serde_json::to_value(Self { threads: None, ..self.clone() })
            .expect("a specification is plain data");
        let (files, bytes, contents) = FileMark::total(&self.marks()?);
        shared["data"] =
            serde_json::json!({ "files": files, "bytes": bytes, "contents": contents });
        Ok(shared)
    }

    /// Refuses to continue a run on other files than it began on. A file that has `grown` at its end may count as the
    /// same; runs of 0.1 did not write down what they read.
    pub(crate) fn check_data(&self, run: &RunFolder, grown: bool) -> Result<(), TrainError> {
        let old: Plan = run.plan()?;
        let marks = &old.details.data;
        let Input::Files(files) = self.data.input()? else { return Ok(()) };
        if marks.is_empty() {
            return Ok(());
        }
        match FileMark::difference(marks, &files, grown)? {
            None => Ok(()),
            Some((found, wanted)) => Err(TrainError::ResumeMismatch {
                path: run.path().to_path_buf(),
                what: "the data",
                found,
                wanted,
            }),
        }
    }

    /// Checks what can be checked without reading anything.
    ///
    /// # Errors
    /// The first setting that makes no sense.
    pub fn check(&self) -> Result<(), TrainError> {
        let bad = |setting, found: String, wanted: &str| {
            Err(TrainError::Setting { setting, found, wanted: wanted.to_owned() })
        };
        self.check_model()?;
        self.common().check()?;
        if self.epochs > 1 && self.data.input()?.is_live() {
            let found = self.epochs.to_string();
            return bad("the number of epochs", found, "1 where the data is read as it comes");
        }
        if !(0.0..=1.0).contains(&self.max_rejects) {
            return bad("the share of rejects", self.max_rejects.to_string(), "between 0 and 1");
        }
        if self.until_loss.is_some() && self.test.is_none() {
            return bad("the loss to reach", "given".to_owned(), "used with held-out rows");
        }
        if let Some(tasks) = &self.tasks {
            tasks.check(self)?;
        }
        match self.window {
            Window::Rows(0) => bad("the window", "0".to_owned(), "positive"),
            Window::Seconds(span) if !(span > 0.0 && span.is_finite()) => {
                bad("the window", span.to_string(), "positive")
            }
            _ => Ok(()),
        }
    }
}

impl AskedSettings for Spec {
    fn model(&self) -> &str {
        &self.model
    }

    /// Rows are read in the order of their files, and weights begin at zero.
    fn seed(&self) -> u64 {
        0
    }

    fn batch_size(&self) -> u64 {
        self.batch_size
    }
}
