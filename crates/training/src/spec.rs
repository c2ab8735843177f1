//! What was asked for.

use crate::{ClassWeights, Loss, TrainError, checkpoint::Policy};
use paceline_cluster::session::OnLoss;
use paceline_data::{Augment, rejects::RejectLimit};
use paceline_models::{Activation, PixelScale};
use paceline_runs::{AskedSettings, RunKind};
use paceline_strategies::{Combine, Compression, SplitDense, StrategyOptions, Transfer};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A run as asked for. Unknown keys are errors: a typo must not become a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    pub model: String,
    /// A data set: a path, or `generated:…`.
    pub data: String,
    #[serde(default = "one_device")]
    pub strategy: String,
    /// Examples of one update, over all replicas.
    #[serde(default = "batch_size")]
    pub batch_size: u64,
    #[serde(default)]
    pub stop: Stop,
    /// Learning rate; the optimiser's own default where absent.
    #[serde(default)]
    pub learning_rate: Option<f32>,
    #[serde(default = "sgd")]
    pub optimizer: String,
    /// Momentum, for the optimisers that have it.
    #[serde(default)]
    pub momentum: Option<f32>,
    /// L2 penalty.
    #[serde(default)]
    pub weight_decay: Option<f32>,
    /// Learning-rate schedule, such as `warmup:5+cosine`.
    #[serde(default = "constant")]
    pub schedule: String,
    /// Grow the batch where the schedule would lower the rate.
    #[serde(default)]
    pub grow_batch: bool,
    /// Parts of a batch whose gradients are added up one after the other, so that a large batch needs less memory.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub accumulate: usize,
    /// Seed of everything random.
    #[serde(default)]
    pub seed: u64,
    /// Threads of all replicas together; the cores this process may use where absent.
    #[serde(default)]
    pub threads: Option<usize>,
    /// Replicas in this process; 1 for one device, else one per thread where absent.
    #[serde(default)]
    pub replicas: Option<usize>,
    /// Tasks that train, for strategies of several processes.
    #[serde(default = "one")]
    pub workers: usize,
    /// Tasks that hold the weights, for strategies that need them.
    #[serde(default)]
    pub servers: usize,
    /// Whether a task of its own scores the model; the chief does otherwise.
    #[serde(default)]
    pub evaluator: bool,
    /// Whether every worker scores the weights that it ends with.
    #[serde(default, skip_serializing_if = "is_false")]
    pub evaluate_workers: bool,
    /// How the gradients of one update become one (ps-sync).
    #[serde(default)]
    pub combine: Combine,
    /// Workers whose gradients an update does not wait for (ps-sync).
    #[serde(default)]
    pub backup_workers: usize,
    /// No update is made from weights older than this many updates (ps-async).
    #[serde(default)]
    pub max_staleness: Option<u64>,
    /// Which weights and gradients travel to and from servers.
    #[serde(default)]
    pub transfer: Transfer,
    /// What happens when a worker is lost.
    #[serde(default)]
    pub on_loss: OnLoss,
    /// Whether workers share out large dense layers (multi-worker).
    #[serde(default, skip_serializing_if = "SplitDense::is_auto")]
    pub split_dense: SplitDense,
    /// How gradients are made smaller before they travel (multi-worker).
    #[serde(default, skip_serializing_if = "Compression::is_none")]
    pub compress: Compression,
    /// Steps between evaluations; once per epoch where absent.
    #[serde(default)]
    pub eval_every: Option<u64>,
    /// Steps between checkpoints; by time where absent.
    #[serde(default)]
    pub checkpoint_every: Option<u64>,
    /// How many of the latest checkpoints to keep, besides the best.
    #[serde(default = "keep")]
    pub keep: usize,
    /// Weights to start from: a file of safetensors or PyTorch, or `uniform:A:B` for values between the two.
    #[serde(default)]
    pub init: Option<PathBuf>,
    /// Train the last layer only.
    #[serde(default)]
    pub freeze: bool,
    /// Train the other layers too after so many epochs; never where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfreeze_after: Option<f64>,
    /// Width multiplier of MobileNet-v2.
    #[serde(default = "width")]
    pub width: f32,
    /// Dropout rate, for the models that have it; their own default where absent.
    #[serde(default)]
    pub dropout: Option<f32>,
    /// Local response normalisation in AlexNet.
    #[serde(default)]
    pub lrn: bool,
    /// What follows LeNet's layers; relu where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    /// Zeros on each side of LeNet's images; its own default where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<usize>,
    /// Scale pixels as weights trained on ImageNet expect them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub imagenet_input: bool,
    /// Scale pixels to -1 to 1 and turn images by 180 degrees, as weights of Keras's MobileNet-v2 expect them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keras_input: bool,
    /// How training images are changed at random; not at all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub augment: Option<Augment>,
    /// What training minimises, beside cross entropy; as it is where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Share of each label that is dealt out among all classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f32>,
    /// What an example of each class counts; all alike where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// Share of the training examples that is held out, instead of the data's own held-out part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_split: Option<f64>,
    /// Updates of an epoch, where it is not one pass over the training examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_per_epoch: Option<u64>,
    #[serde(default = "yes")]
    pub tensorboard: bool,
    /// How many photos may be left out because they cannot be used; no limit where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rejects: Option<RejectLimit>,
    /// Most pixels of a photo; the decoder's own limit where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pixels: Option<u64>,
    /// Compare all shards with the checksums of their manifest before the first step, rather than beside training.
    #[serde(default, skip_serializing_if = "is_false")]
    pub verify: bool,
}

/// When to stop; whatever is met first. At least one must be given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// After so many passes over the training data.
    #[serde(default)]
    pub epochs: Option<f64>,
    /// After so many updates.
    #[serde(default)]
    pub steps: Option<u64>,
    /// When the loss on the test set falls to this, in nats.
    #[serde(default)]
    pub until_loss: Option<f64>,
    /// When so many evaluations in a row found no lower loss on the test set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_gain: Option<u64>,
}

impl RunSpec {
    /// A run of `model` on `data`, everything else as it is by default.
    #[must_use]
    pub fn new(model: &str, data: &str) -> Self {
        Self {
            model: model.to_string(),
            data: data.to_string(),
            strategy: one_device(),
            batch_size: batch_size(),
            stop: Stop::default(),
            learning_rate: None,
            optimizer: sgd(),
            momentum: None,
            weight_decay: None,
            schedule: constant(),
            grow_batch: false,
            accumulate: one(),
            seed: 0,
            threads: None,
            replicas: None,
            workers: 1,
            servers: 0,
            evaluator: false,
            evaluate_workers: false,
            combine: Combine::Mean,
            backup_workers: 0,
            max_staleness: None,
            transfer: Transfer::Sparse,
            on_loss: OnLoss::Continue,
            split_dense: SplitDense::Auto,
            compress: Compression::None,
            eval_every: None,
            checkpoint_every: None,
            keep: keep(),
            init: None,
            freeze: false,
            unfreeze_after: None,
            width: width(),
            dropout: None,
            lrn: false,
            activation: None,
            pad: None,
            imagenet_input: false,
            keras_input: false,
            augment: None,
            loss: None,
            label_smoothing: None,
            class_weights: None,
            validation_split: None,
            steps_per_epoch: None,
            tensorboard: true,
            max_rejects: None,
            max_pixels: None,
            verify: false,
        }
    }
}

/// What weights that are drawn between two numbers begin with.
pub const UNIFORM: &str = "uniform:";

/// The two numbers of `uniform:A:B`; nothing for text that does not begin so.
pub(crate) fn uniform_range(text: &str) -> Result<Option<(f32, f32)>, TrainError> {
    let Some(range) = text.strip_prefix(UNIFORM) else { return Ok(None) };
    let parsed = range.split_once(':').and_then(|(least, most)| {
        let (least, most): (f32, f32) = (least.parse().ok()?, most.parse().ok()?);
        (least.is_finite() && most.is_finite() && least < most).then_some((least, most))
    });
    if parsed.is_none() {
        return Err(TrainError::Setting {
            setting: "the range of weights to start from",
            found: format!("`{range}`"),
            wanted: "two numbers, the lower first, such as `uniform:-10:10`".to_owned(),
        });
    }
    Ok(parsed)
}

/// What every run is asked, whatever it is trained on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common {
    pub(crate) kind: RunKind,
    pub(crate) batch_size: u64,
    pub(crate) stop: Stop,
    pub(crate) eval_every: Option<u64>,
    pub(crate) checkpoints: Policy,
    pub(crate) threads: Option<usize>,
}

impl Common {
    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        let wrong = |setting, found: String| {
            Err(TrainError::Setting { setting, found, wanted: "positive".to_owned() })
        };
        let by_steps = self.kind == RunKind::Examples;
        let Stop { epochs, steps, until_loss, no_gain } = self.stop;
        if let Some(epochs) = epochs.filter(|epochs| !(epochs.is_finite() && *epochs > 0.0)) {
            return wrong("the number of epochs", epochs.to_string());
        }
        if steps == Some(0) {
            return wrong("the number of steps", "0".to_owned());
        }
        if let Some(loss) = until_loss.filter(|loss| !(loss.is_finite() && *loss > 0.0)) {
            return wrong("the loss to reach", loss.to_string());
        }
        if no_gain == Some(0) {
            return wrong("the number of evaluations without a lower loss", "0".to_owned());
        }
        let evaluations = if by_steps {
            "the number of steps between evaluations"
        } else {
            "the number of rows between evaluations"
        };
        let checkpoints = if by_steps {
            "the number of steps between checkpoints"
        } else {
            "the number of rows between checkpoints"
        };
        for (setting, is_zero) in [
            ("the batch size", self.batch_size == 0),
            (evaluations, self.eval_every == Some(0)),
            (checkpoints, self.checkpoints.every == Some(0)),
            ("the number of threads", self.threads == Some(0)),
        ] {
            if is_zero {
                return wrong(setting, "0".to_owned());
            }
        }
        Ok(())
    }

    /// Threads of this process: those asked for, else one for each core it may use.
    pub(crate) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| paceline_batch::cores().count)
    }
}

impl RunSpec {
    /// How the model reads pixels.
    #[must_use]
    pub fn pixels(&self) -> PixelScale {
        match (self.keras_input, self.imagenet_input) {
            (true, _) => PixelScale::Keras,
            (false, true) => PixelScale::Imagenet,
            (false, false) => PixelScale::Unit,
        }
    }

    /// What it has in common with runs on rows.
    pub(crate) fn common(&self) -> Common {
        Common {
            kind: RunKind::Examples,
            batch_size: self.batch_size,
            stop: self.stop,
            eval_every: self.eval_every,
            checkpoints: Policy::new(self.checkpoint_every, self.keep),
            threads: self.threads,
        }
    }

    /// The least and the greatest weight to start from, where they are drawn between two numbers.
    pub(crate) fn init_range(&self) -> Result<Option<(f32, f32)>, TrainError> {
        let text = self.init.as_ref().and_then(|init| init.to_str());
        text.map_or(Ok(None), uniform_range)
    }

    /// What the strategy is told.
    pub(crate) fn options(&self) -> StrategyOptions {
        StrategyOptions {
            combine: self.combine,
            backup_workers: self.backup_workers,
            max_staleness: self.max_staleness,
            compression: self.compress,
            ..StrategyOptions::default()
        }
    }

    /// The settings that all tasks of a run must share. Where the data lie and how many threads there
    /// are is each host's own affair.
    #[must_use]
    pub fn shared(&self) -> serde_json::Value {
        let own = Self {
            data: String::new(),
            threads: None,
            init: None,
            verify: false, // each task looks at its own copy, or does not
            ..self.clone()
        };
        serde_json::to_value(own).expect("a specification holds nothing that JSON cannot say")
    }
}

impl AskedSettings for RunSpec {
    fn model(&self) -> &str {
        &self.model
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn batch_size(&self) -> u64 {
        self.batch_size
    }
}

/// Left out where it is off, so that older runs keep their hash.
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_false(value: &bool) -> bool {
    !*value
}

/// As [`is_false`].
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_one(value: &usize) -> bool {
    *value == 1
}

fn one_device() -> String {
    "one-device".to_string()
}

fn sgd() -> String {
    "sgd".to_string()
}

fn constant() -> String {
    "constant".to_string()
}

const fn batch_size() -> u64 {
    64
}

const fn one() -> usize {
    1
}

const fn keep() -> usize {
    2
}

const fn width() -> f32 {
    1.0
}

const fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_an_error_and_defaults_are_the_same_everywhere() {
        let spec: RunSpec = serde_json::from_str(r#"{"model":"m","data":"d"}"#).unwrap();
        assert_eq!(spec, RunSpec::new("m", "d"));
        let typo = serde_json::from_str::<RunSpec>(r#"{"model":"m","data":"d","batchsize":7}"#);
        assert!(typo.unwrap_err().to_string().contains("batchsize"));
        let typo =
            serde_json::from_str::<RunSpec>(r#"{"model":"m","data":"d","stop":{"epoch":7}}"#);
        assert!(typo.is_err());
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<RunSpec>(&text).unwrap(), spec);
    }
}
