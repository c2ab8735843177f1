//! 3 x 3 convolutions with a quarter of the multiplications: Winograd's F(4 x 4, 3 x 3).
//!
//! Images are cut into tiles of 6 x 6 that overlap by two; each tile and the kernel are taken to 36
//! "frequencies", where convolution is a product of (tiles x inputs) and (inputs x outputs), and the
//! result is taken back to 4 x 4 pixels. Images of 13 x 13 waste a third on ragged tiles; 2.6 times
//! fewer multiplications remain. Rounding errors grow about tenfold, to some 1e-6 of the largest value.
//!
//! The gradient of the weights runs the same steps backwards, each matrix transposed.

#![allow(unsafe_code)] // kernels on raw memory
#![allow(clippy::needless_range_loop)] // rows and columns of tiles

use super::{Buffer, Compute, Finish, Matrix, conv::ConvShape, isa::Kernel, simd::Simd};
use crate::threads::SendPtr;

/// Frequencies of a tile.
const FREQUENCIES: usize = 36;
/// Images at a time: bounds the memory, and keeps it within the last-level cache.
const IMAGES: usize = 32;
/// Between frequencies: without it all 36 streams of a tile fall into the same cache set.
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
}

/// Memory for the frequencies, kept from step to step.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    inputs: Buffer,
    outputs: Buffer,
    weights: Buffer,
}

impl Frequencies {
    fn reserve(&mut self, tiles: &Tiles) {
        self.inputs.reserve(FREQUENCIES * tiles.inputs);
        self.outputs.reserve(FREQUENCIES * tiles.outputs);
        self.weights.reserve(FREQUENCIES * tiles.weights);
    }
}

/// Whether tiles pay: enough channels for efficient products, enough saved on ragged tiles.
pub(crate) fn suits(shape: &ConvShape) -> bool {
    let (height, width) = (shape.out_height(), shape.out_width());
    let tiled = height.div_ceil(4) * width.div_ceil(4) * FREQUENCIES;
    shape.kernel == 3
        && shape.stride == 1
        && shape.inputs.min(shape.outputs) >= 64
        && 10 * height * width * 9 >= 18 * tiled
        && shape.batch * height * width >= 512
}

/// `B^T d`
#[inline(always)]
unsafe fn input_line<S: Simd>(d: [S::V; 6]) -> [S::V; 6] {
    unsafe {
        let (two, four, five) = (S::splat(2.0), S::splat(4.0), S::splat(5.0));
        let even = S::sub(d[4], S::mul(four, d[2])); // d4 - 4 d2
        let odd = S::sub(d[3], S::mul(four, d[1])); // d3 - 4 d1
        let even2 = S::sub(d[4], d[2]);
        let odd2 = S::mul(two, S::sub(d[3], d[1]));
        [
            S::add(S::sub(S::mul(four, d[0]), S::mul(five, d[2])), d[4]),
            S::add(even, odd),
            S::sub(even, odd),
            S::add(even2, odd2),
            S::sub(even2, odd2),
            S::add(S::sub(S::mul(four, d[1]), S::mul(five, d[3])), d[5]),
        ]
    }
}

/// `A^T m`
#[inline(always)]
unsafe fn output_line<S: Simd>(m: [S::V; 6]) -> [S::V; 4] {
    unsafe {
        let (sum1, diff1) = (S::add(m[1], m[2]), S::sub(m[1], m[2]));
        let (sum2, diff2) = (S::add(m[3], m[4]), S::sub(m[3], m[4]));
        [
            S::add(S::add(m[0], sum1), sum2),
            S::fma(S::splat(2.0), diff2, diff1),
            S::fma(S::splat(4.0), sum2, sum1),
            S::add(S::fma(S::splat(8.0), diff2, diff1), m[5]),
        ]
    }
}

/// `A y`
#[inline(always)]
unsafe fn gradient_line<S: Simd>(y: [S::V; 4]) -> [S::V; 6] {
    unsafe {
        let (even, odd) = (S::add(y[0], y[2]), S::add(y[1], y[3]));
        let even4 = S::fma(S::splat(4.0), y[2], y[0]);
        let odd8 = S::fma(S::splat(8.0), y[3], S::mul(S::splat(2.0), y[1]));
        [y[0], S::add(even, odd), S::sub(even, odd), S::add(even4, odd8), S::sub(even4, odd8), y[3]]
    }
}

/// `G g`
#[inline(always)]
unsafe fn weight_line<S: Simd>(g: [S::V; 3]) -> [S::V; 6] {
    unsafe {
        let sixth = S::splat(-1.0 / 6.0);
        let outer = S::mul(sixth, S::add(g[0], g[2]));
        let middle = S::mul(sixth, g[1]);
        let outer2 = S::fma(S::splat(1.0 / 24.0), g[0], S::mul(S::splat(1.0 / 6.0), g[2]));
        let middle2 = S::mul(S::splat(1.0 / 12.0), g[1]);
        [
            S::mul(S::splat(0.25), g[0]),
            S::add(outer, middle),
            S::sub(outer, middle),
            S::add(outer2, middle2),
            S::sub(outer2, middle2),
            g[2],
        ]
    }
}

/// `G^T u`
#[inline(always)]
unsafe fn weight_gradient_line<S: Simd>(u: [S::V; 6]) -> [S::V; 3] {
    unsafe {
        let (sum1, diff1) = (S::add(u[1], u[2]), S::sub(u[1], u[2]));
        let (sum2, diff2) = (S::add(u[3], u[4]), S::sub(u[3], u[4]));
        let (sixth, twelfth) = (S::splat(1.0 / 6.0), S::splat(1.0 / 12.0));
        let first = S::fma(S::splat(0.25), u[0], S::mul(S::splat(1.0 / 24.0), sum2));
        [
            S::sub(first, S::mul(sixth, sum1)),
            S::sub(S::mul(twelfth, diff2), S::mul(sixth, diff1)),
            S::add(S::mul(sixth, S::sub(sum2, sum1)), u[5]),
        ]
    }
}

/// Where a transform reads or writes pixels: one image, tile after tile.
#[derive(Clone, Copy)]
struct Plane {
    height: usize,
    width: usize,
    channels: usize,
}

/// Pixels of `SIDE` x `SIDE` tiles, whose corners lie 4 apart from (-pad, -pad) on, to frequencies:
/// input tiles (6) or gradients of output tiles (4).
struct ToFrequencies<const SIDE: usize> {
    plane: Plane,
    pad: usize,
    tiles: Tiles,
    image: *const f32,
    to: *mut f32,
    stride: usize,
}

impl<const SIDE: usize> Kernel for ToFrequencies<SIDE> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Plane { height, width, channels } = self.plane;
        for tile in 0..self.tiles.per_image() {
            let top = tile / self.tiles.columns * 4;
            let left = tile % self.tiles.columns * 4;
            let mut channel = 0;
            while channel < channels {
                let count = channels - channel;
                unsafe {
                    // Columns first, into memory: 36 vectors do not fit the registers.
                    let mut half = [[S::zero(); 6]; SIDE];
                    for (row, half) in half.iter_mut().enumerate() {
                        let y = (top + row).wrapping_sub(self.pad);
                        let mut line = [S::zero(); SIDE];
                        if y < height {
                            for (column, value) in line.iter_mut().enumerate() {
                                let x = (left + column).wrapping_sub(self.pad);
                                if x < width {
                                    let at = (y * width + x) * channels + channel;
                                    *value = S::load_partial(self.image.add(at), count);
                                }
                            }
                        }
                        *half = Self::line::<S>(line);
                    }
                    let to = self.to.add(tile * channels + channel);
                    for column in 0..6 {
                        let mut line = [S::zero(); SIDE];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        for (row, value) in Self::line::<S>(line).into_iter().enumerate() {
                            S::store_partial(
                                to.add((row * 6 + column) * self.stride),
                                value,
                                count,
                            );
                        }
                    }
                }
                channel += S::LANES;
            }
        }
    }
}

impl<const SIDE: usize> ToFrequencies<SIDE> {
    #[inline(always)]
    unsafe fn line<S: Simd>(line: [S::V; SIDE]) -> [S::V; 6] {
        let mut padded = [line[0]; 6];
        padded[..SIDE].copy_from_slice(&line);
        unsafe {
            if SIDE == 6 {
                input_line::<S>(padded)
            } else {
                gradient_line::<S>([padded[0], padded[1], padded[2], padded[3]])
            }
        }
    }
}

/// Output tiles from frequencies to pixels, with bias, relu and mask.
struct ToPixels {
    plane: Plane,
    tiles: Tiles,
    from: *const f32,
    stride: usize,
    image: *mut f32,
    bias: *const f32,
    mask: *const f32,
    relu: bool,
}

impl Kernel for ToPixels {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Plane { height, width, channels } = self.plane;
        for tile in 0..self.tiles.per_image() {
            let top = tile / self.tiles.columns * 4;
            let left = tile % self.tiles.columns * 4;
            let mut channel = 0;
            while channel < channels {
                let count = channels - channel;
                unsafe {
                    let from = self.from.add(tile * channels + channel);
                    let mut half = [[S::zero(); 4]; 6];
                    for (row, half) in half.iter_mut().enumerate() {
                        let mut line = [S::zero(); 6];
                        for (column, value) in line.iter_mut().enumerate() {
                            let at = (row * 6 + column) * self.stride;
                            *value = S::load_partial(from.add(at), count);
                        }
                        *half = output_line::<S>(line);
                    }
                    let bias = if self.bias.is_null() {
                        S::zero()
                    } else {
                        S::load_partial(self.bias.add(channel), count)
                    };
                    for column in 0..4.min(width - left) {
                        let mut line = [S::zero(); 6];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        let values = output_line::<S>(line);
                        for (row, &value) in values.iter().enumerate().take(height - top) {
                            let at = ((top + row) * width + left + column) * channels + channel;
                            let mut value = S::add(value, bias);
                            if self.relu {
                                value = S::max(value, S::zero());
                            }
                            if !self.mask.is_null() {
                                let mask = S::load_partial(self.mask.add(at), count);
                                value = S::keep_greater(mask, S::zero(), value);
                            }
                            S::store_partial(self.image.add(at), value, count);
                        }
                    }
                }
                channel += S::LANES;
            }
        }
    }
}

/// Weights between (tap, ...) and (frequency, ...), forth or back; `first..last` of the rest.
struct Weights<const BACK: bool> {
    taps: *mut f32,
    tap_stride: usize,
    frequencies: *mut f32,
    frequency_stride: usize,
    first: usize,
    last: usize,
}

impl<const BACK: bool> Kernel for Weights<BACK> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut at = self.first;
        while at < self.last {
            let count = self.last - at;
            unsafe {
                let (taps, frequencies) = (self.taps.add(at), self.frequencies.add(at));
                if BACK {
                    let mut half = [[S::zero(); 3]; 6];
                    for (row, half) in half.iter_mut().enumerate() {
                        let mut line = [S::zero(); 6];
                        for (column, value) in line.iter_mut().enumerate() {
                            let from = (row * 6 + column) * self.frequency_stride;
                            *value = S::load_partial(frequencies.add(from), count);
                        }
                        *half = weight_gradient_line::<S>(line);
                    }
                    for column in 0..3 {
                        let mut line = [S::zero(); 6];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        let values = weight_gradient_line::<S>(line);
                        for (row, value) in values.into_iter().enumerate() {
                            let to = (row * 3 + column) * self.tap_stride;
                            S::store_partial(taps.add(to), value, count);
                        }
                    }
                } else {
                    let mut half = [[S::zero(); 6]; 3];
                    for (row, half) in half.iter_mut().enumerate() {
                        let mut line = [S::zero(); 3];
                        for (column, value) in line.iter_mut().enumerate() {
                            let from = (row * 3 + column) * self.tap_stride;
                            *value = S::load_partial(taps.add(from), count);
                        }
                        *half = weight_line::<S>(line);
                    }
                    for column in 0..6 {
                        let line = [half[0][column], half[1][column], half[2][column]];
                        for (row, value) in weight_line::<S>(line).into_iter().enumerate() {
                            let to = (row * 6 + column) * self.frequency_stride;
                            S::store_partial(frequencies.add(to), value, count);
                        }
                    }
                }
            }
            at += S::LANES;
        }
    }
}

impl Compute {
    /// A convolution whose weights are ordered (tap, input, output).
    ///
    /// # Safety
    /// Slices fit the shape; bias and mask fit the output.
    pub(crate) unsafe fn winograd(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        weights: &[f32],
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        let images = IMAGES.min(shape.batch);
        let tiles = Tiles::new(shape, images);
        let mut memory = std::mem::take(&mut self.frequencies);
        memory.reserve(&tiles);
        self.transform_weights::<false>(
            shape,
            weights.as_ptr().cast_mut(),
            memory.weights.as_mut_ptr(),
            tiles.weights,
        );
        let image_out = shape.out_height() * shape.out_width() * shape.outputs;
        for first in (0..shape.batch).step_by(images) {
            let count = images.min(shape.batch - first);
            self.input_tiles(shape, &tiles, first, count, input, &mut memory.inputs);
            let rows = count * tiles.per_image();
            for frequency in 0..FREQUENCIES {
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
                    isa.run(ToPixels {
                        plane: Plane {
                            height: shape.out_height(),
                            width: shape.out_width(),
                            channels: shape.outputs,
                        },
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

    /// The gradient of weights ordered (tap, input, output).
    ///
    /// # Safety
    /// Slices fit the shape.
    pub(crate) unsafe fn winograd_backward_weights(
        &mut self,
        shape: &ConvShape,
        input: &[f32],
        d_output: &[f32],
        d_weights: &mut [f32],
    ) {
        let images = IMAGES.min(shape.batch);
        let tiles = Tiles::new(shape, images);
        let mut memory = std::mem::take(&mut self.frequencies);
        memory.reserve(&tiles);
        let image_out = shape.out_height() * shape.out_width() * shape.outputs;
        for first in (0..shape.batch).step_by(images) {
            let count = images.min(shape.batch - first);
            self.input_tiles(shape, &tiles, first, count, input, &mut memory.inputs);
            let (isa, to) = (self.isa, SendPtr(memory.outputs.as_mut_ptr()));
            self.pool.run(count, &|number, _| {
                let at = (first + number) * image_out;
                // SAFETY: tasks write different tiles; sizes are the caller's promise.
                unsafe {
                    isa.run(ToFrequencies::<4> {
                        plane: Plane {
                            height: shape.out_height(),
                            width: shape.out_width(),
                            channels: shape.outputs,
                        },
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
            for frequency in 0..FREQUENCIES {
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
        self.transform_weights::<true>(
            shape,
            d_weights.as_mut_ptr(),
            memory.weights.as_mut_ptr(),
            tiles.weights,
        );
        self.frequencies = memory;
    }

    fn input_tiles(
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
                isa.run(ToFrequencies::<6> {
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

    fn transform_weights<const BACK: bool>(
        &self,
        shape: &ConvShape,
        taps: *mut f32,
        frequencies: *mut f32,
        frequency_stride: usize,
    ) {
        const SHARE: usize = 4096;
        let len = shape.inputs * shape.outputs;
        let (isa, taps, frequencies) = (self.isa, SendPtr(taps), SendPtr(frequencies));
        self.pool.run(len.div_ceil(SHARE), &|task, _| {
            // SAFETY: both hold all weights (the callers see to it); tasks do different ones.
            unsafe {
                isa.run(Weights::<BACK> {
                    taps: taps.get(),
                    tap_stride: len,
                    frequencies: frequencies.get(),
                    frequency_stride,
                    first: task * SHARE,
                    last: ((task + 1) * SHARE).min(len),
                });
            }
        });
    }
}
