//! Why a product could not be computed.

use paceline_cluster::session::SessionError;
use paceline_wire::{LinkError, TaskId};
use std::io;
use std::path::PathBuf;

/// Why a product could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatmulError {
    /// A matrix without rows, or with more than a 32-bit index can name.
    #[error("matrices of {size} rows: must be between 1 and {most}")]
    Size {
        size: u64,
        /// The most there can be.
        most: u64,
    },
    /// The two matrices differ in size.
    #[error("`{}` has {left} rows, `{}` has {right}: they must be equal", .left_path.display(), .right_path.display())]
    Sizes { left_path: PathBuf, left: u64, right_path: PathBuf, right: u64 },
    /// No block fits.
    #[error(
        "{memory} bytes for {workers} workers are too few: blocks of {block} rows need {needed}"
    )]
    Memory {
        /// What there is for all workers.
        memory: u64,
        /// Among how many it is shared.
        workers: usize,
        /// What the block would need.
        needed: u64,
        /// Rows of the block asked for, or of the smallest.
        block: usize,
    },
    /// A worker process failed.
    #[error("worker {worker}: {reason}")]
    Worker {
        worker: usize,
        /// What it said, or how it ended.
        reason: String,
    },
    /// Nothing to work with.
    #[error("no {what}: at least one is needed")]
    None {
        /// `workers` or `rows in a block`.
        what: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Two processes would write one file.
    #[error("another process writes `{}`", .path.display())]
    Busy { path: PathBuf },
    /// Not an `.npy` file, or one of a kind that is not read.
    #[error("`{}`: {found}; needed: {needed}", .path.display())]
    Npy { path: PathBuf, found: String, needed: &'static str },
    /// The file is shorter or longer than its header says.
    #[error("`{}` has {found} bytes, its header promises {promised}", .path.display())]
    Length { path: PathBuf, found: u64, promised: u64 },
    /// Infinity or not a number.
    #[error("`{}`, row {row}, column {column}: {value} is not a finite single-precision number", .path.display())]
    NotFinite {
        path: PathBuf,
        /// Row, from 0.
        row: u64,
        /// Column, from 0.
        column: u64,
        value: f64,
    },
    /// Freivalds' check failed: a hardware or kernel error.
    #[error(
        "block ({row_block}, {column_block}), row {row}: the product gives {found}, the check {wanted} (tolerance {tolerance:.2e})"
    )]
    Wrong {
        row_block: usize,
        column_block: usize,
        row: u64,
        /// `(C x)` of that row.
        found: f64,
        /// `A (B x)` of that row.
        wanted: f64,
        tolerance: f64,
    },
    /// The state file is damaged.
    #[error("`{}` is not a state of this program: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
    /// The state file belongs to another product.
    #[error("`{}` belongs to another product: {what} differs", .path.display())]
    Other { path: PathBuf, what: &'static str },
    /// Blocks that were written are gone.
    #[error("`{}` says that blocks are done, but `{}` does not hold them", .state.display(), .output.display())]
    OutputLost { state: PathBuf, output: PathBuf },
    /// The tasks did not hold together.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A link broke although the session holds.
    #[error(transparent)]
    Link(Box<LinkError>),
    /// A task sent what does not belong here.
    #[error("{task} sent a message that is not part of a product")]
    Protocol { task: TaskId },
    /// This task was asked to stop.
    #[error("asked to stop")]
    Stopped,
}
