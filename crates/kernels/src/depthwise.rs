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
    activation::{Affine, activate, load_some, store_some, write},
    isa::Kernel,
    simd::{Simd, clear, streams},
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

/// Floats from what is worked on to what is asked for, which comes meanwhile, where a task has `count` of `all` channels: whole
/// pixels, as many as hold four kilobytes of the task's.
pub(super) const fn ahead(count: usize, all: usize) -> usize {
    1024_usize.div_ceil(count) * all
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
    /// Whether the output goes past the caches: it is too large to be found there.
    pub stream: bool,
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
            let ring = Ring::new::<S>(self.scratch, shape.width, count);
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
            let ahead = ahead(count, all);
            let stream = self.stream
                && streams::<S>(self.out.add(first), all)
                && count.is_multiple_of(S::LANES);
            let mut ready = 0; // input rows activated so far
            for y in 0..shape.out_height() {
                let bottom = (y * shape.stride + 2).min(shape.height);
                while ready < bottom {
                    let from = self.raw.add(ready * shape.width * all + first);
                    let to = ring.slot(ready).add(count);
                    for x in 0..shape.width {
                        activate::<S>(from.add(x * all), affine, count, ahead, to.add(x * count));
                    }
                    ready += 1;
                }
                let mut line = Line {
                    rows: [0, 1, 2].map(|ky| ring.at(y * shape.stride + ky, shape.height)),
                    weights: self.weights.add(first),
                    out: self.out.add(y * shape.out_width() * all + first),
                    near,
                    width: shape.out_width(),
                    all,
                    count,
                    ahead,
                    stream,
                };
                if y == 0 {
                    // The first value of each channel becomes its pivot, the value that sums are
                    // taken from: where the mean is large against the deviation, squares would
                    // cancel to noise.
                    line.width = 1;
                    line.run::<S>(shape.stride);
                    for at in 0..count {
                        *near.add(at) = 0.0;
                        *near.add(count + at) = 0.0;
                        *near.add(2 * count + at) = *line.out.add(at);
                    }
                    line.width = shape.out_width();
                }
                line.run::<S>(shape.stride);
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
            if stream {
                S::end_streams();
            }
        }
    }
}

/// One output row of the task's channels.
#[derive(Clone, Copy)]
struct Line {
    /// Rows of the ring.
    rows: [*const f32; 3],
    /// Of the task's first channel; nine rows of all channels.
    weights: *const f32,
    out: *mut f32,
    /// Two sums and the pivot of each channel, `count` apart.
    near: *mut f32,
    /// Pixels of the row.
    width: usize,
    /// All channels, and those of the task.
    all: usize,
    count: usize,
    /// See [`ahead`].
    ahead: usize,
    /// Whether the output goes past the caches; then vectors of it are aligned and whole.
    stream: bool,
}

impl Line {
    /// # Safety
    /// As for the kernel, whose row this is.
    #[inline(always)]
    unsafe fn run<S: Simd>(self, stride: usize) {
        // SAFETY: passed on.
        unsafe {
            if stride == 1 {
                S::outline(Strided::<1>(self));
            } else {
                S::outline(Strided::<2>(self));
            }
        }
    }
}

/// A [`Line`], the stride known. A function of its own, so that its registers are its own.
struct Strided<const STRIDE: usize>(Line);

impl<const STRIDE: usize> Kernel for Strided<STRIDE> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on; the last of the pixels are taken two and one at a time.
        unsafe {
            let width = self.0.width;
            let mut x = 0;
            // Three times the tile's pixels and one more must fit the registers.
            while S::LANES == 16 && x + 7 <= width {
                self.pixels::<S, 7>(x);
                x += 7;
            }
            while x + 4 <= width {
                self.pixels::<S, 4>(x);
                x += 4;
            }
            if x + 2 <= width {
                self.pixels::<S, 2>(x);
                x += 2;
            }
            if x < width {
                self.pixels::<S, 1>(x);
            }
        }
    }
}

impl<const STRIDE: usize> Strided<STRIDE> {
    /// All channels of `P` pixels from `x` on: memory is walked from end to end, as the hardware foresees.
    ///
    /// # Safety
    /// As for the kernel; `x + P` is at most the width.
    #[inline(always)]
    unsafe fn pixels<S: Simd, const P: usize>(&self, x: usize) {
        // SAFETY: `S::LANES` channels are left while `c < whole`, then those up to the last.
        unsafe {
            let whole = self.0.count / S::LANES * S::LANES;
            for c in (0..whole).step_by(S::LANES) {
                self.tile::<S, P>(x, c, S::LANES);
            }
            if whole < self.0.count {
                self.tile::<S, P>(x, whole, self.0.count - whole);
            }
        }
    }

    /// `left` channels from `c` on of `P` pixels from `x` on: neighbours share what they load.
    ///
    /// # Safety
    /// As for [`Self::pixels`]; the task has these channels.
    #[inline(always)]
    unsafe fn tile<S: Simd, const P: usize>(&self, x: usize, c: usize, left: usize) {
        let Line { rows, weights, out, near, all, count, ahead, stream, .. } = self.0;
        // SAFETY: column `x * stride + kx` of the ring is at most `width + 1`, its right border.
        unsafe {
            let mut values = [S::zero(); P];
            for (ky, row) in rows.into_iter().enumerate() {
                let row = row.add(x * STRIDE * count + c);
                // A chain for each row: nine dependent additions would wait for each other.
                let mut parts = [S::zero(); P];
                for kx in 0..3 {
                    let weight = load_some::<S>(weights.add((3 * ky + kx) * all + c), left);
                    for (p, part) in parts.iter_mut().enumerate() {
                        let value = load_some::<S>(row.add((p * STRIDE + kx) * count), left);
                        *part = S::fma(value, weight, *part);
                    }
                }
                for (value, &part) in values.iter_mut().zip(&parts) {
                    *value = if ky == 0 { part } else { S::add(*value, part) };
                }
            }
            for p in 0..P {
                if !stream {
                    S::prefetch(out.wrapping_add((x + p) * all + c + ahead));
                }
            }
            let mut sum = load_some::<S>(near.add(c), left);
            let mut square = load_some::<S>(near.add(count + c), left);
            let pivot = load_some::<S>(near.add(2 * count + c), left);
            for (p, &value) in values.iter().enumerate() {
                let centred = S::sub(value, pivot);
                sum = S::add(sum, centred);
                square = S::fma(centred, centred, square);
                write::<S>(out.add((x + p) * all + c), value, left, stream);
            }
            store_some::<S>(near.add(c), sum, left);
            store_some::<S>(near.add(count + c), square, left);
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
    /// Takes `4 * (width + 2) * channels` floats and clears those that no row will fill.
    ///
    /// # Safety
    /// The CPU has `S`; so many can be written from `start` on as long as the ring lives, and nothing else uses them.
    #[inline(always)]
    pub(super) unsafe fn new<S: Simd>(start: *mut f32, width: usize, channels: usize) -> Self {
        let row = (width + 2) * channels;
        // SAFETY: within the floats taken: a pixel at either end of three rows, and a fourth row.
        unsafe {
            for slot in 0..3 {
                clear::<S>(start.add(slot * row), channels);
                clear::<S>(start.add((slot + 1) * row - channels), channels);
            }
            clear::<S>(start.add(3 * row), row);
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
