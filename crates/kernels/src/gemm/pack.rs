//! Copies pieces of the operands into the order in which the innermost loop reads them.

use super::micro::{LINE, ROW_STRIDE};
use crate::{
    isa::Kernel,
    simd::{self, Simd},
};

/// The left operand of a product, wherever its elements come from.
///
/// A panel is a few rows (at most [`Simd::TILE_ROWS`]) by a block of `k`.
pub(crate) trait Left: Copy + Send + Sync {
    /// How a panel lies: `k` by `k` (rows side by side), or row by row at [`ROW_STRIDE`]. Whichever
    /// the source holds contiguously, so that packing never transposes.
    const K_MAJOR: bool;

    /// Panels do not cross multiples of this many rows; 0 if there is nothing to respect.
    fn group(&self) -> usize {
        0
    }

    /// Where a row lies from `k` on and how far from the next one, if they lie in memory one by one and can be read there.
    #[inline(always)]
    fn rows_at(&self, _row: usize, _k: usize) -> Option<(*const f32, usize)> {
        None
    }

    /// Writes the panel of `rows` rows from `row` and `count` of `k` from `k`.
    ///
    /// # Safety
    /// The CPU has `S`; the ranges lie within the operand, `rows` is at most [`Simd::TILE_ROWS`], `count` at least 1 and
    /// at most [`super::micro::K_BLOCK`]; `to` has room for a panel ([`super::micro::LEFT_PANEL`] floats), which
    /// this thread alone uses.
    #[allow(unsafe_code)]
    unsafe fn pack<S: Simd>(&self, row: usize, rows: usize, k: usize, count: usize, to: *mut f32);
}

/// Rows contiguous along `k`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowMajor {
    pub(crate) data: *const f32,
    pub(crate) stride: usize,
}

// SAFETY: only read, and the caller of the product keeps it borrowed.
unsafe impl Send for RowMajor {}
// SAFETY: as above.
unsafe impl Sync for RowMajor {}

impl Left for RowMajor {
    const K_MAJOR: bool = false;

    #[inline(always)]
    fn rows_at(&self, row: usize, k: usize) -> Option<(*const f32, usize)> {
        Some((self.data.wrapping_add(row * self.stride + k), self.stride))
    }

    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, row: usize, rows: usize, k: usize, count: usize, to: *mut f32) {
        // SAFETY: `count` floats of `rows` rows of the operand, to rows of the panel that are `ROW_STRIDE` long.
        unsafe {
            for r in 0..rows {
                let from = self.data.add((row + r) * self.stride + k);
                simd::copy::<S>(from, to.add(r * ROW_STRIDE), count);
            }
        }
    }
}

/// Columns contiguous: the transposed view of a row-major matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnMajor {
    pub(crate) data: *const f32,
    pub(crate) stride: usize,
}

// SAFETY: only read, and the caller of the product keeps it borrowed.
unsafe impl Send for ColumnMajor {}
// SAFETY: as above.
unsafe impl Sync for ColumnMajor {}

impl Left for ColumnMajor {
    const K_MAJOR: bool = true;

    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, row: usize, rows: usize, k: usize, count: usize, to: *mut f32) {
        // SAFETY: `rows` floats of `count` columns of the operand, to a panel of `rows * count`.
        unsafe {
            for step in 0..count {
                let from = self.data.add((k + step) * self.stride + row);
                simd::copy::<S>(from, to.add(step * rows), rows);
            }
        }
    }
}

/// The right operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Right {
    pub(crate) data: *const f32,
    /// Distance of rows in memory.
    pub(crate) stride: usize,
    /// Memory holds columns of `k`, not rows of it.
    pub(crate) transposed: bool,
}

// SAFETY: only read, and the caller of the product keeps it borrowed.
unsafe impl Send for Right {}
// SAFETY: as above.
unsafe impl Sync for Right {}

/// Rows of memory asked for ahead of the one that is packed: of each, too few lines follow each other for the
/// hardware to notice.
const ROWS_AHEAD: usize = 3;

/// Packs `count` of `k` from `k` on, and `columns` columns from `column` on, into panels of two
/// vectors' width (one, if the last has no more columns than that), each `panel_k` of `k` long.
pub(crate) struct PackRight {
    pub(crate) right: Right,
    pub(crate) k: usize,
    pub(crate) count: usize,
    pub(crate) column: usize,
    pub(crate) columns: usize,
    pub(crate) panel_k: usize,
    /// First panel's place for `k`. Panels are `panel_k` times their width, of which this task alone uses the `count`
    /// steps from `at` on.
    pub(crate) to: *mut f32,
    /// Steps of `k` already in the panels before these.
    pub(crate) at: usize,
}

impl Kernel for PackRight {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let wide = 2 * S::LANES;
        // SAFETY: rows are read from the first to the last of `columns`, cut where no whole vector is left; panels are
        // written in whole vectors, as wide as they are.
        unsafe {
            if self.right.transposed {
                for panel in 0..self.columns.div_ceil(wide) {
                    let columns = (self.columns - panel * wide).min(wide);
                    let width = if columns <= S::LANES { S::LANES } else { wide };
                    let to = self.to.add(panel * wide * self.panel_k + self.at * width);
                    self.transposed_panel::<S>(panel * wide, columns, width, to);
                }
                return;
            }
            // Along the rows of memory, so that each is read in one go.
            for step in 0..self.count {
                let from = self.right.data.add((self.k + step) * self.right.stride + self.column);
                let mut column = 0;
                let mut panel = self.to;
                let later = from.wrapping_add(ROWS_AHEAD * self.right.stride);
                while column < self.columns {
                    let left = self.columns - column;
                    let at = self.at + step;
                    S::prefetch_later(later.wrapping_add(column));
                    S::prefetch_later(later.wrapping_add(column + LINE));
                    if left >= wide {
                        let to = panel.add(at * wide);
                        S::store(to, S::load(from.add(column)));
                        S::store(to.add(S::LANES), S::load(from.add(column + S::LANES)));
                    } else if left <= S::LANES {
                        S::store(panel.add(at * S::LANES), S::load_partial(from.add(column), left));
                    } else {
                        let to = panel.add(at * wide);
                        S::store(to, S::load(from.add(column)));
                        let tail = from.add(column + S::LANES);
                        S::store(to.add(S::LANES), S::load_partial(tail, left - S::LANES));
                    }
                    column += wide;
                    panel = panel.add(wide * self.panel_k);
                }
            }
        }
    }
}

impl PackRight {
    /// Packs `columns` columns from `column` on into a panel of `width`, where memory holds columns of `k`.
    ///
    /// # Safety
    /// As for the kernel; `columns <= width`, which is one or two vectors; `to` has room for `count * width` floats.
    #[inline(always)]
    unsafe fn transposed_panel<S: Simd>(
        &self,
        column: usize,
        columns: usize,
        width: usize,
        to: *mut f32,
    ) {
        let stride = self.right.stride;
        // SAFETY: whole blocks are transposed only where `LANES` columns and steps are left, others float by float,
        // with zeros beyond the last column.
        unsafe {
            let from = self.right.data.add((self.column + column) * stride + self.k);
            let mut block = 0;
            while block < width {
                let full = columns >= block + S::LANES;
                let mut step = 0;
                while full && step + S::LANES <= self.count {
                    let source = from.add(block * stride + step);
                    S::transpose(source, stride, to.add(step * width + block), width);
                    step += S::LANES;
                }
                while step < self.count {
                    for lane in block..block + S::LANES {
                        let value =
                            if lane < columns { *from.add(lane * stride + step) } else { 0.0 };
                        *to.add(step * width + lane) = value;
                    }
                    step += 1;
                }
                block += S::LANES;
            }
        }
    }
}
