//! What can go wrong around a sweep; what goes wrong inside a cell is a row, not an error.

use paceline_store::{StoreError, durable::JournalError, handout::HandoutError};
use std::io;
use std::path::PathBuf;

/// Why a sweep cannot begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A recipe is no valid TOML, or has keys or values that mean nothing.
    #[error("recipe `{recipe}`: {source}")]
    Toml {
        /// The recipe.
        recipe: String,
        /// What and where.
        source: Box<toml::de::Error>,
    },
    /// A recipe names something that it does not define.
    #[error("recipe `{recipe}`: {place} names {what} `{name}`, which is not defined")]
    Undefined {
        /// The recipe.
        recipe: String,
        /// Where it is named.
        place: String,
        /// What it should be.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two lists that belong together have different lengths.
    #[error("recipe `{recipe}`: {place} has {found} figures for {wanted} settings")]
    Lengths {
        /// The recipe.
        recipe: String,
        /// Where.
        place: String,
        /// Figures.
        found: usize,
        /// Settings.
        wanted: usize,
    },
    /// Something that must be there is not.
    #[error("recipe `{recipe}`: {what}")]
    Incomplete {
        /// The recipe.
        recipe: String,
        /// What is missing.
        what: &'static str,
    },
    /// A placeholder that nothing fills.
    #[error("`{text}` wants `{{{name}}}`, which nothing fills")]
    Placeholder {
        /// The text around it.
        text: String,
        /// The placeholder.
        name: String,
    },
    /// A `--vary` that is no `name=value,…`.
    #[error("`{text}` is no list to vary")]
    Vary {
        /// What was given.
        text: String,
    },
    /// A scale outside of what makes sense.
    #[error("scale {found} is not above 0 and at most 1")]
    Scale {
        /// What was given.
        found: f64,
    },
    /// A grid larger than anybody wants to run.
    #[error("{cells} cells are too many (most: {most})")]
    TooMany {
        /// Cells asked for.
        cells: usize,
        /// Most that are allowed.
        most: usize,
    },
    /// Another sweep writes into the folder.
    #[error("another sweep writes into `{}`", .path.display())]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// The folder holds a cell that is not part of this sweep; its page would lose it.
    #[error("`{}` holds another sweep: {cell} is not part of this one", .folder.display())]
    OtherSweep {
        /// The folder.
        folder: PathBuf,
        /// A cell that is there.
        cell: String,
    },
    /// The folder holds this sweep on other data.
    #[error("`{}` holds this sweep on the data set `{found}`, not on `{wanted}`", .folder.display())]
    OtherData {
        /// The folder.
        folder: PathBuf,
        /// The data set of its cells.
        found: String,
        /// The one to be used now.
        wanted: String,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program cannot be started at all.
    #[error("cannot start `{}`", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The machine cannot be watched.
    #[error("cannot watch the machine")]
    Probes(#[from] paceline_probes::SamplerError),
    /// What a sweep needs before its first cell could not be made.
    #[error("`paceline {command}` failed: {reason}")]
    Setup {
        /// The command.
        command: String,
        /// Its last words.
        reason: String,
    },
    /// Work that was handed out by no sweep, or cut off.
    #[error("line {line} of the work cannot be understood")]
    BadWork {
        /// From 1.
        line: usize,
        /// What the parser said.
        source: io::Error,
    },
    /// Work handed out by another version of the program.
    #[error("the work was handed out by {theirs}, this is {ours}")]
    Foreign {
        /// Program and version that handed it out.
        theirs: String,
        /// This program and its version.
        ours: String,
    },
    /// The sweep this work belongs to has ended, or was handed out again.
    #[error("the sweep in `{}` that this work belongs to is over", .path.display())]
    Over {
        /// The sweep's folder.
        path: PathBuf,
    },
    /// The place where rows go failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This machine does not see the sweep.
    #[error("`{}` holds no sweep, seen from this machine", .path.display())]
    Unseen {
        /// The sweep's folder.
        path: PathBuf,
    },
    /// Whoever was to run these cells did not.
    #[error("{cells} cells were not run, first `{first}`")]
    Unfinished {
        /// How many.
        cells: usize,
        /// One of them.
        first: String,
    },
    /// Somebody asked to stop.
    #[error("stopped")]
    Interrupted,
}

impl From<JournalError> for SweepError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Busy { path } => Self::Busy { path },
            JournalError::Read { path, source } => Self::Read { path, source },
            JournalError::Write { path, source } => Self::Write { path, source },
        }
    }
}

impl From<HandoutError> for SweepError {
    fn from(error: HandoutError) -> Self {
        match error {
            HandoutError::Unreadable { line, source } => Self::BadWork { line, source },
            HandoutError::Malformed { line, source } => {
                Self::BadWork { line, source: source.into() }
            }
            HandoutError::Foreign { theirs, ours } => Self::Foreign { theirs, ours },
            HandoutError::Unseen { location } => Self::Unseen { path: location.into() },
            HandoutError::Over { location } => Self::Over { path: location.into() },
            HandoutError::Damaged { location, source } => {
                Self::Read { path: location.into(), source: source.into() }
            }
            HandoutError::Store(error) => Self::Store(error),
        }
    }
}
