//! Convolution over images in height, width, channel order, as a product of matrices.
//!
//! The matrix of patches is never built: the product asks for a few of its rows (or columns) at a
//! time while it packs, and they are copied from the image, in runs of `kernel width * channels`.
//! Weights come and go in PyTorch's order (output, input, row, column) and are reordered once per
//! step, which costs one pass over them against one pass per image.

#![allow(unsafe_code)] // patches are gathered through raw pointers; each block argues for itself

use super::{
    Compute, direct,
    gemm::{
        self, Finish,
        micro::ROW_STRIDE,
        pack::{Left, Right},
    },
    simd::{self, Simd},
    winograd,
};
use crate::threads::SendPtr;

/// The shape of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvShape {
    /// Images.
    pub batch: usize,
    /// Rows of an input image.
    pub height: usize,
    /// Columns of an input image.
    pub width: usize,
    /// Input channels.
    pub inputs: usize,
    /// Output channels.
    pub outputs: usize,
    /// Rows and columns of the kernel.
    pub kernel: usize,
    /// Step of the kernel.
    pub stride: usize,
    /// Zeros around the input.
    pub pad: usize,
}

impl ConvShape {
    /// Rows of an output image.
    #[must_use]
    pub fn out_height(&self) -> usize {
        (self.height + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Columns of an output image.
    #[must_use]
    pub fn out_width(&self) -> usize {
        (self.width + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Floats of the input.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.batch * self.height * self.width * self.inputs
    }

    /// Floats of the output.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.batch * self.out_height() * self.out_width() * self.outputs
    }

    /// Floats of the weights.
    #[must_use]
    pub fn weights_len(&self) -> usize {
        self.inputs * self.taps() * self.outputs
    }

    /// Positions of the kernel.
    #[must_use]
    pub fn taps(&self) -> usize {
        self.kernel * self.kernel
    }

    /// Multiplications and additions of one pass.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn flops(&self) -> f64 {
        2.0 * self.output_len() as f64 * (self.taps() * self.inputs) as f64
    }

    fn patches<'a>(&self, image: &'a [f32]) -> Patches<'a> {
        assert!(image.len() >= self.input_len(), "convolution input too small");
        Patches {
            image,
            height: self.height,
            width: self.width,
            channels: self.inputs,
            kernel: self.kernel,
            stride: self.stride,
            pad: self.pad,
            out_height: self.out_height(),
            out_width: self.out_width(),
        }
    }
}

/// The matrix of patches: a row per output pixel, a column per (kernel row, kernel column, channel).
#[derive(Clone, Copy)]
struct Patches<'a> {
    image: &'a [f32],
    height: usize,
    width: usize,
    channels: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    out_height: usize,
    out_width: usize,
}

impl Patches<'_> {
    /// Copies floats `from..to` of one kernel row's run (`kernel * channels` floats) of the patch at
    /// image `number`, input row `y + pad`, input column `x + pad`; zeros outside the image.
    ///
    /// # Safety
    /// The CPU has `S`; there is an image `number`; `from <= to <= kernel * channels`; `to - from` floats can be
    /// written from `out` on, and no other thread uses them.
    #[inline(always)]
    unsafe fn copy_run<S: Simd>(
        &self,
        number: usize,
        y: usize,
        x: usize,
        from: usize,
        to: usize,
        out: *mut f32,
    ) {
        // SAFETY: `y` is a row of the image, and `start..stop` is cut to what of the run lies between its edges, so
        // that the copy stays within the row; the three parts add up to `to - from` floats.
        unsafe {
            let y = y.wrapping_sub(self.pad);
            if y >= self.height {
                simd::clear::<S>(out, to - from);
                return;
            }
            // Floats before the image's left edge, and where its right edge lies, within the run.
            let before = self.pad.saturating_sub(x) * self.channels;
            let end = (self.width + self.pad).saturating_sub(x) * self.channels;
            let start = from.max(before).min(to);
            let stop = to.min(end).max(start);
            if start > from {
                simd::clear::<S>(out, start - from);
            }
            if start < stop {
                let row = (number * self.height + y) * self.width;
                let offset = (row + x) * self.channels + start - self.pad * self.channels;
                let from_image = self.image.as_ptr().add(offset);
                simd::copy::<S>(from_image, out.add(start - from), stop - start);
            }
            if stop < to {
                simd::clear::<S>(out.add(stop - from), to - stop);
            }
        }
    }
}

/// Patches as rows: output pixels times weights, for the way forward and for gradients of inputs.
#[derive(Clone, Copy)]
struct PatchRows<'a>(Patches<'a>);

impl Left for PatchRows<'_> {
    const K_MAJOR: bool = false;

    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, row: usize, rows: usize, k: usize, count: usize, to: *mut f32) {
        let patches = &self.0;
        let run = patches.kernel * patches.channels;
        let pixels = patches.out_height * patches.out_width;
        let (first, last) = (k / run, (k + count - 1) / run);
        let (mut number, pixel) = (row / pixels, row % pixels);
        let (mut y, mut x) = (pixel / patches.out_width, pixel % patches.out_width);
        for r in 0..rows {
            // SAFETY: rows are output pixels, so `number` is an image; a row of the panel has `ROW_STRIDE` floats,
            // of which the runs fill `count`.
            unsafe {
                let out = to.add(r * ROW_STRIDE);
                for tap in first..=last {
                    let from = k.max(tap * run) - tap * run;
                    let end = (k + count).min((tap + 1) * run) - tap * run;
                    let out = out.add(tap * run + from - k);
                    let (top, left) = (y * patches.stride + tap, x * patches.stride);
                    patches.copy_run::<S>(number, top, left, from, end, out);
                }
            }
            x += 1;
            if x == patches.out_width {
                (x, y) = (0, y + 1);
                if y == patches.out_height {
                    (y, number) = (0, number + 1);
                }
            }
        }
    }
}

/// Patches as columns: the product over all pixels that makes the weights' gradient.
#[derive(Clone, Copy)]
struct PatchColumns<'a>(Patches<'a>);

impl Left for PatchColumns<'_> {
    const K_MAJOR: bool = true;

    /// A panel stays within one kernel row, whose floats lie side by side.
    fn group(&self) -> usize {
        self.0.kernel * self.0.channels
    }

    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, row: usize, rows: usize, k: usize, count: usize, to: *mut f32) {
        let patches = &self.0;
        let run = patches.kernel * patches.channels;
        let (tap, from) = (row / run, row % run);
        let pixels = patches.out_height * patches.out_width;
        let (mut number, pixel) = (k / pixels, k % pixels);
        let (mut y, mut x) = (pixel / patches.out_width, pixel % patches.out_width);
        let mut done = 0;
        // Between these columns every float of the panel lies inside the image.
        let first_x = (patches.pad * patches.channels)
            .saturating_sub(from)
            .div_ceil(patches.channels * patches.stride);
        let end_x = ((patches.width + patches.pad) * patches.channels)
            .checked_sub(from + rows)
            .map_or(0, |room| room / (patches.channels * patches.stride) + 1);
        while done < count {
            let along = (patches.out_width - x).min(count - done);
            let top = y * patches.stride + tap;
            let inside = top >= patches.pad && top - patches.pad < patches.height;
            let mut step = 0;
            // SAFETY: `k` counts output pixels, so `number` is an image; between `first_x` and `end_x` all `rows` floats
            // lie within its row, elsewhere `copy_run` sees to it; the panel has `rows` floats for each of `count`.
            unsafe {
                while step < along {
                    let at = x + step;
                    let out = to.add((done + step) * rows);
                    if inside && at >= first_x && at < end_x {
                        let stop = (end_x - x).min(along);
                        let line = (number * patches.height + top - patches.pad) * patches.width;
                        let start = (line + at * patches.stride) * patches.channels + from
                            - patches.pad * patches.channels;
                        let mut source = patches.image.as_ptr().add(start);
                        let jump = patches.stride * patches.channels;
                        let mut out = out;
                        for _ in step..stop {
                            simd::copy::<S>(source, out, rows);
                            source = source.wrapping_add(jump);
                            out = out.add(rows);
                        }
                        step = stop;
                    } else {
                        let left = at * patches.stride;
                        patches.copy_run::<S>(number, top, left, from, from + rows, out);
                        step += 1;
                    }
                }
            }
            done += along;
            x = 0;
            y += 1;
            if y == patches.out_height {
                (y, number) = (0, number + 1);
            }
        }
    }
}

impl Compute {
    /// `output = input * weights`, finished as `finish` says (bias, relu).
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    pub fn conv_forward(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        weights: &[f32],
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        assert_eq!(weights.len(), shape.weights_len(), "convolution weights");
        let (m, n) = (shape.batch * shape.out_height() * shape.out_width(), shape.outputs);
        let k = shape.taps() * shape.inputs;
        gemm::check_result(m, n, n, output.len(), finish);
        let left = PatchRows(shape.patches(input));
        if winograd::suits(shape) && !finish.accumulate {
            // SAFETY: sizes were checked.
            return unsafe {
                let weights = shape.all_inputs(weights.as_ptr().cast_mut(), false);
                self.winograd(shape, input, weights, output, finish);
            };
        }
        let mut ordered = std::mem::take(&mut self.weights);
        ordered.reserve(shape.weights_len());
        self.order_weights(shape, weights, &mut ordered);
        let right = Right { data: ordered.as_ptr(), stride: n, transposed: false };
        let c = SendPtr(output.as_mut_ptr());
        // SAFETY: sizes were checked; `output` is borrowed mutably.
        unsafe {
            if direct::suits(shape) {
                self.direct(shape, input, &ordered, output, finish);
            } else {
                gemm::problem(m, n, k, left, right, c, n, finish).solve(self);
            }
        }
        self.weights = ordered;
    }

    /// Gradient of the input from the gradient of the output; `finish.mask` takes it back through
    /// the relu that made the input.
    ///
    /// # Panics
    /// If a slice does not fit the shape, or the stride is not 1.
    pub fn conv_backward_input(
        &mut self,
        shape: &ConvShape,
        d_output: &[f32],
        weights: &[f32],
        d_input: &mut [f32],
        finish: &Finish<'_>,
    ) {
        assert_eq!(shape.stride, 1, "gradients of inputs are implemented for stride 1");
        assert!(shape.pad < shape.kernel, "padding is smaller than the kernel");
        assert_eq!(weights.len(), shape.weights_len(), "convolution weights");
        // A convolution of the output's gradient with the kernel turned by 180 degrees.
        let turned = ConvShape {
            height: shape.out_height(),
            width: shape.out_width(),
            inputs: shape.outputs,
            outputs: shape.inputs,
            pad: shape.kernel - 1 - shape.pad,
            ..*shape
        };
        let (m, n) = (shape.batch * shape.height * shape.width, shape.inputs);
        let k = shape.taps() * shape.outputs;
        gemm::check_result(m, n, n, d_input.len(), finish);
        let left = PatchRows(turned.patches(d_output));
        if winograd::suits(&turned) && !finish.accumulate {
            // SAFETY: sizes were checked.
            return unsafe {
                let weights = turned.all_inputs(weights.as_ptr().cast_mut(), true);
                self.winograd(&turned, d_output, weights, d_input, finish);
            };
        }
        let mut ordered = std::mem::take(&mut self.weights);
        ordered.reserve(shape.weights_len());
        self.turn_weights(shape, weights, &mut ordered);
        let right = Right { data: ordered.as_ptr(), stride: n, transposed: false };
        let c = SendPtr(d_input.as_mut_ptr());
        // SAFETY: sizes were checked; `d_input` is borrowed mutably.
        unsafe { gemm::problem(m, n, k, left, right, c, n, finish).solve(self) };
        self.weights = ordered;
    }

    /// Gradients of weights and bias.
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    pub fn conv_backward_weights(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        d_output: &[f32],
        d_weights: &mut [f32],
        d_bias: &mut [f32],
    ) {
        assert_eq!(d_weights.len(), shape.weights_len(), "convolution weights");
        assert!(d_output.len() >= shape.output_len(), "convolution output too small");
        let (m, n) = (shape.taps() * shape.inputs, shape.outputs);
        let k = shape.batch * shape.out_height() * shape.out_width();
        self.column_sums(&d_output[..k * n], n, d_bias);
        let left = PatchColumns(shape.patches(input));
        if winograd::suits(shape) {
            // SAFETY: sizes were checked.
            return unsafe { self.winograd_backward_weights(shape, input, d_output, d_weights) };
        }
        let mut ordered = std::mem::take(&mut self.weights);
        ordered.reserve(shape.weights_len());
        let right = Right { data: d_output.as_ptr(), stride: n, transposed: false };
        let c = SendPtr(ordered.as_mut_ptr());
        // SAFETY: sizes were checked; `ordered` is ours.
        unsafe {
            if direct::suits(shape) {
                self.direct_backward_weights(shape, input, d_output, &mut ordered);
            } else {
                gemm::problem(m, n, k, left, right, c, n, &Finish::default()).solve(self);
            }
        }
        self.disorder_weights(shape, &ordered, d_weights);
        self.weights = ordered;
    }
}

#[cfg(test)]
mod tests;
