//! Errors of a sweep; errors inside a cell are rows instead.

use paceline_store::{StoreError, durable::JournalError, handout::HandoutError};
use std::io;
use std::path::PathBuf;

/// Why a sweep cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A recipe is not valid TOML, or has unknown keys or invalid values.
    #[error("recipe `{recipe}`: {source}")]
    Toml { recipe: String, source: Box<toml::de::Error> },
    /// A recipe names something that it does not define.
    #[error("recipe `{recipe}`: {place} names {what} `{name}`, which is not defined")]
    Undefined { recipe: String, place: String, what: &'static str, name: String },
    /// Two lists that belong together have different lengths.
    #[error("recipe `{recipe}`: {place} has {found} figures for {wanted} settings")]
    Lengths { recipe: String, place: String, found: usize, wanted: usize },
    /// Something that must be there is not.
    #[error("recipe `{recipe}`: {what}")]
    Incomplete { recipe: String, what: &'static str },
    /// An undefined placeholder.
    #[error("`{text}` uses the placeholder `{{{name}}}`, which is not defined")]
    Placeholder { text: String, name: String },
    /// A `--vary` that is not of the form `name=value,…`.
    #[error("`{text}` is not a list of values to vary: use name=value,value")]
    Vary { text: String },
    /// A name that no setting of a recipe's axis has.
    #[error("`{axis}` has no setting `{found}`, only {}", quoted(.known))]
    Setting {
        axis: String,
        found: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// A folder that holds the runs of another search.
    #[error("`{}` holds a search with {what}", .folder.display())]
    OtherSearch { folder: PathBuf, what: &'static str },
    /// What was asked in a folder cannot be read any more.
    #[error("`{}` does not say what its search is", .path.display())]
    DamagedQuestion { path: PathBuf, source: serde_json::Error },
    /// A run that is kept in a journal is not one of the search.
    #[error("`{}`, run {run}: {what}", .path.display())]
    StrangeRun {
        path: PathBuf,
        /// From 1.
        run: usize,
        what: Box<SweepError>,
    },
    /// Settings of a run that the space does not have.
    #[error("{settings} is not a point of the search space")]
    OtherPoint { settings: String },
    /// A run completed without a value for a goal.
    #[error("the run completed, and left no figure for the goal `{goal}`{}", instead(.known))]
    NeverMeasured { goal: String, known: Vec<String> },
    /// A scale out of range.
    #[error("scale {found} is out of range: it must be above 0 and at most 1")]
    Scale { found: f64 },
    /// A grid that is too large.
    #[error("{cells} cells are too many (at most {most})")]
    TooMany { cells: usize, most: usize },
    /// A command of a comparison failed.
    #[error("{side} {reason}: {command}{}", indented(.said))]
    Side {
        side: &'static str,
        command: String,
        reason: String,
        /// Its last lines.
        said: Vec<String>,
    },
    /// A call left no run folder, or one without a rate.
    #[error("no rate was recorded by `{command}`")]
    NoRate { command: String },
    /// A run that cannot be repeated.
    #[error("`{run}` does not say which script it is a run of")]
    NoScript { run: String },
    /// A verdict that names nothing to be taken away.
    #[error("nothing can be taken away from `{run}`: {verdict}")]
    NothingToTakeAway { run: String, verdict: String },
    /// A measurement that is not a speed.
    #[error("a command cannot be compared")]
    NoSpeed(#[source] paceline_stats::NotEstimable),
    /// Another sweep writes into the folder.
    #[error("another sweep writes into `{}`", .path.display())]
    Busy { path: PathBuf },
    /// The folder holds a cell that is not part of this sweep; its page would lose it.
    #[error("`{}` holds another sweep: {cell} is not part of this one", .folder.display())]
    OtherSweep {
        folder: PathBuf,
        /// A cell that is there.
        cell: String,
    },
    /// The folder holds this sweep on other data.
    #[error("`{}` holds this sweep on the data set `{found}`, not on `{wanted}`", .folder.display())]
    OtherData {
        folder: PathBuf,
        /// The data set of its cells.
        found: String,
        /// The one to be used now.
        wanted: String,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file or folder cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The program cannot be started at all.
    #[error("cannot start `{}`", .program.display())]
    Start { program: PathBuf, source: io::Error },
    /// The machine's resources cannot be recorded.
    #[error("cannot record the machine's resources")]
    Probes(#[from] paceline_probes::SamplerError),
    /// A setup command failed.
    #[error("`paceline {command}` failed: {reason}")]
    Setup { command: String, reason: String },
    /// Work that is malformed or truncated.
    #[error("line {line} of the work cannot be parsed")]
    BadWork {
        /// From 1.
        line: usize,
        source: io::Error,
    },
    /// Work made by another version of the program.
    #[error("the work was made by {theirs}, this is {ours}")]
    Foreign {
        /// Program and version that handed it out.
        theirs: String,
        /// This program and its version.
        ours: String,
    },
    /// The sweep this work belongs to has ended, or was handed out again.
    #[error("the sweep in `{}` that this work belongs to is over", .path.display())]
    Over { path: PathBuf },
    /// The place where rows go failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This machine cannot see the sweep.
    #[error("`{}` does not contain a sweep on this machine", .path.display())]
    Unseen { path: PathBuf },
    /// The engine did not run these cells.
    #[error("{cells} cells were not run, first `{first}`")]
    Unfinished { cells: usize, first: String },
    /// No hosts can be made here.
    #[error("no hosts of their own for the workers: {reason}")]
    Hosts { reason: String },
    /// The sweep was interrupted.
    #[error("stopped")]
    Interrupted,
}

/// The last lines of a command, each below the other.
fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n    {line}")).collect()
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn instead(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; it left {}", quoted(known)) }
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
