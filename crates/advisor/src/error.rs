//! What can be wrong with a catalogue, a history or a search; always naming the row.

use paceline_forecast::ForecastError;
use paceline_forecast::table::{Row, TableError, TablePlace};
use paceline_runs::RunsError;
use std::path::PathBuf;

/// Why no advice can be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdvisorError {
    /// A table cannot be read, or a cell of it makes no sense.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Run folders cannot be found.
    #[error(transparent)]
    Forecast(#[from] ForecastError),
    /// A search space makes no sense.
    #[error(transparent)]
    Space(#[from] crate::tuning::SpaceError),
    /// A run folder cannot be read.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A run on a machine that the catalogue does not hold.
    #[error(
        "run `{}`: the catalogue has no {workers} x machine of {cores} cores and {gib:.1} GiB",
        .run.display()
    )]
    NoSuchMachine { run: PathBuf, workers: u32, cores: usize, gib: f64 },
    /// A run on a machine that several of the catalogue could be.
    #[error("run `{}`: could be any of {names}", .run.display())]
    SeveralMachines { run: PathBuf, names: String },
    /// Run folders, but no run among them has ended.
    #[error("`{}` holds no run that has ended", .path.display())]
    NoEndedRun { path: PathBuf },
    /// The command that runs the job cannot be started.
    #[error("cannot start `{command}`")]
    Start {
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The command that runs the job cannot be waited for.
    #[error("cannot wait for the command")]
    Wait(#[source] std::io::Error),
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key.
    #[error("`{}` is not a catalogue in TOML", .path.display())]
    Toml {
        path: PathBuf,
        /// What is wrong, with the line.
        source: toml::de::Error,
    },
    /// The file is not JSON, or has an unknown key.
    #[error("`{}` is not the JSON expected here", .path.display())]
    Json {
        path: PathBuf,
        /// What is wrong, with the line.
        source: serde_json::Error,
    },
    /// A file name that says nothing about what is inside.
    #[error("`{}`: the ending must be one of {expected}", .path.display())]
    Ending {
        path: PathBuf,
        /// What can be read.
        expected: &'static str,
    },
    /// A machine without a price cannot be advised on.
    #[error("{place}: machine `{machine}` has no price")]
    NoPrice { place: TablePlace, machine: String },
    /// The same configuration twice in the catalogue.
    #[error(
        "{place}: {count} x `{machine}` is in the catalogue already ({first}); what differs in another column needs a name of its own"
    )]
    DuplicateConfiguration {
        place: TablePlace,
        machine: String,
        /// How many of them.
        count: u32,
        /// Where it was first.
        first: Row,
    },
    /// A catalogue with nothing in it.
    #[error("`{}` holds no configuration", .path.display())]
    EmptyCatalogue { path: PathBuf },
    /// A history of other machines only, none of them like any of the catalogue.
    #[error("`{}`: none of its {runs} runs is on a machine of the catalogue, or on one of its size; the first is on `{machine}`", .path.display())]
    NothingComparable { path: PathBuf, runs: usize, machine: String },
    /// The same measurement twice.
    #[error("{place}: repeats {first}; number repeated runs in a column `run`")]
    DuplicateMeasurement { place: TablePlace, first: Row },
    /// Two different results for one run.
    #[error("{place}: contradicts {first}; number repeated runs in a column `run`")]
    Contradiction { place: TablePlace, first: Row },
    /// A time below zero, or none.
    #[error("{place}: a run took {seconds} s; a time must be above zero and less than a century")]
    BadTime { place: TablePlace, seconds: f64 },
    /// A completed run without a time.
    #[error("{place}: a completed run needs its `seconds`")]
    NoTime { place: TablePlace },
    /// A history without a single measurement.
    #[error("`{}` holds no measurement", .path.display())]
    EmptyHistory { path: PathBuf },
    /// The method learns from past jobs, and there are none.
    #[error("method `{method}` learns from past jobs, and the history has no completed run of any")]
    NeedsHistory { method: &'static str },
    /// No method of that name.
    #[error("there is no method `{name}`; there are {known}")]
    UnknownMethod {
        /// What was asked for.
        name: String,
        known: String,
    },
    /// A machine or count outside the catalogue was told.
    #[error("{count} x `{machine}` is not in the catalogue")]
    NotInCatalogue {
        machine: String,
        /// How many of them.
        count: u32,
    },
    /// A measured time that is zero, negative or not finite.
    #[error("a run cannot take {seconds} s: a time must be above zero and less than a century")]
    ImpossibleTime { seconds: f64 },
    /// The state file belongs to another question.
    #[error("`{}` was begun with another {what}", .path.display())]
    StateMismatch { path: PathBuf, what: &'static str },
    /// The state file was begun with other configurations to choose from.
    #[error("`{}` belongs to another search space: {why}", .path.display())]
    OtherSpace { path: PathBuf, why: String },
    /// Runs, but none with the value that is to be small.
    #[error("`{}`: none of its {runs} runs completed, so time and cost were never measured", .path.display())]
    NeverMeasured { path: PathBuf, runs: usize },
    /// Recorded runs of one job only: it would have no past, and none would have it.
    #[error("`{}` holds runs of {jobs} job{}; a replay needs two that completed something", .path.display(), if *.jobs == 1 { "" } else { "s" })]
    TooFewJobs {
        path: PathBuf,
        /// Jobs in it that completed something.
        jobs: usize,
    },
    /// A deadline that no recorded job keeps.
    #[error("`{}`: no job keeps a deadline of {deadline} s on any configuration; the shortest completed run took {shortest} s", .path.display())]
    NothingInTime {
        path: PathBuf,
        deadline: f64,
        /// Seconds.
        shortest: f64,
    },
    /// A study that needs both halves of the public set.
    #[error("constants are chosen again on the public set only")]
    NotThePublicSet,
    /// The recorded set lacks what the evaluation needs.
    #[error("`{}`: {what}", .path.display())]
    IncompleteSet { path: PathBuf, what: &'static str },
}
