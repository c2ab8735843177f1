//! Depthwise 3x3 convolution, backward: gradients of data and weights in one pass.
//!
//! Seen from an input pixel, both gradients need the same few output pixels around it: the data's
//! gradient sums them times the weights, the weights' gradient is the pixel's activation times each
//! of them. So one walk over the input does both, with the output's gradient in a ring of rows.
//!
//! What the kernel's fields point to is there as in [`super::depthwise`].

#![allow(unsafe_code)] // raw rows of the caller's buffers; the kernel's fields say what they need

use super::{
    activation::{Affine, NormGradient, load_some, relu6, relu6_mask, store_some, write},
    depthwise::{DepthwiseShape, Ring, ahead},
    isa::Kernel,
    simd::{Simd, clear, streams},
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
    /// Whether that goes past the caches: it is too large to be found there.
    pub stream: bool,
    /// Sum of `out` and of `out` times the centred raw value, all channels each.
    pub sums: *mut f64,
    /// Gradient of the weights from this image, nine rows of all channels.
    pub weight_sums: *mut f32,
    /// At least [`DepthwiseShape::scratch_len`] floats.
    pub scratch: *mut f32,
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
            let ring = Ring::new::<S>(self.scratch, out_width, count);
            let near = self.scratch.add(4 * ring.row);
            for at in 0..2 * count {
                *near.add(at) = 0.0;
            }
            for at in 0..count {
                *self.sums.add(first + at) = 0.0;
                *self.sums.add(all + first + at) = 0.0;
            }
            for tap in 0..9 {
                clear::<S>(self.weight_sums.add(tap * all + first), count);
            }
            let ahead = ahead(count, all);
            let stream = self.stream
                && streams::<S>(self.out.add(first), all)
                && count.is_multiple_of(S::LANES);
            let mut ready = 0; // output rows computed so far
            for y in 0..shape.height {
                // Output rows (y + 1 - ky) / stride, where that is whole and inside.
                let bottom = ((y + 1) / shape.stride + 1).min(out_height);
                while ready < bottom {
                    let to = ring.slot(ready).add(count);
                    for x in 0..out_width {
                        let at = (ready * out_width + x) * all + first;
                        self.above.row::<S>(at, (first, count), ahead, to.add(x * count));
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
                let line = Line {
                    rows,
                    weights: self.weights.add(first),
                    weight_sums: self.weight_sums.add(first),
                    affine: Affine {
                        scale: self.affine.scale.add(first),
                        shift: self.affine.shift.add(first),
                    },
                    mean: self.mean.add(first),
                    raw: self.raw.add(at),
                    out: self.out.add(at),
                    near,
                    width: shape.width,
                    all,
                    count,
                    ahead,
                    stream,
                };
                match (shape.stride, y % 2) {
                    (1, _) => S::outline(Taps::<ALL>(line)),
                    // An even row meets only the weights' middle row, an odd one the others.
                    (_, 0) => S::outline(Taps::<MIDDLE>(line)),
                    _ => S::outline(Taps::<OUTER>(line)),
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
            if stream {
                S::end_streams();
            }
        }
    }
}

/// One input row of the task's channels.
struct Line {
    /// Output rows that the input row touches through the weights' rows 0, 1 and 2.
    rows: [*const f32; 3],
    /// Of the task's first channel, as all that follows; nine rows of all channels.
    weights: *const f32,
    /// Nine rows of all channels.
    weight_sums: *mut f32,
    affine: Affine,
    mean: *const f32,
    raw: *const f32,
    out: *mut f32,
    /// Two sums of each channel, `count` apart.
    near: *mut f32,
    /// Pixels of the row.
    width: usize,
    /// All channels, and those of the task.
    all: usize,
    count: usize,
    /// See [`ahead`].
    ahead: usize,
    /// Whether the gradient goes past the caches; then vectors of it are aligned and whole.
    stream: bool,
}

/// Which of the weights' rows an input row meets: with stride 1, all of them, and each pixel all three weights of each; with
/// stride 2, the middle one or the outer two, and a pixel in an even column only the middle of each, in an odd one the outer two.
const ALL: u8 = 0;
const MIDDLE: u8 = 1;
const OUTER: u8 = 2;

/// A [`Line`], the weights that it meets known. A function of its own, so that its registers are its own.
struct Taps<const MET: u8>(Line);

impl<const MET: u8> Kernel for Taps<MET> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: passed on; the last of the pixels are taken two and one at a time.
        unsafe {
            let width = self.0.width;
            let mut x = 0;
            // Activations and gradients of a tile, sums and operands must fit the registers.
            while S::LANES == 16 && MET == ALL && x + 7 <= width {
                self.pixels::<S, 7>(x);
                x += 7;
            }
            while S::LANES == 16 && MET != ALL && x + 8 <= width {
                self.pixels::<S, 8>(x);
                x += 8;
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

impl<const MET: u8> Taps<MET> {
    /// All channels of `P` pixels from `x` on: memory is walked from end to end, as the hardware foresees.
    ///
    /// # Safety
    /// As for the kernel; `x + P` is at most the width, and with stride 2, `x` even.
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

    /// `left` channels from `c` on of `P` pixels from `x` on: neighbours share what they load, and add to the weights' sums together.
    ///
    /// # Safety
    /// As for [`Self::pixels`]; the task has these channels.
    #[inline(always)]
    unsafe fn tile<S: Simd, const P: usize>(&self, x: usize, c: usize, left: usize) {
        let Line { affine, mean, raw, out, near, all, count, ahead, stream, .. } = self.0;
        // SAFETY: `left` lanes from channel `c` on of pixels of the row.
        unsafe {
            let (scale, shift) = affine.load::<S>(c, left);
            let raw = raw.add(x * all + c);
            let mut activations = [S::zero(); P];
            for (p, activation) in activations.iter_mut().enumerate() {
                S::prefetch(raw.wrapping_add(p * all + ahead));
                if !stream {
                    S::prefetch(out.wrapping_add((x + p) * all + c + ahead));
                }
                let raw = load_some::<S>(raw.add(p * all), left);
                *activation = relu6::<S>(S::fma(raw, scale, shift));
            }
            let mut gradients = [S::zero(); P];
            if MET != MIDDLE {
                self.meet::<S, P>(0, (x, c, left), &activations, &mut gradients);
            }
            if MET != OUTER {
                self.meet::<S, P>(1, (x, c, left), &activations, &mut gradients);
            }
            if MET != MIDDLE {
                self.meet::<S, P>(2, (x, c, left), &activations, &mut gradients);
            }
            let mean = load_some::<S>(mean.add(c), left);
            let mut sum = load_some::<S>(near.add(c), left);
            let mut product = load_some::<S>(near.add(count + c), left);
            for (p, &gradient) in gradients.iter().enumerate() {
                let raw = load_some::<S>(raw.add(p * all), left);
                let gradient = relu6_mask::<S>(S::fma(raw, scale, shift), gradient);
                sum = S::add(sum, gradient);
                product = S::fma(gradient, S::sub(raw, mean), product);
                write::<S>(out.add((x + p) * all + c), gradient, left, stream);
            }
            store_some::<S>(near.add(c), sum, left);
            store_some::<S>(near.add(count + c), product, left);
        }
    }

    /// The weights of row `ky` for a tile: its gradients grow by theirs, and theirs by what its pixels had.
    ///
    /// # Safety
    /// As for [`Self::tile`]; `ky < 3`.
    #[inline(always)]
    unsafe fn meet<S: Simd, const P: usize>(
        &self,
        ky: usize,
        (x, c, left): (usize, usize, usize),
        activations: &[S::V; P],
        gradients: &mut [S::V; P],
    ) {
        let Line { rows, weights, weight_sums, all, count, .. } = self.0;
        // SAFETY: with stride 1, columns `x..x + P + 2` of the ring, which has two more than the image; with stride 2, up to
        // `(x + P) / 2 + 1`, and as many more than the output.
        unsafe {
            let row = rows[ky].add(c);
            let mut sums = [S::zero(); 3];
            for (kx, sum) in sums.iter_mut().enumerate() {
                let weight = load_some::<S>(weights.add((3 * ky + kx) * all + c), left);
                let pixels = gradients.iter_mut().zip(activations).enumerate();
                for (p, (gradient, &activation)) in pixels {
                    // Output column x + p + 1 - kx, halved with stride 2, and one more for the border.
                    let column = match MET {
                        ALL => x + p + 2 - kx,
                        _ if (p + 1 + kx) % 2 == 0 => (x + p + 1 - kx) / 2 + 1,
                        _ => continue,
                    };
                    let value = load_some::<S>(row.add(column * count), left);
                    *gradient = S::fma(value, weight, *gradient);
                    *sum = S::fma(value, activation, *sum);
                }
            }
            for (kx, &sum) in sums.iter().enumerate() {
                let to = weight_sums.add((3 * ky + kx) * all + c);
                store_some::<S>(to, S::add(load_some::<S>(to, left), sum), left);
            }
        }
    }
}
