//! Depthwise 3x3 convolution, backward: gradients of data and weights in one pass.
//!
//! Seen from an input pixel, both gradients need the same few output pixels around it: the data's
//! gradient sums them times the weights, the weights' gradient is the pixel's activation times each
//! of them. So one walk over the input does both, with the output's gradient in a ring of rows.
//!
//! What the kernel's fields point to is there as in [`super::depthwise`].

#![allow(unsafe_code)] // raw rows of the caller's buffers; the kernel's fields say what they need

use super::{
    activation::{Affine, NormGradient, load_some, relu6, relu6_mask, store_some},
    depthwise::{DepthwiseShape, Ring},
    isa::Kernel,
    simd::Simd,
};
use std::ops::Range;

/// Input rows whose sums are taken in f32 before they are added up in f64.
const FLUSH_ROWS: usize = 8;

/// Backward pass of one image, some of its channels.
pub struct DepthwiseBackward {
    pub shape: DepthwiseShape,
    /// The channels of this task.
    pub channels: Range<usize>,
    /// Gradient of the raw output, one image.
    pub above: NormGradient,
    /// Raw output of the layer below, one image.
    pub raw: *const f32,
    /// Batch norm of the layer below, all channels.
    pub affine: Affine,
    /// Means of the layer below, all channels.
    pub mean: *const f32,
    /// Weights, nine rows of all channels.
    pub weights: *const f32,
    /// Masked gradient of the layer below, one image.
    pub out: *mut f32,
    /// Sum of `out` and of `out` times the centred raw value, all channels each.
    pub sums: *mut f64,
    /// Gradient of the weights from this image, nine rows of all channels.
    pub weight_sums: *mut f32,
    /// At least [`DepthwiseShape::scratch_len`] floats.
    pub scratch: *mut f32,
}

/// One input row at work.
struct Line {
    /// Output rows that input row touches through the weights' rows 0, 1 and 2 (stride 2: some
    /// point to zeros).
    rows: [*const f32; 3],
    raw: *const f32,
    out: *mut f32,
    near: *mut f32,
}

impl Kernel for DepthwiseBackward {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: rows and columns stay within the image, `first + count` within the channels; the scratch memory
        // has the ring's four rows and two values a channel, see `scratch_len`.
        unsafe {
            let shape = self.shape;
            let (all, first, count) =
                (shape.channels, self.channels.start, self.channels.end - self.channels.start);
            let (out_height, out_width) = (shape.out_height(), shape.out_width());
            let ring = Ring::new(self.scratch, out_width, count);
            let near = self.scratch.add(4 * ring.row);
            for at in 0..2 * count {
                *near.add(at) = 0.0;
            }
            for at in 0..count {
                *self.sums.add(first + at) = 0.0;
                *self.sums.add(all + first + at) = 0.0;
                for tap in 0..9 {
                    *self.weight_sums.add(tap * all + first + at) = 0.0;
                }
            }
            let mut ready = 0; // output rows computed so far
            for y in 0..shape.height {
                // Output rows (y + 1 - ky) / stride, where that is whole and inside.
                let bottom = ((y + 1) / shape.stride + 1).min(out_height);
                while ready < bottom {
                    let to = ring.slot(ready).add(count);
                    for x in 0..out_width {
                        let at = (ready * out_width + x) * all + first;
                        self.above.row::<S>(at, first, count, to.add(x * count));
                    }
                    ready += 1;
                }
                let rows = [0, 1, 2].map(|ky| {
                    let over = y + 1 - ky.min(y + 1);
                    let whole = y + 1 >= ky && over % shape.stride == 0;
                    // The ring counts rows from 1; 0 asks for zeros.
                    ring.at(if whole { over / shape.stride + 1 } else { 0 }, out_height)
                });
                let at = y * shape.width * all + first;
                for c in (0..count).step_by(S::LANES) {
                    let line = Line {
                        rows: rows.map(|row| row.add(c)),
                        raw: self.raw.add(at + c),
                        out: self.out.add(at + c),
                        near: near.add(c),
                    };
                    match (shape.stride, y % 2) {
                        (1, _) => self.dense::<S>(&line, c, count),
                        // An even row meets only the weights' middle row, an odd one the others.
                        (_, 0) => self.sparse::<S, 1>(&line, [1], c, count),
                        _ => self.sparse::<S, 2>(&line, [0, 2], c, count),
                    }
                }
                if y % FLUSH_ROWS == FLUSH_ROWS - 1 || y + 1 == shape.height {
                    for second in [0, 1] {
                        for at in 0..count {
                            let near = near.add(second * count + at);
                            *self.sums.add(second * all + first + at) += f64::from(*near);
                            *near = 0.0;
                        }
                    }
                }
            }
        }
    }
}

/// What a vector of channels keeps in registers along a row.
struct Below<S: Simd> {
    scale: S::V,
    shift: S::V,
    mean: S::V,
    sum: S::V,
    product: S::V,
}

impl DepthwiseBackward {
    /// Loads what is kept in registers.
    ///
    /// # Safety
    /// As for the kernel; the line's pointers begin at channel `c < count` of the task.
    #[inline(always)]
    unsafe fn below<S: Simd>(&self, line: &Line, c: usize, count: usize) -> Below<S> {
        // SAFETY: `left` lanes from channel `c` on.
        unsafe {
            let at = self.channels.start + c;
            let left = count - c;
            Below {
                scale: load_some::<S>(self.affine.scale.add(at), left),
                shift: load_some::<S>(self.affine.shift.add(at), left),
                mean: load_some::<S>(self.mean.add(at), left),
                sum: load_some::<S>(line.near, left),
                product: load_some::<S>(line.near.add(count), left),
            }
        }
    }

    /// Stride 1: each input pixel meets all nine weights.
    ///
    /// # Safety
    /// As for [`Self::below`].
    #[inline(always)]
    unsafe fn dense<S: Simd>(&self, line: &Line, c: usize, count: usize) {
        // SAFETY: `left` lanes from channel `c` on; columns `x..x + 3` of the ring, which has two more than the image.
        unsafe {
            let (all, left) = (self.shape.channels, count - c);
            let mut below = self.below::<S>(line, c, count);
            let mut weights = [S::zero(); 9];
            for (tap, weight) in weights.iter_mut().enumerate() {
                *weight =
                    load_some::<S>(self.weights.add(tap * all + self.channels.start + c), left);
            }
            let mut weight_sums = [S::zero(); 9];
            for x in 0..self.shape.width {
                // A vector of each pixel: too far apart for the hardware to notice. The next row comes meanwhile.
                S::prefetch_later(line.raw.wrapping_add((x + self.shape.width) * all));
                S::prefetch_later(line.out.wrapping_add((x + self.shape.width) * all));
                let raw = load_some::<S>(line.raw.add(x * all), left);
                let y = S::fma(raw, below.scale, below.shift);
                let activation = relu6::<S>(y);
                let mut parts = [S::zero(); 3];
                for (ky, part) in parts.iter_mut().enumerate() {
                    for kx in 0..3 {
                        // Output column x + 1 - kx; the border makes it x + 2 - kx in the ring.
                        let from = line.rows[ky].add((x + 2 - kx) * count);
                        let value = load_some::<S>(from, left);
                        let tap = 3 * ky + kx;
                        *part = S::fma(value, weights[tap], *part);
                        weight_sums[tap] = S::fma(value, activation, weight_sums[tap]);
                    }
                }
                let gradient = S::add(S::add(parts[0], parts[1]), parts[2]);
                let gradient = relu6_mask::<S>(y, gradient);
                below.sum = S::add(below.sum, gradient);
                below.product = S::fma(gradient, S::sub(raw, below.mean), below.product);
                store_some::<S>(line.out.add(x * all), gradient, left);
            }
            for (tap, &sum) in weight_sums.iter().enumerate() {
                self.add_weight_sum::<S>(tap, c, left, sum);
            }
            store_some::<S>(line.near, below.sum, left);
            store_some::<S>(line.near.add(count), below.product, left);
        }
    }

    /// Stride 2: an input pixel meets the weights' rows `kys`, and in an even column only the middle
    /// of each, in an odd column the outer two.
    ///
    /// # Safety
    /// As for [`Self::below`]; the kernel rows `kys` are below 3.
    #[inline(always)]
    unsafe fn sparse<S: Simd, const K: usize>(
        &self,
        line: &Line,
        kys: [usize; K],
        c: usize,
        count: usize,
    ) {
        // SAFETY: `left` lanes from channel `c` on; columns up to `width / 2 + 1` of the ring, which has two more than the
        // output.
        unsafe {
            let (all, left) = (self.shape.channels, count - c);
            let mut below = self.below::<S>(line, c, count);
            let mut weights = [[S::zero(); 3]; K];
            let mut weight_sums = [[S::zero(); 3]; K];
            for (weights, ky) in weights.iter_mut().zip(kys) {
                for (kx, weight) in weights.iter_mut().enumerate() {
                    let at = (3 * ky + kx) * all + self.channels.start + c;
                    *weight = load_some::<S>(self.weights.add(at), left);
                }
            }
            for x in 0..self.shape.width {
                // A vector of each pixel: too far apart for the hardware to notice. The next row comes meanwhile.
                S::prefetch_later(line.raw.wrapping_add((x + self.shape.width) * all));
                S::prefetch_later(line.out.wrapping_add((x + self.shape.width) * all));
                let raw = load_some::<S>(line.raw.add(x * all), left);
                let y = S::fma(raw, below.scale, below.shift);
                let activation = relu6::<S>(y);
                let mut gradient = S::zero();
                for (i, ky) in kys.into_iter().enumerate() {
                    // Output column (x + 1 - kx) / 2, shifted by the border. Written out, as a closure
                    // would be compiled without the target features: a call for every product.
                    let (row, weights, sums) = (line.rows[ky], &weights[i], &mut weight_sums[i]);
                    if x % 2 == 0 {
                        let value = load_some::<S>(row.add((x / 2 + 1) * count), left);
                        gradient = S::fma(value, weights[1], gradient);
                        sums[1] = S::fma(value, activation, sums[1]);
                    } else {
                        let value = load_some::<S>(row.add((x.div_ceil(2) + 1) * count), left);
                        gradient = S::fma(value, weights[0], gradient);
                        sums[0] = S::fma(value, activation, sums[0]);
                        let value = load_some::<S>(row.add((x / 2 + 1) * count), left);
                        gradient = S::fma(value, weights[2], gradient);
                        sums[2] = S::fma(value, activation, sums[2]);
                    }
                }
                let gradient = relu6_mask::<S>(y, gradient);
                below.sum = S::add(below.sum, gradient);
                below.product = S::fma(gradient, S::sub(raw, below.mean), below.product);
                store_some::<S>(line.out.add(x * all), gradient, left);
            }
            for (sums, ky) in weight_sums.into_iter().zip(kys) {
                for (kx, sum) in sums.into_iter().enumerate() {
                    self.add_weight_sum::<S>(3 * ky + kx, c, left, sum);
                }
            }
            store_some::<S>(line.near, below.sum, left);
            store_some::<S>(line.near.add(count), below.product, left);
        }
    }

    /// Adds to the gradient of a weight, for one vector of channels.
    ///
    /// # Safety
    /// As for the kernel; `tap < 9`, and the task has `left` channels from `c` on.
    #[inline(always)]
    unsafe fn add_weight_sum<S: Simd>(&self, tap: usize, c: usize, left: usize, sum: S::V) {
        // SAFETY: nine rows of all channels, of which these are the task's own.
        unsafe {
            let to = self.weight_sums.add(tap * self.shape.channels + self.channels.start + c);
            store_some::<S>(to, S::add(load_some::<S>(to, left), sum), left);
        }
    }
}
