//! Why a run could not start, or stopped.

use paceline_cluster::{LinkError, TaskId, session::SessionError};
use paceline_data::DataError;
use paceline_models::{
    ModelError, optimizer::OptimizerError, pretrained::PretrainedError, schedule::ScheduleError,
};
use paceline_runs::RunsError;
use paceline_strategies::StrategyError;
use std::{io, path::PathBuf};

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
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
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
        /// The data set.
        data: String,
        /// Its training examples.
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
    /// A batch that leaves replicas without work.
    #[error("a global batch of {batch} cannot be shared by {replicas} replicas")]
    BatchTooSmall {
        /// The global batch.
        batch: u64,
        /// Replicas.
        replicas: usize,
    },
    /// Data without classes cannot be learned.
    #[error("model `{model}` needs at least 2 classes, but `{data}` has {classes}")]
    TooFewClasses {
        /// The model.
        model: String,
        /// The data set.
        data: String,
        /// Its classes.
        classes: usize,
    },
    /// Training and test data do not belong together.
    #[error("`{data}`: the {split} split has {found}, but the training split has {wanted}")]
    SplitMismatch {
        /// The data set.
        data: String,
        /// The split that differs.
        split: &'static str,
        /// What it has.
        found: String,
        /// What the training split has.
        wanted: String,
    },
    /// A stop rule or switch needs test examples.
    #[error("{what} needs test examples, but `{data}` has neither a test nor a validation split")]
    NoTestData {
        /// What needs them.
        what: &'static str,
        /// The data set.
        data: String,
    },
    /// A number that is none reached the weights before training.
    #[error("{origin}: `{tensor}` holds a value that is not finite ({value})")]
    BadWeights {
        /// Where the weights came from.
        origin: String,
        /// The tensor.
        tensor: String,
        /// The value.
        value: f32,
    },
    /// The loss stopped being a number.
    #[error(
        "the loss is not finite at step {step}: {cause}; learning rate {rate}, {epochs:.2} epochs done"
    )]
    NotFinite {
        /// Global step at which it happened, from 0.
        step: u64,
        /// The layer concerned and how.
        cause: String,
        /// Learning rate of that step.
        rate: f32,
        /// Passes over the data by then.
        epochs: f64,
    },
    /// The loss exploded and did not come back.
    #[error(
        "training diverged by step {step}: {found}; learning rate {rate}{}",
        .good.map(|good| format!(", the last good checkpoint is of step {good}")).unwrap_or_default()
    )]
    Diverged {
        /// Global step at which it was certain.
        step: u64,
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
        /// Its folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Checkpoints could not be listed.
    #[error("cannot read checkpoints in `{}`", .path.display())]
    CheckpointRead {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A checkpoint is not what was written.
    #[error("checkpoint `{}` is damaged: {reason}", .path.display())]
    CheckpointDamaged {
        /// Its folder.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A checkpoint of another model.
    #[error("`{}` (model `{model}`): tensor `{tensor}` is {found}, but the model here needs {wanted}", .path.display())]
    CheckpointTensor {
        /// The file.
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
        /// Its folder.
        path: PathBuf,
        /// The optimiser it was made with.
        found: String,
        /// The optimiser here.
        wanted: String,
    },
    /// A run cannot go on because something else than its end changed.
    #[error("run `{}` cannot go on: {what} was {found}, now {wanted}", .path.display())]
    ResumeMismatch {
        /// The run folder.
        path: PathBuf,
        /// What changed.
        what: &'static str,
        /// As the run had it.
        found: String,
        /// As it is now.
        wanted: String,
    },
    /// A run without a usable checkpoint cannot be resumed.
    #[error("run `{}` has no usable checkpoint{detail}", .path.display())]
    NothingToResume {
        /// The run folder.
        path: PathBuf,
        /// What was wrong with those that are there.
        detail: String,
    },
    /// The run has ended, and nothing that was asked for is left to do. Not a failure: nothing was changed.
    #[error("run `{}` is finished: step {step} was its last", .path.display())]
    Finished {
        /// The run folder.
        path: PathBuf,
        /// Updates done.
        step: u64,
    },
    /// Weights of another program do not fit.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// Initial weights could not be read.
    #[error("cannot read initial weights from `{}`", .path.display())]
    InitRead {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Initial weights do not fit the model.
    #[error("initial weights `{}` do not fit model `{model}`: {reason}", .path.display())]
    InitUnfit {
        /// The file.
        path: PathBuf,
        /// The model.
        model: String,
        /// What does not fit.
        reason: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The strategy needs several processes.
    #[error("strategy `{strategy}` needs a task for each worker, and this is a process on its own")]
    Alone {
        /// The strategy.
        strategy: &'static str,
    },
    /// The thread that gathers input is gone.
    #[error("the thread that gathers input ended unexpectedly")]
    InputEnded,
    /// A replica's thread could not be started or panicked.
    #[error("replica {replica} ended unexpectedly")]
    ReplicaPanicked {
        /// Which one.
        replica: usize,
    },
}

impl TrainError {
    /// Whether the caller asked for something that does not exist or does not fit, rather than something going wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Model(error) => error.is_usage(),
            Self::Strategy(error) => error.is_usage(),
            Self::Optimizer(_)
            | Self::Schedule(_)
            | Self::Setting { .. }
            | Self::NoStop
            | Self::GrowthWithoutEpochs
            | Self::BatchTooLarge { .. }
            | Self::BatchTooSmall { .. }
            | Self::Memory { .. }
            | Self::NoTestData { .. }
            | Self::Alone { .. } => true,
            _ => false,
        }
    }

    /// Whether another task is the trouble, so that forming anew may help.
    pub(crate) fn is_peer(&self) -> bool {
        match self {
            Self::Strategy(StrategyError::Link(_) | StrategyError::PeerLost { .. }) => true,
            Self::Link(error) => error.task().is_some(),
            _ => false,
        }
    }

    /// The task that is the trouble, where that is known.
    pub(crate) fn peer(&self) -> Option<TaskId> {
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
