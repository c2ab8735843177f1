//! Cuts a product into tasks for threads and blocks for caches.
//!
//! The right operand is packed once, shared by all threads; a task owns some rows and up to
//! [`COLUMN_BLOCK`] columns of the result, and walks `k` block by block: the right block stays in
//! its second-level cache with the task's left panels, and one right panel at a time in the first.
//! Where rows and columns give too few tasks (gradients of small weights over millions of pixels),
//! `k` is split among tasks instead, and their sums are added in task order.

use super::{
    micro::{K_BLOCK, LEFT_PANEL, LINE, PREFETCH_STEPS, Tail, Tile, run_tile},
    pack::{Left, PackRight, Right},
};
use crate::{
    kernels::{Buffer, Compute, isa::Kernel, simd::Simd},
    threads::SendPtr,
};

/// Columns of a task. Its result (112 rows) then takes 0.9 of the 2 MiB of second-level cache and stays
/// there from block to block of `k`; more columns would spare packing left panels, but not the cache.
const COLUMN_BLOCK: usize = 2048;
/// Packed right operand at once, in floats (32 MiB).
const PACKED: usize = 8 << 20;
/// Panels of rows in a task.
const ROW_PANELS: usize = 8;
/// Rows, in panels, few enough to be packed by every task.
const FEW_PANELS: usize = 16;
/// Columns enough to be shared out among tasks.
const MANY_COLUMNS: usize = 512;
/// Columns of a task where one thread does them all.
const ALONE_WIDTH: usize = 512;
/// Floats of a right operand that no second-level cache holds.
const LARGE: usize = 1 << 20;
/// Products below this many multiplications are not worth waking a thread for.
const ALONE: usize = 1 << 18;

/// A product `c[m, n] = left[m, k] * right[k, n]` with what to do at its end.
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
struct Shape;

impl Kernel for Shape {
    type Output = (usize, usize);
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> (usize, usize) {
        (S::LANES, S::TILE_ROWS)
    }
}

/// A block of the result over a range of `k`, computed by one thread.
struct Block<'a, 'b, L: Left> {
    problem: &'a Problem<'b, L>,
    panels: Panels,
    first_panel: usize,
    last_panel: usize,
    columns: usize,
    k: usize,
    count: usize,
    /// Packed panels of these columns, from `k` on.
    packed: *const f32,
    panel_k: usize,
    /// Where the result's first of these columns starts.
    c: *mut f32,
    stride: usize,
    tail: Tail,
    /// Later blocks of `k` follow: bias and the like must wait.
    more: bool,
    scratch: *mut f32,
}

impl<L: Left> Kernel for Block<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let wide = 2 * S::LANES;
        let blocks = self.count.div_ceil(K_BLOCK).max(1);
        unsafe {
            for block in 0..blocks {
                let from = block * self.count / blocks;
                let count = (block + 1) * self.count / blocks - from;
                let last = block + 1 == blocks && !self.more;
                let accumulate = self.tail.accumulate || block > 0;
                for panel in self.first_panel..self.last_panel {
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
                        let at = row * self.stride + column;
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
                        let tile = Tile {
                            k: count,
                            left: self.scratch.add((panel - self.first_panel) * LEFT_PANEL),
                            right,
                            c: self.c.add(at),
                            stride: self.stride,
                            columns,
                            tail,
                            next: next.wrapping_add((panel - self.first_panel) * share),
                        };
                        if L::K_MAJOR {
                            run_tile::<S, true>(rows, width == wide, tile);
                        } else {
                            run_tile::<S, false>(rows, width == wide, tile);
                        }
                    }
                    column += wide;
                }
            }
        }
    }
}

#[inline(always)]
fn offset(start: *const f32, by: usize) -> *const f32 {
    if start.is_null() { start } else { start.wrapping_add(by) }
}

impl<L: Left> Problem<'_, L> {
    /// Computes the product.
    ///
    /// # Safety
    /// Operands and result have the sizes the fields say; the result overlaps nothing else.
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
                self.split_rows(compute, panels, lanes, alone);
            }
        }
    }

    unsafe fn split_rows(&self, compute: &mut Compute, panels: Panels, lanes: usize, alone: bool) {
        let wide = 2 * lanes;
        // At most this much of `k` is packed at once, over all columns if they fit.
        let columns_packed = self.n.next_multiple_of(wide).min(1 << 14);
        let k_packed = (PACKED / columns_packed).max(K_BLOCK).min(self.k.max(1));
        compute.shared.reserve(k_packed * columns_packed);
        let threads = if alone { 1 } else { compute.pool.threads() };
        for scratch in &mut compute.scratch {
            scratch.reserve(ROW_PANELS * LEFT_PANEL);
        }
        let isa = compute.isa;
        let shared = SendPtr(compute.shared.as_mut_ptr());
        let scratch = Scratch::new(&mut compute.scratch);
        let pool = &compute.pool;
        let run = |tasks: usize, task: &(dyn Fn(usize, usize) + Sync)| {
            if alone {
                (0..tasks).for_each(|number| task(number, 0));
            } else {
                pool.run(tasks, task);
            }
        };
        for column in (0..self.n).step_by(columns_packed) {
            let columns = columns_packed.min(self.n - column);
            let mut k = 0;
            loop {
                let count = k_packed.min(self.k - k);
                // Packing: each task some of `k`, in multiples of the lanes for the transposes.
                let share = count.div_ceil(4 * threads).next_multiple_of(lanes).max(2 * lanes);
                run(count.div_ceil(share), &|task, _| {
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
                let column_blocks = columns.div_ceil(COLUMN_BLOCK);
                let per_task = panels
                    .count
                    .div_ceil((8 * threads).div_ceil(column_blocks))
                    .clamp(1, ROW_PANELS);
                let row_blocks = panels.count.div_ceil(per_task);
                let more = k + count < self.k;
                run(row_blocks * column_blocks, &|task, thread| {
                    let (block, rows) = (task / row_blocks, task % row_blocks);
                    let at = block * COLUMN_BLOCK;
                    let first = column + at;
                    // SAFETY: tasks own disjoint rows or columns of the result; a thread its scratch.
                    unsafe {
                        isa.run(Block {
                            problem: self,
                            panels,
                            first_panel: rows * per_task,
                            last_panel: ((rows + 1) * per_task).min(panels.count),
                            columns: COLUMN_BLOCK.min(columns - at),
                            k,
                            count,
                            packed: shared.get().add(at * count),
                            panel_k: count,
                            c: self.c.get().add(first),
                            stride: self.stride,
                            tail: self.tail(self.accumulate || k > 0, first),
                            more,
                            scratch: scratch.get(thread),
                        });
                    }
                });
                k += count;
                if k >= self.k {
                    break;
                }
            }
        }
    }

    fn tail(&self, accumulate: bool, column: usize) -> Tail {
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
        let blocks = self.k.div_ceil(K_BLOCK).max(1);
        compute.pool.run(self.n.div_ceil(width), &|task, thread| {
            let column = task * width;
            let columns = width.min(self.n - column);
            // SAFETY: a task owns its columns of the result, a thread its scratch.
            unsafe {
                let left = scratch.get(thread);
                let right = left.add(panels.count * LEFT_PANEL);
                for block in 0..blocks {
                    let k = block * self.k / blocks;
                    let count = (block + 1) * self.k / blocks - k;
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
                        c: self.c.get().add(column),
                        stride: self.stride,
                        tail: self.tail(self.accumulate || block > 0, column),
                        more: block + 1 < blocks,
                        scratch: left,
                    });
                }
            }
        });
    }

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
                let right = left.add(panels.count * LEFT_PANEL);
                for block in 0..blocks {
                    let k = start + block * (end - start) / blocks;
                    let count = start + (block + 1) * (end - start) / blocks - k;
                    isa.run(PackRight {
                        right: self.right,
                        k,
                        count,
                        column: 0,
                        columns: self.n,
                        panel_k: count,
                        to: right,
                        at: 0,
                    });
                    isa.run(Block {
                        problem: self,
                        panels,
                        first_panel: 0,
                        last_panel: panels.count,
                        columns: self.n,
                        k,
                        count,
                        packed: right,
                        panel_k: count,
                        c: partial.get().add(task * size),
                        stride: width,
                        tail: Tail::plain(block > 0),
                        more: false,
                        scratch: left,
                    });
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
    pub(crate) partial: *const f32,
    pub(crate) parts: usize,
    pub(crate) size: usize,
    pub(crate) width: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) n: usize,
    pub(crate) c: *mut f32,
    pub(crate) stride: usize,
    pub(crate) tail: Tail,
}

impl Kernel for AddPartials {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
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
