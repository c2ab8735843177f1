//! What `train` and `node` are told: flags, and the specification they make.

use super::{
    idle_flags::Typed,
    train_rules::{self, Choice},
    units::{Span, span, task_count},
};
use crate::terminal::failure::{FailureExt, training::explain, usage};
use crate::terminal::typed_path;
use anyhow::Context;
use paceline_cluster::session::OnLoss;
use paceline_data::{Augment, rejects::RejectLimit};
use paceline_models::{
    Activation, PixelScale, names::spelling, pretrained::expected_pixels, registry,
};
use paceline_runs::{RunFolder, list};
use paceline_strategies::{Combine, Compression, SplitDense, Transfer};
use paceline_training::{ClassWeights, ExamplesPlan, Loss, RunSpec, Start, Stop, UNIFORM};
use std::path::{Path, PathBuf};

/// How pixels are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scale {
    /// Between 0 and 1
    Unit,
    /// Less ImageNet's mean, by its deviation
    Imagenet,
    /// Between -1 and 1, and images turned by 180 degrees: as weights of Keras's MobileNet-v2 expect here
    Keras,
}

impl From<Scale> for PixelScale {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Unit => Self::Unit,
            Scale::Imagenet => Self::Imagenet,
            Scale::Keras => Self::Keras,
        }
    }
}

/// What to train and how: the same words for `train` and `node`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags {
    // The first, so that it sees all flags.
    #[command(flatten)]
    pub(super) typed: Typed,

    /// Model to train; `paceline list models` lists them
    #[arg(long, short, required_unless_present = "resume", help_heading = "What")]
    pub(super) model: Option<String>,
    /// Data set: a folder or URL, files of rows, `-` for standard input, or `generated:…`
    #[arg(long, short, required_unless_present_any = ["resume", "follow"], help_heading = "What")]
    pub(super) data: Option<String>,
    /// How gradients are exchanged: one-device, mirrored, multi-worker, ps-sync or ps-async [default: one-device]
    #[arg(long, short, help_heading = "What")]
    pub(super) strategy: Option<String>,
    /// Weights to start from: a file of safetensors, a .pth of PyTorch (only its tensors are read), a .h5 or .keras of
    /// Keras's MobileNet-v2, or uniform:A:B for values drawn between two numbers
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub(crate) init: Option<PathBuf>,
    /// Train the last layer only; for weights given with --init
    #[arg(long, requires = "init", help_heading = "What")]
    pub(super) freeze: bool,
    /// Train the other layers too after so many epochs, from then on with everything else as it is
    #[arg(long, value_name = "EPOCHS", requires = "freeze", help_heading = "What")]
    pub(super) unfreeze_after: Option<f64>,
    /// Scale of pixels: 0 to 1, or as weights to start from expect
    /// [default: imagenet for --init with weights of torchvision or timm, keras with those of Keras, else unit]
    #[arg(long, value_name = "SCALE", help_heading = "What")]
    pub(super) pixels: Option<Scale>,
    /// Change training images at random, the same way for any number of workers: flip, crop, color and rotate, separated
    /// by commas, with strengths such as crop:0.2,color:0.2,rotate:15
    #[arg(long, value_name = "CHANGES", help_heading = "What")]
    pub(super) augment: Option<Augment>,
    /// Hold this share of the training examples out to score the model on, such as 0.2, instead of the data's own
    /// validation or test part
    #[arg(long, value_name = "SHARE", help_heading = "What")]
    pub(super) validation_split: Option<f64>,
    /// Width multiplier of MobileNet-v2
    #[arg(long, help_heading = "What")]
    pub(super) width: Option<f32>,
    /// Dropout rate, for models that have it
    #[arg(long, help_heading = "What")]
    pub(super) dropout: Option<f32>,
    /// Local response normalisation in AlexNet
    #[arg(long, help_heading = "What")]
    pub(super) lrn: bool,
    /// What follows LeNet's layers: relu or tanh [default: relu]
    #[arg(long, help_heading = "What")]
    pub(super) activation: Option<Activation>,
    /// Zeros on each side of LeNet's images, in pixels: 2 make 28x28 pixels 32x32 [default: 2]
    #[arg(long, value_name = "PIXELS", help_heading = "What")]
    pub(super) pad: Option<usize>,

    /// Stop after so many passes over the training data
    #[arg(long, short, help_heading = "When to stop (the first that is met)")]
    pub(super) epochs: Option<f64>,
    /// Stop after so many updates
    #[arg(long, help_heading = "When to stop (the first that is met)")]
    pub(super) steps: Option<u64>,
    /// Stop when the loss on the test examples has fallen to this
    #[arg(long, value_name = "LOSS", help_heading = "When to stop (the first that is met)")]
    pub(super) until_loss: Option<f64>,
    /// Stop when so many evaluations in a row found no lower loss on the test examples
    #[arg(long, value_name = "EVALUATIONS", help_heading = "When to stop (the first that is met)")]
    pub(super) stop_after_no_gain: Option<u64>,
    /// Updates of an epoch, for --epochs, schedules and evaluations [default: one pass over the training data]
    #[arg(long, value_name = "STEPS", help_heading = "When to stop (the first that is met)")]
    pub(super) steps_per_epoch: Option<u64>,

    /// Examples of one update, over all replicas [default: 64; for sparse-logistic 1 on one device, else 32]
    #[arg(long, short, help_heading = "How")]
    pub(super) batch_size: Option<u64>,
    /// Learning rate [default: the model's own, see `paceline list models`; that of --optimizer where another is given]
    #[arg(long, visible_alias = "learning-rate", help_heading = "How")]
    pub(super) lr: Option<f32>,
    /// sgd, momentum, nesterov, adagrad, adam, lars or lamb; sgd, adagrad, scaled-adagrad or ftrl for sparse-logistic [default: the model's own, see
    /// `paceline list models`; sgd where --lr is given]
    #[arg(long, help_heading = "How")]
    pub(super) optimizer: Option<String>,
    /// Share of the old velocity kept each step
    #[arg(long, help_heading = "How")]
    pub(super) momentum: Option<f32>,
    /// L2 penalty
    #[arg(long, help_heading = "How")]
    pub(super) weight_decay: Option<f32>,
    /// Learning rate over time: constant, step:EPOCHS:FACTOR, cosine, warmup:EPOCHS+… [default: constant]
    #[arg(long, help_heading = "How")]
    pub(super) schedule: Option<String>,
    /// What is minimised: cross-entropy, or hinge for a linear support vector machine [default: cross-entropy]
    #[arg(long, help_heading = "How")]
    pub(super) loss: Option<Loss>,
    /// Deal out this share of each label among all classes, such as 0.1
    #[arg(long, value_name = "SHARE", help_heading = "How")]
    pub(super) label_smoothing: Option<f32>,
    /// What an example of each class counts: balanced, or a number for each class such as 1,2,0.5 [default: 1]
    #[arg(long, value_name = "WEIGHTS", help_heading = "How")]
    pub(super) class_weights: Option<ClassWeights>,
    /// Grow the batch where the schedule would lower the rate
    #[arg(long, help_heading = "How")]
    pub(super) grow_batch: bool,
    /// Compute each batch in so many parts and add up their gradients before the update: a large batch in the memory of
    /// one part [default: 1]
    #[arg(long, value_name = "PARTS", help_heading = "How")]
    pub(super) accumulate: Option<usize>,
    /// Decides order, initial weights and dropout [default: 0]
    #[arg(long, help_heading = "How")]
    pub(super) seed: Option<u64>,
    /// Threads of all replicas together [default: all cores this process may use]
    #[arg(long, help_heading = "How", value_parser = task_count)]
    pub(super) threads: Option<usize>,
    /// Replicas in this process, for strategy mirrored [default: one per thread]
    #[arg(long, help_heading = "How")]
    pub(super) replicas: Option<usize>,

    /// Tasks that train, for strategies of several processes [default: 2, or what the cluster has]
    #[arg(long, short = 'w', help_heading = "Tasks", value_parser = task_count)]
    pub(crate) workers: Option<usize>,
    /// Tasks that hold the weights, for ps-sync and ps-async [default: 1, or what the cluster has]
    #[arg(long, value_name = "SERVERS", help_heading = "Tasks", value_parser = task_count)]
    pub(crate) ps: Option<usize>,
    /// Score the model on a task of its own instead of the chief
    #[arg(long, help_heading = "Tasks")]
    pub(crate) evaluator: bool,
    /// Score the weights that each worker ends with, as it has them, on all test examples
    #[arg(long, help_heading = "Tasks")]
    pub(super) evaluate_workers: bool,
    /// What happens when a worker is lost: continue, restart or stop [default: continue]
    #[arg(long, value_name = "POLICY", value_parser = on_loss, help_heading = "Tasks")]
    pub(super) on_loss: Option<OnLoss>,
    /// Share out large dense layers among the workers of multi-worker instead of copying them: auto, on or off;
    /// needs --on-loss stop [default: auto]
    #[arg(long, value_name = "WHEN", help_heading = "Tasks")]
    pub(super) split_dense: Option<SplitDense>,
    /// Make gradients smaller before they travel, for multi-worker over slow links: fp16 (half the bytes), int8 (a quarter)
    /// or topk (the largest hundredth); what is left out is added to the next gradient [default: none]
    #[arg(long, value_name = "HOW", help_heading = "Tasks")]
    pub(super) compress: Option<Compression>,
    /// How long to wait for all tasks, at the start and after a loss
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span, help_heading = "Tasks")]
    pub(crate) join_timeout: Span,
    /// How long a task may be silent before it counts as lost; longer where most tasks are late
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = patience, help_heading = "Tasks")]
    pub(crate) patience: Span,
    /// How gradients become one update: of the workers' for ps-sync, of the rows' for sparse-logistic: mean or sum
    /// [default: mean; sum for sparse-logistic]
    #[arg(long, value_name = "HOW", help_heading = "Tasks")]
    pub(super) combine: Option<Combine>,
    /// Workers whose gradients an update does not wait for, for ps-sync [default: 0]
    #[arg(long, value_name = "N", help_heading = "Tasks")]
    pub(super) backup_workers: Option<usize>,
    /// Updates that may lie between a worker's weights and its update, for ps-async [default: any]
    #[arg(long, value_name = "N", help_heading = "Tasks")]
    pub(super) max_staleness: Option<u64>,
    /// Which weights travel to and from servers: sparse (those a batch touches) or dense [default: sparse]
    #[arg(long, value_name = "WHICH", help_heading = "Tasks")]
    pub(super) transfer: Option<Transfer>,

    /// Steps between evaluations on the test examples [default: an epoch]
    #[arg(long, value_name = "STEPS", help_heading = "Records")]
    pub(super) eval_every: Option<u64>,
    /// Steps between checkpoints [default: half a minute, and the end]
    #[arg(long, value_name = "STEPS", help_heading = "Records")]
    pub(super) checkpoint_every: Option<u64>,
    /// How many of the latest checkpoints to keep, besides the best [default: 2]
    #[arg(long, help_heading = "Records")]
    pub(super) keep: Option<usize>,
    /// Stop after more than so many rejected photos or malformed rows, a number or a percentage such as 5%
    /// [default: any number of photos, 1% of rows]
    #[arg(long, value_parser = super::limits::parse_limit, value_name = "N|P%", help_heading = "Records")]
    pub(super) max_rejects: Option<RejectLimit>,
    /// Most pixels of a photo, such as 100M; larger ones are rejected [default: 64M]
    #[arg(long, value_parser = super::limits::parse_pixels, value_name = "N", help_heading = "Records")]
    pub(super) max_pixels: Option<u64>,
    /// Compare all shards with the checksums of their manifest before the first step, instead of while training
    #[arg(long, help_heading = "Records")]
    pub(super) verify: bool,
    /// Write no TensorBoard files
    #[arg(long, help_heading = "Records")]
    pub(super) no_tensorboard: bool,
    /// Folder of run folders, here or in an object store
    #[arg(long, default_value = "runs", help_heading = "Records")]
    pub(crate) out: PathBuf,
    /// Resume a run from its latest checkpoint: its folder or name, or the latest run
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "", help_heading = "Records")]
    pub(crate) resume: Option<String>,

    #[command(flatten)]
    pub(super) stream: super::rows_flags::StreamArgs,
}

/// Flags after every check that needs neither the data nor a cluster.
pub(crate) struct Checked {
    pub(crate) choice: Choice,
    /// The run that goes on, where one does.
    pub(crate) resumed: Option<RunFolder>,
}

impl Flags {
    /// The specification of a new run.
    pub(crate) fn fresh(&self) -> anyhow::Result<RunSpec> {
        self.check_unfreezing()?;
        let model = spelling(self.model.as_deref().unwrap_or_default());
        let spec = RunSpec::new(&model, self.data.as_deref().unwrap_or_default());
        let (optimizer, learning_rate) = self.rule(&model, &spec);
        let pixels = self.pixels(&model)?;
        Ok(RunSpec {
            strategy: self.strategy.clone().unwrap_or(spec.strategy),
            batch_size: self.batch_size.unwrap_or(spec.batch_size),
            stop: self.stop(),
            learning_rate,
            optimizer,
            momentum: self.momentum,
            weight_decay: self.weight_decay,
            schedule: self.schedule.clone().unwrap_or(spec.schedule),
            grow_batch: self.grow_batch,
            accumulate: self.accumulate.unwrap_or(spec.accumulate),
            seed: self.seed.unwrap_or(spec.seed),
            threads: self.threads,
            replicas: self.replicas,
            workers: self.workers.unwrap_or(spec.workers),
            servers: self.ps.unwrap_or(spec.servers),
            evaluator: self.evaluator,
            evaluate_workers: self.evaluate_workers,
            combine: self.combine.unwrap_or_default(),
            backup_workers: self.backup_workers.unwrap_or(0),
            max_staleness: self.max_staleness,
            transfer: self.transfer.unwrap_or_default(),
            on_loss: self.on_loss.unwrap_or_default(),
            split_dense: self.split_dense.unwrap_or_default(),
            compress: self.compress.unwrap_or_default(),
            eval_every: self.eval_every,
            checkpoint_every: self.checkpoint_every,
            keep: self.keep.unwrap_or(spec.keep),
            init: self.init.clone(),
            freeze: self.freeze,
            unfreeze_after: self.unfreeze_after,
            width: self.width.unwrap_or(spec.width),
            dropout: self.dropout,
            lrn: self.lrn,
            activation: self.activation,
            pad: self.pad,
            imagenet_input: pixels == PixelScale::Imagenet,
            keras_input: pixels == PixelScale::Keras,
            augment: self.augment,
            loss: self.loss,
            label_smoothing: self.label_smoothing,
            class_weights: self.class_weights.clone(),
            validation_split: self.validation_split,
            steps_per_epoch: self.steps_per_epoch,
            tensorboard: !self.no_tensorboard,
            max_rejects: self.max_rejects,
            max_pixels: self.max_pixels,
            verify: self.verify,
            model: spec.model,
            data: spec.data,
        })
    }

    /// The optimiser and its rate: what is not asked for is what the model learns with by default.
    fn rule(&self, model: &str, spec: &RunSpec) -> (String, Option<f32>) {
        match registry::find(model) {
            Ok(entry) => entry.defaults.complete(self.optimizer.as_deref(), self.lr),
            // Which models there are is said where the model is built.
            Err(_) => (self.optimizer.as_ref().unwrap_or(&spec.optimizer).clone(), self.lr),
        }
    }

    /// Refuses layers that would be trained only after the end.
    fn check_unfreezing(&self) -> anyhow::Result<()> {
        match (self.unfreeze_after, self.epochs) {
            (Some(after), Some(epochs)) if after >= epochs => Err(usage(
                format!("`--unfreeze-after {after}` has no effect in a run of {epochs} epochs"),
                "leave it out, or let the run continue for longer",
            )),
            _ => Ok(()),
        }
    }

    /// As asked for, else as the weights to start from expect.
    fn pixels(&self, model: &str) -> anyhow::Result<PixelScale> {
        let asked = self.pixels.map(PixelScale::from);
        let file = match (&self.init, model) {
            (Some(range), _) if range.to_string_lossy().starts_with(UNIFORM) => None,
            (Some(file), "alexnet" | "mobilenet-v2") => Some(file),
            _ => None,
        };
        let Some(file) = file else { return Ok(asked.unwrap_or_default()) };
        let expected = match expected_pixels(file) {
            // That it is missing is said where it is loaded.
            Err(_) if !file.exists() => return Ok(asked.unwrap_or_default()),
            expected => expected.map_err(|error| explain(error.into()))?,
        };
        let keras = |pixels| pixels == PixelScale::Keras;
        match asked {
            // Scales alone can be learned again; images that stand on their heads cannot.
            Some(asked) if keras(asked) != keras(expected) => Err(usage(
                format!(
                    "`--pixels` does not fit `{}`: the kernels of Keras's weights are turned by 180 degrees here, and only \
                     with `--pixels keras` images are too",
                    file.display()
                ),
                "leave --pixels out: the file says what it expects",
            )),
            asked => Ok(asked.unwrap_or(expected)),
        }
    }

    fn stop(&self) -> Stop {
        Stop {
            epochs: self.epochs,
            steps: self.steps,
            until_loss: self.until_loss,
            no_gain: self.stop_after_no_gain,
        }
    }

    /// What is to be trained, after every check that needs neither the data nor a cluster.
    pub(crate) fn check(&self) -> anyhow::Result<Checked> {
        let resumed = match &self.resume {
            Some(name) => {
                // What is wrong with the flags comes before what is wrong with the run.
                train_rules::check_resumed(&self.typed)?;
                Some(find_run(&self.out, name)?)
            }
            None => None,
        };
        let choice = match &resumed {
            Some(run) => Choice::of_run(run)?,
            None => Choice::fresh(self)?,
        };
        train_rules::check(&self.typed, &choice)?;
        Ok(Checked { choice, resumed })
    }

    /// The specification of a run that exists; only its end, its place and its records may change.
    pub(crate) fn resumed(&self, run: RunFolder) -> anyhow::Result<(RunSpec, Start)> {
        let mut spec: RunSpec = run.plan::<RunSpec, ExamplesPlan>()?.spec;
        let stop = self.stop();
        if stop != Stop::default() {
            spec.stop = stop;
        }
        spec.data = self.data.clone().unwrap_or(spec.data);
        spec.threads = self.threads.or(spec.threads);
        spec.eval_every = self.eval_every.or(spec.eval_every);
        spec.checkpoint_every = self.checkpoint_every.or(spec.checkpoint_every);
        spec.keep = self.keep.unwrap_or(spec.keep);
        spec.tensorboard &= !self.no_tensorboard;
        spec.max_rejects = self.max_rejects.or(spec.max_rejects);
        spec.max_pixels = self.max_pixels.or(spec.max_pixels);
        spec.verify = self.verify;
        spec.on_loss = self.on_loss.unwrap_or(spec.on_loss);
        spec.split_dense = self.split_dense.unwrap_or(spec.split_dense);
        spec.evaluator |= self.evaluator;
        spec.evaluate_workers |= self.evaluate_workers;
        Ok((spec, Start::Resume { run }))
    }
}

/// A run by its folder, by its name under `out`, or the latest one there.
pub(crate) fn find_run(out: &Path, name: &str) -> anyhow::Result<RunFolder> {
    if name.is_empty() {
        return list(out)?
            .pop()
            .with_context(|| format!("there is no run in `{}`", out.display()))
            .hint("start one with `paceline train --model … --data …`, or name its folder");
    }
    let given = Path::new(name);
    let path = if given.exists() { given.to_path_buf() } else { out.join(name) };
    RunFolder::open(&path)
        .hint(format!("`paceline runs --runs {}` lists the runs there", typed_path(out)))
}

/// Heartbeats come every second: a shorter patience would lose tasks that are well.
pub(crate) fn patience(text: &str) -> Result<Span, String> {
    span(text).and_then(|span| match span.seconds() >= 3.0 {
        true => Ok(span),
        false => Err("expected at least 3s: tasks give a sign of life every second".to_owned()),
    })
}

fn on_loss(text: &str) -> Result<OnLoss, String> {
    OnLoss::ALL
        .into_iter()
        .find(|policy| policy.name() == text)
        .ok_or_else(|| "expected continue, restart or stop".to_owned())
}
