//! Tiles and weights to frequencies and back, sixteen (or eight, or four) channels at a time.
//!
//! Each kernel's fields say how much memory is behind its pointers; in all of them `count` lanes are read
//! and written at a time, as many as there are channels (or weights) left.

use super::{Tiles, schemes::Scheme};
use crate::{conv::ConvShape, isa::Kernel, simd::Simd};
use std::marker::PhantomData;

/// One line of a transform in two dimensions: along rows first, then along columns.
pub(super) trait Line<const IN: usize, const OUT: usize>: Send + Sync {
    /// `IN` values become `OUT`.
    fn apply<S: Simd>(line: [S::V; IN]) -> [S::V; OUT];
}

/// Input tiles to frequencies.
pub(super) struct Input<F, const KERNEL: usize>(F);
/// Gradients of output tiles to frequencies.
pub(super) struct Gradient<F, const KERNEL: usize>(F);
/// Weights to frequencies.
pub(super) struct Forth<F>(F);
/// Frequencies to the weights' gradient.
pub(super) struct Back<F>(F);
/// Frequencies to output tiles.
pub(super) struct Output<F, const KERNEL: usize>(F);

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize> Line<TILE, TILE>
    for Input<F, KERNEL>
{
    #[inline(always)]
    fn apply<S: Simd>(line: [S::V; TILE]) -> [S::V; TILE] {
        F::input::<S>(line)
    }
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize> Line<4, TILE>
    for Gradient<F, KERNEL>
{
    #[inline(always)]
    fn apply<S: Simd>(line: [S::V; 4]) -> [S::V; TILE] {
        F::gradient::<S>(line)
    }
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize> Line<KERNEL, TILE>
    for Forth<F>
{
    #[inline(always)]
    fn apply<S: Simd>(line: [S::V; KERNEL]) -> [S::V; TILE] {
        F::weight::<S>(line)
    }
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize> Line<TILE, KERNEL>
    for Back<F>
{
    #[inline(always)]
    fn apply<S: Simd>(line: [S::V; TILE]) -> [S::V; KERNEL] {
        F::weight_gradient::<S>(line)
    }
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize> Line<TILE, 4>
    for Output<F, KERNEL>
{
    #[inline(always)]
    fn apply<S: Simd>(line: [S::V; TILE]) -> [S::V; 4] {
        F::output::<S>(line)
    }
}

/// The first pass over a square of `IN` x `IN` values, `stride` apart.
///
/// # Safety
/// The CPU has `S`; behind each of the values `count` floats can be read, or a vector of them if that is less.
#[inline(always)]
unsafe fn rows<S: Simd, L: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    from: *const f32,
    stride: usize,
    count: usize,
    half: &mut [[S::V; OUT]; IN],
) {
    // SAFETY: as the caller promises.
    unsafe {
        for (row, half) in half.iter_mut().enumerate() {
            let mut line = [S::zero(); IN];
            for (column, value) in line.iter_mut().enumerate() {
                *value = S::load_partial(from.add((row * IN + column) * stride), count);
            }
            *half = L::apply::<S>(line);
        }
    }
}

/// The second pass, into a square of `OUT` x `OUT` values, `stride` apart.
///
/// # Safety
/// The CPU has `S`; behind each of the values `count` floats can be written, or a vector of them if that is less, and no
/// other thread uses them.
#[inline(always)]
unsafe fn columns<S: Simd, L: Line<IN, OUT>, const IN: usize, const OUT: usize>(
    half: &[[S::V; OUT]; IN],
    to: *mut f32,
    stride: usize,
    count: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        for at in 0..OUT {
            let values = L::apply::<S>(column::<S, IN, OUT>(half, at));
            for (row, value) in values.into_iter().enumerate() {
                S::store_partial(to.add((row * OUT + at) * stride), value, count);
            }
        }
    }
}

/// A column of what the first pass left.
#[inline(always)]
fn column<S: Simd, const ROWS: usize, const COLUMNS: usize>(
    half: &[[S::V; COLUMNS]; ROWS],
    at: usize,
) -> [S::V; ROWS] {
    let mut line = [half[0][at]; ROWS];
    for (row, value) in line.iter_mut().enumerate() {
        *value = half[row][at];
    }
    line
}

/// Where a transform reads or writes pixels: one image, tile after tile.
#[derive(Clone, Copy)]
pub(super) struct Plane {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl Plane {
    /// An output image of a convolution.
    pub(super) fn of_output(shape: &ConvShape) -> Self {
        Self { height: shape.out_height(), width: shape.out_width(), channels: shape.outputs }
    }
}

/// Pixels of `SIDE` x `SIDE` tiles, whose corners lie 4 apart from (-pad, -pad) on, to frequencies:
/// input tiles (`TILE`) or gradients of output tiles (4).
pub(super) struct ToFrequencies<L, const SIDE: usize, const TILE: usize> {
    pub(super) plane: Plane,
    pub(super) pad: usize,
    pub(super) tiles: Tiles,
    /// All pixels of the plane.
    pub(super) image: *const f32,
    /// `TILE * TILE` frequencies, `stride` apart, each of all channels of this image's tiles; written by
    /// this kernel alone.
    pub(super) to: *mut f32,
    pub(super) stride: usize,
    pub(super) line: PhantomData<L>,
}

impl<L: Line<SIDE, TILE>, const SIDE: usize, const TILE: usize> Kernel
    for ToFrequencies<L, SIDE, TILE>
{
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Plane { height, width, channels } = self.plane;
        for tile in 0..self.tiles.per_image() {
            let (top, left) = self.tiles.corner(tile);
            let mut channel = 0;
            while channel < channels {
                let count = channels - channel;
                // SAFETY: pixels are read where `y` and `x` lie within the plane; frequencies are written
                // within this tile's channels.
                unsafe {
                    // Columns first, into memory: a whole tile does not fit the registers.
                    let mut half = [[S::zero(); TILE]; SIDE];
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
                        *half = L::apply::<S>(line);
                    }
                    let to = self.to.add(tile * channels + channel);
                    columns::<S, L, SIDE, TILE>(&half, to, self.stride, count);
                }
                channel += S::LANES;
            }
        }
    }
}

/// Output tiles from frequencies to pixels, with bias, relu and mask.
pub(super) struct ToPixels<F, const TILE: usize, const KERNEL: usize> {
    pub(super) plane: Plane,
    pub(super) tiles: Tiles,
    /// `TILE * TILE` frequencies, `stride` apart, each of all channels of this image's tiles.
    pub(super) from: *const f32,
    pub(super) stride: usize,
    /// All pixels of the plane, written by this kernel alone.
    pub(super) image: *mut f32,
    /// One value per channel, or null.
    pub(super) bias: *const f32,
    /// Laid out like the image, or null.
    pub(super) mask: *const f32,
    pub(super) relu: bool,
    pub(super) scheme: PhantomData<F>,
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize> Kernel
    for ToPixels<F, TILE, KERNEL>
{
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Plane { height, width, channels } = self.plane;
        for tile in 0..self.tiles.per_image() {
            let (top, left) = self.tiles.corner(tile);
            let mut channel = 0;
            while channel < channels {
                let count = channels - channel;
                // SAFETY: frequencies are read within this tile's channels; of a ragged tile only the
                // pixels within the plane are written.
                unsafe {
                    let from = self.from.add(tile * channels + channel);
                    let mut half = [[S::zero(); 4]; TILE];
                    rows::<S, Output<F, KERNEL>, TILE, 4>(from, self.stride, count, &mut half);
                    let bias = if self.bias.is_null() {
                        S::zero()
                    } else {
                        S::load_partial(self.bias.add(channel), count)
                    };
                    for at in 0..4.min(width - left) {
                        let values = F::output::<S>(column::<S, TILE, 4>(&half, at));
                        for (row, &value) in values.iter().enumerate().take(height - top) {
                            let at = ((top + row) * width + left + at) * channels + channel;
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

/// Weights between (tap, ...) and (frequency, ...): `IN` x `IN` values of each become `OUT` x `OUT`.
pub(super) struct Weights<L, const IN: usize, const OUT: usize> {
    /// `IN * IN` times `count` floats, `from_stride` apart.
    pub(super) from: *const f32,
    pub(super) from_stride: usize,
    /// `OUT * OUT` times `count` floats, `to_stride` apart; written by this kernel alone.
    pub(super) to: *mut f32,
    pub(super) to_stride: usize,
    /// Weights of each tap.
    pub(super) count: usize,
    pub(super) line: PhantomData<L>,
}

impl<L: Line<IN, OUT>, const IN: usize, const OUT: usize> Kernel for Weights<L, IN, OUT> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut done = 0;
        while done < self.count {
            let count = self.count - done;
            // SAFETY: within the `count` floats of each tap and frequency.
            unsafe {
                let (from, to) = (self.from.add(done), self.to.add(done));
                let mut half = [[S::zero(); OUT]; IN];
                rows::<S, L, IN, OUT>(from, self.from_stride, count, &mut half);
                columns::<S, L, IN, OUT>(&half, to, self.to_stride, count);
            }
            done += S::LANES;
        }
    }
}
