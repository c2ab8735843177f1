//! Why a product could not be computed.

use std::io;
use std::path::PathBuf;

/// Why a product could not be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MatmulError {
    /// A matrix without rows, or with more than a 32-bit index can name.
    #[error("matrices of {size} rows: must be between 1 and {most}")]
    Size {
        /// What was asked for.
        size: u64,
        /// The most there can be.
        most: u64,
    },
    /// The two matrices do not fit each other.
    #[error("`{}` has {left} rows, `{}` {right}: they must agree", .left_path.display(), .right_path.display())]
    Sizes {
        /// The left matrix.
        left_path: PathBuf,
        /// Its rows.
        left: u64,
        /// The right matrix.
        right_path: PathBuf,
        /// Its rows.
        right: u64,
    },
    /// No block fits.
    #[error("{memory} bytes for {workers} workers: {needed} are needed for blocks of {block} rows")]
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
    /// A worker's process did not do its part.
    #[error("worker {worker}: {reason}")]
    Worker {
        /// Its number.
        worker: usize,
        /// What it said, or how it ended.
        reason: String,
    },
    /// Nobody would work.
    #[error("no {what}: at least one is needed")]
    None {
        /// `workers` or `rows in a block`.
        what: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not an `.npy` file, or one of a kind that is not read.
    #[error("`{}`: {found}; needed: {needed}", .path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What should be.
        needed: &'static str,
    },
    /// The file ends early, or late.
    #[error("`{}` has {found} bytes, its header promises {promised}", .path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        promised: u64,
    },
    /// Infinity or not a number.
    #[error("`{}`, row {row}, column {column}: {value} is not a finite single-precision number", .path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Row, from 0.
        row: u64,
        /// Column, from 0.
        column: u64,
        /// The value found.
        value: f64,
    },
    /// Freivalds' check failed: the computer made a mistake.
    #[error(
        "block ({row_block}, {column_block}), row {row}: the product gives {found}, the check {wanted} (tolerance {tolerance:.2e})"
    )]
    Wrong {
        /// Row of blocks.
        row_block: usize,
        /// Column of blocks.
        column_block: usize,
        /// Row within the matrix.
        row: u64,
        /// `(C x)` of that row.
        found: f64,
        /// `A (B x)` of that row.
        wanted: f64,
        /// What rounding explains.
        tolerance: f64,
    },
    /// The state file is damaged.
    #[error("`{}` is not a state of this program: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The state file is of another product.
    #[error("`{}` belongs to another product: {what} differs", .path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// Blocks that were written are gone.
    #[error("`{}` says that blocks are done, but `{}` does not hold them", .state.display(), .output.display())]
    OutputLost {
        /// The state file.
        state: PathBuf,
        /// The unfinished output.
        output: PathBuf,
    },
}
