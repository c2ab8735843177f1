//! Cuts a product into tasks for threads and blocks for caches.
//!
//! The right operand is packed once, shared by all threads ([`super::rows`]); a task owns some rows and up to
//! [`COLUMN_BLOCK`] columns of the result, and walks `k` block by block: the right block stays in
//! its second-level cache with the task's left panels, and one right panel at a time in the first.
//! Where rows and columns give too few tasks (gradients of small weights over millions of pixels),
//! `k` is split among tasks instead, and their sums are added in task order.

use super::{
    micro::{
        IN_PLACE, K_BLOCK, K_BY_K, LEFT_PANEL, LINE, PREFETCH_STEPS, ROW_BY_ROW, ROW_STRIDE, Tail,
        Tile, run_tile,
    },
    pack::{Left, PackRight, Right},
    rows::{COLUMN_BLOCK, Pieces},
};
use crate::{
    Buffer, Compute,
    isa::{Isa, Kernel},
    simd::Simd,
    threads::SendPtr,
};
use std::ops::Range;

/// Rows, in panels, few enough to be packed by every task.
const FEW_PANELS: usize = 16;
/// Columns enough to be shared out among tasks.
const MANY_COLUMNS: usize = 512;
/// `k` of a block there, where packing takes rows as they lie: a right panel (24 KiB) then stays in the first-level cache for all
/// left ones.
const SHORT_BLOCK: usize = K_BLOCK / 2;
/// Columns of a task where one thread does them all.
const ALONE_WIDTH: usize = 512;
/// Floats of a right operand that no second-level cache holds.
const LARGE: usize = 1 << 20;
/// Products below this many multiplications are not worth waking a thread for.
const ALONE: usize = 1 << 18;

/// A product `c[m, n] = left[m, k] * right[k, n]` with what to do at its end.
///
/// The caller guarantees: `left` and `right` are matrices of this size; `c` has `m` rows of `n` floats, `stride` apart,
/// overlaps neither operand and is used by nothing else meanwhile; `bias` has `n` floats, `mask` is laid out like `c`. All
/// unsafe functions here and in [`super::rows`] require that, and give each task rows, columns or sums of its own.
pub(crate) struct Problem<'a, L: Left> {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) left: L,
    pub(crate) right: Right,
    pub(crate) c: SendPtr<f32>,
    pub(crate) stride: usize,
    pub(crate) accumulate: bool,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) relu: bool,
    pub(crate) mask: Option<&'a [f32]>,
}

/// Rows cut into panels: evenly, so that 32 rows become 11, 11 and 10 rather than 14, 14 and 4.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    group: usize,
    per_group: usize,
    pub(crate) count: usize,
}

impl Panels {
    pub(crate) fn new(m: usize, group: usize, tile_rows: usize) -> Self {
        let group = if group == 0 || group >= m { m } else { group };
        debug_assert_eq!(m % group, 0, "groups of rows are complete");
        let per_group = group.div_ceil(tile_rows);
        Self { group, per_group, count: m / group * per_group }
    }

    /// First row and number of rows.
    #[inline(always)]
    pub(crate) fn get(&self, panel: usize) -> (usize, usize) {
        let (group, part) = (panel / self.per_group, panel % self.per_group);
        let start = part * self.group / self.per_group;
        let end = (part + 1) * self.group / self.per_group;
        (group * self.group + start, end - start)
    }
}

/// Lanes and tile rows as numbers, for code outside kernels.
pub(super) struct Shape;

impl Kernel for Shape {
    type Output = (usize, usize);
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> (usize, usize) {
        (S::LANES, S::TILE_ROWS)
    }
}

/// A block of the result over a range of `k`, computed by one thread.
pub(super) struct Block<'a, 'b, L: Left> {
    pub(super) problem: &'a Problem<'b, L>,
    pub(super) panels: Panels,
    pub(super) first_panel: usize,
    pub(super) last_panel: usize,
    pub(super) columns: usize,
    pub(super) k: usize,
    pub(super) count: usize,
    /// Packed panels of these columns, from `k` on.
    pub(super) packed: *const f32,
    pub(super) panel_k: usize,
    /// Where the result's first of these columns starts, in this row.
    pub(super) c: *mut f32,
    pub(super) first_row: usize,
    /// Whether the left operand is read where it lies.
    pub(super) in_place: bool,
    /// What the result meets next, from its first row on, or null; its rows this far apart.
    pub(super) soon: (*const f32, usize),
    pub(super) stride: usize,
    pub(super) tail: Tail,
    /// Later blocks of `k` follow: bias and the like must wait.
    pub(super) more: bool,
    pub(super) scratch: *mut f32,
}

/// All rows of some columns over a range of `k`, for one thread that packs both operands by itself.
struct WholeBlock {
    columns: Range<usize>,
    k: Range<usize>,
    /// As [`Block::c`].
    c: *mut f32,
    stride: usize,
    tail: Tail,
    /// As [`Block::more`].
    more: bool,
    /// Left panels, and behind them the right ones.
    scratch: *mut f32,
}

impl<L: Left> Kernel for Block<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let wide = 2 * S::LANES;
        let blocks = self.count.div_ceil(K_BLOCK).max(1);
        // SAFETY: panels lie within the rows, `k..k + count` within the operands, `columns` within the packed
        // panels and the result; a left panel has room for its rows by at most `K_BLOCK` of `k`.
        unsafe {
            for block in 0..blocks {
                let from = block * self.count / blocks;
                let count = (block + 1) * self.count / blocks - from;
                let last = block + 1 == blocks && !self.more;
                let accumulate = self.tail.accumulate || block > 0;
                for panel in self.first_panel..self.last_panel {
                    if self.in_place {
                        break;
                    }
                    let (row, rows) = self.panels.get(panel);
                    let to = self.scratch.add((panel - self.first_panel) * LEFT_PANEL);
                    self.problem.left.pack::<S>(row, rows, self.k + from, count, to);
                }
                let mut column = 0;
                while column < self.columns {
                    let columns = (self.columns - column).min(wide);
                    let width = if columns <= S::LANES { S::LANES } else { wide };
                    let right = self.packed.add(column * self.panel_k + from * width);
                    // Each tile asks for its share of the next panel.
                    let next = right.wrapping_add(wide * self.panel_k);
                    let share = count.div_ceil(PREFETCH_STEPS) * LINE;
                    for panel in self.first_panel..self.last_panel {
                        let (row, rows) = self.panels.get(panel);
                        let at = (row - self.first_row) * self.stride + column;
                        let c = self.c.add(at);
                        let tail = if last {
                            Tail {
                                accumulate,
                                bias: offset(self.tail.bias, column),
                                relu: self.tail.relu,
                                mask: offset(self.tail.mask, at),
                            }
                        } else {
                            Tail::plain(accumulate)
                        };
                        let packed =
                            self.scratch.add((panel - self.first_panel) * LEFT_PANEL).cast_const();
                        let at_rows = self.problem.left.rows_at(row, self.k + from);
                        let (left, left_stride) =
                            at_rows.filter(|_| self.in_place).unwrap_or((packed, ROW_STRIDE));
                        let tile = Tile {
                            k: count,
                            left,
                            left_stride,
                            right,
                            c,
                            stride: self.stride,
                            columns,
                            tail,
                            soon: match self.soon {
                                (soon, _) if soon.is_null() => (c, self.stride),
                                (soon, stride) => {
                                    (soon.wrapping_add(row * stride + column), stride)
                                }
                            },
                            next: next.wrapping_add((panel - self.first_panel) * share),
                        };
                        if self.in_place {
                            run_tile::<S, IN_PLACE>(rows, width == wide, tile);
                        } else if L::K_MAJOR {
                            run_tile::<S, K_BY_K>(rows, width == wide, tile);
                        } else {
                            run_tile::<S, ROW_BY_ROW>(rows, width == wide, tile);
                        }
                    }
                    column += wide;
                }
            }
        }
    }
}

#[inline(always)]
pub(super) fn offset(start: *const f32, by: usize) -> *const f32 {
    if start.is_null() { start } else { start.wrapping_add(by) }
}

impl<L: Left> Problem<'_, L> {
    /// Computes the product.
    ///
    /// # Safety
    /// Operands and result are as [`Problem`] says.
    pub(crate) unsafe fn solve(&self, compute: &mut Compute) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        // SAFETY: the kernel touches no memory.
        let (lanes, tile_rows) = unsafe { compute.isa.run(Shape) };
        let panels = Panels::new(self.m, self.left.group(), tile_rows);
        let threads = compute.pool.threads();
        let column_blocks = self.n.div_ceil(COLUMN_BLOCK);
        let small = self.m * self.n * self.k.max(1) < ALONE;
        let alone = threads == 1 || small;
        // SAFETY: passed on.
        unsafe {
            // One thread gains by it only where packing all at once would leave the caches.
            let worthwhile = if alone {
                !small && self.n >= ALONE_WIDTH / 2 && self.n * self.k >= LARGE
            } else {
                self.n >= MANY_COLUMNS
            };
            if worthwhile && panels.count <= FEW_PANELS {
                self.split_columns(compute, panels, lanes);
            } else if !alone && panels.count * column_blocks < 3 * threads && self.k >= 8 * K_BLOCK
            {
                self.split_k(compute, panels, lanes);
            } else {
                self.split_rows(compute, panels, lanes, alone, Pieces::whole(&mut |_| ()));
            }
        }
    }

    pub(super) fn tail(&self, accumulate: bool, column: usize) -> Tail {
        let start = |slice: Option<&[f32]>| slice.map_or(std::ptr::null(), <[f32]>::as_ptr);
        Tail {
            accumulate,
            bias: offset(start(self.bias), column),
            relu: self.relu,
            mask: offset(start(self.mask), column),
        }
    }

    /// Few rows, many columns (a dense layer on a small batch): each task packs its own columns, so
    /// that the right operand, too large for any cache, is read from memory once and written never.
    ///
    /// # Safety
    /// As [`Self::solve`]; `panels` cut all rows, `lanes` are those of the instruction set.
    unsafe fn split_columns(&self, compute: &mut Compute, panels: Panels, lanes: usize) {
        let threads = compute.pool.threads();
        // Every task packs the left operand: one thread needs few of them.
        let width = match threads {
            1 => ALONE_WIDTH,
            _ => self.n.div_ceil(8 * threads).next_multiple_of(2 * lanes).clamp(128, 512),
        };
        for scratch in &mut compute.scratch {
            scratch.reserve(panels.count * LEFT_PANEL + K_BLOCK * width);
        }
        let isa = compute.isa;
        let scratch = Scratch::new(&mut compute.scratch);
        let most = if self.right.transposed { K_BLOCK } else { SHORT_BLOCK };
        let blocks = self.k.div_ceil(most).max(1);
        compute.pool.run(self.n.div_ceil(width), &|task, thread| {
            let column = task * width;
            let columns = width.min(self.n - column);
            // SAFETY: a task owns its columns of the result, a thread its scratch.
            unsafe {
                let left = scratch.get(thread);
                for block in 0..blocks {
                    let k = block * self.k / blocks;
                    let count = (block + 1) * self.k / blocks - k;
                    let whole = WholeBlock {
                        columns: column..column + columns,
                        k: k..k + count,
                        c: self.c.get().add(column),
                        stride: self.stride,
                        tail: self.tail(self.accumulate || block > 0, column),
                        more: block + 1 < blocks,
                        scratch: left,
                    };
                    self.multiply_block(isa, panels, whole);
                }
            }
        });
    }

    /// Packs the right operand of a block and multiplies all rows with it.
    ///
    /// # Safety
    /// The block lies within the problem; this thread alone uses its columns of the result and its scratch memory, which has
    /// room for all left panels and for `k` times the columns, rounded up to whole panels.
    #[inline]
    unsafe fn multiply_block(&self, isa: Isa, panels: Panels, block: WholeBlock) {
        let WholeBlock { columns, k, c, stride, tail, more, scratch } = block;
        let (column, columns) = (columns.start, columns.len());
        let (k, count) = (k.start, k.len());
        // SAFETY: as the caller promises.
        unsafe {
            let right = scratch.add(panels.count * LEFT_PANEL);
            isa.run(PackRight {
                right: self.right,
                k,
                count,
                column,
                columns,
                panel_k: count,
                to: right,
                at: 0,
            });
            isa.run(Block {
                problem: self,
                panels,
                first_panel: 0,
                last_panel: panels.count,
                columns,
                k,
                count,
                packed: right,
                panel_k: count,
                c,
                first_row: 0,
                in_place: false,
                soon: (std::ptr::null(), 0),
                stride,
                tail,
                more,
                scratch,
            });
        }
    }

    /// Little of a result, very long sums: each task sums over some of `k`, and the sums are added in order.
    ///
    /// # Safety
    /// As [`Self::split_columns`]; `k` is at least one block.
    unsafe fn split_k(&self, compute: &mut Compute, panels: Panels, lanes: usize) {
        let threads = compute.pool.threads();
        let tasks = (4 * threads).min(self.k / K_BLOCK);
        let width = self.n.next_multiple_of(2 * lanes);
        let size = self.m * width;
        compute.shared.reserve(tasks * size);
        for scratch in &mut compute.scratch {
            scratch.reserve(panels.count * LEFT_PANEL + K_BLOCK * width);
        }
        let isa = compute.isa;
        let partial = SendPtr(compute.shared.as_mut_ptr());
        let scratch = Scratch::new(&mut compute.scratch);
        compute.pool.run(tasks, &|task, thread| {
            let (start, end) = (task * self.k / tasks, (task + 1) * self.k / tasks);
            let blocks = (end - start).div_ceil(K_BLOCK);
            // SAFETY: a task owns its partial result, a thread its scratch.
            unsafe {
                let left = scratch.get(thread);
                for block in 0..blocks {
                    let k = start + block * (end - start) / blocks;
                    let count = start + (block + 1) * (end - start) / blocks - k;
                    let whole = WholeBlock {
                        columns: 0..self.n,
                        k: k..k + count,
                        c: partial.get().add(task * size),
                        stride: width,
                        tail: Tail::plain(block > 0),
                        more: false,
                        scratch: left,
                    };
                    self.multiply_block(isa, panels, whole);
                }
            }
        });
        let share = self.m.div_ceil(2 * threads);
        compute.pool.run(self.m.div_ceil(share), &|task, _| {
            // SAFETY: tasks own disjoint rows.
            unsafe {
                isa.run(AddPartials {
                    partial: partial.get(),
                    parts: tasks,
                    size,
                    width,
                    first: task * share,
                    last: ((task + 1) * share).min(self.m),
                    n: self.n,
                    c: self.c.get(),
                    stride: self.stride,
                    tail: self.tail(self.accumulate, 0),
                });
            }
        });
    }
}

/// Adds the partial results in task order.
pub(crate) struct AddPartials {
    /// `parts` results of `size` floats each, of which a row has `width`: whole vectors.
    pub(crate) partial: *const f32,
    pub(crate) parts: usize,
    pub(crate) size: usize,
    pub(crate) width: usize,
    /// Rows `first..last` are done by this task.
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) n: usize,
    /// `last` rows of `n` floats, `stride` apart, of which this task alone uses its own.
    pub(crate) c: *mut f32,
    pub(crate) stride: usize,
    /// Bias of `n` floats and a mask laid out like `c`, or null.
    pub(crate) tail: Tail,
}

impl Kernel for AddPartials {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: partial rows are whole vectors; the result, bias and mask are cut to the `left` columns.
        unsafe {
            for row in self.first..self.last {
                for column in (0..self.n).step_by(S::LANES) {
                    let left = self.n - column;
                    let at = row * self.stride + column;
                    let c = self.c.add(at);
                    let mut sum = S::zero();
                    for part in 0..self.parts {
                        let from = part * self.size + row * self.width + column;
                        sum = S::add(sum, S::load(self.partial.add(from)));
                    }
                    if self.tail.accumulate {
                        sum = S::add(S::load_partial(c, left), sum);
                    }
                    if !self.tail.bias.is_null() {
                        sum = S::add(sum, S::load_partial(self.tail.bias.add(column), left));
                    }
                    if self.tail.relu {
                        sum = S::max(sum, S::zero());
                    }
                    if !self.tail.mask.is_null() {
                        let mask = S::load_partial(self.tail.mask.add(at), left);
                        sum = S::keep_greater(mask, S::zero(), sum);
                    }
                    S::store_partial(c, sum, left);
                }
            }
        }
    }
}

/// The threads' scratch buffers as pointers.
pub(crate) struct Scratch<'a>(SendPtr<Buffer>, std::marker::PhantomData<&'a mut [Buffer]>);

impl<'a> Scratch<'a> {
    pub(crate) fn new(buffers: &'a mut [Buffer]) -> Self {
        Self(SendPtr(buffers.as_mut_ptr()), std::marker::PhantomData)
    }

    /// The scratch memory of a thread.
    ///
    /// # Safety
    /// `thread` is the number the pool gave to the running task.
    pub(crate) unsafe fn get(&self, thread: usize) -> *mut f32 {
        // SAFETY: one buffer per thread of the pool, and a thread runs one task at a time.
        unsafe { (*self.0.get().add(thread)).as_mut_ptr() }
    }
}
