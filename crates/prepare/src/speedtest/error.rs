//! Why a speed test could not start or go on.

use std::{io, path::PathBuf};

use super::ReadKind;
use paceline_data::DataError;
use paceline_store::{StoreError, durable::JournalError, handout::HandoutError};

/// What went wrong with a speed test.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeedTestError {
    /// A setting of zero, or an empty list.
    #[error("{what} must be at least 1")]
    NotPositive { what: &'static str },
    /// No source at all.
    #[error("neither image files nor records are given")]
    NothingToRead,
    /// A setting far beyond any data set.
    #[error("{batches} batches of {size} are more than any data set holds")]
    TooLarge {
        /// Largest batch size.
        size: u64,
        /// Largest number of batches.
        batches: u64,
    },
    /// A path that is not there.
    #[error("no {} at `{}`: there is no such file or folder", .kind.name(), .path.display())]
    Missing { kind: ReadKind, path: PathBuf },
    /// A path that holds something else.
    #[error("`{}` holds no {}{}", .path.display(), .kind.name(), .found.map(|name| format!(", it looks like {name}")).unwrap_or_default())]
    OtherKind {
        kind: ReadKind,
        path: PathBuf,
        /// What it looks like.
        found: Option<&'static str>,
    },
    /// The source could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The folder for results failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Work handed out by another program, or cut off.
    #[error("line {line} of the work cannot be understood")]
    BadWork {
        /// From 1.
        line: usize,
    },
    /// Work handed out by another version of the program.
    #[error("the work was handed out by {theirs}, this is {ours}")]
    Foreign {
        /// Program and version that handed it out.
        theirs: String,
        /// This program and its version.
        ours: String,
    },
    /// The test this work belongs to has ended, or was handed out again.
    #[error("the speed test in `{}` that this work belongs to is over", .path.display())]
    Over { path: PathBuf },
    /// This machine does not see the folder for results.
    #[error("`{}` holds no speed test, seen from this machine", .path.display())]
    FolderUnseen { path: PathBuf },
    /// A cell has no measurements.
    #[error("no task measured `{}`", .path.display())]
    Unmeasured {
        /// Where its measurements should be.
        path: PathBuf,
    },
    /// The folder holds a test with other settings.
    #[error("`{}` holds a speed test with another {what}: {before} there, {now} now", .path.display())]
    SettingsChanged {
        path: PathBuf,
        /// The setting that differs.
        what: String,
        /// Its value in the journal.
        before: String,
        now: String,
    },
    /// A line of the journal that cannot be understood.
    #[error("`{}`, line {line}: not a measurement of this test", .path.display())]
    Damaged {
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// Another process is writing the journal.
    #[error("`{}` is in use by another speed test", .path.display())]
    InUse { path: PathBuf },
    /// The journal could not be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The journal or its folder.
        path: PathBuf,
        source: io::Error,
    },
    /// The journal could not be read.
    #[error("cannot read `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The page cache could not be dropped, neither as a whole nor file by file.
    #[error("cannot drop the page cache: writing `{}` needs root ({whole}), and `{}` cannot be dropped on its own", .control.display(), .path.display())]
    Cold {
        /// The system's switch.
        control: PathBuf,
        /// Why the switch did not work.
        whole: io::Error,
        /// The file that could not be dropped either.
        path: PathBuf,
        source: io::Error,
    },
}

impl From<JournalError> for SpeedTestError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Busy { path } => Self::InUse { path },
            JournalError::Read { path, source } => Self::Read { path, source },
            JournalError::Write { path, source } => Self::Write { path, source },
        }
    }
}

impl From<HandoutError> for SpeedTestError {
    fn from(error: HandoutError) -> Self {
        match error {
            HandoutError::Unreadable { line, .. } | HandoutError::Malformed { line, .. } => {
                Self::BadWork { line }
            }
            HandoutError::Foreign { theirs, ours } => Self::Foreign { theirs, ours },
            HandoutError::Unseen { location } => Self::FolderUnseen { path: location.into() },
            HandoutError::Over { location } => Self::Over { path: location.into() },
            HandoutError::Damaged { location, source } => {
                Self::Read { path: location.into(), source: source.into() }
            }
            HandoutError::Store(error) => Self::Store(error),
        }
    }
}
