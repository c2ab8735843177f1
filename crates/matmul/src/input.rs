//! Where blocks come from.

use crate::{MatmulError, Plan, npy::Npy, numeric};
use paceline_kernels::Compute;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// Rows that a thread makes at a time.
const ROWS: usize = 64;
/// Values that are read or made before it is asked whether to stop: a fraction of a second, also from a slow disk.
const UNASKED: usize = 1 << 23;

/// One of the two matrices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Values even between -1 and 1, each a function of seed, matrix number, row and column.
    Generated {
        /// Rows and columns.
        size: u64,
        seed: u64,
        /// Tells matrices of one seed apart.
        matrix: u64,
    },
    /// An `.npy` file.
    File(PathBuf),
}

impl Input {
    /// What it is, in a line; other contents give another line, so that a state is not mistaken.
    pub fn describe(&self) -> Result<String, MatmulError> {
        match self {
            Self::Generated { size, seed, matrix } => {
                Ok(format!("generated {size} seed {seed} matrix {matrix}"))
            }
            Self::File(path) => {
                let metadata = path
                    .metadata()
                    .map_err(|source| MatmulError::Read { path: path.clone(), source })?;
                let changed = metadata.modified().ok();
                let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let name = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
                let nanoseconds = changed.unwrap_or_default().as_nanos();
                Ok(format!("{} of {} bytes at {nanoseconds}", name.display(), metadata.len()))
            }
        }
    }

    /// What it holds, in a line that is the same wherever a copy lies: tasks on other machines compare it.
    pub(crate) fn contents(&self) -> Result<String, MatmulError> {
        match self {
            Self::Generated { .. } => self.describe(),
            Self::File(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Ok(format!("{name} of {} rows", Npy::open(path)?.size()))
            }
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Generated { .. } => PathBuf::from("(generated)"),
            Self::File(path) => path.clone(),
        }
    }

    /// Opens it for one worker.
    pub(crate) fn open(&self) -> Result<Reader, MatmulError> {
        Ok(match self {
            Self::Generated { size, seed, matrix } => {
                Reader::Generated { size: *size, seed: *seed, matrix: *matrix }
            }
            Self::File(path) => Reader::File(Npy::open(path)?),
        })
    }
}

/// One of the two factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Where a worker gets its blocks from.
pub(crate) trait BlockSource {
    /// Fills the beginning of `to` with block `(row, column)` of one factor; [`MatmulError::Stopped`] once `stop` says so.
    fn load(
        &mut self,
        compute: &Compute,
        plan: &Plan,
        side: Side,
        block: (usize, usize),
        to: &mut [f32],
        stop: &dyn Fn() -> bool,
    ) -> Result<(), MatmulError>;
}

/// Both matrices, read here.
#[derive(Debug)]
pub(crate) struct Matrices {
    left: Reader,
    right: Reader,
}

impl Matrices {
    pub(crate) fn open((left, right): (&Input, &Input)) -> Result<Self, MatmulError> {
        Ok(Self { left: left.open()?, right: right.open()? })
    }
}

impl BlockSource for Matrices {
    fn load(
        &mut self,
        compute: &Compute,
        plan: &Plan,
        side: Side,
        (row, column): (usize, usize),
        to: &mut [f32],
        stop: &dyn Fn() -> bool,
    ) -> Result<(), MatmulError> {
        let matrix = if side == Side::Left { &mut self.left } else { &mut self.right };
        let (rows, columns) = (plan.range(row), plan.range(column));
        let strip = (UNASKED / columns.len()).max(1).next_multiple_of(ROWS);
        for from in rows.clone().step_by(strip) {
            if stop() {
                return Err(MatmulError::Stopped);
            }
            let part = from..(from + strip).min(rows.end);
            let at = (from - rows.start) * columns.len();
            matrix.block(compute, part, columns.clone(), &mut to[at..])?;
        }
        Ok(())
    }
}

/// Reads blocks of one matrix.
#[derive(Debug)]
pub(crate) enum Reader {
    Generated { size: u64, seed: u64, matrix: u64 },
    File(Npy),
}

impl Reader {
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Generated { size, .. } => *size,
            Self::File(npy) => npy.size(),
        }
    }

    /// Fills the first `rows * columns` floats of `to`.
    pub(crate) fn block(
        &mut self,
        compute: &Compute,
        rows: Range<usize>,
        columns: Range<usize>,
        to: &mut [f32],
    ) -> Result<(), MatmulError> {
        let to = &mut to[..rows.len() * columns.len()];
        match self {
            Self::Generated { seed, matrix, .. } => {
                let first = u32::try_from(columns.start).expect("the plan bounds the size");
                let (seed, matrix, isa) = (*seed, *matrix, compute.isa());
                compute.pool().for_chunks(to, ROWS * columns.len(), |number, to| {
                    let lines = to.chunks_exact_mut(columns.len());
                    for (row, to) in (rows.start + number * ROWS..).zip(lines) {
                        numeric::fill_row(isa, seed, matrix, row as u64, first, to);
                    }
                });
                Ok(())
            }
            Self::File(npy) => npy.read(rows, columns, to),
        }
    }
}
