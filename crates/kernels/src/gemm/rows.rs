//! Products whose rows are shared out among threads, all at once or some at a time.
//!
//! Some at a time is for results that are used at once and then not needed: the gradient of a large dense layer meets its
//! weights while both are in the caches, and its hundreds of megabytes are never written to memory.

use super::{
    drive::{Block, Panels, Problem, Scratch, Shape, offset},
    micro::{K_BLOCK, LEFT_PANEL},
    pack::{Left, PackRight},
};
use crate::{
    Compute,
    threads::{Pool, SendPtr},
};
use std::ops::Range;

/// Columns of a task. Its result (112 rows) then takes 0.9 of the 2 MiB of second-level cache and stays
/// there from block to block of `k`; more columns would spare packing left panels, but not the cache.
pub(super) const COLUMN_BLOCK: usize = 2048;
/// Packed right operand at once, in floats (32 MiB).
const PACKED: usize = 8 << 20;
/// Panels of rows in a task.
const ROW_PANELS: usize = 8;
/// Floats of a packed right operand that leave room for other things in a second-level cache of 2 MiB.
pub(crate) const HOT: usize = 1 << 17;
/// Columns of a narrow result, and `k` of a long product.
const NARROW: usize = 64;
const LONG: usize = 2048;

/// How a product is computed some rows at a time.
pub(crate) struct Pieces<'a> {
    /// Of the result, in a piece: as few as make whole panels of rows.
    pub(crate) floats: usize,
    /// Every piece begins where the first one does, over what was there.
    pub(crate) reuse: bool,
    /// What the result meets when a piece is there, from its first row on, or null, and how far apart its rows
    /// are: it comes meanwhile.
    pub(crate) soon: (SendPtr<f32>, usize),
    /// Told the rows of each piece when they are there.
    pub(crate) each: &'a mut dyn FnMut(Range<usize>),
}

impl<'a> Pieces<'a> {
    /// All in one.
    pub(super) fn whole(each: &'a mut dyn FnMut(Range<usize>)) -> Self {
        Self { floats: usize::MAX, reuse: false, soon: (SendPtr(std::ptr::null_mut()), 0), each }
    }
}

/// A part of the right operand: some columns, some of `k`.
#[derive(Clone, Copy)]
struct Slab {
    column: usize,
    columns: usize,
    k: usize,
    count: usize,
}

/// Tasks on all threads, or on this one.
fn run(pool: &Pool, alone: bool, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
    if alone {
        (0..tasks).for_each(|number| task(number, 0));
    } else {
        pool.run(tasks, task);
    }
}

impl<L: Left> Problem<'_, L> {
    /// Computes the product some rows at a time, as `pieces` says.
    ///
    /// # Safety
    /// As [`Self::solve`]; where pieces begin at the same place (`reuse`), the result needs room for the largest of them
    /// alone, and neither bias nor mask may be given.
    pub(crate) unsafe fn solve_by_rows(&self, compute: &mut Compute, pieces: Pieces<'_>) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        // SAFETY: the kernel touches no memory.
        let (lanes, tile_rows) = unsafe { compute.isa.run(Shape) };
        let panels = Panels::new(self.m, self.left.group(), tile_rows);
        let alone = compute.pool.threads() == 1;
        // SAFETY: passed on.
        unsafe { self.split_rows(compute, panels, lanes, alone, pieces) };
    }

    /// Packs the right operand once for all threads, which take rows.
    ///
    /// # Safety
    /// As [`Self::solve_by_rows`]; `panels` cut all rows, `lanes` are those of the instruction set.
    pub(super) unsafe fn split_rows(
        &self,
        compute: &mut Compute,
        panels: Panels,
        lanes: usize,
        alone: bool,
        pieces: Pieces<'_>,
    ) {
        let Pieces { floats, reuse, soon, each } = pieces;
        let wide = 2 * lanes;
        // At most this much of `k` is packed at once, over all columns if they fit.
        let columns_packed = self.n.next_multiple_of(wide).min(1 << 14);
        let k_packed = if alone && self.n <= NARROW && self.k > 2 * LONG {
            // What stays in the second-level cache beside long rows, in even parts.
            self.k.div_ceil((self.k * columns_packed).div_ceil(HOT))
        } else {
            (PACKED / columns_packed).max(K_BLOCK).min(self.k.max(1))
        };
        compute.shared.reserve(k_packed * columns_packed);
        for scratch in &mut compute.scratch {
            scratch.reserve(ROW_PANELS * LEFT_PANEL);
        }
        // What is packed in one go serves all pieces.
        let once = columns_packed >= self.n && k_packed >= self.k;
        let per_piece = floats.div_ceil(panels.get(0).1 * self.n).clamp(1, panels.count);
        for first_panel in (0..panels.count).step_by(per_piece) {
            let last_panel = (first_panel + per_piece).min(panels.count);
            let (first_row, _) = panels.get(first_panel);
            let (row, rows) = panels.get(last_panel - 1);
            for column in (0..self.n).step_by(columns_packed) {
                let columns = columns_packed.min(self.n - column);
                let mut k = 0;
                loop {
                    let count = k_packed.min(self.k - k);
                    let slab = Slab { column, columns, k, count };
                    // SAFETY: the shared buffer has room for it.
                    unsafe {
                        if !once || first_panel == 0 {
                            self.pack(compute, lanes, alone, slab);
                        }
                        let place = if reuse { first_row } else { 0 };
                        let rows = (first_panel, last_panel, place);
                        self.multiply(compute, panels, alone, slab, rows, soon);
                    }
                    k += count;
                    if k >= self.k {
                        break;
                    }
                }
            }
            each(first_row..row + rows);
        }
    }

    /// Packs a part of the right operand for all threads.
    ///
    /// # Safety
    /// As [`Self::split_rows`]; the slab lies within the operand, and the shared buffer has room for it, its columns
    /// rounded up to panels.
    unsafe fn pack(&self, compute: &mut Compute, lanes: usize, alone: bool, slab: Slab) {
        let Slab { column, columns, k, count } = slab;
        let (isa, shared) = (compute.isa, SendPtr(compute.shared.as_mut_ptr()));
        // Each task some of `k`, in multiples of the lanes for the transposes.
        let threads = if alone { 1 } else { compute.pool.threads() };
        let share = count.div_ceil(4 * threads).next_multiple_of(lanes).max(2 * lanes);
        run(&compute.pool, alone, count.div_ceil(share), &|task, _| {
            let at = task * share;
            // SAFETY: tasks write disjoint ranges of `k` of the panels.
            unsafe {
                isa.run(PackRight {
                    right: self.right,
                    k: k + at,
                    count: share.min(count - at),
                    column,
                    columns,
                    panel_k: count,
                    to: shared.get(),
                    at,
                });
            }
        });
    }

    /// Multiplies some panels of rows by what is packed; the third number is the row that the result begins with.
    ///
    /// # Safety
    /// As [`Self::split_rows`]; the slab is what [`Self::pack`] has packed, and the panels are among those of all rows.
    unsafe fn multiply(
        &self,
        compute: &mut Compute,
        panels: Panels,
        alone: bool,
        slab: Slab,
        (first_panel, last_panel, first_row): (usize, usize, usize),
        soon: (SendPtr<f32>, usize),
    ) {
        let Slab { column, columns, k, count } = slab;
        let (isa, shared) = (compute.isa, SendPtr(compute.shared.as_mut_ptr()));
        let threads = if alone { 1 } else { compute.pool.threads() };
        let scratch = Scratch::new(&mut compute.scratch);
        let column_blocks = columns.div_ceil(COLUMN_BLOCK);
        // Rows much longer than the result is wide are read where they lie, one panel at a time and from end to end, as
        // memory likes it.
        let long = columns <= NARROW && count >= LONG;
        let in_place = long && self.left.rows_at(0, 0).is_some();
        let per_task = (last_panel - first_panel)
            .div_ceil((8 * threads).div_ceil(column_blocks))
            .clamp(1, if in_place { 1 } else { ROW_PANELS });
        let row_blocks = (last_panel - first_panel).div_ceil(per_task);
        let more = k + count < self.k;
        let task = |task: usize, thread: usize| {
            let (block, rows) = (task / row_blocks, task % row_blocks);
            let at = block * COLUMN_BLOCK;
            let first = column + at;
            let panel = first_panel + rows * per_task;
            // SAFETY: tasks own disjoint rows or columns of the result; a thread its scratch.
            unsafe {
                isa.run(Block {
                    problem: self,
                    panels,
                    first_panel: panel,
                    last_panel: (panel + per_task).min(last_panel),
                    columns: COLUMN_BLOCK.min(columns - at),
                    k,
                    count,
                    packed: shared.get().add(at * count),
                    panel_k: count,
                    c: self.c.get().add(first),
                    first_row,
                    in_place,
                    soon: (offset(soon.0.get(), first), soon.1),
                    stride: self.stride,
                    tail: self.tail(self.accumulate || k > 0, first),
                    more,
                    scratch: scratch.get(thread),
                });
            }
        };
        run(&compute.pool, alone, row_blocks * column_blocks, &task);
    }
}
