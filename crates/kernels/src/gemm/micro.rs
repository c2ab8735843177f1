//! The innermost product: a tile of the result kept in registers.
//!
//! 14 rows by 2 vectors on AVX-512 leaves three of 32 registers for operands; per step of `k` it
//! takes 14 broadcasts and 2 loads for 28 fused products, so that the two load ports idle a third
//! of the time. Strides of the left panel are constants, hence part of the instruction: no pointer
//! per row, no spills.

use crate::{isa::Kernel, simd::Simd};

/// Most `k` in one packed block. A left panel (14 rows) then takes 21 KiB of the first-level cache, and
/// the right one is read from the second, which is asked for it in time.
pub(crate) const K_BLOCK: usize = 384;

/// Distance of rows in a left panel packed row by row; off the power of two that would put all rows
/// into the same cache sets.
pub(crate) const ROW_STRIDE: usize = K_BLOCK + 16;

/// Most rows of a panel, whatever the instruction set.
pub(crate) const MOST_ROWS: usize = 16;

/// Floats of a left panel, with room for stores beyond its end.
pub(crate) const LEFT_PANEL: usize = MOST_ROWS * ROW_STRIDE;

/// What happens to a finished tile; `k` blocks before the last only accumulate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    /// Start from what the result holds.
    pub(crate) accumulate: bool,
    /// Added to each row, or null.
    pub(crate) bias: *const f32,
    /// Negative values become zero.
    pub(crate) relu: bool,
    /// Zero where this tile (laid out like the result) is not positive, or null.
    pub(crate) mask: *const f32,
}

impl Tail {
    /// Just write, or add.
    pub(crate) fn plain(accumulate: bool) -> Self {
        Self { accumulate, bias: std::ptr::null(), relu: false, mask: std::ptr::null() }
    }

    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.bias.is_null() && self.mask.is_null() && !self.relu
    }
}

/// One tile: `c[rows, columns] (+)= left * right`.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) k: usize,
    /// The tile's rows by `k` floats, lying as the kernel's `LIES` says.
    pub(crate) left: *const f32,
    /// Distance of rows in `left` where it is not packed.
    pub(crate) left_stride: usize,
    /// `k` times one or two vectors.
    pub(crate) right: *const f32,
    /// The tile's rows of `columns` floats, `stride` apart, which this thread alone uses.
    pub(crate) c: *mut f32,
    /// Distance of rows in `c`.
    pub(crate) stride: usize,
    /// Columns to write, at most `NV` vectors.
    pub(crate) columns: usize,
    /// Bias of `columns` floats and a mask laid out like `c`, or null.
    pub(crate) tail: Tail,
    /// What is wanted when the tile is done, rows this far apart: the result itself, or what it meets next.
    pub(crate) soon: (*const f32, usize),
    /// What the tiles after this one read: a line of it is asked for every [`PREFETCH_STEPS`] of `k`.
    pub(crate) next: *const f32,
}

/// Floats of a cache line.
pub(crate) const LINE: usize = 16;
/// Steps of `k` for each line asked for.
pub(crate) const PREFETCH_STEPS: usize = 4;

/// How the left operand of a tile lies: packed, row by row at [`ROW_STRIDE`];
pub(crate) const ROW_BY_ROW: u8 = 0;
/// packed, `k` by `k`;
pub(crate) const K_BY_K: u8 = 1;
/// or where it was, at any distance of rows.
pub(crate) const IN_PLACE: u8 = 2;

/// `ROWS` rows, `NV` vectors; the left operand lies as `LIES` says.
pub(crate) struct Micro<const ROWS: usize, const NV: usize, const LIES: u8>(pub(crate) Tile);

impl<const ROWS: usize, const NV: usize, const LIES: u8> Kernel for Micro<ROWS, NV, LIES> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let tile = self.0;
        let (row_step, k_step) = match LIES {
            K_BY_K => (1, ROWS),
            ROW_BY_ROW => (ROW_STRIDE, 1),
            _ => (tile.left_stride, 1),
        };
        // SAFETY: `tile.k` steps of `ROWS` floats on the left and `NV` vectors on the right; what is only asked for
        // may be any address.
        unsafe {
            let mut acc = [[S::zero(); NV]; ROWS];
            let (mut left, mut right) = (tile.left, tile.right);
            // The result is needed at the end, the next panel by the next tiles: both come meanwhile.
            for row in 0..ROWS {
                for j in 0..NV {
                    S::prefetch(tile.soon.0.wrapping_add(row * tile.soon.1 + j * S::LANES));
                }
            }
            let mut next = tile.next;
            let mut steps = tile.k;
            while steps > 0 {
                S::prefetch_later(next);
                next = next.wrapping_add(LINE);
                let some = steps.min(PREFETCH_STEPS);
                steps -= some;
                for _ in 0..some {
                    let mut b = [S::zero(); NV];
                    for (j, b) in b.iter_mut().enumerate() {
                        *b = S::load(right.add(j * S::LANES));
                    }
                    for (row, acc) in acc.iter_mut().enumerate() {
                        let a = S::splat(*left.add(row * row_step));
                        for j in 0..NV {
                            acc[j] = S::fma(a, b[j], acc[j]);
                        }
                    }
                    left = left.add(k_step);
                    right = right.add(NV * S::LANES);
                }
            }
            write_tile::<S, ROWS, NV>(&tile, acc);
        }
    }
}

/// Adds accumulated products to the result as the tile's tail says.
///
/// # Safety
/// The CPU has `S`; result, bias and mask are as [`Tile`] says for `ROWS` rows, and `columns` at most `NV` vectors.
#[inline(always)]
pub(crate) unsafe fn write_tile<S: Simd, const ROWS: usize, const NV: usize>(
    tile: &Tile,
    mut acc: [[S::V; NV]; ROWS],
) {
    // SAFETY: whole vectors go straight to the result where its columns are whole vectors; others go through
    // `values`, which has room for two of the widest.
    unsafe {
        // The loops below must unroll fully, or the accumulators live in memory: short bodies only.
        if tile.tail.is_plain() && tile.columns == NV * S::LANES {
            if tile.tail.accumulate {
                for (row, acc) in acc.iter_mut().enumerate() {
                    for (j, acc) in acc.iter_mut().enumerate() {
                        let c = tile.c.add(row * tile.stride + j * S::LANES);
                        *acc = S::add(S::load(c), *acc);
                    }
                }
            }
            for (row, acc) in acc.iter().enumerate() {
                for (j, &value) in acc.iter().enumerate() {
                    S::store(tile.c.add(row * tile.stride + j * S::LANES), value);
                }
            }
        } else {
            let mut values = [[0f32; MAX_WIDTH]; ROWS];
            for (row, acc) in acc.iter().enumerate() {
                for (j, &value) in acc.iter().enumerate() {
                    S::store(values[row].as_mut_ptr().add(j * S::LANES), value);
                }
            }
            finish::<S, ROWS>(tile, &values);
        }
    }
}

/// Two vectors of the widest instruction set.
const MAX_WIDTH: usize = 32;

/// Ragged tiles, bias, activation and mask.
///
/// # Safety
/// As for [`write_tile`].
#[inline(always)]
unsafe fn finish<S: Simd, const ROWS: usize>(tile: &Tile, values: &[[f32; MAX_WIDTH]; ROWS]) {
    let tail = &tile.tail;
    // SAFETY: result, bias and mask are cut to the `count` columns left; a row of `values` is two whole vectors of
    // the widest instruction set.
    unsafe {
        for (row, values) in values.iter().enumerate() {
            for at in (0..tile.columns).step_by(S::LANES) {
                let count = tile.columns - at;
                let offset = row * tile.stride + at;
                let c = tile.c.add(offset);
                let mut value = S::load(values.as_ptr().add(at));
                if tail.accumulate {
                    value = S::add(S::load_partial(c, count), value);
                }
                if !tail.bias.is_null() {
                    value = S::add(value, S::load_partial(tail.bias.add(at), count));
                }
                if tail.relu {
                    value = S::max(value, S::zero());
                }
                if !tail.mask.is_null() {
                    let mask = S::load_partial(tail.mask.add(offset), count);
                    value = S::keep_greater(mask, S::zero(), value);
                }
                S::store_partial(c, value, count);
            }
        }
    }
}

/// Runs the variant for `rows` rows; `wide` takes two vectors of columns.
///
/// # Safety
/// The CPU has `S`; operands and result are as [`Tile`] says for `rows` rows.
#[inline(always)]
pub(crate) unsafe fn run_tile<S: Simd, const LIES: u8>(rows: usize, wide: bool, tile: Tile) {
    macro_rules! variants {
        ($($rows:literal)*) => {
            match rows {
                $($rows if $rows <= S::TILE_ROWS => {
                    if wide {
                        S::outline(Micro::<$rows, 2, LIES>(tile));
                    } else {
                        S::outline(Micro::<$rows, 1, LIES>(tile));
                    }
                })*
                _ => unreachable!("a panel has at most {} rows", S::TILE_ROWS),
            }
        };
    }
    // SAFETY: passed on.
    unsafe { variants!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
}
