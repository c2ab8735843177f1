//! A run after every check, with all that was decided filled in.
//!
//! Stored in the run folder before the first step, so that a run can be understood, compared and
//! resumed without the command line that started it.

use crate::{
    Parts, RunSpec, TrainError,
    memory::{self, MemoryPlan},
    objective,
    pace::Pace,
};
use paceline_batch::{FeatureKind, Schema};
use paceline_cluster::session::OnLoss;
use paceline_data::{
    Fingerprint, Fit, Split,
    order::{Batches, LastBatch},
};
use paceline_models::{
    Accumulate, Layout, Model, ModelOptions,
    optimizer::{self, Mask, Optimizer},
    schedule::{GrowBatch, Schedule},
    split::Split as LayerSplit,
};
use paceline_runs::RunKind;
use paceline_strategies::{self as strategies, SplitDense};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A run over examples after every check.
pub type RunPlan = paceline_runs::RunPlan<RunSpec, ExamplesPlan>;

/// What is decided for runs over examples alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExamplesPlan {
    /// What an example looks like.
    pub schema: Schema,
    pub train_examples: u64,
    /// Held-out examples; 0 where there are none.
    pub test_examples: u64,
    /// The split they come from.
    pub test_split: Option<Split>,
    /// Weights the optimiser updates.
    pub trained_parameters: u64,
    /// Tasks that train; 1 where all replicas are in one process.
    #[serde(default = "one")]
    pub workers: usize,
    /// Tasks that hold the weights.
    #[serde(default)]
    pub servers: usize,
    /// Weights of the dense layers that the workers share out; 0 where each has a copy of everything.
    #[serde(default)]
    pub split_parameters: u64,
    /// Learning rate that the schedule starts from.
    pub learning_rate: f32,
    /// Steps in one epoch of the first batch size.
    pub steps_per_epoch: u64,
    /// Steps between evaluations; 0 for none.
    pub eval_every: u64,
    /// What tells the data from others; absent in runs of 0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Fingerprint>,
    /// How photos were made to fit the examples' shape, where it was not by cropping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<String>,
    /// Hash of everything that decides the numbers.
    pub hash: String,
}

/// What only this process needs of a plan.
pub(crate) struct Prepared {
    pub(crate) plan: RunPlan,
    pub(crate) pace: Pace,
    pub(crate) layout: Layout,
    pub(crate) optimizer: Optimizer,
    pub(crate) strategy: &'static strategies::StrategyEntry,
    pub(crate) options: ModelOptions,
    /// Layers that the workers share out.
    pub(crate) split: Option<LayerSplit>,
    /// The step from which on all layers are trained, where that is not the first.
    pub(crate) unfreeze_at: Option<u64>,
}

impl Prepared {
    /// Whether a run that stands at this step has made all steps that it was to make.
    pub(crate) fn is_met_at(&self, step: u64) -> bool {
        step > 0 && self.pace.total_steps.is_some_and(|total| step >= total)
    }
}

/// Dense layers are shared out from this many weights on, unless asked otherwise: 16 MiB, which a step passes
/// over several times and no core's own cache holds. Below it, meetings in mid-step cost more than they save.
const WORTH_SPLITTING: usize = 4 << 20;

/// Checks a specification against model, data and strategy.
pub(crate) fn prepare(spec: &RunSpec, parts: &Parts) -> Result<Prepared, TrainError> {
    check_stop(spec)?;
    let examples = check_data(spec, parts)?;
    let strategy = strategies::find(&spec.strategy)?;
    check_tasks(spec, strategy)?;
    let (replicas, threads) = threads(spec, strategy)?;
    let shares = if strategy.in_process { replicas } else { spec.workers };
    if strategy.synchronous && spec.batch_size < shares as u64 {
        return Err(TrainError::BatchTooSmall { batch: spec.batch_size, replicas: shares });
    }
    let options = ModelOptions {
        objective: objective::of(spec, &*parts.train)?,
        ..model_options(spec, threads)
    };
    let mut model = build_model(spec, parts, &options)?;
    let layout = model.layout().clone();
    let split = split(spec, strategy, &*model)?;
    let mut optimizer = optimizer(spec, &layout)?;
    let pace = pace(spec, examples, optimizer.settings().rate)?;
    let unfreeze_at = unfreeze_at(spec, &pace)?;
    if let Some(step) = unfreeze_at {
        optimizer = optimizer.unfreezing(&layout, step);
        // Memory is planned for the whole network.
        model.set_head_only(false);
    }
    // A worker of several processes has its share of the batch, or a whole one where each makes its own updates.
    let own = if strategy.synchronous && !strategy.in_process {
        spec.batch_size.div_ceil(shares as u64)
    } else {
        spec.batch_size
    };
    MemoryPlan::new(&*model, replicas, optimizer.entry().slots.len(), own)
        .check(spec.batch_size, memory::limit())?;
    let steps_per_epoch =
        spec.steps_per_epoch.unwrap_or_else(|| pace.batches.per_epoch(spec.batch_size));
    let eval_every = match (&parts.test, spec.eval_every, spec.stop.until_loss) {
        (None, ..) => 0,
        (_, Some(steps), _) => steps,
        (_, None, Some(_)) => (steps_per_epoch / 10).max(1),
        (_, None, None) => steps_per_epoch,
    };
    let trained = layout.entries().iter().filter(|entry| entry.trained);
    let mut plan = RunPlan {
        kind: RunKind::Examples,
        spec: spec.clone(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        strategy: strategy.name.to_string(),
        parameters: layout.len() as u64,
        replicas,
        threads,
        planned_steps: pace.total_steps,
        details: ExamplesPlan {
            schema: parts.train.schema().clone(),
            train_examples: examples,
            test_examples: parts.test.as_ref().map_or(0, |(_, source)| source.len()),
            test_split: parts.test.as_ref().map(|(split, _)| *split),
            trained_parameters: trained.map(|entry| entry.len() as u64).sum(),
            workers: spec.workers,
            servers: spec.servers,
            split_parameters: split.as_ref().map_or(0, |split| split.parameters() as u64),
            learning_rate: pace.rate,
            steps_per_epoch,
            eval_every,
            data: parts.fingerprint.clone(),
            fit: (parts.train.fit() != Fit::default()).then(|| parts.train.fit().name().to_owned()),
            hash: String::new(),
        },
    };
    plan.details.hash = numbers_hash(&plan);
    Ok(Prepared { plan, pace, layout, optimizer, strategy, options, split, unfreeze_at })
}

/// The model as it is trained: fed in parts, where that was asked for.
pub(crate) fn build_model(
    spec: &RunSpec,
    parts: &Parts,
    options: &ModelOptions,
) -> Result<Box<dyn Model>, TrainError> {
    if spec.accumulate == 0 || spec.accumulate as u64 > spec.batch_size {
        return Err(TrainError::Setting {
            setting: "the number of parts of a batch",
            found: spec.accumulate.to_string(),
            wanted: format!("between 1 and the batch size, {}", spec.batch_size),
        });
    }
    let model = (parts.build)(parts.train.schema(), options)?;
    Ok(match spec.accumulate {
        1 => model,
        parts => Box::new(Accumulate::new(model, parts)),
    })
}

/// What a specification says about the model itself.
pub(crate) fn model_options(spec: &RunSpec, threads: usize) -> ModelOptions {
    ModelOptions {
        threads,
        width: spec.width,
        dropout: spec.dropout,
        lrn: spec.lrn,
        activation: spec.activation.unwrap_or_default(),
        pad: spec.pad,
        head_only: spec.freeze,
        pixels: spec.pixels(),
        ..ModelOptions::default()
    }
}

/// Hash of what decides the numbers: two runs of the same hash, threads, split and stop rule give
/// the same weights. When to stop, to look and to save do not matter, nor where the data lie.
fn numbers_hash(plan: &RunPlan) -> String {
    let mut spec = plan.spec.clone();
    spec.stop = crate::Stop::default();
    spec.data = String::new();
    (spec.eval_every, spec.checkpoint_every, spec.keep) = (None, None, 0);
    (spec.threads, spec.replicas, spec.tensorboard) = (None, None, false);
    (spec.evaluator, spec.on_loss, spec.max_rejects) = (false, OnLoss::Continue, None);
    spec.evaluate_workers = false;
    spec.verify = false;
    spec.split_dense = SplitDense::Auto; // changes no more than rounding, like threads
    let ExamplesPlan { schema, train_examples, learning_rate, .. } = &plan.details;
    let text = serde_json::to_string(&(spec, schema, train_examples, plan.replicas, learning_rate))
        .expect("a plan holds nothing that JSON cannot say");
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The layers that workers share out, where that was asked for, or can be and pays. All tasks decide alike: it
/// hangs on settings that they share.
fn split(
    spec: &RunSpec,
    strategy: &'static strategies::StrategyEntry,
    model: &dyn Model,
) -> Result<Option<LayerSplit>, TrainError> {
    let split = model.split();
    let whole_tensors = optimizer::find(&spec.optimizer)?.whole_tensors();
    let hindrance = match &split {
        _ if !strategy.shares_layers => {
            Some(format!("with strategy `{}`, whose workers share out nothing", strategy.name))
        }
        _ if spec.workers < 2 => Some("with one worker".to_owned()),
        _ if spec.on_loss != OnLoss::Stop => Some(format!(
            "with `--on-loss {}`: a lost worker would take its part of the weights along",
            spec.on_loss.name()
        )),
        _ if spec.accumulate > 1 => Some("with batches in several parts".to_owned()),
        _ if !spec.compress.is_none() => Some(format!("with `--compress {}`", spec.compress)),
        _ if whole_tensors => Some(format!(
            "with optimiser `{}`, which needs all of a layer in one place",
            spec.optimizer
        )),
        None => Some("with a model, or trained layers, that cannot be shared out".to_owned()),
        Some(split) if split.most_workers() < spec.workers => Some(format!(
            "with {} workers: the smallest layer has {} outputs",
            spec.workers,
            split.most_workers()
        )),
        Some(_) => None,
    };
    match (spec.split_dense, hindrance) {
        (SplitDense::On, Some(hindrance)) => Err(TrainError::Setting {
            setting: "the split of dense layers",
            found: "`on`".to_owned(),
            wanted: format!("`auto` or `off` {hindrance}"),
        }),
        (SplitDense::Off, _) | (_, Some(_)) => Ok(None),
        (SplitDense::On, None) => Ok(split),
        (SplitDense::Auto, None) => Ok(split.filter(|split| split.parameters() >= WORTH_SPLITTING)),
    }
}

fn check_stop(spec: &RunSpec) -> Result<(), TrainError> {
    let stop = &spec.stop;
    let is_given = stop.epochs.is_some() || stop.steps.is_some();
    if !is_given && stop.until_loss.is_none() && stop.no_gain.is_none() {
        return Err(TrainError::NoStop);
    }
    if spec.steps_per_epoch == Some(0) || (spec.steps_per_epoch.is_some() && spec.grow_batch) {
        let found = spec.steps_per_epoch.unwrap_or(0).to_string();
        let wanted = "positive, and left out where the batch grows".to_owned();
        return Err(TrainError::Setting {
            setting: "the number of steps per epoch",
            found,
            wanted,
        });
    }
    spec.common().check()
}

/// Checks what concerns the data; returns the number of training examples.
fn check_data(spec: &RunSpec, parts: &Parts) -> Result<u64, TrainError> {
    let data = || spec.data.clone();
    let schema = parts.train.schema();
    let classes = schema.labels.classes();
    if classes < 2 {
        return Err(TrainError::TooFewClasses { model: spec.model.clone(), data: data(), classes });
    }
    if let Some((split, test)) = &parts.test {
        let other = test.schema();
        let mismatch = |found: String, wanted: String| TrainError::SplitMismatch {
            data: data(),
            split: split.name(),
            found,
            wanted,
        };
        if other.features != schema.features {
            return Err(mismatch(features(other), features(schema)));
        }
        if other.labels != schema.labels {
            let name = |count: usize| format!("{count} classes");
            return Err(mismatch(name(other.labels.classes()), name(classes)));
        }
    } else if spec.stop.no_gain.is_some() {
        return Err(TrainError::NoTestData { what: "stopping without a gain", data: data() });
    } else if spec.stop.until_loss.is_some() {
        return Err(TrainError::NoTestData { what: "stopping at a loss", data: data() });
    } else if spec.evaluate_workers {
        return Err(TrainError::NoTestData { what: "scoring by every worker", data: data() });
    } else if spec.eval_every.is_some() {
        return Err(TrainError::NoTestData { what: "evaluation", data: data() });
    }
    let examples = parts.train.len();
    if spec.batch_size > examples {
        return Err(TrainError::BatchTooLarge { batch: spec.batch_size, data: data(), examples });
    }
    Ok(examples)
}

/// What examples look like, in words.
pub(crate) fn features(schema: &Schema) -> String {
    match schema.features {
        FeatureKind::Image(shape) => format!("images of {shape}"),
        FeatureKind::Sparse { width } => format!("{width} sparse features"),
    }
}

/// Checks the numbers of tasks.
fn check_tasks(
    spec: &RunSpec,
    strategy: &'static strategies::StrategyEntry,
) -> Result<(), TrainError> {
    let wrong = |setting, found: usize, wanted: String| {
        Err(TrainError::Setting { setting, found: found.to_string(), wanted })
    };
    let name = strategy.name;
    if strategy.in_process && spec.workers != 1 {
        let wanted = format!("1 with strategy `{name}`, whose replicas share one process");
        return wrong("the number of workers", spec.workers, wanted);
    }
    if spec.workers == 0 {
        return wrong("the number of workers", 0, "positive".to_owned());
    }
    if strategy.needs_servers && spec.servers == 0 {
        return wrong(
            "the number of parameter servers",
            0,
            format!("positive with strategy `{name}`"),
        );
    }
    if !strategy.needs_servers && spec.servers != 0 {
        let wanted = format!("0 with strategy `{name}`, which has none");
        return wrong("the number of parameter servers", spec.servers, wanted);
    }
    let entry = optimizer::find(&spec.optimizer)?;
    if entry.whole_tensors() && strategy.needs_servers {
        return Err(TrainError::Setting {
            setting: "the optimiser",
            found: format!("`{}`", entry.name),
            wanted: format!(
                "another with strategy `{name}`, whose servers hold parts of tensors; or use one-device, mirrored or multi-worker"
            ),
        });
    }
    if spec.backup_workers >= spec.workers {
        let wanted = format!("less than the {} workers", spec.workers);
        return wrong("the number of backup workers", spec.backup_workers, wanted);
    }
    Ok(())
}

/// Replicas, and threads of each.
fn threads(
    spec: &RunSpec,
    strategy: &'static strategies::StrategyEntry,
) -> Result<(usize, usize), TrainError> {
    let threads = spec.common().threads();
    // A task of several has one replica; its host's cores are shared out by the process that starts it.
    let most_replicas = if strategy.in_process { strategy.most_replicas } else { Some(1) };
    let replicas = spec.replicas.unwrap_or_else(|| {
        // One replica per core, unless that would leave some without an example.
        let most = usize::try_from(spec.batch_size).unwrap_or(usize::MAX);
        most_replicas.unwrap_or(threads).min(most)
    });
    if replicas == 0 || most_replicas.is_some_and(|most| replicas > most) {
        let wanted = match most_replicas {
            Some(1) => format!("1 with strategy `{}`", strategy.name),
            Some(most) => format!("between 1 and {most} with strategy `{}`", strategy.name),
            None => "positive".to_string(),
        };
        return Err(TrainError::Setting {
            setting: "the number of replicas",
            found: replicas.to_string(),
            wanted,
        });
    }
    Ok((replicas, (threads / replicas).max(1)))
}

fn optimizer(spec: &RunSpec, layout: &Layout) -> Result<Optimizer, TrainError> {
    let entry = optimizer::find(&spec.optimizer)?;
    let mut settings = entry.defaults;
    settings.rate = spec.learning_rate.unwrap_or(settings.rate);
    settings.momentum = spec.momentum.unwrap_or(settings.momentum);
    settings.weight_decay = spec.weight_decay.unwrap_or(settings.weight_decay);
    let mask = if spec.freeze {
        let head = head_of(layout);
        Mask::freezing(layout, |name| layer_of(name) != head)
    } else {
        Mask::of(layout)
    };
    Ok(Optimizer::with_mask(entry, settings, layout, mask)?)
}

/// The step from which on all layers are trained.
fn unfreeze_at(spec: &RunSpec, pace: &Pace) -> Result<Option<u64>, TrainError> {
    let Some(epochs) = spec.unfreeze_after else { return Ok(None) };
    let wrong = |found: String, wanted: &str| {
        let wanted = wanted.to_owned();
        Err(TrainError::Setting { setting: "the epochs before unfreezing", found, wanted })
    };
    if !spec.freeze {
        return wrong(epochs.to_string(), "left out where nothing is frozen");
    }
    if !(epochs.is_finite() && epochs > 0.0) {
        return wrong(epochs.to_string(), "positive");
    }
    Ok(Some(pace.steps_for(epochs)))
}

const fn one() -> usize {
    1
}

/// The last layer: what stays trainable when the rest is frozen.
fn head_of(layout: &Layout) -> String {
    layout
        .entries()
        .iter()
        .rev()
        .find(|entry| entry.trained)
        .map(|entry| layer_of(&entry.name).to_string())
        .unwrap_or_default()
}

/// Everything but the last part of a tensor's name.
pub(crate) fn layer_of(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(layer, _)| layer)
}

fn pace(spec: &RunSpec, examples: u64, rate: f32) -> Result<Pace, TrainError> {
    let schedule: Schedule = spec.schedule.parse()?;
    let batches = Batches::new(examples, LastBatch::Keep)?;
    batches.check(spec.batch_size)?;
    let mut pace = Pace {
        batches,
        examples,
        batch: spec.batch_size,
        rate,
        schedule,
        phases: Vec::new(),
        total_steps: None,
        steps_per_epoch: spec.steps_per_epoch,
    };
    if spec.grow_batch {
        let Some(epochs) = spec.stop.epochs else {
            return Err(TrainError::GrowthWithoutEpochs);
        };
        pace.phases =
            GrowBatch::up_to_a_tenth(examples).phases(&pace.schedule, spec.batch_size, epochs)?;
    }
    pace.total_steps = match (spec.stop.steps, spec.stop.epochs) {
        (Some(steps), Some(epochs)) => Some(steps.min(pace.steps_for(epochs))),
        (Some(steps), None) => Some(steps),
        (None, Some(epochs)) => Some(pace.steps_for(epochs)),
        (None, None) => None,
    };
    if pace.schedule.needs_end() && pace.total_steps.is_none() {
        return Err(TrainError::Setting {
            setting: "the schedule",
            found: format!("`{}`, which ends with the run,", pace.schedule),
            wanted: "one that does not, unless epochs or steps say when the run ends".to_string(),
        });
    }
    Ok(pace)
}
