//! Register tiles of the 1x1 convolutions.
//!
//! A 1x1 convolution has very many rows (pixels) and few columns (channels): the whole packed
//! weight matrix stays in the second-level cache, so rows are taken in strips as high as a register
//! tile, read where they lie, and what happens to a finished tile (statistics, masks, residuals)
//! happens in registers. A general product would write the tile and read it again.

#![allow(unsafe_code)] // register tiles over raw rows; each function states what it needs

use crate::kernels::{Kernel, simd::Simd};
use std::ops::Range;

/// Most rows a strip can have, over all instruction sets.
pub(super) const MAX_STRIP: usize = 14;
/// Most floats in a vector, over all instruction sets; rows of scratch memory are padded to it.
pub(super) const MAX_LANES: usize = 16;

/// Floats of a cache line.
const LINE: usize = 16;

/// `len` rounded up to whole vectors of any instruction set.
pub(super) const fn padded(len: usize) -> usize {
    len.next_multiple_of(MAX_LANES)
}

/// What is done with a finished tile: one vector of columns after another, and of each all rows from the first on.
pub(super) trait Finish: Copy {
    /// What is kept in registers along a vector of columns.
    type Column<S: Simd>;

    /// Asks for the cache lines that [`Finish::value`] will touch at float `at` of the result; any number will do.
    fn soon<S: Simd>(&self, at: usize);

    /// Begins a vector of columns at `column`, of which `left` are left; there are `columns` in all.
    ///
    /// # Safety
    /// The CPU has `S`; the implementation's pointers are valid for these columns.
    unsafe fn begin<S: Simd>(&self, column: usize, left: usize, columns: usize) -> Self::Column<S>;

    /// Takes the vector of products that begins at float `at` of the result.
    ///
    /// # Safety
    /// As for [`Finish::begin`], of whose columns this is a row.
    unsafe fn value<S: Simd>(
        &self,
        kept: &mut Self::Column<S>,
        value: S::V,
        at: usize,
        left: usize,
    );

    /// Ends it.
    ///
    /// # Safety
    /// As for [`Finish::begin`], with the same `column` and `columns`.
    unsafe fn end<S: Simd>(&self, kept: Self::Column<S>, column: usize, columns: usize);
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
pub(super) unsafe fn multiply<S: Simd, F: Finish>(strip: Strip, packed: Packed, finish: F) {
    // SAFETY: passed on.
    unsafe {
        match S::TILE_ROWS {
            14 => S::outline(Multiply::<F, 14> { strip, packed, finish }),
            6 => S::outline(Multiply::<F, 6> { strip, packed, finish }),
            _ => S::outline(Multiply::<F, 4> { strip, packed, finish }),
        }
    }
}

/// [`multiply`] for strips of `R` rows, which is `S::TILE_ROWS`. A function of its own: amid a whole pass there are too few
/// registers for a tile.
struct Multiply<F, const R: usize> {
    strip: Strip,
    packed: Packed,
    finish: F,
}

impl<F: Finish, const R: usize> Kernel for Multiply<F, R> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { strip, packed, finish } = self;
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
}

/// `R` rows by `V` vectors of columns from `column` on, `V` being 1 or 2.
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
    finish: F,
) {
    // SAFETY: `depth` floats of `R` rows of the strip, as many steps of the panel; `values` has room for `V` vectors of any
    // instruction set in each row.
    unsafe {
        // Two lines of each row: too far apart for the hardware to notice. They come while the products are summed.
        for r in 0..R {
            for v in (0..V).step_by(LINE.div_ceil(S::LANES)) {
                finish.soon::<S>((strip.row + r) * columns + column + v * S::LANES);
            }
        }
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
        // Loops over sums must unroll fully, or the sums live in memory and each product above is stored: short bodies, and
        // no loop around that of the rows.
        if strip.rows == R && column + V * S::LANES <= columns {
            whole::<S, F, R, V>(&sums, 0, strip.row, column, columns, finish);
            if V == 2 {
                whole::<S, F, R, V>(&sums, 1, strip.row, column + S::LANES, columns, finish);
            }
            return;
        }
        let mut values = [[0f32; 2 * MAX_LANES]; R];
        for (sums, values) in sums.iter().zip(&mut values) {
            for (v, &sum) in sums.iter().enumerate() {
                S::store(values.as_mut_ptr().add(v * S::LANES), sum);
            }
        }
        for at in (0..V * S::LANES).step_by(S::LANES) {
            let (column, left) = (column + at, columns - column - at);
            let mut kept = finish.begin::<S>(column, left, columns);
            for (r, values) in values.iter().enumerate().take(strip.rows) {
                let value = S::load(values.as_ptr().add(at));
                finish.value::<S>(&mut kept, value, (strip.row + r) * columns + column, left);
            }
            finish.end::<S>(kept, column, columns);
        }
    }
}

/// Finishes vector `v` of a tile, all of whose rows and columns count.
///
/// # Safety
/// As [`multiply`], for `R` rows from `row` and a vector of columns from `column` on.
#[inline(always)]
unsafe fn whole<S: Simd, F: Finish, const R: usize, const V: usize>(
    sums: &[[S::V; V]; R],
    v: usize,
    row: usize,
    column: usize,
    columns: usize,
    finish: F,
) {
    // SAFETY: passed on.
    unsafe {
        let mut kept = finish.begin::<S>(column, S::LANES, columns);
        for (r, sums) in sums.iter().enumerate() {
            finish.value::<S>(&mut kept, sums[v], (row + r) * columns + column, S::LANES);
        }
        finish.end::<S>(kept, column, columns);
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
        let mut column = 0;
        // The panel of the wide operand stays in the first-level cache over all narrow rows.
        while column < wide.width {
            let left = (wide.width - column).div_ceil(S::LANES);
            let wide = Rows { start: wide.start.add(column), ..wide };
            let to = to.add(column);
            // As many sums as registers hold beside the operands: 24, 12 or 8. One more, and a sum lives in memory.
            let vectors = match left {
                1 => 1,
                2 | 4 => 2,
                _ if S::TILE_ROWS < 14 => 2,
                _ => 3,
            };
            let all = 0..narrow.width.next_multiple_of(NARROW_STEP);
            match (vectors, S::TILE_ROWS) {
                (1, _) => columns::<S, 4, 1>(narrow, wide, rows, to, all),
                (2, 14) => columns::<S, 8, 2>(narrow, wide, rows, to, all),
                (_, 14) => columns::<S, 8, 3>(narrow, wide, rows, to, all),
                (_, 6) => {
                    // Sixes, and what is then left in fours: none, one or two of them.
                    let sixes = all.end - [0, 8, 4][all.end % 6 / 2];
                    columns::<S, 6, 2>(narrow, wide, rows, to, 0..sixes);
                    columns::<S, 4, 2>(narrow, wide, rows, to, sixes..all.end);
                }
                _ => columns::<S, 4, 2>(narrow, wide, rows, to, all),
            }
            column += vectors * S::LANES;
        }
    }
}

/// `V` vectors of columns of [`accumulate`], and some of its narrow rows.
///
/// # Safety
/// As there; `R` divides the number of narrow rows, which are among those of `to`, and so many columns are there from
/// `wide.start` and `to` on.
#[inline(always)]
unsafe fn columns<S: Simd, const R: usize, const V: usize>(
    narrow: Rows,
    wide: Rows,
    rows: usize,
    to: *mut f32,
    some: Range<usize>,
) {
    let stride = padded(wide.width);
    // SAFETY: `R` floats of the narrow and `V` vectors of the wide operand for each row, `R` rows of `to` at a time.
    unsafe {
        for first in some.step_by(R) {
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

#[cfg(test)]
mod tests {
    use super::{super::finish::Write, *};
    use crate::{
        kernels::{Buffer, Isa},
        random::Normals,
    };

    fn noise(seed: u64, len: usize) -> Vec<f32> {
        let mut values = vec![0.0; len];
        Normals::new(seed).fill(&mut values, 1.0);
        values
    }

    /// `left * right` by strips, `right` lying row by row.
    struct Product<'a> {
        left: &'a [f32],
        right: &'a [f32],
        size: (usize, usize, usize),
        out: &'a mut [f32],
    }

    impl Kernel for Product<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            let (rows, depth, columns) = self.size;
            let mut packed = Buffer::zeroed(packed_len(depth, columns));
            // SAFETY: the left operand has a strip of rows more than count, the others are as large as their size says.
            unsafe {
                for panel in 0..panels(columns, S::LANES) {
                    let to = packed.as_mut_ptr();
                    pack_panel::<S>(self.right.as_ptr(), (columns, 1), (depth, columns), panel, to);
                }
                for row in (0..rows).step_by(S::TILE_ROWS) {
                    let start = self.left.as_ptr().add(row * depth);
                    let rows = S::TILE_ROWS.min(rows - row);
                    let packed = Packed { start: packed.as_ptr(), depth, columns };
                    let finish = Write { out: self.out.as_mut_ptr() };
                    multiply::<S, _>(Strip { start, stride: depth, row, rows }, packed, finish);
                }
            }
        }
    }

    #[test]
    fn strips_of_any_height_and_width_are_products() {
        for isa in Isa::available() {
            for rows in [1, 4, 5, 13, 14, 29] {
                for (depth, columns) in [(1, 1), (3, 16), (16, 96), (24, 17), (9, 40), (40, 33)] {
                    let left = noise(1, (rows + MAX_STRIP) * depth);
                    let right = noise(2, depth * columns);
                    let mut out = vec![f32::NAN; rows * columns];
                    let size = (rows, depth, columns);
                    // SAFETY: operands and result are of this size.
                    unsafe {
                        isa.run(Product { left: &left, right: &right, size, out: &mut out });
                    }
                    for (at, &found) in out.iter().enumerate() {
                        let wanted: f64 = (0..depth)
                            .map(|k| {
                                let right = right[k * columns + at % columns];
                                f64::from(left[at / columns * depth + k]) * f64::from(right)
                            })
                            .sum();
                        let name = isa.name();
                        assert!((f64::from(found) - wanted).abs() < 1e-4, "{name} {size:?} {at}");
                    }
                }
            }
        }
    }

    struct Gradient<'a> {
        narrow: (&'a [f32], usize),
        wide: (&'a [f32], usize),
        rows: usize,
        to: &'a mut [f32],
    }

    impl Kernel for Gradient<'_> {
        type Output = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            let rows_of = |(values, width): (&[f32], usize)| Rows {
                start: values.as_ptr(),
                stride: padded(width),
                width,
            };
            // SAFETY: rows are padded to whole vectors, and the result to eight of them.
            unsafe {
                let (narrow, wide) = (rows_of(self.narrow), rows_of(self.wide));
                accumulate::<S>(narrow, wide, self.rows, self.to.as_mut_ptr());
            }
        }
    }

    #[test]
    fn gradients_of_weights_of_any_size_are_sums_over_rows() {
        for isa in Isa::available() {
            for rows in [1, 6, 55] {
                for narrow in [3, 8, 16, 24, 32, 40, 64] {
                    for wide in [1, 8, 16, 23, 40, 48, 64, 80, 96] {
                        let left = noise(3, rows * padded(narrow));
                        let right = noise(4, rows * padded(wide));
                        let mut to = vec![0.5; narrow.next_multiple_of(8) * padded(wide)];
                        let kernel = Gradient {
                            narrow: (&left, narrow),
                            wide: (&right, wide),
                            rows,
                            to: &mut to,
                        };
                        // SAFETY: operands and result are of this size.
                        unsafe { isa.run(kernel) };
                        for (i, j) in (0..narrow).flat_map(|i| (0..wide).map(move |j| (i, j))) {
                            let product = |row: usize| {
                                let left = left[row * padded(narrow) + i];
                                f64::from(left) * f64::from(right[row * padded(wide) + j])
                            };
                            let wanted = 0.5 + (0..rows).map(product).sum::<f64>();
                            let found = f64::from(to[i * padded(wide) + j]);
                            let name = isa.name();
                            assert!(
                                (found - wanted).abs() < 1e-4,
                                "{name} {rows} {narrow} {wide} at {i}, {j}: {found}, not {wanted}"
                            );
                        }
                    }
                }
            }
        }
    }
}
