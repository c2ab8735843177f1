//! Convolutions with a fraction of the multiplications: Winograd's F(4 x 4, 3 x 3) and F(4 x 4, 5 x 5).
//!
//! Images are cut into tiles of 6 x 6 (8 x 8) that overlap by two (four); each tile and the kernel are
//! transformed to 36 (64) "frequencies", where convolution is a product of (tiles x inputs) and (inputs x
//! outputs), and the result is transformed back to 4 x 4 pixels. This needs 2.25 products per output instead of 9,
//! and 4 instead of 25; partial tiles cost some of it (a third at 13 x 13). Rounding errors grow about tenfold, to
//! some 1e-6 (3 x 3) and 1e-5 (5 x 5) of the largest value.
//!
//! The gradient of the weights runs the same steps backwards, each matrix transposed.

#![allow(unsafe_code)] // kernels on raw memory
#![allow(clippy::needless_range_loop)] // rows and columns of tiles

mod schemes;
mod transforms;

use super::{Buffer, Compute, Finish, Matrix, conv::ConvShape, conv_weights::Inputs};
use crate::threads::SendPtr;
use schemes::{Five, Scheme, Three};
use std::marker::PhantomData;
use transforms::{Back, Forth, Gradient, Input, Plane, ToFrequencies, ToPixels, Weights};

/// Images at a time: bounds the memory, and keeps it within the last-level cache.
const IMAGES: usize = 32;
/// Between frequencies: without it all streams of a tile fall into the same cache set.
const GAP: usize = 16;

/// Tiles and buffers' strides of a convolution.
#[derive(Debug, Clone, Copy)]
struct Tiles {
    rows: usize,
    columns: usize,
    /// Floats from frequency to frequency of input tiles, output tiles and weights.
    inputs: usize,
    outputs: usize,
    weights: usize,
}

impl Tiles {
    fn new(shape: &ConvShape, images: usize) -> Self {
        let (rows, columns) = (shape.out_height().div_ceil(4), shape.out_width().div_ceil(4));
        let stride = |floats: usize| floats.next_multiple_of(16) + GAP;
        let tiles = images * rows * columns;
        Self {
            rows,
            columns,
            inputs: stride(tiles * shape.inputs),
            outputs: stride(tiles * shape.outputs),
            weights: stride(shape.inputs * shape.outputs),
        }
    }

    fn per_image(&self) -> usize {
        self.rows * self.columns
    }

    /// Row and column of a tile's first output.
    #[inline(always)]
    fn corner(&self, tile: usize) -> (usize, usize) {
        (tile / self.columns * 4, tile % self.columns * 4)
    }
}

/// Memory for the frequencies, kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    inputs: Buffer,
    outputs: Buffer,
    weights: Buffer,
    /// Weights of a few inputs in another order, for each thread.
    ordered: Buffer,
}

impl Frequencies {
    fn reserve(&mut self, tiles: &Tiles, frequencies: usize) {
        self.inputs.reserve(frequencies * tiles.inputs);
        self.outputs.reserve(frequencies * tiles.outputs);
        self.weights.reserve(frequencies * tiles.weights);
    }
}

/// Whether tiles pay: enough channels for efficient products, enough saved on ragged tiles.
pub(crate) fn suits(shape: &ConvShape) -> bool {
    let (height, width) = (shape.out_height(), shape.out_width());
    let side = shape.kernel + 3;
    let tiled = height.div_ceil(4) * width.div_ceil(4) * side * side;
    matches!(shape.kernel, 3 | 5)
        && shape.stride == 1
        && shape.inputs.min(shape.outputs) >= 64
        && 10 * height * width * shape.taps() >= 18 * tiled
        && shape.batch * height * width >= 512
}

/// Inputs whose weights are put in order and transformed at a time: they stay in the second-level cache in between.
const INPUTS: usize = 16;

impl Compute {
    /// A convolution with all of its weights, or the way back through one.
    ///
    /// # Safety
    /// `input` and `output` hold the images of the shape, `weights` points to the shape's weights; bias has one
    /// value per output channel, mask as many as the output.
    pub(crate) unsafe fn winograd(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        weights: Inputs,
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        // SAFETY: passed on.
        unsafe {
            if shape.kernel == 3 {
                self.tiled::<Three, 6, 3>(shape, input, weights, output, finish);
            } else {
                self.tiled::<Five, 8, 5>(shape, input, weights, output, finish);
            }
        }
    }

    /// The gradient of weights.
    ///
    /// # Safety
    /// `input` and `d_output` hold the images of the shape, `d_weights` its weights.
    pub(crate) unsafe fn winograd_backward_weights(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        d_output: &[f32],
        d_weights: &mut [f32],
    ) {
        // SAFETY: passed on.
        unsafe {
            if shape.kernel == 3 {
                self.tiled_backward_weights::<Three, 6, 3>(shape, input, d_output, d_weights);
            } else {
                self.tiled_backward_weights::<Five, 8, 5>(shape, input, d_output, d_weights);
            }
        }
    }

    /// [`Compute::winograd`] for one size of kernel.
    ///
    /// # Safety
    /// As there; the shape's kernel has `KERNEL` rows.
    unsafe fn tiled<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize>(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        weights: Inputs,
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        let images = IMAGES.min(shape.batch);
        let tiles = Tiles::new(shape, images);
        let mut memory = std::mem::take(&mut self.frequencies);
        memory.reserve(&tiles, TILE * TILE);
        // SAFETY: the caller promises the weights, the frequencies were just reserved.
        unsafe {
            self.transform_weights::<F, TILE, KERNEL, false>(weights, &mut memory, tiles.weights);
        }
        let image_out = shape.out_height() * shape.out_width() * shape.outputs;
        for first in (0..shape.batch).step_by(images) {
            let count = images.min(shape.batch - first);
            self.input_tiles::<F, TILE, KERNEL>(
                shape,
                &tiles,
                first,
                count,
                input,
                &mut memory.inputs,
            );
            let rows = count * tiles.per_image();
            for frequency in 0..TILE * TILE {
                let left = &memory.inputs[frequency * tiles.inputs..];
                let right = &memory.weights[frequency * tiles.weights..];
                self.gemm(
                    Matrix::new(left, rows, shape.inputs),
                    Matrix::new(right, shape.inputs, shape.outputs),
                    &mut memory.outputs[frequency * tiles.outputs..],
                    shape.outputs,
                    &Finish::default(),
                );
            }
            let (isa, to) = (self.isa, SendPtr(output.as_mut_ptr()));
            let from = SendPtr(memory.outputs.as_mut_ptr());
            let start = |slice: Option<&[f32]>, at: usize| {
                slice.map_or(std::ptr::null(), |slice| slice[at..].as_ptr())
            };
            self.pool.run(count, &|number, _| {
                let at = (first + number) * image_out;
                // SAFETY: tasks write different images; sizes are the caller's promise.
                unsafe {
                    isa.run(ToPixels::<F, TILE, KERNEL> {
                        scheme: PhantomData,
                        plane: Plane::of_output(shape),
                        tiles,
                        from: from.get().add(number * tiles.per_image() * shape.outputs),
                        stride: tiles.outputs,
                        image: to.get().add(at),
                        bias: start(finish.bias, 0),
                        mask: start(finish.mask, at),
                        relu: finish.relu,
                    });
                }
            });
        }
        self.frequencies = memory;
    }

    /// [`Compute::winograd_backward_weights`] for one size of kernel.
    ///
    /// # Safety
    /// As there; the shape's kernel has `KERNEL` rows.
    unsafe fn tiled_backward_weights<
        F: Scheme<TILE, KERNEL>,
        const TILE: usize,
        const KERNEL: usize,
    >(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        d_output: &[f32],
        d_weights: &mut [f32],
    ) {
        let images = IMAGES.min(shape.batch);
        let tiles = Tiles::new(shape, images);
        let mut memory = std::mem::take(&mut self.frequencies);
        memory.reserve(&tiles, TILE * TILE);
        let image_out = shape.out_height() * shape.out_width() * shape.outputs;
        for first in (0..shape.batch).step_by(images) {
            let count = images.min(shape.batch - first);
            self.input_tiles::<F, TILE, KERNEL>(
                shape,
                &tiles,
                first,
                count,
                input,
                &mut memory.inputs,
            );
            let (isa, to) = (self.isa, SendPtr(memory.outputs.as_mut_ptr()));
            self.pool.run(count, &|number, _| {
                let at = (first + number) * image_out;
                // SAFETY: tasks write different tiles; sizes are the caller's promise.
                unsafe {
                    isa.run(ToFrequencies::<Gradient<F, KERNEL>, 4, TILE> {
                        line: PhantomData,
                        plane: Plane::of_output(shape),
                        pad: 0,
                        tiles,
                        image: d_output[at..].as_ptr(),
                        to: to.get().add(number * tiles.per_image() * shape.outputs),
                        stride: tiles.outputs,
                    });
                }
            });
            let rows = count * tiles.per_image();
            let finish = Finish { accumulate: first > 0, ..Finish::default() };
            for frequency in 0..TILE * TILE {
                let left = &memory.inputs[frequency * tiles.inputs..];
                let right = &memory.outputs[frequency * tiles.outputs..];
                self.gemm(
                    Matrix::new(left, rows, shape.inputs).t(),
                    Matrix::new(right, rows, shape.outputs),
                    &mut memory.weights[frequency * tiles.weights..],
                    shape.outputs,
                    &finish,
                );
            }
        }
        let d_weights = shape.all_inputs(d_weights.as_mut_ptr(), false);
        // SAFETY: the caller promises the weights, the frequencies were reserved above.
        unsafe {
            self.transform_weights::<F, TILE, KERNEL, true>(d_weights, &mut memory, tiles.weights);
        }
        self.frequencies = memory;
    }

    #[allow(clippy::too_many_arguments)]
    fn input_tiles<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize>(
        &self,
        shape: &ConvShape,
        tiles: &Tiles,
        first: usize,
        count: usize,
        input: &[f32],
        to: &mut [f32],
    ) {
        let image = shape.height * shape.width * shape.inputs;
        let (isa, to) = (self.isa, SendPtr(to.as_mut_ptr()));
        self.pool.run(count, &|number, _| {
            // SAFETY: the slice holds the image; the buffer was reserved for all tiles, and tasks
            // write different ones.
            unsafe {
                isa.run(ToFrequencies::<Input<F, KERNEL>, TILE, TILE> {
                    line: PhantomData,
                    plane: Plane {
                        height: shape.height,
                        width: shape.width,
                        channels: shape.inputs,
                    },
                    pad: shape.pad,
                    tiles: *tiles,
                    image: input[(first + number) * image..][..image].as_ptr(),
                    to: to.get().add(number * tiles.per_image() * shape.inputs),
                    stride: tiles.inputs,
                });
            }
        });
    }

    /// Weights to frequencies, or `BACK`.
    ///
    /// # Safety
    /// `weights` points to `taps * inputs * outputs` floats, which nothing else uses where the way goes back to them;
    /// `memory.weights` has all frequencies of the weights, `frequency_stride` apart.
    unsafe fn transform_weights<
        F: Scheme<TILE, KERNEL>,
        const TILE: usize,
        const KERNEL: usize,
        const BACK: bool,
    >(
        &self,
        weights: Inputs,
        memory: &mut Frequencies,
        frequency_stride: usize,
    ) {
        let Inputs { taps, inputs, outputs, .. } = weights;
        let room = INPUTS * taps * outputs;
        memory.ordered.reserve(self.pool.threads() * room);
        let isa = self.isa;
        let ordered = SendPtr(memory.ordered.as_mut_ptr());
        let frequencies = SendPtr(memory.weights.as_mut_ptr());
        self.pool.run(inputs.div_ceil(INPUTS), &|task, thread| {
            let first = task * INPUTS;
            let some = Inputs { first, count: INPUTS.min(inputs - first), ..weights };
            // SAFETY: the buffers hold all weights, as the caller promises, a thread has its own room; tasks do
            // different inputs.
            unsafe {
                let ordered = ordered.get().add(thread * room);
                let frequencies = frequencies.get().add(first * outputs);
                let (tap_stride, count) = (some.count * outputs, some.count * outputs);
                if BACK {
                    isa.run(Weights::<Back<F>, TILE, KERNEL> {
                        from: frequencies,
                        from_stride: frequency_stride,
                        to: ordered,
                        to_stride: tap_stride,
                        count,
                        line: PhantomData,
                    });
                    some.disorder(isa, ordered, some.count, 0..outputs);
                } else {
                    some.order(isa, ordered, some.count, 0..outputs);
                    isa.run(Weights::<Forth<F>, KERNEL, TILE> {
                        from: ordered,
                        from_stride: tap_stride,
                        to: frequencies,
                        to_stride: frequency_stride,
                        count,
                        line: PhantomData,
                    });
                }
            }
        });
    }
}
