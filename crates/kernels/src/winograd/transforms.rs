//! Tiles and weights to frequencies and back, sixteen (or eight, or four) channels at a time.

use super::{Tiles, schemes::Scheme};
use crate::{isa::Kernel, simd::Simd};
use std::marker::PhantomData;

/// Where a transform reads or writes pixels: one image, tile after tile.
#[derive(Clone, Copy)]
pub(super) struct Plane {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

/// Pixels of `SIDE` x `SIDE` tiles, whose corners lie 4 apart from (-pad, -pad) on, to frequencies:
/// input tiles (`TILE`) or gradients of output tiles (4).
pub(super) struct ToFrequencies<F, const TILE: usize, const KERNEL: usize, const SIDE: usize> {
    pub(super) plane: Plane,
    pub(super) pad: usize,
    pub(super) tiles: Tiles,
    pub(super) image: *const f32,
    pub(super) to: *mut f32,
    pub(super) stride: usize,
    pub(super) scheme: PhantomData<F>,
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize, const SIDE: usize> Kernel
    for ToFrequencies<F, TILE, KERNEL, SIDE>
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
                        *half = Self::line::<S>(line);
                    }
                    let to = self.to.add(tile * channels + channel);
                    for column in 0..TILE {
                        let mut line = [S::zero(); SIDE];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        for (row, value) in Self::line::<S>(line).into_iter().enumerate() {
                            S::store_partial(
                                to.add((row * TILE + column) * self.stride),
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

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize, const SIDE: usize>
    ToFrequencies<F, TILE, KERNEL, SIDE>
{
    #[inline(always)]
    unsafe fn line<S: Simd>(line: [S::V; SIDE]) -> [S::V; TILE] {
        let mut padded = [line[0]; TILE];
        padded[..SIDE].copy_from_slice(&line);
        unsafe {
            if SIDE == TILE {
                F::input::<S>(padded)
            } else {
                F::gradient::<S>([padded[0], padded[1], padded[2], padded[3]])
            }
        }
    }
}

/// Output tiles from frequencies to pixels, with bias, relu and mask.
pub(super) struct ToPixels<F, const TILE: usize, const KERNEL: usize> {
    pub(super) plane: Plane,
    pub(super) tiles: Tiles,
    pub(super) from: *const f32,
    pub(super) stride: usize,
    pub(super) image: *mut f32,
    pub(super) bias: *const f32,
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
                    for column in 0..4.min(width - left) {
                        let mut line = [S::zero(); TILE];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        let values = F::output::<S>(line);
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

/// Weights between (tap, ...) and (frequency, ...), forth or back.
pub(super) struct Weights<F, const TILE: usize, const KERNEL: usize, const BACK: bool> {
    pub(super) taps: *mut f32,
    pub(super) tap_stride: usize,
    pub(super) frequencies: *mut f32,
    pub(super) frequency_stride: usize,
    /// Weights of each tap.
    pub(super) count: usize,
    pub(super) scheme: PhantomData<F>,
}

impl<F: Scheme<TILE, KERNEL>, const TILE: usize, const KERNEL: usize, const BACK: bool> Kernel
    for Weights<F, TILE, KERNEL, BACK>
{
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut at = 0;
        while at < self.count {
            let count = self.count - at;
            unsafe {
                let (taps, frequencies) = (self.taps.add(at), self.frequencies.add(at));
                if BACK {
                    let mut half = [[S::zero(); KERNEL]; TILE];
                    for (row, half) in half.iter_mut().enumerate() {
                        let mut line = [S::zero(); TILE];
                        for (column, value) in line.iter_mut().enumerate() {
                            let from = (row * TILE + column) * self.frequency_stride;
                            *value = S::load_partial(frequencies.add(from), count);
                        }
                        *half = F::weight_gradient::<S>(line);
                    }
                    for column in 0..KERNEL {
                        let mut line = [S::zero(); TILE];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        let values = F::weight_gradient::<S>(line);
                        for (row, value) in values.into_iter().enumerate() {
                            let to = (row * KERNEL + column) * self.tap_stride;
                            S::store_partial(taps.add(to), value, count);
                        }
                    }
                } else {
                    let mut half = [[S::zero(); TILE]; KERNEL];
                    for (row, half) in half.iter_mut().enumerate() {
                        let mut line = [S::zero(); KERNEL];
                        for (column, value) in line.iter_mut().enumerate() {
                            let from = (row * KERNEL + column) * self.tap_stride;
                            *value = S::load_partial(taps.add(from), count);
                        }
                        *half = F::weight::<S>(line);
                    }
                    for column in 0..TILE {
                        let mut line = [S::zero(); KERNEL];
                        for (row, value) in line.iter_mut().enumerate() {
                            *value = half[row][column];
                        }
                        for (row, value) in F::weight::<S>(line).into_iter().enumerate() {
                            let to = (row * TILE + column) * self.frequency_stride;
                            S::store_partial(frequencies.add(to), value, count);
                        }
                    }
                }
            }
            at += S::LANES;
        }
    }
}
