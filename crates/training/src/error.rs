//! Why a run could not start, or stopped.

use paceline_cluster::session::SessionError;
use paceline_data::DataError;
use paceline_models::{
    ModelError, optimizer::OptimizerError, pretrained::PretrainedError, schedule::ScheduleError,
    sparse_logistic,
};
use paceline_runs::RunsError;
pub(crate) use paceline_runs::with_causes;
use paceline_strategies::StrategyError;
use paceline_wire::{LinkError, TaskId};
use std::{fmt, io, path::PathBuf};

/// How far a run was: by updates where examples are dealt in batches, by rows where they come as a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A global step.
    Step(u64),
    /// Rows learned from.
    Rows(u64),
}

impl Point {
    /// When something was seen.
    pub(crate) fn when(self) -> String {
        match self {
            Self::Step(step) => format!("at step {step}"),
            Self::Rows(rows) => format!("after {rows} rows"),
        }
    }

    fn last(self) -> String {
        match self {
            Self::Step(step) => format!("step {step} was its last"),
            Self::Rows(rows) => format!("{rows} rows were learned from, and none is left"),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "step {step}"),
            Self::Rows(rows) => write!(f, "row {rows}"),
        }
    }
}

/// Why a run could not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data could not be opened or read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model cannot be built for these data, or was fed something wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The optimiser's settings are wrong.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The schedule's settings are wrong.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The strategy cannot be set up, or a worker was lost.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The run could not be joined, or the others cannot go on.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A connection to another task failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The run's files could not be written or read.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A setting makes no sense.
    #[error("{setting} is {found}, must be {wanted}")]
    Setting {
        setting: &'static str,
        found: String,
        /// What it may be.
        wanted: String,
    },
    /// Other data than those that a model was trained on.
    #[error("`{data}` has {found}, but run `{run}` was trained on {wanted}")]
    OtherData {
        data: String,
        run: String,
        /// What the data have.
        found: String,
        /// What the model knows.
        wanted: String,
    },
    /// Nothing says when to stop.
    #[error("nothing says when to stop: epochs, steps or a loss to reach")]
    NoStop,
    /// A growing batch grows by epochs, and none are given.
    #[error("a growing batch needs a number of epochs, because its schedule counts epochs")]
    GrowthWithoutEpochs,
    /// The batch is larger than the data.
    #[error(
        "a batch of {batch} is larger than the data: `{data}` has {examples} training examples"
    )]
    BatchTooLarge {
        /// The global batch.
        batch: u64,
        data: String,
        examples: u64,
    },
    /// More memory than there is.
    #[error(
        "a batch of {batch} needs {:.1} GB of memory ({:.1} GB for weights and optimiser, {:.1} GB for activations), and this process may use {:.1} GB",
        (.weights + .activations) / 1e9, .weights / 1e9, .activations / 1e9, .limit / 1e9
    )]
    Memory {
        /// The global batch.
        batch: u64,
        /// Bytes of weights, gradients and the optimiser's state.
        weights: f64,
        /// Bytes of activations.
        activations: f64,
        /// Bytes that this process may use.
        limit: f64,
        /// The largest batch that fits, if one does.
        fits: Option<u64>,
    },
    /// More weights of a sparse model than there is memory.
    #[error(
        "2^{bits} weights with their optimiser's state need {:.1} GB of memory in {holder}, which may use {:.1} GB",
        .needs / 1e9, .limit / 1e9
    )]
    RowsMemory {
        /// Weights, as a power of two.
        bits: u32,
        holder: &'static str,
        /// What they take there, in bytes.
        needs: f64,
        /// Bytes that it may use.
        limit: f64,
        /// The most bits that fit, if any do.
        fits: Option<u32>,
    },
    /// A batch that leaves replicas without work.
    #[error("a global batch of {batch} cannot be shared by {replicas} replicas")]
    BatchTooSmall { batch: u64, replicas: usize },
    /// Data without classes cannot be learned.
    #[error("model `{model}` needs at least 2 classes, but `{data}` has {classes}")]
    TooFewClasses { model: String, data: String, classes: usize },
    /// Training and test data do not belong together.
    #[error("`{data}`: the {split} split has {found}, but the training split has {wanted}")]
    SplitMismatch {
        data: String,
        /// The split that differs.
        split: &'static str,
        found: String,
        /// What the training split has.
        wanted: String,
    },
    /// A stop rule or switch needs test examples.
    #[error("{what} needs test examples, but `{data}` has neither a test nor a validation split")]
    NoTestData { what: &'static str, data: String },
    /// There was nothing to learn from.
    #[error("`{data}` has no row")]
    NoRows { data: String },
    /// NaN or infinity reached the weights before training.
    #[error("{origin}: `{tensor}` holds a value that is not finite ({value})")]
    BadWeights {
        /// Where the weights came from.
        origin: String,
        tensor: String,
        value: f32,
    },
    /// The loss stopped being a number.
    #[error(
        "the loss is not finite {}: {cause}; learning rate {rate}{}",
        .at.when(), .epochs.map(|epochs| format!(", {epochs:.2} epochs done")).unwrap_or_default()
    )]
    NotFinite {
        /// The step at which it happened, from 0, or the rows by then.
        at: Point,
        /// The layer concerned and how, where that is known.
        cause: String,
        /// Learning rate of that step.
        rate: f32,
        /// Passes over the data by then, where it has an end.
        epochs: Option<f64>,
    },
    /// The loss exploded and did not come back.
    #[error(
        "training diverged by {at}: {found}; learning rate {rate}{}",
        .good.map(|good| format!(", the last good checkpoint is of step {good}")).unwrap_or_default()
    )]
    Diverged {
        /// When it was certain.
        at: Point,
        /// How the loss compares.
        found: paceline_runs::Divergence,
        /// Learning rate of that step.
        rate: f32,
        /// Step of the latest checkpoint from before the loss exploded, if there is one.
        good: Option<u64>,
    },
    /// A checkpoint could not be written.
    #[error("cannot write checkpoint `{}`", .path.display())]
    CheckpointWrite {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Checkpoints could not be listed.
    #[error("cannot read checkpoints in `{}`", .path.display())]
    CheckpointRead {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A checkpoint is not what was written.
    #[error("checkpoint `{}` is damaged: {reason}", .path.display())]
    CheckpointDamaged { path: PathBuf, reason: String },
    /// A checkpoint that this version cannot know. It is sound, so no older one may take its place.
    #[error(
        "checkpoint `{}` is of format {found}, written by paceline {program}; this version knows format {known}",
        .path.display()
    )]
    CheckpointNewer {
        path: PathBuf,
        /// Version of its format.
        found: u64,
        /// The latest version that this program knows.
        known: u32,
        /// Version of the program that wrote it.
        program: String,
    },
    /// A checkpoint of another model.
    #[error("`{}` (model `{model}`): tensor `{tensor}` is {found}, but the model here needs {wanted}", .path.display())]
    CheckpointTensor {
        path: PathBuf,
        /// The model it was made with.
        model: String,
        /// The tensor that does not fit.
        tensor: String,
        /// What the file has.
        found: String,
        /// What the model needs.
        wanted: String,
    },
    /// A checkpoint of another optimiser.
    #[error("checkpoint `{}` holds the state of optimiser `{found}`, not of `{wanted}`", .path.display())]
    CheckpointOptimizer {
        path: PathBuf,
        /// The optimiser it was made with.
        found: String,
        wanted: String,
    },
    /// A checkpoint of a model that is trained in another way.
    #[error("checkpoint `{}` is of model `{model}`, not of `{}`", .path.display(), sparse_logistic::NAME)]
    NotSparse {
        path: PathBuf,
        /// The model it was made with.
        model: String,
    },
    /// No checkpoint of a sparse model where one should be.
    #[error("there is no checkpoint of a sparse model in `{}`", .path.display())]
    NoCheckpoint {
        /// The folder searched.
        path: PathBuf,
    },
    /// A run cannot continue because something else than its end changed.
    #[error("run `{}` cannot continue: {what} was {found}, now {wanted}", .path.display())]
    ResumeMismatch {
        path: PathBuf,
        what: &'static str,
        /// As the run had it.
        found: String,
        /// As it is now.
        wanted: String,
    },
    /// A run without a usable checkpoint cannot be resumed.
    #[error("run `{}` has no usable checkpoint{detail}", .path.display())]
    NothingToResume {
        path: PathBuf,
        /// What was wrong with those that are there.
        detail: String,
    },
    /// The run has ended, and nothing that was asked for is left to do. Not a failure: nothing was changed.
    #[error("run `{}` is finished: {}", .path.display(), .at.last())]
    Finished { path: PathBuf, at: Point },
    /// The final weights could not be gathered from the servers.
    #[error("the final weights could not be gathered from the servers: {reason}")]
    Ungathered { reason: &'static str },
    /// Predictions could not be written.
    #[error("cannot write predictions")]
    Output(#[source] io::Error),
    /// Weights of another program do not fit.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// Initial weights do not fit the model.
    #[error("initial weights `{}` do not fit model `{model}`: {reason}", .path.display())]
    InitUnfit {
        path: PathBuf,
        model: String,
        /// What does not fit.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The strategy needs several processes.
    #[error("strategy `{strategy}` needs a task for each worker, and this is a process on its own")]
    Alone { strategy: &'static str },
    /// A thread of the run panicked.
    #[error("a thread of the run ended unexpectedly")]
    Panicked,
    /// The thread that gathers input is gone.
    #[error("the thread that gathers input ended unexpectedly")]
    InputEnded,
    /// A replica's thread could not be started or panicked.
    #[error("replica {replica} ended unexpectedly")]
    ReplicaPanicked { replica: usize },
}

impl TrainError {
    /// Whether the caller asked for something that does not exist or does not fit, rather than something going wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Data(error) => error.is_usage(),
            Self::Model(error) => error.is_usage(),
            Self::Strategy(error) => error.is_usage(),
            Self::Optimizer(_)
            | Self::Schedule(_)
            | Self::Setting { .. }
            | Self::OtherData { .. }
            | Self::NoStop
            | Self::GrowthWithoutEpochs
            | Self::BatchTooLarge { .. }
            | Self::BatchTooSmall { .. }
            | Self::Memory { .. }
            | Self::RowsMemory { .. }
            | Self::NoTestData { .. }
            | Self::Alone { .. } => true,
            _ => false,
        }
    }

    /// Whether another task, or the way to it, is the cause, so that forming again may help.
    #[must_use]
    pub fn is_peer(&self) -> bool {
        match self {
            Self::Strategy(StrategyError::Link(_) | StrategyError::PeerLost { .. }) => true,
            Self::Link(error) => error.task().is_some(),
            _ => false,
        }
    }

    /// The task whose loss caused it, where that is known.
    #[must_use]
    pub fn peer(&self) -> Option<TaskId> {
        match self {
            Self::Strategy(error) => error.lost(),
            Self::Link(LinkError::Cancelled { .. }) => None,
            Self::Link(error) => error.task(),
            _ => None,
        }
    }

    /// Whether this is only the echo of another worker's failure.
    pub(crate) fn is_echo(&self) -> bool {
        matches!(self, Self::Strategy(StrategyError::ReplicaLost { .. }))
    }
}

/// What lies below an error that says no more than which file or checkpoint it was.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
