//! Register tiles of the 1x1 convolutions.
//!
//! A 1x1 convolution has very many rows (pixels) and few columns (channels): the whole packed
//! weight matrix stays in the second-level cache, so rows are taken in strips as high as a register
//! tile, read where they lie, and what happens to a finished tile (statistics, masks, residuals)
//! happens in registers. A general product would write the tile and read it again.

#![allow(unsafe_code)] // register tiles over raw rows; each function states what it needs

use crate::kernels::simd::Simd;

/// Most rows a strip can have, over all instruction sets.
pub(super) const MAX_STRIP: usize = 14;
/// Most floats in a vector, over all instruction sets; rows of scratch memory are padded to it.
pub(super) const MAX_LANES: usize = 16;

/// `len` rounded up to whole vectors of any instruction set.
pub(super) const fn padded(len: usize) -> usize {
    len.next_multiple_of(MAX_LANES)
}

/// What is done with a finished tile.
pub(super) trait Finish {
    /// Takes the tile at `row`, `column`; only the first `rows` rows count (others are sums over
    /// zero rows), and only `columns` columns.
    ///
    /// # Safety
    /// The CPU has `S`; the implementation's pointers are valid for the tile.
    unsafe fn finish<S: Simd, const R: usize, const V: usize>(
        &self,
        tile: &[[S::V; V]; R],
        row: usize,
        rows: usize,
        column: usize,
        columns: usize,
    );
}

/// Where a strip of the left operand lies.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    /// First row; `S::TILE_ROWS` rows are readable.
    pub(super) start: *const f32,
    /// Floats from row to row.
    pub(super) stride: usize,
    /// Number of the first row.
    pub(super) row: usize,
    /// Rows that count; the others must be zero or finite rubbish that `finish` ignores.
    pub(super) rows: usize,
}

/// The right operand, packed by [`pack_columns`].
#[derive(Clone, Copy)]
pub(super) struct Packed {
    /// Panels of two vectors width, the last possibly of one.
    pub(super) start: *const f32,
    /// Rows of the matrix: the depth of the product.
    pub(super) depth: usize,
    /// Columns of the matrix.
    pub(super) columns: usize,
}

/// Multiplies one strip with the whole packed matrix.
///
/// # Safety
/// The CPU has `S`; the pointers are as [`Strip`] and [`Packed`] say, and what `finish` needs holds for the strip's rows
/// and all columns.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, F: Finish>(strip: Strip, packed: Packed, finish: &F) {
    // SAFETY: passed on.
    unsafe {
        match S::TILE_ROWS {
            14 => multiply_rows::<S, F, 14>(strip, packed, finish),
            6 => multiply_rows::<S, F, 6>(strip, packed, finish),
            _ => multiply_rows::<S, F, 4>(strip, packed, finish),
        }
    }
}

/// [`multiply`] for strips of `R` rows.
///
/// # Safety
/// As there; `R` is `S::TILE_ROWS`.
#[inline(always)]
unsafe fn multiply_rows<S: Simd, F: Finish, const R: usize>(
    strip: Strip,
    packed: Packed,
    finish: &F,
) {
    // SAFETY: panels follow each other, two vectors wide while more than one is left.
    unsafe {
        let mut panel = packed.start;
        let mut column = 0;
        while column + S::LANES < packed.columns {
            tile::<S, F, R, 2>(strip, panel, packed.depth, column, packed.columns, finish);
            panel = panel.add(packed.depth * 2 * S::LANES);
            column += 2 * S::LANES;
        }
        if column < packed.columns {
            tile::<S, F, R, 1>(strip, panel, packed.depth, column, packed.columns, finish);
        }
    }
}

/// `R` rows by `V` vectors of columns from `column` on.
///
/// # Safety
/// As [`multiply`]; `panel` has `depth` times `V` vectors.
#[inline(always)]
unsafe fn tile<S: Simd, F: Finish, const R: usize, const V: usize>(
    strip: Strip,
    panel: *const f32,
    depth: usize,
    column: usize,
    columns: usize,
    finish: &F,
) {
    // SAFETY: `depth` floats of `R` rows of the strip, as many steps of the panel.
    unsafe {
        let mut sums = [[S::zero(); V]; R];
        for k in 0..depth {
            let mut right = [S::zero(); V];
            for (v, right) in right.iter_mut().enumerate() {
                *right = S::load(panel.add((k * V + v) * S::LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let left = S::splat(*strip.start.add(r * strip.stride + k));
                for (sum, &right) in sums.iter_mut().zip(&right) {
                    *sum = S::fma(left, right, *sum);
                }
            }
        }
        finish.finish::<S, R, V>(&sums, strip.row, strip.rows, column, columns);
    }
}

/// Packs panel `number` of a `depth` x `columns` matrix for [`multiply`]. Element (k, j) is read
/// from `from[k * by_row + j * by_column]`; columns beyond the last are zero.
///
/// # Safety
/// The CPU has `S`; `from` points to the whole matrix, `to` to [`packed_len`] floats, of which no other thread uses this
/// panel's; `number` is below [`panels`].
#[inline(always)]
pub(super) unsafe fn pack_panel<S: Simd>(
    from: *const f32,
    (by_row, by_column): (usize, usize),
    (depth, columns): (usize, usize),
    number: usize,
    to: *mut f32,
) {
    // SAFETY: whole blocks are transposed only where columns and steps have one; rows are cut to the columns left,
    // and the panel is filled with zeros beyond them.
    unsafe {
        let first = number * 2 * S::LANES;
        let to = to.add(first * depth);
        let vectors = if first + S::LANES < columns { 2 } else { 1 };
        let width = vectors * S::LANES;
        for v in 0..vectors {
            let column = first + v * S::LANES;
            let to = to.add(v * S::LANES);
            let mut k = 0;
            if column + S::LANES <= columns && by_row == 1 {
                while k + S::LANES <= depth {
                    S::transpose(
                        from.add(column * by_column + k),
                        by_column,
                        to.add(k * width),
                        width,
                    );
                    k += S::LANES;
                }
            }
            for k in k..depth {
                let row = from.add(k * by_row + column * by_column);
                if by_column == 1 {
                    let count = columns - column;
                    let value =
                        if count >= S::LANES { S::load(row) } else { S::load_partial(row, count) };
                    S::store(to.add(k * width), value);
                } else {
                    for lane in 0..S::LANES {
                        let value =
                            if column + lane < columns { *row.add(lane * by_column) } else { 0.0 };
                        *to.add(k * width + lane) = value;
                    }
                }
            }
        }
    }
}

/// Panels of a packed matrix.
pub(super) const fn panels(columns: usize, lanes: usize) -> usize {
    columns.div_ceil(2 * lanes)
}

/// Floats of a packed matrix on any instruction set.
pub(super) const fn packed_len(depth: usize, columns: usize) -> usize {
    depth * padded(columns)
}

/// One operand of [`accumulate`]: some rows of memory.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// First row.
    pub(super) start: *const f32,
    /// Floats from row to row; at least `width` rounded up as [`accumulate`] says.
    pub(super) stride: usize,
    /// Floats of a row that count.
    pub(super) width: usize,
}

/// Rows of the narrow operand are taken in eights.
pub(super) const NARROW_STEP: usize = 8;

/// `to[i][j] += Σ over rows of narrow[row][i] * wide[row][j]`: the gradient of weights.
///
/// Reads `narrow` up to its width rounded up to 8, and `wide` up to whole vectors; what lies there
/// must be finite, and lands in the padding of `to`, whose stride is `padded(wide.width)`.
///
/// # Safety
/// The CPU has `S`; both operands can be read so far for `rows` rows; `to` has the narrow width, rounded up to 8, of rows of
/// that stride, which this thread alone uses.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd>(narrow: Rows, wide: Rows, rows: usize, to: *mut f32) {
    // SAFETY: passed on; columns advance by as many vectors as were done, up to the width rounded up to vectors.
    unsafe {
        let stride = padded(wide.width);
        let mut column = 0;
        // The panel of the wide operand stays in the first-level cache over all narrow rows.
        while column < wide.width {
            let left = (wide.width - column).div_ceil(S::LANES);
            let wide = Rows { start: wide.start.add(column), ..wide };
            let to = to.add(column);
            match (left, S::TILE_ROWS) {
                (1, _) => columns::<S, 4, 1>(narrow, wide, rows, to, stride),
                (2 | 4, 14) => columns::<S, 8, 2>(narrow, wide, rows, to, stride),
                (_, 14) => columns::<S, 8, 3>(narrow, wide, rows, to, stride),
                _ => columns::<S, 4, 2>(narrow, wide, rows, to, stride),
            }
            column += S::LANES
                * match (left, S::TILE_ROWS) {
                    (1, _) => 1,
                    (2 | 4, 14) => 2,
                    (_, 14) => 3,
                    _ => 2,
                };
        }
    }
}

/// `V` vectors of columns of [`accumulate`].
///
/// # Safety
/// As there; `R` divides 8, and so many columns are there from `wide.start` and `to` on.
#[inline(always)]
unsafe fn columns<S: Simd, const R: usize, const V: usize>(
    narrow: Rows,
    wide: Rows,
    rows: usize,
    to: *mut f32,
    stride: usize,
) {
    // SAFETY: `R` floats of the narrow and `V` vectors of the wide operand for each row, `R` rows of `to` at a time.
    unsafe {
        for first in (0..narrow.width.next_multiple_of(NARROW_STEP)).step_by(R) {
            let mut sums = [[S::zero(); V]; R];
            for row in 0..rows {
                let mut right = [S::zero(); V];
                for (v, right) in right.iter_mut().enumerate() {
                    *right = S::load(wide.start.add(row * wide.stride + v * S::LANES));
                }
                let left = narrow.start.add(row * narrow.stride + first);
                for (r, sums) in sums.iter_mut().enumerate() {
                    let left = S::splat(*left.add(r));
                    for (sum, &right) in sums.iter_mut().zip(&right) {
                        *sum = S::fma(left, right, *sum);
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    let to = to.add((first + r) * stride + v * S::LANES);
                    S::store(to, S::add(S::load(to), sum));
                }
            }
        }
    }
}
