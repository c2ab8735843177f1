//! Tiles and weights to frequencies and back, sixteen (or eight, or four) channels at a time.
//!
//! Each kernel's fields say how much memory is behind its pointers; in all of them `count` lanes are read
//! and written at a time, as many as there are channels (or weights) left.

use super::{Tiles, schemes::Scheme};
use crate::{isa::Kernel, simd::Simd};
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
            let top = tile / self.tiles.columns * 4;
            let left = tile % self.tiles.columns * 4;
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
                    for at in 0..TILE {
                        let values = L::apply::<S>(column::<S, SIDE, TILE>(&half, at));
                        for (row, value) in values.into_iter().enumerate() {
                            S::store_partial(to.add((row * TILE + at) * self.stride), value, count);
                        }
                    }
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
            let top = tile / self.tiles.columns * 4;
            let left = tile % self.tiles.columns * 4;
            let mut channel = 0;
            while channel < channels {
                let count = channels - channel;
                // SAFETY: frequencies are read within this tile's channels; of a ragged tile only the
                // pixels within the plane are written.
                unsafe {
                    let from = self.from.add(tile * channels + channel);
                    let mut half = [[S::zero(); 4]; TILE];
                    for (row, half) in half.iter_mut().enumerate() {
                        let mut line = [S::zero(); TILE];
                        for (column, value) in line.iter_mut().enumerate() {
                            let at = (row * TILE + column) * self.stride;
                            *value = S::load_partial(from.add(at), count);
                        }
                        *half = F::output::<S>(line);
                    }
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
                for (row, half) in half.iter_mut().enumerate() {
                    let mut line = [S::zero(); IN];
                    for (column, value) in line.iter_mut().enumerate() {
                        let at = (row * IN + column) * self.from_stride;
                        *value = S::load_partial(from.add(at), count);
                    }
                    *half = L::apply::<S>(line);
                }
                for at in 0..OUT {
                    let values = L::apply::<S>(column::<S, IN, OUT>(&half, at));
                    for (row, value) in values.into_iter().enumerate() {
                        S::store_partial(to.add((row * OUT + at) * self.to_stride), value, count);
                    }
                }
            }
            done += S::LANES;
        }
    }
}
