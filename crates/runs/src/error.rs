//! Why a run's files could not be written or read.

use crate::Owner;
use std::{
    io,
    path::{Path, PathBuf},
};

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
        path: PathBuf,
        /// What it should have been.
        what: &'static str,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A file of a later version, in which the same words may mean something else.
    #[error("`{}` is of format {format}, and this version reads formats up to {known}", .path.display())]
    LaterFormat {
        path: PathBuf,
        format: u64,
        /// The last format that is understood here.
        known: u64,
    },
    /// A recording of a machine cannot be understood.
    #[error("`{}`, line {line}: {reason}", .path.display())]
    Recording {
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        reason: String,
    },
    /// Nothing is there.
    #[error("there is no run at `{}`", .path.display())]
    NoRun { path: PathBuf },
    /// The folder is one of runs, not a run itself.
    #[error("`{}` is a folder of runs: name one of them, such as `{}`", .path.display(), .latest.display())]
    FolderOfRuns { path: PathBuf, latest: PathBuf },
    /// The folder holds no run.
    #[error("`{}` is not a run folder: it has neither plan.json nor events-*.jsonl", .path.display())]
    NotARun { path: PathBuf },
    /// An event file's framing is damaged.
    #[error("cannot read TensorBoard file `{}`", .path.display())]
    Record {
        path: PathBuf,
        /// Record and offset.
        source: paceline_tfrecord::Error,
    },
    /// A record of an event file is not an event.
    #[error("TensorBoard file `{}`, record {record}: not a valid event", .path.display())]
    Event {
        path: PathBuf,
        /// Number of the record, from 0.
        record: usize,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
    /// Another process writes to the run folder.
    #[error("run `{}` is in use by {}", .path.display(), named(.owner))]
    Owned {
        path: PathBuf,
        /// The process that has it.
        owner: Owner,
    },
    /// Another process writes this task's log.
    #[error("`{}` is being written by another process", .path.display())]
    LogHeld { path: PathBuf },
    /// The run folder is gone.
    #[error("the run folder `{}` was removed while the run was writing to it", .path.display())]
    Removed { path: PathBuf },
    /// The weights that a run ended with are not where they belong.
    #[error(
        "the final weights (step {step}) could not be written to `{}`: {reason}; {}",
        .path.display(),
        fate(.rescued.as_deref(), .tried)
    )]
    FinalWeights {
        /// Updates they went through.
        step: u64,
        path: PathBuf,
        /// Why they are not there.
        reason: String,
        /// Where they are instead.
        rescued: Option<PathBuf>,
        /// Where else that was tried, and why not there.
        tried: Vec<(PathBuf, String)>,
    },
}

fn named(owner: &Owner) -> String {
    match owner {
        Owner { pid: 0, .. } => "another process".to_owned(),
        Owner { pid, host, .. } => format!("process {pid} on {host}"),
    }
}

fn fate(rescued: Option<&Path>, tried: &[(PathBuf, String)]) -> String {
    let failed: Vec<String> =
        tried.iter().map(|(place, why)| format!("not in `{}`: {why}", place.display())).collect();
    match rescued {
        Some(place) if failed.is_empty() => format!("they are in `{}` instead", place.display()),
        Some(place) => format!("they are in `{}` instead ({})", place.display(), failed.join("; ")),
        None => format!("they are lost ({})", failed.join("; ")),
    }
}
