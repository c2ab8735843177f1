//! What was asked for.

use crate::{
    Loss, Stop, TrainError,
    checkpoint::Policy,
    memory,
    rows::{Plan, Tasks, memory::Holder},
    spec::{Common, uniform_range},
};
use paceline_data::{
    FileMark,
    rows::{Hashing, Input, Prepared, expand},
};
use paceline_models::sparse_logistic::{self, RowLoss, Rule, RuleSettings, SparseLogistic};
use paceline_runs::{AskedSettings, RunFolder, RunKind};
use paceline_strategies::Combine;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Rows of an update where weights travel for it, unless another number is asked for.
const SHARED_BATCH: u64 = 32;

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

    /// The first file there is to look at; none for standard input, and for files that are not there.
    #[must_use]
    pub fn first_file(&self) -> Option<PathBuf> {
        match self {
            Self::Read(list) if list == "-" => None,
            Self::Read(list) => expand(list).ok()?.into_iter().next(),
            Self::Follow(path) => Some(path.clone()),
        }
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
pub struct RowsSpec {
    /// Model's name: always the same, so that lists of runs can show it.
    pub model: String,
    /// Where rows come from.
    pub data: DataSpec,
    /// Their format; recognised by the first lines where absent.
    pub format: Option<String>,
    /// How features become weight numbers.
    pub hashing: Hashing,
    pub optimizer: String,
    pub learning_rate: f32,
    /// L1 penalty.
    pub l1: f32,
    /// L2 penalty; `l2` in runs of 0.1.
    #[serde(rename = "weight_decay", alias = "l2")]
    pub l2: f32,
    /// Added to the root of the sum of squares before dividing by it; the rule's own default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<f32>,
    /// The loss of a row; logistic where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Weights to start from: `uniform:A:B` for values between the two; zero where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<String>,
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

impl RowsSpec {
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
            loss: None,
            init: None,
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

    /// Lets tasks share the work; `None` is one process. Without a batch size that was asked for, an update has few
    /// enough rows that they hardly notice being learned from together: one process learns from each row as it comes,
    /// but here weights travel for every update.
    pub fn share_out(&mut self, tasks: Option<Tasks>, batch_size: Option<u64>) {
        if let (Some(tasks), None) = (&tasks, batch_size) {
            self.batch_size = SHARED_BATCH.max(tasks.workers as u64);
        }
        self.tasks = tasks;
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
                no_gain: None,
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
    pub fn rule(&self) -> Result<(Rule, RuleSettings), TrainError> {
        let defaults = sparse_logistic::rules::find(&self.optimizer)?.defaults;
        let beta = self.beta.unwrap_or(defaults.beta);
        let settings = RuleSettings { rate: self.learning_rate, l1: self.l1, l2: self.l2, beta };
        Ok((Rule::new(&self.optimizer, settings)?, settings))
    }

    /// What a prediction of a row costs.
    pub(crate) fn row_loss(&self) -> RowLoss {
        match self.loss {
            Some(Loss::Hinge) => RowLoss::Hinge,
            Some(Loss::CrossEntropy) | None => RowLoss::Logistic,
        }
    }

    /// The least and the greatest weight to start from, where they are drawn between two numbers.
    pub(crate) fn init_range(&self) -> Result<Option<(f32, f32)>, TrainError> {
        self.init.as_deref().map_or(Ok(None), uniform_range)
    }

    /// The weights that servers begin with, where these are not zero.
    pub(crate) fn fresh_model(&self) -> Result<Option<SparseLogistic>, TrainError> {
        let Some(range) = self.init_range()? else { return Ok(None) };
        let (_, settings) = self.rule()?;
        let model = SparseLogistic::new(self.hashing.bits, &self.optimizer, settings)?;
        model.draw(range);
        Ok(Some(model))
    }

    /// Checks what decides the meaning of weights.
    pub(crate) fn check_model(&self) -> Result<(), TrainError> {
        self.rule()?;
        if let (Some(init), None) = (&self.init, self.init_range()?) {
            return Err(TrainError::Setting {
                setting: "what weights start from",
                found: format!("`{init}`"),
                wanted: "`uniform:A:B` for this model, such as `uniform:-10:10`".to_owned(),
            });
        }
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
        match &self.tasks {
            Some(tasks) => tasks.check(self)?,
            None => Holder::Process.check(self.hashing.bits, memory::limit())?,
        }
        match self.window {
            Window::Rows(0) => bad("the window", "0".to_owned(), "positive"),
            Window::Seconds(span) if !(span > 0.0 && span.is_finite()) => {
                bad("the window", span.to_string(), "positive")
            }
            _ => Ok(()),
        }
    }

    /// Checks that the memory of this machine holds the weights of all tasks, where they are all on it.
    ///
    /// # Errors
    /// [`TrainError::RowsMemory`], with the bits that fit.
    pub fn check_one_machine(&self) -> Result<(), TrainError> {
        let Some(tasks) = &self.tasks else { return Ok(()) };
        let evaluator = tasks.evaluator && self.test.is_some();
        Holder::Tasks { evaluator }.check(self.hashing.bits, memory::limit())
    }
}

impl AskedSettings for RowsSpec {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunSpec;
    use paceline_data::rejects::RejectLimit;
    use std::collections::BTreeMap;

    fn tasks(workers: usize) -> Tasks {
        Tasks {
            strategy: "ps-async".to_owned(),
            workers,
            servers: 1,
            transfer: Default::default(),
            on_loss: Default::default(),
            steps: None,
            evaluator: false,
        }
    }

    #[test]
    fn rows_of_an_update_are_one_alone_and_enough_for_all_workers_of_several() {
        let mut spec = RowsSpec::new(DataSpec::Read("rows.tsv".to_owned()), "adagrad").unwrap();
        spec.share_out(None, None);
        assert_eq!((spec.batch_size, spec.tasks.is_none()), (1, true));
        spec.share_out(Some(tasks(2)), None);
        assert_eq!((spec.batch_size, spec.strategy()), (32, "ps-async"));
        spec.share_out(Some(tasks(50)), None);
        assert_eq!(spec.batch_size, 50);
        spec.batch_size = 7;
        spec.share_out(Some(tasks(50)), Some(7));
        assert_eq!(spec.batch_size, 7);
    }

    #[test]
    fn the_first_file_is_one_that_can_be_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.tsv");
        let read = |list: String| DataSpec::Read(list).first_file();
        assert_eq!(read(file.display().to_string()), None);
        std::fs::write(&file, "1\t2\n").unwrap();
        assert_eq!(read(format!("{},elsewhere", file.display())), None);
        assert_eq!(read(file.display().to_string()), Some(file.clone()));
        assert_eq!(read("-".to_owned()), None);
        assert_eq!(DataSpec::Follow(file.clone()).first_file(), Some(file));
    }

    /// Every setting of a specification by its own name, whichever group it stands in, with the kind of JSON it is.
    fn settings(spec: serde_json::Value, groups: &[&str]) -> BTreeMap<String, &'static str> {
        let serde_json::Value::Object(fields) = spec else { panic!("{spec} is not an object") };
        let mut found = BTreeMap::new();
        for (name, value) in fields {
            let kind = match &value {
                serde_json::Value::Null => panic!("{name} is not set"),
                serde_json::Value::Bool(_) => "bool",
                serde_json::Value::Number(_) => "number",
                serde_json::Value::String(_) => "string",
                serde_json::Value::Array(_) => "array",
                serde_json::Value::Object(_) => "object",
            };
            if groups.contains(&name.as_str()) {
                found.extend(settings(value, &[]));
            } else {
                found.insert(name, kind);
            }
        }
        found
    }

    /// The two loops have settings of their own; a reader of `plan.json` must not care which of them made the run.
    #[test]
    fn a_setting_of_both_kinds_of_run_has_one_name_and_one_form() {
        let mut rows = RowsSpec::new(DataSpec::Read("rows.tsv".to_owned()), "adagrad").unwrap();
        rows.tasks = Some(Tasks { steps: Some(9), evaluator: true, ..tasks(2) });
        (rows.format, rows.test) = (Some("vw".to_owned()), Some("test.vw".to_owned()));
        (rows.beta, rows.until_loss, rows.threads) = (Some(1.0), Some(0.5), Some(2));
        (rows.eval_every, rows.checkpoint_every) = (Some(10), Some(10));
        let examples = RunSpec {
            stop: Stop { epochs: Some(1.0), steps: Some(9), until_loss: Some(0.5), no_gain: None },
            learning_rate: Some(0.1),
            momentum: Some(0.9),
            weight_decay: Some(0.1),
            threads: Some(2),
            replicas: Some(1),
            max_staleness: Some(4),
            eval_every: Some(10),
            checkpoint_every: Some(10),
            init: Some("weights.safetensors".into()),
            dropout: Some(0.5),
            max_rejects: Some(RejectLimit::Percent(1.0)),
            ..RunSpec::new("lenet", "digits")
        };
        let rows = settings(serde_json::to_value(rows).unwrap(), &["tasks"]);
        let examples = settings(serde_json::to_value(examples).unwrap(), &["stop"]);
        // Rows say how their files are read, and count malformed lines as a share: their number is not known beforehand.
        let differ = ["data", "max_rejects"];
        let shared: Vec<&String> =
            rows.keys().filter(|name| examples.contains_key(*name)).collect();
        for name in &shared {
            let same = rows[*name] == examples[*name];
            assert_eq!(same, !differ.contains(&name.as_str()), "{name}");
        }
        for name in [
            "model",
            "strategy",
            "batch_size",
            "learning_rate",
            "optimizer",
            "weight_decay",
            "combine",
            "epochs",
            "steps",
            "until_loss",
        ] {
            assert!(shared.iter().any(|it| *it == name), "{name}: {shared:?}");
        }
        // What only rows have; a setting that moves or is spelled differently would show up here.
        let own: Vec<&str> =
            rows.keys().filter(|name| !examples.contains_key(*name)).map(String::as_str).collect();
        assert_eq!(own, ["beta", "deterministic", "format", "hashing", "l1", "test", "window"]);
    }
}
