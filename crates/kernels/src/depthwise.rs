//! Depthwise 3x3 convolution, forward, with batch norm and relu6 folded into its edges.
//!
//! Nine multiplications a value: the cost is memory. Rows are activated once on their way in, into
//! a ring of three rows that stays in cache; the raw output is written once, with its statistics.
//!
//! What the fields of a kernel point to is there for the whole image and all channels of the shape; no two
//! kernels at work at the same time have an image and a channel in common, and a thread has its own scratch
//! memory. Channels are worked on in vectors, the last of which is cut to the channels left.

#![allow(unsafe_code)] // raw rows of the caller's buffers; the kernel's fields say what they need

use super::{
    activation::{Affine, activate, load_some, store_some},
    isa::Kernel,
    simd::Simd,
};
use std::ops::Range;

/// Shape of one depthwise convolution: 3x3, padding 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DepthwiseShape {
    /// Rows of the input.
    pub height: usize,
    /// Columns of the input.
    pub width: usize,
    /// Channels of input and output.
    pub channels: usize,
    /// 1 or 2.
    pub stride: usize,
}

impl DepthwiseShape {
    /// Rows of the output.
    #[must_use]
    pub const fn out_height(&self) -> usize {
        (self.height - 1) / self.stride + 1
    }

    /// Columns of the output.
    #[must_use]
    pub const fn out_width(&self) -> usize {
        (self.width - 1) / self.stride + 1
    }

    /// Floats of scratch a task over `channels` channels needs, forward or backward.
    #[must_use]
    pub const fn scratch_len(&self, channels: usize) -> usize {
        // Four rows with a border: three of the ring and one of zeros; then two sums and a pivot
        // per channel.
        (4 * (self.width + 2) + 3) * channels
    }
}

/// Output rows whose statistics are summed in f32 before they are added up in f64.
const FLUSH_ROWS: usize = 8;

/// Forward pass of one image, some of its channels.
pub struct DepthwiseForward {
    pub shape: DepthwiseShape,
    /// The channels of this task.
    pub channels: Range<usize>,
    /// Raw output of the layer below, one image.
    pub raw: *const f32,
    /// Batch norm of the layer below, all channels.
    pub affine: Affine,
    /// Weights, nine rows of all channels.
    pub weights: *const f32,
    /// Raw output, one image.
    pub out: *mut f32,
    /// Sum and sum of squares of this image's output: all first ones, then all second ones.
    pub sums: *mut f64,
    /// At least [`DepthwiseShape::scratch_len`] floats.
    pub scratch: *mut f32,
}

impl Kernel for DepthwiseForward {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: rows and columns stay within the image, `first + count` within the channels; the scratch memory
        // has the ring's four rows and three values a channel, see `scratch_len`.
        unsafe {
            let shape = self.shape;
            let (all, first, count) =
                (shape.channels, self.channels.start, self.channels.end - self.channels.start);
            let ring = Ring::new(self.scratch, shape.width, count);
            let near = self.scratch.add(4 * ring.row);
            for at in 0..3 * count {
                *near.add(at) = 0.0;
            }
            for at in 0..count {
                *self.sums.add(first + at) = 0.0;
                *self.sums.add(all + first + at) = 0.0;
            }
            let affine =
                Affine { scale: self.affine.scale.add(first), shift: self.affine.shift.add(first) };
            let mut ready = 0; // input rows activated so far
            for y in 0..shape.out_height() {
                let bottom = (y * shape.stride + 2).min(shape.height);
                while ready < bottom {
                    let from = self.raw.add(ready * shape.width * all + first);
                    let to = ring.slot(ready).add(count);
                    for x in 0..shape.width {
                        activate::<S>(from.add(x * all), affine, count, to.add(x * count));
                    }
                    ready += 1;
                }
                let rows = [0, 1, 2].map(|ky| ring.at(y * shape.stride + ky, shape.height));
                let out = self.out.add(y * shape.out_width() * all + first);
                if y == 0 {
                    // The first value of each channel becomes its pivot, the value that sums are
                    // taken from: where the mean is large against the deviation, squares would
                    // cancel to noise.
                    for c in (0..count).step_by(S::LANES) {
                        self.row::<S>(rows, 1, c, count, out.add(c), near.add(c));
                    }
                    for at in 0..count {
                        *near.add(at) = 0.0;
                        *near.add(count + at) = 0.0;
                        *near.add(2 * count + at) = *out.add(at);
                    }
                }
                for c in (0..count).step_by(S::LANES) {
                    self.row::<S>(rows, shape.out_width(), c, count, out.add(c), near.add(c));
                }
                if y % FLUSH_ROWS == FLUSH_ROWS - 1 || y + 1 == shape.out_height() {
                    let values = ((y % FLUSH_ROWS + 1) * shape.out_width()) as f64;
                    for at in 0..count {
                        let [sum, square, pivot] = [0, 1, 2].map(|i| near.add(i * count + at));
                        let (s, q, p) = (f64::from(*sum), f64::from(*square), f64::from(*pivot));
                        *self.sums.add(first + at) += s + values * p;
                        *self.sums.add(all + first + at) += q + p * (2.0 * s + values * p);
                        *sum = 0.0;
                        *square = 0.0;
                    }
                }
            }
        }
    }
}

impl DepthwiseForward {
    /// The first `width` pixels of an output row, one vector of channels; `near` holds its two sums
    /// and the pivot, `count` apart.
    ///
    /// # Safety
    /// As for the kernel; `rows` are rows of the ring, `c < count`, and `out` and `near` begin at channel `c` of a row of
    /// the output and of the values kept for each channel.
    #[inline(always)]
    unsafe fn row<S: Simd>(
        &self,
        rows: [*const f32; 3],
        width: usize,
        c: usize,
        count: usize,
        out: *mut f32,
        near: *mut f32,
    ) {
        // SAFETY: `left` lanes from channel `c` on; column `x * stride + kx` of the ring is at most `width + 1`, its right
        // border.
        unsafe {
            let left = count - c;
            let all = self.shape.channels;
            let mut weights = [S::zero(); 9];
            for (tap, weight) in weights.iter_mut().enumerate() {
                let from = self.weights.add(tap * all + self.channels.start + c);
                *weight = load_some::<S>(from, left);
            }
            let mut sum = load_some::<S>(near, left);
            let mut square = load_some::<S>(near.add(count), left);
            let pivot = load_some::<S>(near.add(2 * count), left);
            let step = self.shape.stride * count;
            let rows = rows.map(|row| row.add(c));
            for x in 0..width {
                // A vector of each pixel: too far apart for the hardware to notice. The next row comes meanwhile.
                S::prefetch_later(out.wrapping_add((x + width) * all));
                // Three chains instead of one: nine dependent additions would wait for each other.
                let mut parts = [S::zero(); 3];
                for (ky, row) in rows.iter().enumerate() {
                    for kx in 0..3 {
                        let value = load_some::<S>(row.add(x * step + kx * count), left);
                        parts[ky] = S::fma(value, weights[3 * ky + kx], parts[ky]);
                    }
                }
                let value = S::add(S::add(parts[0], parts[1]), parts[2]);
                let centred = S::sub(value, pivot);
                sum = S::add(sum, centred);
                square = S::fma(centred, centred, square);
                store_some::<S>(out.add(x * all), value, left);
            }
            store_some::<S>(near, sum, left);
            store_some::<S>(near.add(count), square, left);
        }
    }
}

/// Three rows with a border of one zero pixel left and right, and a row of zeros.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    start: *mut f32,
    /// Floats of a row, border included.
    pub(super) row: usize,
}

impl Ring {
    /// Takes `4 * (width + 2) * channels` floats and clears them.
    ///
    /// # Safety
    /// So many can be written from `start` on as long as the ring lives, and nothing else uses them.
    #[inline(always)]
    pub(super) unsafe fn new(start: *mut f32, width: usize, channels: usize) -> Self {
        let row = (width + 2) * channels;
        for at in 0..4 * row {
            // SAFETY: within the floats taken.
            unsafe { *start.add(at) = 0.0 };
        }
        Self { start, row }
    }

    /// The slot of row `y`.
    #[inline(always)]
    pub(super) fn slot(&self, y: usize) -> *mut f32 {
        self.start.wrapping_add(y % 3 * self.row)
    }

    /// Row `y - 1`, or zeros outside `0..height`.
    #[inline(always)]
    pub(super) fn at(&self, y: usize, height: usize) -> *const f32 {
        if y == 0 || y > height { self.start.wrapping_add(3 * self.row) } else { self.slot(y - 1) }
    }
}
