//! What can be wrong with a question or with the measurements behind it.

use crate::table::TableError;
use paceline_data::DataError;
use paceline_models::ModelError;
use paceline_models::optimizer::OptimizerError;
use paceline_runs::RunsError;
use paceline_wire::{KeyError, LinkError};
use std::path::PathBuf;

/// Why no forecast can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// A table cannot be read, or a cell of it makes no sense.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The model cannot be built or stepped.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The optimiser cannot be built.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The run folder cannot be read.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// Tasks that measure cannot talk to each other.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The examples cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A report of the network that is not JSON.
    #[error("`{}` is not JSON", .path.display())]
    NotJson {
        path: PathBuf,
        /// What is wrong, with the line.
        source: serde_json::Error,
    },
    /// A report of the network without figures of any two tasks.
    #[error("`{}` holds no measured pair of tasks", .path.display())]
    NoMeasuredPair { path: PathBuf },
    /// Not a file of layer times.
    #[error("`{}` holds no layer times", .path.display())]
    NoLayerTimes {
        path: PathBuf,
        /// What is wrong, with the line.
        source: serde_json::Error,
    },
    /// A profile or list of layers with a value that cannot be.
    #[error("`{}`: {what}", .path.display())]
    BadProfile {
        path: PathBuf,
        /// Where in it, and what is wrong.
        what: String,
    },
    /// Layer times of another model than the one asked about.
    #[error("`{}` holds layer times of `{found}`, not of `{asked}`", .path.display())]
    OtherModel { path: PathBuf, found: String, asked: String },
    /// None of the paths is a run folder, or holds one.
    #[error("no run folder among those named")]
    NoRunFolders,
    /// No run that could tell how long steps of the model take.
    #[error("no run of `{model}` on one worker in `{}`", .path.display())]
    NoRunOf { model: String, path: PathBuf },
    /// Runs of different jobs are not points of one curve.
    #[error("run `{}` is {found}, others are {others}: one curve is of one job", .path.display())]
    DifferentJobs { path: PathBuf, found: String, others: String },
    /// Too few sizes or gradients to compare any.
    #[error("nothing to compare")]
    NothingToCompare,
    /// Steps to be measured take more memory than there is.
    #[error(
        "a step of {examples} examples needs {:.1} GB of memory, and this process may use {:.1} GB",
        .needs / 1e9, .limit / 1e9
    )]
    Memory {
        examples: usize,
        /// Bytes of weights, gradient, activations and input.
        needs: f64,
        /// Bytes that this process may use.
        limit: f64,
        /// A number of examples that fits, if one does.
        fits: Option<usize>,
    },
    /// A data set of nothing.
    #[error("the data has no examples")]
    NoExamples,
    /// The loss of the steps before the measurement is not finite.
    #[error("training diverged at step {step} with rate {rate}")]
    Diverged { step: u64, rate: f32 },
    /// More workers than examples of an update.
    #[error("{workers} workers cannot share a batch of {batch}")]
    BatchTooSmall { workers: usize, batch: u64 },
    /// No key for the tasks that measure.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A run that has made no step tells nothing of others.
    #[error("`{}` holds no step that counts its examples: nothing to simulate from", .path.display())]
    NoSteps { path: PathBuf },
    /// A run that does not say what a simulation needs, such as one that another program recorded.
    #[error("`{}` does not record its {what}: nothing to simulate from", .path.display())]
    Unsaid { path: PathBuf, what: &'static str },
    /// The model has no layers that could be shared out.
    #[error("model `{model}` is not a chain of layers: only its data can be distributed")]
    NotAChain { model: String },
    /// Made-up examples are pixels.
    #[error("only models of images can be timed on made-up examples")]
    ImagesOnly,
    /// A thread that measured ended with a panic.
    #[error("a measuring thread panicked")]
    ThreadPanicked,
    /// A measured time that is zero, negative or not finite.
    #[error("a run cannot take {seconds} s: a time must be above zero and finite")]
    ImpossibleTime { seconds: f64 },
    /// No strategy of that name can be simulated.
    #[error("there is no simulation of strategy `{name}`; there are {known}")]
    UnknownStrategy {
        /// What was asked for.
        name: String,
        known: String,
    },
    /// Too few points to fit a scaling curve.
    #[error("a scaling curve needs runs on at least {needed} different sizes, there are {found}")]
    TooFewRuns { needed: usize, found: usize },
    /// One batch size tells nothing of others.
    #[error("a line needs steps of at least two batch sizes, there is {found}")]
    TooFewBatchSizes { found: usize },
    /// Step times do not lie on a line, so nothing can be read from one.
    #[error(
        "no line fits the step times: they lie {percent:.0} % off; a step of batch {batch} takes {:.3} ms, the line says {:.3} ms",
        1e3 * .measured, 1e3 * .line
    )]
    NoLine {
        /// Root mean square of the relative distances, in per cent.
        percent: f64,
        /// The batch size that lies farthest off.
        batch: f64,
        /// Its step in seconds.
        measured: f64,
        line: f64,
    },
    /// Steps of one batch size take very different times.
    #[error(
        "no line fits the step times: they lie {percent:.0} % off, because steps of batch {batch} differ: {:.3} to {:.3} ms",
        1e3 * .least, 1e3 * .most
    )]
    StepsDisagree {
        /// Root mean square of the relative distances, in per cent.
        percent: f64,
        batch: f64,
        /// Its fastest step in seconds.
        least: f64,
        /// Its slowest.
        most: f64,
    },
    /// Too few gradients to tell noise from signal.
    #[error(
        "a noise scale needs at least two pairs of gradients at two batch sizes, there are {found}"
    )]
    TooFewGradients { found: usize },
    /// The true gradient is lost in its noise.
    #[error(
        "the gradient cannot be distinguished from its noise: {batches} batches of {batch} examples are too few"
    )]
    NoSignal {
        /// Large batches looked at.
        batches: usize,
        batch: f64,
    },
    /// A network without layers cannot be projected.
    #[error("network `{network}` has no layers")]
    NoLayers { network: String },
    /// A layer's time is negative or not finite.
    #[error("layer `{layer}`: its {what} time is {seconds} s; it must be zero or above and finite")]
    LayerTime { layer: String, what: &'static str, seconds: f64 },
    /// A quantity that cannot be.
    #[error("{what} is {found}; it must be {wanted}")]
    OutOfRange {
        what: &'static str,
        found: f64,
        /// What it may be.
        wanted: &'static str,
    },
}

impl ForecastError {
    /// Whether what was asked for is wrong, not what was measured.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Model(error) => error.is_usage(),
            Self::Optimizer(_)
            | Self::NoMeasuredPair { .. }
            | Self::OtherModel { .. }
            | Self::NothingToCompare
            | Self::NoExamples
            | Self::Diverged { .. }
            | Self::BatchTooSmall { .. } => true,
            _ => false,
        }
    }
}
