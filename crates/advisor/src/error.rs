//! What can be wrong with a catalogue, a history or a search; always naming the row.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file, and where in it: CSV files are counted in lines, TOML and JSON in entries, from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The row in it.
    pub row: Row,
}

/// How the rows of a file are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A line of a text file; the header is line 1.
    Line(u64),
    /// An element of a list, the first being 1.
    Entry(usize),
}

impl Place {
    pub(crate) fn new(path: &Path, row: Row) -> Self {
        Self { path: path.to_path_buf(), row }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Entry(entry) => write!(f, "entry {entry}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, {}", self.path.display(), self.row)
    }
}

/// Why no advice can be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdvisorError {
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no CSV.
    #[error("`{}` is no table of comma-separated values", .path.display())]
    Csv {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        source: csv::Error,
    },
    /// The file is no TOML, or holds an unknown key.
    #[error("`{}` is no catalogue in TOML", .path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        source: toml::de::Error,
    },
    /// The file is no JSON, or holds an unknown key.
    #[error("`{}` is not the JSON expected here", .path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        source: serde_json::Error,
    },
    /// A file name that says nothing about what is inside.
    #[error("`{}`: the ending must be one of {expected}", .path.display())]
    Ending {
        /// The file.
        path: PathBuf,
        /// What can be read.
        expected: &'static str,
    },
    /// A column that must be there is not.
    #[error("`{}` has no column `{column}`", .path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// Its name.
        column: &'static str,
    },
    /// A column nobody knows; a typing error must not become a default.
    #[error("`{}` has a column `{column}` that means nothing here; metrics are called `metric.NAME`", .path.display())]
    UnknownColumn {
        /// The file.
        path: PathBuf,
        /// Its name.
        column: String,
    },
    /// A cell is no number, or none in the allowed range.
    #[error("{place}: `{column}` is `{text}`, expected {expected}")]
    Value {
        /// Where.
        place: Place,
        /// The column.
        column: String,
        /// What stands there.
        text: String,
        /// What should.
        expected: &'static str,
    },
    /// A machine without a price cannot be advised on.
    #[error("{place}: machine `{machine}` has no price")]
    NoPrice {
        /// Where.
        place: Place,
        /// The machine.
        machine: String,
    },
    /// The same configuration twice in the catalogue.
    #[error("{place}: {count} x `{machine}` is in the catalogue already ({first})")]
    DuplicateConfiguration {
        /// Where.
        place: Place,
        /// The machine.
        machine: String,
        /// How many of them.
        count: u32,
        /// Where it was first.
        first: Row,
    },
    /// A catalogue with nothing in it.
    #[error("`{}` holds no configuration", .path.display())]
    EmptyCatalogue {
        /// The file.
        path: PathBuf,
    },
    /// A measurement of a machine that the catalogue does not hold.
    #[error("{place}: machine `{machine}` is not in the catalogue")]
    UnknownMachine {
        /// Where.
        place: Place,
        /// The machine.
        machine: String,
    },
    /// The machine is known, this number of them is not.
    #[error("{place}: the catalogue has `{machine}`, but not {count} of them")]
    UnknownCount {
        /// Where.
        place: Place,
        /// The machine.
        machine: String,
        /// How many of them.
        count: u32,
    },
    /// The same measurement twice.
    #[error("{place}: repeats {first}; number repeated runs in a column `run`")]
    DuplicateMeasurement {
        /// Where.
        place: Place,
        /// The first one.
        first: Row,
    },
    /// Two different results for one run.
    #[error("{place}: contradicts {first}; number repeated runs in a column `run`")]
    Contradiction {
        /// Where.
        place: Place,
        /// The first one.
        first: Row,
    },
    /// A time below zero, or none.
    #[error("{place}: a run took {seconds} s; a time must be above zero and finite")]
    BadTime {
        /// Where.
        place: Place,
        /// What stands there.
        seconds: f64,
    },
    /// A completed run without a time.
    #[error("{place}: a completed run needs its `seconds`")]
    NoTime {
        /// Where.
        place: Place,
    },
    /// A history without a single measurement.
    #[error("`{}` holds no measurement", .path.display())]
    EmptyHistory {
        /// The file.
        path: PathBuf,
    },
    /// The method learns from past jobs, and there are none.
    #[error("method `{method}` learns from past jobs, and the history has no completed run of any")]
    NeedsHistory {
        /// The method.
        method: &'static str,
    },
    /// No method of that name.
    #[error("there is no method `{name}`; there are {known}")]
    UnknownMethod {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No strategy of that name can be simulated.
    #[error("there is no simulation of strategy `{name}`; there are {known}")]
    UnknownStrategy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A machine or count outside the catalogue was told.
    #[error("{count} x `{machine}` is not in the catalogue")]
    NotInCatalogue {
        /// The machine.
        machine: String,
        /// How many of them.
        count: u32,
    },
    /// A result that is no time.
    #[error("a run of {seconds} s cannot be; a time must be above zero and finite")]
    ImpossibleTime {
        /// What was told.
        seconds: f64,
    },
    /// The state file belongs to another question.
    #[error("`{}` was begun with another {what}", .path.display())]
    StateMismatch {
        /// The state file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// The state file was begun with other configurations to choose from.
    #[error("`{}` belongs to another search space: {why}", .path.display())]
    OtherSpace {
        /// The state file.
        path: PathBuf,
        /// What differs first.
        why: String,
    },
    /// Runs, but none with the value that is to be small.
    #[error("`{}`: none of its {runs} runs completed, so time and cost were never measured", .path.display())]
    NeverMeasured {
        /// The history.
        path: PathBuf,
        /// Runs in it.
        runs: usize,
    },
    /// Too few points to fit a scaling curve.
    #[error("a scaling curve needs runs on at least {needed} different sizes, there are {found}")]
    TooFewRuns {
        /// What is needed.
        needed: usize,
        /// What is there.
        found: usize,
    },
    /// One batch size tells nothing of others.
    #[error("a line needs steps of at least two batch sizes, there is {found}")]
    TooFewBatchSizes {
        /// What is there.
        found: usize,
    },
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
        /// The line's.
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
        /// The batch size.
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
    TooFewGradients {
        /// Pairs there are.
        found: usize,
    },
    /// The true gradient is lost in its noise.
    #[error(
        "the gradient cannot be told from its noise: {batches} batches of {batch} examples are too few"
    )]
    NoSignal {
        /// Large batches looked at.
        batches: usize,
        /// Examples of each.
        batch: f64,
    },
    /// A network without layers cannot be projected.
    #[error("network `{network}` has no layers")]
    NoLayers {
        /// The network.
        network: String,
    },
    /// A layer's time is no time.
    #[error("layer `{layer}`: its {what} time is {seconds} s; it must be zero or above and finite")]
    LayerTime {
        /// The layer.
        layer: String,
        /// Which time.
        what: &'static str,
        /// What was given.
        seconds: f64,
    },
    /// A quantity that cannot be.
    #[error("{what} is {found}; it must be {wanted}")]
    OutOfRange {
        /// Which quantity.
        what: &'static str,
        /// What was given.
        found: f64,
        /// What it may be.
        wanted: &'static str,
    },
    /// The recorded set lacks what the evaluation needs.
    #[error("`{}`: {what}", .path.display())]
    IncompleteSet {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
}
