//! Matrix products in single precision.
//!
//! Everything heavy ends up here: dense layers, convolutions (as products whose left operand is
//! gathered from an image while it is packed), and the block product of `paceline matmul`.

#![allow(unsafe_code)] // panels are raw memory; each unsafe block argues for itself

pub(crate) mod drive;
pub(crate) mod micro;
pub(crate) mod pack;

use super::Compute;
use crate::threads::SendPtr;
use drive::Problem;
use pack::{ColumnMajor, Right, RowMajor};

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
            rows == 0 || (rows - 1) * stride + columns <= data.len(),
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

/// # Panics
/// If the result or what finishes it is too small.
pub(crate) fn check_result(m: usize, n: usize, stride: usize, len: usize, finish: &Finish<'_>) {
    assert!(stride >= n, "rows of the result overlap");
    let needed = if m == 0 { 0 } else { (m - 1) * stride + n };
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
