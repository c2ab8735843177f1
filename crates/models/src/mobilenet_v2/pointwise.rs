//! 1x1 convolutions with batch norm and relu6 folded into their edges.
//!
//! What one pass reads and writes is the whole cost here. Forward reads the raw input once and
//! writes the raw output once, with its statistics. Backward reads gradient and raw output of the
//! layer, and the raw input, once each, and writes the input's masked gradient with the sums its
//! batch norm needs: gradients of data and weights come from the same block of rows in cache.

#![allow(unsafe_code)] // raw rows of the arena; each kernel's fields say what they need

use super::finish::{Add, Mask, Store, Write};
use super::tile::{
    Finish, MAX_STRIP, NARROW_STEP, Packed, Rows, Strip, accumulate, multiply, padded,
};
use crate::kernels::{
    Kernel,
    activation::{Affine, NormGradient, activate, carry, load_some, store_some},
    simd::{Simd, streams},
};
use std::ops::Range;

/// Rows whose statistics are summed in f32 before they are added up in f64.
const FLUSH_ROWS: usize = 1024;
/// Rows of one block of the backward pass: enough to keep a tile of the weights' gradient in
/// registers for a while, few enough for the block to stay in the second-level cache.
pub(super) const BLOCK_ROWS: usize = 56;

/// Where the rows of the left operand come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// They lie ready, one after another.
    Plain { rows: *const f32 },
    /// `relu6(affine(raw))`: behind a depthwise convolution.
    Activated {
        /// Raw output of that convolution.
        raw: *const f32,
        /// Its batch norm.
        affine: Affine,
    },
    /// `affine(raw) + residual`, kept for the backward pass: the output of a block.
    Carried {
        /// Raw output of the block's last convolution.
        raw: *const f32,
        /// Its batch norm.
        affine: Affine,
        /// Input of the block, or null.
        residual: *const f32,
        /// Where the block's output goes.
        to: *mut f32,
    },
    /// 3x3 patches with stride 2 of a padded image: the first convolution.
    Patches {
        /// Images with a border of one zero pixel, `(height + 2) * (width + 2) * channels` each.
        images: *const f32,
        /// Channels of a pixel.
        channels: usize,
        /// Height and width of the convolution's output.
        side: (usize, usize),
        /// Height and width of a padded image.
        padded_side: (usize, usize),
    },
}

impl Source {
    /// Prepares `count` rows from `row` on; `width` floats each. Rows up to `height` are readable
    /// and zero. Answers where they lie and their stride.
    ///
    /// # Safety
    /// The CPU has `S`; the source has these rows (and room for them, where they are carried, which this task
    /// alone uses); `scratch` has `height + 1` rows of `padded(width)` floats for this thread alone.
    #[inline(always)]
    unsafe fn prepare<S: Simd>(
        &self,
        row: usize,
        count: usize,
        height: usize,
        width: usize,
        scratch: *mut f32,
    ) -> (*const f32, usize) {
        // SAFETY: rows `row..row + count` of the source, `height` rows of scratch; a patch is three rows of three
        // pixels of a padded image, whose corner is at most two pixels before the last.
        unsafe {
            let stride = padded(width);
            match *self {
                Self::Plain { rows } => {
                    // Whole vectors of a row must be readable: only a width of whole vectors, or a
                    // caller that reads no further than the width, may use the rows in place.
                    if count == height {
                        return (rows.add(row * width), width);
                    }
                    for r in 0..count {
                        copy_row::<S>(rows.add((row + r) * width), width, scratch.add(r * stride));
                    }
                }
                Self::Activated { raw, affine } => {
                    for r in 0..count {
                        let from = raw.add((row + r) * width);
                        activate::<S>(
                            from,
                            affine,
                            width,
                            BLOCK_ROWS * width,
                            scratch.add(r * stride),
                        );
                    }
                }
                Self::Carried { raw, affine, residual, to } => {
                    for r in row..row + count {
                        let residual =
                            if residual.is_null() { residual } else { residual.add(r * width) };
                        carry::<S>(raw.add(r * width), affine, residual, width, to.add(r * width));
                    }
                    if count == height {
                        return (to.add(row * width), width);
                    }
                    for r in 0..count {
                        copy_row::<S>(to.add((row + r) * width), width, scratch.add(r * stride));
                    }
                }
                Self::Patches { images, channels, side, padded_side } => {
                    let line = padded_side.1 * channels;
                    let (area, length) = (side.0 * side.1, 3 * channels);
                    let (image, pixel) = (row / area, row % area);
                    let (mut y, mut x) = (pixel / side.1, pixel % side.1);
                    let mut top = images.add((image * padded_side.0 + 2 * y) * line);
                    for r in 0..count {
                        let corner = top.add(2 * x * channels);
                        let to = scratch.add(r * stride);
                        // Whole vectors, of which the next one covers what is too much.
                        spread::<S>(corner, length, length + S::LANES, to);
                        spread::<S>(corner.add(line), length, length + S::LANES, to.add(length));
                        spread::<S>(corner.add(2 * line), length, length, to.add(2 * length));
                        x += 1;
                        if x == side.1 {
                            (x, y) = (0, y + 1);
                            top = top.add(2 * line);
                            if y == side.0 {
                                y = 0;
                                top = top.add((padded_side.0 - 2 * side.0) * line);
                            }
                        }
                    }
                }
            }
            // The padding of scratch rows is zero from the start, and nothing else is written there.
            for r in count..height {
                for c in 0..width {
                    *scratch.add(r * stride + c) = 0.0;
                }
            }
            (scratch, stride)
        }
    }
}

/// Copies `width` floats, and what follows up to whole vectors: as it is up to `readable` floats, then zeros.
///
/// # Safety
/// The CPU has `S`; `readable` floats can be read, at least `width`, and `width` rounded up to vectors written; they do not
/// overlap, and no other thread uses those written.
#[inline(always)]
unsafe fn spread<S: Simd>(from: *const f32, width: usize, readable: usize, to: *mut f32) {
    // SAFETY: lanes are cut to the floats that can be read; `c` is below `width`.
    unsafe {
        for c in (0..width).step_by(S::LANES) {
            S::store(to.add(c), load_some::<S>(from.add(c), readable - c));
        }
    }
}

/// Copies `width` floats.
///
/// # Safety
/// The CPU has `S`; so many can be read and written, do not overlap, and no other thread uses those written.
#[inline(always)]
unsafe fn copy_row<S: Simd>(from: *const f32, width: usize, to: *mut f32) {
    // SAFETY: lanes are cut to the floats left.
    unsafe {
        for c in (0..width).step_by(S::LANES) {
            store_some::<S>(to.add(c), load_some::<S>(from.add(c), width - c), width - c);
        }
    }
}

/// Sums per channel: two of them, in f32 for some rows and in f64 for all.
///
/// Values are summed as differences from a pivot, some value of the channel: where the mean is
/// large against the deviation, squares would cancel to noise.
///
/// What its unsafe functions need is that both pointers have as much memory as they say, for this task alone.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// `3 * padded(channels)` floats of scratch: both sums, and the pivots.
    pub(super) near: *mut f32,
    /// `2 * channels` sums: all first ones, then all second ones.
    pub(super) far: *mut f64,
    pub(super) channels: usize,
}

impl Sums {
    /// Sets all sums and pivots to zero.
    ///
    /// # Safety
    /// As [`Sums`] says.
    #[inline(always)]
    unsafe fn clear(&self) {
        // SAFETY: `2 * channels` sums, and three padded rows.
        unsafe {
            for c in 0..2 * self.channels {
                *self.far.add(c) = 0.0;
            }
            for c in 0..3 * padded(self.channels) {
                *self.near.add(c) = 0.0;
            }
        }
    }

    /// Takes the values of one row as pivots and forgets what was summed.
    ///
    /// # Safety
    /// As [`Sums`] says; the row has a value for each channel.
    #[inline(always)]
    unsafe fn pivot(&self, row: *const f32) {
        // SAFETY: two padded rows, then `channels` of the third.
        unsafe {
            for c in 0..2 * padded(self.channels) {
                *self.near.add(c) = 0.0;
            }
            for c in 0..self.channels {
                *self.near.add(2 * padded(self.channels) + c) = *row.add(c);
            }
        }
    }

    /// Adds the sums of `rows` rows to the sums in f64, as if there were no pivots.
    ///
    /// # Safety
    /// As [`Sums`] says.
    #[inline(always)]
    unsafe fn flush(&self, rows: usize) {
        // SAFETY: `channels` of each of three padded rows, and of both sums.
        unsafe {
            let (near, stride) = (self.near, padded(self.channels));
            let rows = rows as f64;
            for c in 0..self.channels {
                let sum = f64::from(*near.add(c));
                let square = f64::from(*near.add(stride + c));
                let pivot = f64::from(*near.add(2 * stride + c));
                *self.far.add(c) += sum + rows * pivot;
                *self.far.add(self.channels + c) += square + pivot * (2.0 * sum + rows * pivot);
                *near.add(c) = 0.0;
                *near.add(stride + c) = 0.0;
            }
        }
    }
}

/// Forward pass over some rows.
pub(super) struct Forward {
    /// The rows of this task.
    pub(super) rows: Range<usize>,
    pub(super) source: Source,
    /// The weights, inputs by outputs.
    pub(super) weights: Packed,
    /// Raw output, all rows.
    pub(super) out: *mut f32,
    /// Whether that goes past the caches: it is too large to be found there.
    pub(super) stream: bool,
    /// Sum and sum of squares of the output.
    pub(super) sums: Sums,
    /// At least `(MAX_STRIP + 1) * padded(inputs)` floats.
    pub(super) scratch: *mut f32,
}

impl Kernel for Forward {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the task's rows are there in source and output, weights are packed for all of them, and
        // a strip of scratch has `TILE_ROWS`, at most `MAX_STRIP`, rows.
        unsafe {
            self.sums.clear();
            clear_scratch(self.scratch, MAX_STRIP * padded(self.weights.depth));
            let stream = self.stream && streams::<S>(self.out, self.weights.columns);
            let finish = Store { out: self.out, near: self.sums.near, stream };
            let height = S::TILE_ROWS;
            let mut since_flush = 0;
            for row in self.rows.clone().step_by(height) {
                let rows = height.min(self.rows.end - row);
                let (start, stride) =
                    self.source.prepare::<S>(row, rows, height, self.weights.depth, self.scratch);
                let strip = Strip { start, stride, row, rows };
                multiply::<S, _>(strip, self.weights, finish);
                if row == self.rows.start {
                    // Pivots are known only now: the first strip is done again.
                    self.sums.pivot(self.out.add(row * self.weights.columns));
                    multiply::<S, _>(strip, self.weights, finish);
                }
                since_flush += rows;
                if since_flush >= FLUSH_ROWS {
                    self.sums.flush(since_flush);
                    since_flush = 0;
                }
            }
            self.sums.flush(since_flush);
            if stream {
                S::end_streams();
            }
        }
    }
}

/// Sets `len` floats to zero.
///
/// # Safety
/// So many can be written, and no other thread uses them.
#[inline(always)]
unsafe fn clear_scratch(scratch: *mut f32, len: usize) {
    // SAFETY: within `len`.
    unsafe {
        for at in 0..len {
            *scratch.add(at) = 0.0;
        }
    }
}

/// What becomes of the input's gradient.
#[derive(Clone, Copy)]
pub(super) enum Behind {
    /// Not needed: the input is the image.
    Nothing,
    /// Written as it is.
    Plain {
        /// Where it goes, all rows.
        out: *mut f32,
    },
    /// Masked by the relu6 between the layers.
    Relu6 {
        /// Raw output of the layer below.
        raw: *const f32,
        /// Its batch norm.
        affine: Affine,
        /// Its means, per channel.
        mean: *const f32,
        /// Where the gradient goes, all rows.
        out: *mut f32,
        /// Whether it goes past the caches: it is too large to be found there.
        stream: bool,
    },
    /// The layer below ends a block: no activation, but perhaps a residual's gradient to add.
    Linear {
        /// Raw output of the layer below.
        raw: *const f32,
        /// Its means, per channel.
        mean: *const f32,
        /// Gradient of the output of this layer's block, or null.
        residual: *const f32,
        /// Where the gradient goes, all rows.
        out: *mut f32,
    },
}

/// Where the gradient of a layer's output comes from.
#[derive(Clone, Copy)]
pub(super) enum Above {
    /// It lies ready (the classifier).
    Plain { rows: *const f32 },
    /// Through the layer's own batch norm.
    Norm(NormGradient),
}

/// Backward pass over some rows: gradients of input and weights together.
pub(super) struct Backward {
    /// The rows of this task.
    pub(super) rows: Range<usize>,
    /// The layer's input, as in the forward pass (a carried one lies ready now).
    pub(super) source: Source,
    /// Gradient of the layer's output.
    pub(super) above: Above,
    /// The weights, outputs by inputs.
    pub(super) weights: Packed,
    /// What becomes of the input's gradient.
    pub(super) behind: Behind,
    /// Sum of the input's gradient, and of it times the centred raw input.
    pub(super) sums: Sums,
    /// Gradient of the weights: see [`Backward::narrow_input`].
    pub(super) weight_sums: *mut f32,
    /// Rows of `weight_sums` are inputs and columns outputs; else the other way round.
    pub(super) narrow_input: bool,
    /// At least [`Backward::scratch_len`] floats.
    pub(super) scratch: *mut f32,
}

impl Backward {
    /// Floats of scratch for a layer.
    pub(super) const fn scratch_len(inputs: usize, outputs: usize) -> usize {
        (BLOCK_ROWS + MAX_STRIP) * (padded(inputs) + padded(outputs))
    }

    /// Floats of `weight_sums` for a layer.
    pub(super) const fn weights_len(narrow: usize, wide: usize) -> usize {
        narrow.next_multiple_of(NARROW_STEP) * padded(wide)
    }
}

impl Backward {
    /// Multiplies a block of rows, which may be higher than a strip, by the weights.
    ///
    /// # Safety
    /// As for the kernel, whose rows these are; `S::TILE_ROWS` rows are readable from the last whole strip on.
    #[inline(always)]
    unsafe fn multiply_block<S: Simd>(&self, block: Strip) {
        let near = self.sums.near;
        // SAFETY: passed on.
        unsafe {
            match self.behind {
                Behind::Nothing => {}
                Behind::Plain { out } => self.strips::<S, _>(block, Write { out }),
                Behind::Relu6 { raw, affine, mean, out, stream } => {
                    let stream = stream && streams::<S>(out, self.weights.columns);
                    self.strips::<S, _>(block, Mask { raw, affine, mean, out, near, stream });
                }
                Behind::Linear { raw, mean, residual, out } if residual.is_null() => {
                    self.strips::<S, _>(block, Add::<false> { raw, mean, residual, out, near });
                }
                Behind::Linear { raw, mean, residual, out } => {
                    self.strips::<S, _>(block, Add::<true> { raw, mean, residual, out, near });
                }
            }
        }
    }

    /// [`Self::multiply_block`], finished so.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn strips<S: Simd, F: Finish>(&self, block: Strip, finish: F) {
        let height = S::TILE_ROWS;
        for first in (0..block.rows).step_by(height) {
            // SAFETY: rows of the block, or readable ones behind it.
            unsafe {
                let strip = Strip {
                    start: block.start.add(first * block.stride),
                    stride: block.stride,
                    row: block.row + first,
                    rows: height.min(block.rows - first),
                };
                multiply::<S, _>(strip, self.weights, finish);
            }
        }
    }
}

impl Kernel for Backward {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the task's rows are there in source, gradient and what lies behind; `scratch_len` has a block of rows
        // of both operands, and a strip more for the rows of a tile beyond the last; sums of the weights are padded as
        // `accumulate` needs. A source that lies ready is followed by a vector that can be read, see `Plan::new`.
        unsafe {
            let (inputs, outputs) = (self.weights.columns, self.weights.depth);
            self.sums.clear();
            clear_scratch(self.scratch, Self::scratch_len(inputs, outputs));
            let (narrow, wide) =
                if self.narrow_input { (inputs, outputs) } else { (outputs, inputs) };
            clear_scratch(self.weight_sums, Self::weights_len(narrow, wide));

            let height = S::TILE_ROWS;
            let block = BLOCK_ROWS / height * height;
            let gradient = self.scratch;
            let gradient_stride = padded(outputs);
            let input_scratch = self.scratch.add((BLOCK_ROWS + MAX_STRIP) * gradient_stride);
            let mut since_flush = 0;
            for row in self.rows.clone().step_by(block) {
                let rows = block.min(self.rows.end - row);
                for r in 0..rows {
                    let to = gradient.add(r * gradient_stride);
                    match &self.above {
                        Above::Plain { rows } => {
                            copy_row::<S>(rows.add((row + r) * outputs), outputs, to);
                        }
                        Above::Norm(norm) => {
                            let (at, ahead) = ((row + r) * outputs, block * outputs);
                            norm.row::<S>(at, (0, outputs), ahead, to);
                        }
                    }
                }
                // Before the product, which reads the same raw input in tiles: it is in the caches then, read from end to end.
                let (start, stride) =
                    self.source.prepare::<S>(row, rows, rows, inputs, input_scratch);
                let strip = Strip { start: gradient, stride: gradient_stride, row, rows };
                self.multiply_block::<S>(strip);
                let input = Rows { start, stride, width: inputs };
                let output = Rows { start: gradient, stride: gradient_stride, width: outputs };
                let (narrow, wide) =
                    if self.narrow_input { (input, output) } else { (output, input) };
                accumulate::<S>(narrow, wide, rows, self.weight_sums);
                since_flush += rows;
                if since_flush >= FLUSH_ROWS {
                    self.sums.flush(since_flush); // gradients have no pivots
                    since_flush = 0;
                }
            }
            self.sums.flush(since_flush);
            S::end_streams();
        }
    }
}
