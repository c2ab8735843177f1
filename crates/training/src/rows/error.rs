//! Why a stream could not be learned from.

use paceline_cluster::{TaskId, session::SessionError};
use paceline_data::DataError;
use paceline_models::{ModelError, sparse_logistic};
use paceline_runs::RunsError;
use paceline_strategies::StrategyError;
use std::{io, path::PathBuf};

/// Why a stream could not be learned from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The rows could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The model's settings are wrong.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The run's files could not be written or read.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// Weights and gradients could not be exchanged.
    #[error(transparent)]
    Strategy(#[from] StrategyError),
    /// The tasks of the run did not hold together.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A setting makes no sense.
    #[error("{setting} is {found}, must be {wanted}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// There was nothing to learn from.
    #[error("`{data}` has no row")]
    NoRows {
        /// The data.
        data: String,
    },
    /// The loss stopped being a number.
    #[error("the loss is not finite after {rows} rows: the weights have diverged")]
    NotFinite {
        /// Rows learned by then.
        rows: u64,
    },
    /// A run cannot continue on other data than it began on.
    #[error("run `{}` cannot continue: the data was {found}, now {wanted}", .path.display())]
    OtherData {
        /// The run folder.
        path: PathBuf,
        /// As the run had it.
        found: String,
        /// As it is now.
        wanted: String,
    },
    /// The loss exploded and did not come back.
    #[error("training diverged by row {rows}: {found}; learning rate {rate}")]
    Diverged {
        /// Rows learned by then.
        rows: u64,
        /// How the loss compares.
        found: paceline_runs::Divergence,
        /// Learning rate.
        rate: f32,
    },
    /// A checkpoint could not be written.
    #[error("cannot write checkpoint `{}`", .path.display())]
    CheckpointWrite {
        /// Its folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A checkpoint could not be read.
    #[error("cannot read checkpoint `{}`", .path.display())]
    CheckpointRead {
        /// The file or folder.
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
    /// A checkpoint of a model that is trained in another way.
    #[error("checkpoint `{}` is of model `{model}`, not of `{}`", .path.display(), sparse_logistic::NAME)]
    OtherModel {
        /// Its folder.
        path: PathBuf,
        /// The model it was made with.
        model: String,
    },
    /// No checkpoint where one should be.
    #[error("there is no checkpoint of a sparse model in `{}`", .path.display())]
    NoCheckpoint {
        /// The folder searched.
        path: PathBuf,
    },
    /// The run has ended, and nothing that was asked for is left to do. Not a failure: nothing was changed.
    #[error("run `{}` is finished: {rows} rows were learned from, and none is left", .path.display())]
    Finished {
        /// The run folder.
        path: PathBuf,
        /// Rows learned from.
        rows: u64,
    },
    /// The final weights could not be gathered from the servers.
    #[error("the final weights could not be gathered from the servers: {reason}")]
    Ungathered {
        /// Why.
        reason: &'static str,
    },
    /// Predictions could not be written.
    #[error("cannot write predictions")]
    Output(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// A thread of the run panicked.
    #[error("a thread of the run ended unexpectedly")]
    Panicked,
}

impl StreamError {
    /// Whether the caller asked for something that does not exist or does not fit, rather than something going wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Model(error) => error.is_usage(),
            Self::Strategy(error) => error.is_usage(),
            Self::Setting { .. } => true,
            _ => false,
        }
    }

    /// Whether another task, or the way to it, is the cause.
    #[must_use]
    pub fn is_peer(&self) -> bool {
        matches!(self, Self::Strategy(StrategyError::Link(_) | StrategyError::PeerLost { .. }))
    }

    /// The task whose loss caused it, where one did.
    #[must_use]
    pub fn peer(&self) -> Option<TaskId> {
        match self {
            Self::Strategy(error) => error.lost(),
            _ => None,
        }
    }
}
