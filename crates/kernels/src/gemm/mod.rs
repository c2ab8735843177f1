//! Matrix products in single precision.
//!
//! Everything heavy ends up here: dense layers, convolutions (as products whose left operand is
//! gathered from an image while it is packed), and the block product of `paceline matmul`.

#![allow(unsafe_code)] // panels are raw memory; each unsafe block argues for itself

pub(crate) mod drive;
pub(crate) mod micro;
pub(crate) mod pack;
mod rows;

use super::Compute;
use crate::threads::SendPtr;
use drive::Problem;
use micro::MOST_ROWS;
use pack::{ColumnMajor, Right, RowMajor};
use rows::{HOT, Pieces};
use std::ops::Range;

/// Columns that are not worth cutting.
const LEAST_WIDTH: usize = 512;

/// What becomes of a part of a product: where it lies in it, what it meets, and the part itself.
pub(crate) type Meeting<'a> = dyn FnMut(Range<usize>, &mut [f32], &mut [f32]) + 'a;

/// A view of a matrix in memory.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f32],
    rows: usize,
    columns: usize,
    stride: usize,
    transposed: bool,
}

impl<'a> Matrix<'a> {
    /// `rows * columns` floats, row after row.
    #[must_use]
    pub fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Rows that start `stride` floats apart.
    ///
    /// # Panics
    /// If the view reaches beyond the data.
    #[must_use]
    pub fn strided(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        assert!(stride >= columns, "rows of {columns} floats overlap at a stride of {stride}");
        assert!(
            floats(rows, columns, stride).is_some_and(|needed| needed <= data.len()),
            "{rows} rows of {columns} at stride {stride} exceed {} floats",
            data.len()
        );
        Self { data, rows, columns, stride, transposed: false }
    }

    /// Rows become columns; no data moves.
    #[must_use]
    pub fn t(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }
}

/// What happens to the result of a product.
#[derive(Debug, Clone, Copy, Default)]
pub struct Finish<'a> {
    /// Add to what the result holds instead of overwriting it.
    pub accumulate: bool,
    /// Added to every row.
    pub bias: Option<&'a [f32]>,
    /// Negative values become zero.
    pub relu: bool,
    /// Zero where this matrix, laid out like the result, is not positive: the way back through a relu.
    pub mask: Option<&'a [f32]>,
}

impl Compute {
    /// `c = a * b`, rows of `c` starting `stride` floats apart, finished as `finish` says.
    ///
    /// # Panics
    /// If shapes do not fit each other.
    pub fn gemm(
        &mut self,
        a: Matrix<'_>,
        b: Matrix<'_>,
        c: &mut [f32],
        stride: usize,
        finish: &Finish<'_>,
    ) {
        let (m, n, k) = (a.rows, b.columns, a.columns);
        assert_eq!(k, b.rows, "inner dimensions of a product");
        check_result(m, n, stride, c.len(), finish);
        let right = Right { data: b.data.as_ptr(), stride: b.stride, transposed: b.transposed };
        let c = SendPtr(c.as_mut_ptr());
        // SAFETY: the views were checked when they were made, the result just above; `c` is
        // borrowed mutably, so it overlaps nothing.
        unsafe {
            if a.transposed {
                let left = ColumnMajor { data: a.data.as_ptr(), stride: a.stride };
                problem(m, n, k, left, right, c, stride, finish).solve(self);
            } else {
                let left = RowMajor { data: a.data.as_ptr(), stride: a.stride };
                problem(m, n, k, left, right, c, stride, finish).solve(self);
            }
        }
    }
}

impl Compute {
    /// `a^T * b`, some `floats` at a time: `each` gets them while they are in the caches, with the same part of `meets`, which
    /// was fetched meanwhile. Without `into` the result stays nowhere: it then never leaves the caches, and one thread may cut
    /// rows, too.
    ///
    /// # Panics
    /// If shapes do not fit each other.
    pub(crate) fn gemm_by_rows(
        &mut self,
        a: Matrix<'_>,
        b: Matrix<'_>,
        floats: usize,
        into: Option<&mut [f32]>,
        meets: &mut [f32],
        each: &mut Meeting<'_>,
    ) {
        let (m, n, k) = (a.columns, b.columns, a.rows);
        assert_eq!(k, b.rows, "inner dimensions of a product");
        assert!(!a.transposed && !b.transposed, "both operands lie row by row");
        check_result(m, n, n, meets.len(), &Finish::default());
        let mut piece = std::mem::take(&mut self.piece);
        let reuse = into.is_none();
        let c = if let Some(into) = into {
            check_result(m, n, n, into.len(), &Finish::default());
            SendPtr(into.as_mut_ptr())
        } else {
            // Panels of one product differ by a row, and the last of a piece may be begun for one float.
            piece.reserve(2 * floats.min(m * n) + MOST_ROWS * n);
            SendPtr(piece.as_mut_ptr())
        };
        let parts = match self.pool.threads() {
            1 if reuse => (n * k).div_ceil(HOT).min(n.div_ceil(LEAST_WIDTH)).max(1),
            _ => 1,
        };
        let width = n.div_ceil(parts).next_multiple_of(LEAST_WIDTH);
        for column in (0..n).step_by(width) {
            let columns = width.min(n - column);
            let left = ColumnMajor { data: a.data.as_ptr(), stride: a.stride };
            let data = b.data[column..].as_ptr();
            let right = Right { data, stride: b.stride, transposed: false };
            let soon = SendPtr(meets[column..].as_mut_ptr()); // its lines are asked for, nothing is read
            let mut each = |rows: Range<usize>| {
                let at = if reuse { 0 } else { rows.start * n };
                let length = rows.len() * columns;
                // SAFETY: these rows are there, and nothing touches them until this returns.
                let made = unsafe { std::slice::from_raw_parts_mut(c.get().add(at), length) };
                if columns == n {
                    let range = rows.start * n..rows.end * n;
                    return each(range.clone(), &mut meets[range], made);
                }
                for (row, made) in rows.zip(made.chunks_exact_mut(columns)) {
                    let range = row * n + column..row * n + column + columns;
                    each(range.clone(), &mut meets[range], made);
                }
            };
            let pieces = Pieces { floats, reuse, soon: (soon, n), each: &mut each };
            let finish = Finish::default();
            // SAFETY: the views were checked when they were made, the result just above; it is borrowed
            // mutably or a buffer of its own, so it overlaps nothing.
            unsafe {
                problem(m, columns, k, left, right, c, columns, &finish)
                    .solve_by_rows(self, pieces);
            }
        }
        self.piece = piece;
    }
}

/// Floats that rows of a matrix reach over, unless there are more than can be counted.
fn floats(rows: usize, columns: usize, stride: usize) -> Option<usize> {
    match rows {
        0 => Some(0),
        _ => (rows - 1).checked_mul(stride)?.checked_add(columns),
    }
}

/// # Panics
/// If the result or what finishes it is too small.
pub(crate) fn check_result(m: usize, n: usize, stride: usize, len: usize, finish: &Finish<'_>) {
    assert!(stride >= n, "rows of the result overlap");
    let needed = floats(m, n, stride).expect("the result fits the address space");
    assert!(needed <= len, "the result needs {needed} floats, has {len}");
    assert!(finish.bias.is_none_or(|bias| bias.len() >= n), "bias shorter than a row");
    assert!(finish.mask.is_none_or(|mask| mask.len() >= needed), "mask smaller than the result");
}

#[allow(clippy::too_many_arguments)]
pub(crate) fn problem<'a, L: pack::Left>(
    m: usize,
    n: usize,
    k: usize,
    left: L,
    right: Right,
    c: SendPtr<f32>,
    stride: usize,
    finish: &Finish<'a>,
) -> Problem<'a, L> {
    Problem {
        m,
        n,
        k,
        left,
        right,
        c,
        stride,
        accumulate: finish.accumulate,
        bias: finish.bias,
        relu: finish.relu,
        mask: finish.mask,
    }
}

#[cfg(test)]
mod tests;
