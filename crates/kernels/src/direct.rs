//! A first layer's convolution without gathering patches: few channels, a large stride.
//!
//! Neighbouring patches of an RGB image at stride 4 start 12 floats apart, a constant that fits into
//! an instruction. With zeros around the image, a tile of products then reads its patches where they
//! lie: along a kernel row for the outputs, along an image row for the gradient of the weights. What
//! is left to copy is each image once, into the padded scratch of a thread.

#![allow(unsafe_code)] // kernels on raw memory

use super::{
    Compute, Finish,
    conv::ConvShape,
    gemm::{
        drive::{AddPartials, Panels, Scratch},
        micro::{Tail, Tile, write_tile},
        pack::{PackRight, Right},
    },
    isa::Kernel,
    simd::{self, Simd},
};
use crate::threads::SendPtr;

/// Floats from patch to patch.
const STEP: usize = 12;
/// Outputs of a tile: two vectors of the widest instruction set, and whole tiles of the others.
const WIDE: usize = 32;
/// Rows of outputs whose gradient is used by all tiles before the next: 42 KiB of 64 channels at 55
/// pixels a row, small against the second-level cache.
const GRADIENT_ROWS: usize = 3;
/// Tasks per thread, so that one delayed thread does not hold up the other.
const TASKS: usize = 4;

/// Whether a convolution is of this kind.
pub(crate) fn suits(shape: &ConvShape) -> bool {
    shape.stride * shape.inputs == STEP && shape.outputs.is_multiple_of(WIDE)
}

/// An image, or a band of its rows, with zeros around it.
#[derive(Clone, Copy)]
struct Padded<'a> {
    shape: &'a ConvShape,
    /// Floats of a row.
    row: usize,
    /// Floats of a patch's row.
    run: usize,
}

impl<'a> Padded<'a> {
    fn new(shape: &'a ConvShape) -> Self {
        let run = shape.kernel * shape.inputs;
        Self { shape, row: (shape.out_width() - 1) * STEP + run, run }
    }

    /// Floats for `rows` rows of outputs.
    fn len(&self, rows: usize) -> usize {
        ((rows - 1) * self.shape.stride + self.shape.kernel) * self.row
    }
}

/// Copies what output rows `first..last` of an image need.
struct Pad<'a> {
    padded: Padded<'a>,
    /// All pixels of an image.
    image: *const f32,
    first: usize,
    last: usize,
    /// [`Padded::len`] floats for `last - first` rows, which this thread alone uses.
    to: *mut f32,
}

impl Kernel for Pad<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Padded { shape, row, .. } = self.padded;
        let rows = (self.last - self.first - 1) * shape.stride + shape.kernel;
        let left = (shape.pad * shape.inputs).min(row);
        let width = (shape.width * shape.inputs).min(row - left);
        for line in 0..rows {
            let y = (self.first * shape.stride + line).wrapping_sub(shape.pad);
            // SAFETY: the caller promises the image and room for all lines.
            unsafe {
                let to = self.to.add(line * row);
                if y < shape.height {
                    simd::clear::<S>(to, left);
                    let from = self.image.add(y * shape.width * shape.inputs);
                    simd::copy::<S>(from, to.add(left), width);
                    simd::clear::<S>(to.add(left + width), row - left - width);
                } else {
                    simd::clear::<S>(to, row);
                }
            }
        }
    }
}

/// `ROWS` pixels by two vectors of outputs.
struct Pixels<'a, const ROWS: usize> {
    padded: Padded<'a>,
    /// The first pixel's patch, of which the others lie `STEP` apart, all within the padded image.
    left: *const f32,
    /// `right` are the weights of two vectors of outputs, `kernel * run` steps long; see [`write_tile`] for the result.
    tile: Tile,
}

impl<const ROWS: usize> Kernel for Pixels<'_, ROWS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `kernel` rows of a patch, each `run` floats, of `ROWS` pixels; as many steps of the weights.
        unsafe {
            let mut acc = [[S::zero(); 2]; ROWS];
            let mut right = self.tile.right;
            for line in 0..self.padded.shape.kernel {
                let mut left = self.left.add(line * self.padded.row);
                for _ in 0..self.padded.run {
                    let b = [S::load(right), S::load(right.add(S::LANES))];
                    for (row, acc) in acc.iter_mut().enumerate() {
                        let a = S::splat(*left.add(row * STEP));
                        acc[0] = S::fma(a, b[0], acc[0]);
                        acc[1] = S::fma(a, b[1], acc[1]);
                    }
                    left = left.add(1);
                    right = right.add(2 * S::LANES);
                }
            }
            write_tile::<S, ROWS, 2>(&self.tile, acc);
        }
    }
}

/// Outputs of rows `first..last` of one image.
struct Forward<'a> {
    padded: Padded<'a>,
    /// Padded, from what row `first` needs on.
    image: *const f32,
    first: usize,
    last: usize,
    /// Weights in panels of two vectors.
    weights: *const f32,
    /// The image's output, of which this task alone uses rows `first..last`.
    output: *mut f32,
    /// Bias of all outputs and mask of this image, or null.
    tail: Tail,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Padded { shape, row, run } = self.padded;
        let (wide, k) = (2 * S::LANES, run * shape.kernel);
        let panels = Panels::new(shape.out_width(), 0, S::TILE_ROWS);
        for y in self.first..self.last {
            for column in (0..shape.outputs).step_by(wide) {
                for panel in 0..panels.count {
                    let (x, rows) = panels.get(panel);
                    let at = (y * shape.out_width() + x) * shape.outputs + column;
                    // SAFETY: patches lie within the padded image, pixels within the output.
                    unsafe {
                        let tail = Tail {
                            bias: offset(self.tail.bias, column),
                            mask: offset(self.tail.mask, at),
                            ..self.tail
                        };
                        let tile = Tile {
                            k,
                            left: std::ptr::null(),
                            left_stride: 0,
                            right: self.weights.add(column * k),
                            c: self.output.add(at),
                            soon: (self.output.add(at), shape.outputs),
                            stride: shape.outputs,
                            columns: wide,
                            tail,
                            next: std::ptr::null(),
                        };
                        let line = (y - self.first) * shape.stride;
                        let left = self.image.add(line * row + x * STEP);
                        pixels::<S>(rows, self.padded, left, tile);
                    }
                }
            }
        }
    }
}

fn offset(start: *const f32, by: usize) -> *const f32 {
    if start.is_null() { start } else { start.wrapping_add(by) }
}

/// Runs the variant for `rows` pixels.
///
/// # Safety
/// As for [`Pixels`], with `rows` for `ROWS`.
#[inline(always)]
unsafe fn pixels<S: Simd>(rows: usize, padded: Padded<'_>, left: *const f32, tile: Tile) {
    macro_rules! variants {
        ($($rows:literal)*) => {
            match rows {
                $($rows if $rows <= S::TILE_ROWS => {
                    S::outline(Pixels::<$rows> { padded, left, tile });
                })*
                _ => unreachable!("a tile has at most {} rows", S::TILE_ROWS),
            }
        };
    }
    // SAFETY: passed on.
    unsafe { variants!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
}

/// `ROWS` floats of a patch's row by two vectors of outputs, over the pixels of some rows.
struct Taps<'a, const ROWS: usize> {
    padded: Padded<'a>,
    /// The first of the floats, for the first pixel; those of the others lie within the padded image.
    left: *const f32,
    /// The gradient of the first pixel's first output, of which those of `lines` rows follow.
    right: *const f32,
    /// Rows of outputs.
    lines: usize,
    /// The gradient of the weights, `ROWS` rows `outputs` floats apart, which this task alone uses.
    sums: *mut f32,
}

impl<const ROWS: usize> Kernel for Taps<'_, ROWS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let outputs = self.padded.shape.outputs;
        // SAFETY: `ROWS` floats of the patches of `lines` rows of pixels, two vectors of their gradients, and as many of
        // the sums: outputs are a multiple of two vectors, see `suits`.
        unsafe {
            let mut acc = [[S::zero(); 2]; ROWS];
            for (row, acc) in acc.iter_mut().enumerate() {
                let from = self.sums.add(row * outputs);
                *acc = [S::load(from), S::load(from.add(S::LANES))];
            }
            let mut right = self.right;
            for line in 0..self.lines {
                let mut left = self.left.add(line * self.padded.shape.stride * self.padded.row);
                for _ in 0..self.padded.shape.out_width() {
                    let b = [S::load(right), S::load(right.add(S::LANES))];
                    for (row, acc) in acc.iter_mut().enumerate() {
                        let a = S::splat(*left.add(row));
                        acc[0] = S::fma(a, b[0], acc[0]);
                        acc[1] = S::fma(a, b[1], acc[1]);
                    }
                    left = left.add(STEP);
                    right = right.add(outputs);
                }
            }
            for (row, acc) in acc.iter().enumerate() {
                let to = self.sums.add(row * outputs);
                S::store(to, acc[0]);
                S::store(to.add(S::LANES), acc[1]);
            }
        }
    }
}

/// Runs the variant for `rows` floats; `ends` are the left and right operand.
///
/// # Safety
/// As for [`Taps`], with `rows` for `ROWS`.
#[inline(always)]
unsafe fn taps<S: Simd>(
    rows: usize,
    padded: Padded<'_>,
    ends: (*const f32, *const f32),
    lines: usize,
    sums: *mut f32,
) {
    let (left, right) = ends;
    macro_rules! variants {
        ($($rows:literal)*) => {
            match rows {
                $($rows if $rows <= S::TILE_ROWS => {
                    S::outline(Taps::<$rows> { padded, left, right, lines, sums });
                })*
                _ => unreachable!("a tile has at most {} rows", S::TILE_ROWS),
            }
        };
    }
    // SAFETY: passed on.
    unsafe { variants!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
}

/// Adds one image's share to the gradient of weights ordered (tap, input, output).
struct Backward<'a> {
    padded: Padded<'a>,
    /// A whole padded image.
    image: *const f32,
    /// The gradient of all of its outputs.
    d_output: *const f32,
    /// That of all weights, which this task alone uses.
    sums: *mut f32,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Padded { shape, row, run } = self.padded;
        let panels = Panels::new(run, 0, S::TILE_ROWS);
        for y in (0..shape.out_height()).step_by(GRADIENT_ROWS) {
            let lines = GRADIENT_ROWS.min(shape.out_height() - y);
            for column in (0..shape.outputs).step_by(2 * S::LANES) {
                for tap in 0..shape.kernel {
                    for panel in 0..panels.count {
                        let (from, rows) = panels.get(panel);
                        // SAFETY: patches lie within the padded image, the gradient of all pixels
                        // behind `d_output`, that of all weights behind `sums`.
                        unsafe {
                            let left = self.image.add((y * shape.stride + tap) * row + from);
                            let pixel = y * shape.out_width();
                            let right = self.d_output.add(pixel * shape.outputs + column);
                            let at = (tap * run + from) * shape.outputs + column;
                            taps::<S>(rows, self.padded, (left, right), lines, self.sums.add(at));
                        }
                    }
                }
            }
        }
    }
}

impl Compute {
    /// A convolution whose weights are ordered (tap, input, output).
    ///
    /// # Safety
    /// The shape [`suits`]; `input`, `weights` and `output` have the lengths it says, bias a value for each output
    /// channel, mask as many as the output.
    pub(crate) unsafe fn direct(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        weights: &[f32],
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        let padded = Padded::new(shape);
        let k = padded.run * shape.kernel;
        let threads = self.pool.threads();
        let height = shape.out_height();
        // Bands of rows where there are fewer images than tasks.
        let bands = (TASKS * threads).div_ceil(shape.batch.max(1)).min(height);
        let rows = height.div_ceil(bands);
        self.shared.reserve(k * shape.outputs);
        for scratch in &mut self.scratch {
            scratch.reserve(padded.len(rows));
        }
        let (isa, panels) = (self.isa, SendPtr(self.shared.as_mut_ptr()));
        let right = Right { data: weights.as_ptr(), stride: shape.outputs, transposed: false };
        // SAFETY: the weights are as long as the shape says, the panels were reserved.
        unsafe {
            isa.run(PackRight {
                right,
                k: 0,
                count: k,
                column: 0,
                columns: shape.outputs,
                panel_k: k,
                to: panels.get(),
                at: 0,
            });
        }
        let (to, scratch) = (SendPtr(output.as_mut_ptr()), Scratch::new(&mut self.scratch));
        let (image_in, image_out) =
            (shape.height * shape.width * shape.inputs, height * shape.out_width() * shape.outputs);
        let start = |slice: Option<&[f32]>, at: usize| {
            slice.map_or(std::ptr::null(), |slice| slice[at..].as_ptr())
        };
        self.pool.run(shape.batch * bands, &|task, thread| {
            let (number, first) = (task / bands, task % bands * rows);
            let last = (first + rows).min(height);
            if first >= last {
                return; // rows do not divide evenly
            }
            let at = number * image_out;
            // SAFETY: tasks write different rows of images, a thread its scratch; sizes are the
            // caller's promise.
            unsafe {
                let band = scratch.get(thread);
                let image = input[number * image_in..][..image_in].as_ptr();
                isa.run(Pad { padded, image, first, last, to: band });
                isa.run(Forward {
                    padded,
                    image: band,
                    first,
                    last,
                    weights: panels.get(),
                    output: to.get().add(at),
                    tail: Tail {
                        accumulate: finish.accumulate,
                        bias: start(finish.bias, 0),
                        relu: finish.relu,
                        mask: start(finish.mask, at),
                    },
                });
            }
        });
    }

    /// The gradient of weights ordered (tap, input, output).
    ///
    /// # Safety
    /// The shape [`suits`]; `input`, `d_output` and `d_weights` have the lengths it says.
    pub(crate) unsafe fn direct_backward_weights(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        d_output: &[f32],
        d_weights: &mut [f32],
    ) {
        let padded = Padded::new(shape);
        let (size, height) = (shape.weights_len(), shape.out_height());
        let threads = self.pool.threads();
        let tasks = (TASKS * threads).min(shape.batch).max(1);
        self.shared.reserve(tasks * size);
        for scratch in &mut self.scratch {
            scratch.reserve(padded.len(height));
        }
        let (isa, partial) = (self.isa, SendPtr(self.shared.as_mut_ptr()));
        let scratch = Scratch::new(&mut self.scratch);
        let (image_in, image_out) =
            (shape.height * shape.width * shape.inputs, height * shape.out_width() * shape.outputs);
        self.pool.run(tasks, &|task, thread| {
            // SAFETY: a task owns its sums, a thread its scratch; sizes are the caller's promise.
            unsafe {
                let sums = partial.get().add(task * size);
                sums.write_bytes(0, size);
                let to = scratch.get(thread);
                for number in task * shape.batch / tasks..(task + 1) * shape.batch / tasks {
                    let image = input[number * image_in..][..image_in].as_ptr();
                    isa.run(Pad { padded, image, first: 0, last: height, to });
                    let d_output = d_output[number * image_out..][..image_out].as_ptr();
                    isa.run(Backward { padded, image: to, d_output, sums });
                }
            }
        });
        let to = SendPtr(d_weights.as_mut_ptr());
        let rows = padded.run * shape.kernel;
        let share = rows.div_ceil(2 * threads);
        self.pool.run(rows.div_ceil(share), &|task, _| {
            // SAFETY: tasks own disjoint rows.
            unsafe {
                isa.run(AddPartials {
                    partial: partial.get(),
                    parts: tasks,
                    size,
                    width: shape.outputs,
                    first: task * share,
                    last: ((task + 1) * share).min(rows),
                    n: shape.outputs,
                    c: to.get(),
                    stride: shape.outputs,
                    tail: Tail::plain(false),
                });
            }
        });
    }
}
