//! Why a run's files could not be written or read.

use std::{io, path::PathBuf};

/// Why a run's files could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    /// A file or folder could not be created.
    #[error("cannot create `{}`", .path.display())]
    Create {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Writing stopped halfway.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file or folder could not be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A JSON file does not hold what it should.
    #[error("`{}` is not a valid {what}", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What it should have been.
        what: &'static str,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The folder holds no run.
    #[error("`{}` is not a run folder: it has no plan.json", .path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// An event file's framing is damaged.
    #[error("cannot read TensorBoard file `{}`", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Record and offset.
        source: paceline_tfrecord::Error,
    },
    /// A record of an event file is no event.
    #[error("TensorBoard file `{}`, record {record}: not a valid event", .path.display())]
    Event {
        /// The file.
        path: PathBuf,
        /// Number of the record, from 0.
        record: usize,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
}
