//! The convolutions of LeNet, one image at a time.
//!
//! Six channels fill six of sixteen lanes, and 25 products per output are too few to pay for packing.
//! So these kernels know their shapes: where channels are few, vectors run along the image; where the
//! sixteen channels of the second layer fit a vector, along them. Everything about an image stays in
//! the first-level cache from its pixels to its pooled outputs, and on the way back. Of a layer's outputs
//! only whether they are positive is kept for the way back, a bit each: so a batch of 64 stays in the
//! second-level cache.
//!
//! Rows are kept [`ROW`] floats apart, wide enough for loads that run over the edge.
//!
//! The kernels' fields are slices whose lengths are asserted once for each image; what the unsafe functions need is
//! that these hold, and the constants below are chosen so that all offsets, which follow from loops over
//! constants, stay within them.

#![allow(unsafe_code)] // kernels on raw memory
#![allow(clippy::needless_range_loop)] // indices of register tiles and images

use super::{isa::Kernel, simd::Simd};

/// Channels of the first and second layer.
const FIRST: usize = 6;
const SECOND: usize = 16;
/// Floats from row to row of images, of 28 columns and a border of two on either side.
const ROW: usize = 48;
/// Rows of the image with its border.
const ROWS: usize = 32;
/// Floats from row to row of first-layer outputs (28 columns).
const CONV_ROW: usize = 32;
/// Floats from row to row of first-layer pooled gradients: 14 pixels of 6 channels, and room for
/// vectors that run over.
const POOL_ROW: usize = 112;
/// Floats from row to row of pooled first-layer channels (14 columns).
const PLANE_ROW: usize = 16;

/// Floats of an image with its border.
pub const IMAGE: usize = ROWS * ROW + 16;
/// Floats of the first layer's outputs.
const CONV1: usize = FIRST * 28 * CONV_ROW;
/// Bytes that say which of them are positive.
pub const MADE1: usize = CONV1 / 8;
/// Floats of the pooled first layer, channel by channel.
pub const POOL1: usize = FIRST * 14 * PLANE_ROW + 16;
/// Floats of the second layer's outputs.
const CONV2: usize = 100 * SECOND;
/// Bytes that say which of them are positive.
pub const MADE2: usize = CONV2 / 8;
/// Values after the second pooling.
pub const FLAT: usize = 25 * SECOND;
/// Floats of the second layer's weights as the way forward wants them: (channel, tap, output).
pub const WEIGHTS2: usize = FIRST * 25 * SECOND;
/// Floats of the second layer's weights as the way back wants them: (output, kernel row, 32).
pub const WEIGHTS2_BACK: usize = SECOND * 5 * 32;
/// Floats of a task's sums: gradients of both layers' weights and biases.
pub const SUMS: usize = WEIGHTS2 + SECOND + FIRST * 25 + FIRST;
/// Floats of scratch memory: outputs of both layers on the way forward, their gradients on the way back.
pub const SCRATCH: usize = CONV2 + 14 * POOL_ROW + 64 + CONV1;

/// Puts the second layer's weights (output, channel, tap) into the orders of both ways.
pub fn order_weights(weights: &[f32], forward: &mut [f32], back: &mut [f32]) {
    const EACH: usize = FIRST * 25;
    let weights: &[f32; SECOND * EACH] = weights.try_into().expect("weights of the second layer");
    let (places, _) = forward[..WEIGHTS2].as_chunks_mut::<SECOND>();
    for (at, outputs) in places.iter_mut().enumerate() {
        for (output, value) in outputs.iter_mut().enumerate() {
            *value = weights[output * EACH + at];
        }
    }
    let (outputs, _) = weights.as_chunks::<EACH>();
    let (places, _) = back[..WEIGHTS2_BACK].as_chunks_mut::<{ 5 * 32 }>();
    for (weights, rows) in outputs.iter().zip(places) {
        for tap in 0..25 {
            for channel in 0..FIRST {
                rows[tap / 5 * 32 + tap % 5 * FIRST + channel] = weights[channel * 25 + tap];
            }
        }
    }
}

/// One image forward: both convolutions with relu and pooling.
pub struct Forward<'a> {
    /// The image with its border, `IMAGE` floats.
    pub image: &'a [f32],
    /// First layer, in PyTorch's order.
    pub weights1: &'a [f32],
    /// One for each of the 6 channels.
    pub bias1: &'a [f32],
    /// See [`order_weights`].
    pub weights2: &'a [f32],
    /// One for each of the 16 channels.
    pub bias2: &'a [f32],
    /// `SCRATCH` floats.
    pub scratch: &'a mut [f32],
    /// Whether the first layer's outputs are positive, a bit each, `MADE1` bytes.
    pub made1: &'a mut [u8],
    /// The pooled first layer, `POOL1` floats.
    pub pool1: &'a mut [f32],
    /// Whether the second layer's outputs are positive, a bit each, `MADE2` bytes.
    pub made2: &'a mut [u8],
    /// Channel by channel, as the dense layer wants them.
    pub flat: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        assert!(self.image.len() >= IMAGE && self.scratch.len() >= SCRATCH, "first layer");
        assert!(self.made1.len() >= MADE1 && self.made2.len() >= MADE2, "what is kept");
        assert!(self.pool1.len() >= POOL1 && self.flat.len() >= FLAT, "second layer");
        assert!(self.weights1.len() >= FIRST * 25 && self.bias1.len() >= FIRST, "first layer");
        assert!(self.weights2.len() >= WEIGHTS2 && self.bias2.len() >= SECOND, "second layer");
        let (conv2, rest) = std::mem::take(&mut self.scratch).split_at_mut(CONV2);
        let conv1 = &mut rest[..CONV1];
        // SAFETY: the lengths were just asserted.
        unsafe {
            self.first::<S>(conv1);
            // Vectors of output channels: one of sixteen, two of eight, four of four.
            match S::LANES {
                16 => self.second::<S, 10, 1>(conv2),
                8 => self.second::<S, 5, 2>(conv2),
                _ => self.second::<S, 2, 4>(conv2),
            }
        }
        self.pool_second(conv2);
    }
}

/// Writes a bit for each of `count` outputs from `index` on; both are multiples of 8.
///
/// # Safety
/// `made` has bits for `index + count` outputs.
#[inline(always)]
unsafe fn write_bits(made: &mut [u8], index: usize, bits: u32, count: usize) {
    // SAFETY: `count` of 32, 16 or 8 bits are four, two or one of its bytes.
    unsafe {
        let to = made.as_mut_ptr().add(index / 8);
        match count {
            32 => to.cast::<u32>().write_unaligned(bits),
            16 => to.cast::<u16>().write_unaligned(bits as u16),
            _ => to.write(bits as u8),
        }
    }
}

/// The bits of the vector that begins at output `index`.
///
/// # Safety
/// `made` has bits for a vector of outputs from there on, and `index` is a multiple of the lanes.
#[inline(always)]
unsafe fn read_bits<S: Simd>(made: &[u8], index: usize) -> u32 {
    // SAFETY: sixteen lanes are two of its bytes, eight or four lie within one.
    unsafe {
        let from = made.as_ptr().add(index / 8);
        match S::LANES {
            16 => from.cast::<u16>().read_unaligned().into(),
            _ => u32::from(from.read()) >> (index % 8),
        }
    }
}

impl Forward<'_> {
    /// The first layer.
    ///
    /// # Safety
    /// The CPU has `S`; the fields have the lengths that the kernel asserts, `conv1` has `CONV1` floats.
    #[inline(always)]
    unsafe fn first<S: Simd>(&mut self, conv1: &mut [f32]) {
        // SAFETY: the last pixels read are those before column 36 of row 31, less than `ROW`; a row of `conv1` is as
        // many whole pairs of vectors as are written to it.
        unsafe {
            let (image, conv) = (self.image.as_ptr(), conv1.as_mut_ptr());
            for y in 0..28 {
                let mut x = 0;
                while x < 28 {
                    let mut acc = [[S::zero(); 2]; FIRST];
                    for (channel, acc) in acc.iter_mut().enumerate() {
                        *acc = [S::splat(self.bias1[channel]); 2];
                    }
                    for ky in 0..5 {
                        let row = image.add((y + ky) * ROW + x);
                        for kx in 0..5 {
                            let a = S::load(row.add(kx));
                            let b = S::load(row.add(kx + S::LANES));
                            let weights = self.weights1.as_ptr().add(ky * 5 + kx);
                            for channel in 0..FIRST {
                                let w = S::splat(*weights.add(channel * 25));
                                acc[channel][0] = S::fma(a, w, acc[channel][0]);
                                acc[channel][1] = S::fma(b, w, acc[channel][1]);
                            }
                        }
                    }
                    for channel in 0..FIRST {
                        let to = conv.add((channel * 28 + y) * CONV_ROW + x);
                        let [a, b] = acc[channel];
                        let (a, b) = (S::max(a, S::zero()), S::max(b, S::zero()));
                        S::store(to, a);
                        S::store(to.add(S::LANES), b);
                        let bits = S::positive(a) | S::positive(b) << S::LANES;
                        let index = (channel * 28 + y) * CONV_ROW + x;
                        write_bits(self.made1, index, bits, 2 * S::LANES);
                    }
                    x += 2 * S::LANES;
                }
            }
        }
        for channel in 0..FIRST {
            for y in 0..14 {
                let at = (channel * 28 + 2 * y) * CONV_ROW;
                let (upper, lower) = conv1[at..at + 2 * CONV_ROW].split_at(CONV_ROW);
                let to = &mut self.pool1[(channel * 14 + y) * PLANE_ROW..][..14];
                for x in 0..14 {
                    let sum = upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1];
                    to[x] = 0.25 * sum;
                }
            }
        }
    }

    /// `PIXELS` of a row at a time, all sixteen outputs.
    ///
    /// # Safety
    /// As for [`Self::first`]; `conv2` has `CONV2` floats, `PIXELS` divides 10, and `NV` vectors are 16 floats.
    #[inline(always)]
    unsafe fn second<S: Simd, const PIXELS: usize, const NV: usize>(&mut self, conv2: &mut [f32]) {
        // SAFETY: pixels up to column 13 of row 13 of each channel, 16 outputs of each weight and pixel.
        unsafe {
            let (pool, weights) = (self.pool1.as_ptr(), self.weights2.as_ptr());
            let mut bias = [S::zero(); NV];
            for (j, bias) in bias.iter_mut().enumerate() {
                *bias = S::load(self.bias2.as_ptr().add(j * S::LANES));
            }
            for pixel in (0..100).step_by(PIXELS) {
                let (y, x) = (pixel / 10, pixel % 10);
                let mut acc = [bias; PIXELS];
                for channel in 0..FIRST {
                    for ky in 0..5 {
                        let row = pool.add((channel * 14 + y + ky) * PLANE_ROW + x);
                        let weights = weights.add((channel * 25 + ky * 5) * SECOND);
                        for kx in 0..5 {
                            let mut w = [S::zero(); NV];
                            for (j, w) in w.iter_mut().enumerate() {
                                *w = S::load(weights.add(kx * SECOND + j * S::LANES));
                            }
                            for p in 0..PIXELS {
                                let value = S::splat(*row.add(kx + p));
                                for j in 0..NV {
                                    acc[p][j] = S::fma(value, w[j], acc[p][j]);
                                }
                            }
                        }
                    }
                }
                let to = conv2.as_mut_ptr().add(pixel * SECOND);
                for p in 0..PIXELS {
                    let mut bits = 0;
                    for j in 0..NV {
                        let value = S::max(acc[p][j], S::zero());
                        S::store(to.add(p * SECOND + j * S::LANES), value);
                        bits |= S::positive(value) << (j * S::LANES);
                    }
                    write_bits(self.made2, (pixel + p) * SECOND, bits, SECOND);
                }
            }
        }
    }

    #[inline(always)]
    fn pool_second(&mut self, conv2: &[f32]) {
        for y in 0..5 {
            for x in 0..5 {
                let corner = (2 * y * 10 + 2 * x) * SECOND;
                let (upper, lower) = (&conv2[corner..], &conv2[corner + 10 * SECOND..]);
                for channel in 0..SECOND {
                    let sum = upper[channel]
                        + upper[SECOND + channel]
                        + lower[channel]
                        + lower[SECOND + channel];
                    self.flat[channel * 25 + y * 5 + x] = 0.25 * sum;
                }
            }
        }
    }
}

/// One image backward: adds to the task's sums.
pub struct Backward<'a> {
    /// As on the way forward.
    pub image: &'a [f32],
    /// What the way forward kept of the first layer.
    pub made1: &'a [u8],
    /// The pooled first layer, as the way forward left it.
    pub pool1: &'a [f32],
    /// What the way forward kept of the second layer.
    pub made2: &'a [u8],
    /// Gradient of the values after the second pooling, `FLAT` floats.
    pub d_flat: &'a [f32],
    /// See [`order_weights`].
    pub weights2: &'a [f32],
    /// `SCRATCH` floats.
    pub scratch: &'a mut [f32],
    /// Second layer's weights (channel, tap, output) and bias, then the first's (channel, tap) and bias.
    pub sums: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        assert!(self.scratch.len() >= SCRATCH && self.sums.len() >= SUMS, "scratch");
        assert!(self.image.len() >= IMAGE && self.made1.len() >= MADE1, "first layer");
        assert!(self.pool1.len() >= POOL1 && self.made2.len() >= MADE2, "second layer");
        assert!(self.d_flat.len() >= FLAT && self.weights2.len() >= WEIGHTS2_BACK, "second layer");
        let (d_conv2, rest) = self.scratch.split_at_mut(CONV2);
        let (d_pool1, d_conv1) = rest.split_at_mut(14 * POOL_ROW + 64);
        let (sums2, sums1) = self.sums.split_at_mut(WEIGHTS2 + SECOND);
        // SAFETY: the lengths were just asserted, and the pieces cut to what the functions ask for.
        unsafe {
            let d_bias2 = &mut sums2[WEIGHTS2..];
            match S::LANES {
                16 => {
                    unpool_second::<S, 1>(self.d_flat, self.made2, d_conv2, d_bias2);
                    weights_second::<S, 5, 1>(self.pool1, d_conv2, sums2);
                    input_second::<S, 2>(d_conv2, self.weights2, d_pool1);
                }
                8 => {
                    unpool_second::<S, 2>(self.d_flat, self.made2, d_conv2, d_bias2);
                    weights_second::<S, 1, 2>(self.pool1, d_conv2, sums2);
                    input_second::<S, 4>(d_conv2, self.weights2, d_pool1);
                }
                _ => {
                    unpool_second::<S, 4>(self.d_flat, self.made2, d_conv2, d_bias2);
                    weights_second::<S, 1, 4>(self.pool1, d_conv2, sums2);
                    input_second::<S, 8>(d_conv2, self.weights2, d_pool1);
                }
            }
            unpool_first::<S>(d_pool1, self.made1, d_conv1);
            weights_first::<S>(self.image, d_conv1, sums1);
        }
    }
}

/// `NV` vectors are the sixteen channels.
///
/// # Safety
/// The CPU has `S`; the slices have `FLAT` floats, `MADE2` bytes, `CONV2` and 16 floats.
#[inline(always)]
unsafe fn unpool_second<S: Simd, const NV: usize>(
    d_flat: &[f32],
    made2: &[u8],
    d_conv2: &mut [f32],
    d_bias: &mut [f32],
) {
    // SAFETY: 16 floats of 100 pixels, in `NV` vectors.
    unsafe {
        let mut spread = [0f32; SECOND];
        let mut bias = [S::zero(); NV];
        for (j, bias) in bias.iter_mut().enumerate() {
            *bias = S::load(d_bias.as_ptr().add(j * S::LANES));
        }
        for y in 0..5 {
            for x in 0..5 {
                for channel in 0..SECOND {
                    spread[channel] = 0.25 * d_flat[channel * 25 + y * 5 + x];
                }
                for (dy, dx) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let at = ((2 * y + dy) * 10 + 2 * x + dx) * SECOND;
                    for j in 0..NV {
                        let value = S::load(spread.as_ptr().add(j * S::LANES));
                        let bits = read_bits::<S>(made2, at + j * S::LANES);
                        let value = S::keep_bits(bits, value);
                        S::store(d_conv2.as_mut_ptr().add(at + j * S::LANES), value);
                        bias[j] = S::add(bias[j], value);
                    }
                }
            }
        }
        for (j, bias) in bias.iter().enumerate() {
            S::store(d_bias.as_mut_ptr().add(j * S::LANES), *bias);
        }
    }
}

/// `KYS` kernel rows at a time.
///
/// # Safety
/// The CPU has `S`; the slices have `POOL1`, `CONV2` and `WEIGHTS2` floats; `KYS` divides 5, and `NV` vectors are 16 floats.
#[inline(always)]
unsafe fn weights_second<S: Simd, const KYS: usize, const NV: usize>(
    pool1: &[f32],
    d_conv2: &[f32],
    sums: &mut [f32],
) {
    // SAFETY: pixels up to column 13 of row 13 of each channel; 16 floats of 100 gradients and 150 sums.
    unsafe {
        for channel in 0..FIRST {
            for ky in (0..5).step_by(KYS) {
                let mut acc = [[[S::zero(); NV]; 5]; KYS];
                for y in 0..10 {
                    let plane = pool1.as_ptr().add((channel * 14 + y + ky) * PLANE_ROW);
                    let d = d_conv2.as_ptr().add(y * 10 * SECOND);
                    for x in 0..10 {
                        let mut grad = [S::zero(); NV];
                        for (j, grad) in grad.iter_mut().enumerate() {
                            *grad = S::load(d.add(x * SECOND + j * S::LANES));
                        }
                        for k in 0..KYS {
                            for kx in 0..5 {
                                let value = S::splat(*plane.add(k * PLANE_ROW + x + kx));
                                for j in 0..NV {
                                    acc[k][kx][j] = S::fma(value, grad[j], acc[k][kx][j]);
                                }
                            }
                        }
                    }
                }
                let to = sums.as_mut_ptr().add((channel * 25 + ky * 5) * SECOND);
                for k in 0..KYS {
                    for kx in 0..5 {
                        for j in 0..NV {
                            let to = to.add((k * 5 + kx) * SECOND + j * S::LANES);
                            S::store(to, S::add(S::load(to), acc[k][kx][j]));
                        }
                    }
                }
            }
        }
    }
}

/// Pixels scatter their gradient over 5 kernel rows of 5 pixels of 6 channels, 30 floats that lie
/// side by side (`NV` vectors). Two pixels five rows apart at a time: what they touch is disjoint.
///
/// # Safety
/// The CPU has `S`; the slices have `CONV2`, `WEIGHTS2_BACK` and `14 * POOL_ROW + 64` floats; `NV` vectors are 32 floats.
#[inline(always)]
unsafe fn input_second<S: Simd, const NV: usize>(
    d_conv2: &[f32],
    weights: &[f32],
    d_pool1: &mut [f32],
) {
    d_pool1.fill(0.0);
    // SAFETY: 32 floats from pixel 9 of row 13 on end within the row: 9 * 6 + 32 of 112.
    unsafe {
        let to = d_pool1.as_mut_ptr();
        for y in 0..5 {
            for x in 0..10 {
                let upper = d_conv2.as_ptr().add((y * 10 + x) * SECOND);
                let lower = upper.add(50 * SECOND);
                for j in 0..NV {
                    let mut acc = [[S::zero(); 2]; 5];
                    for output in 0..SECOND {
                        let a = S::splat(*upper.add(output));
                        let b = S::splat(*lower.add(output));
                        let weights = weights.as_ptr().add(output * 5 * 32 + j * S::LANES);
                        for ky in 0..5 {
                            let w = S::load(weights.add(ky * 32));
                            acc[ky][0] = S::fma(a, w, acc[ky][0]);
                            acc[ky][1] = S::fma(b, w, acc[ky][1]);
                        }
                    }
                    for ky in 0..5 {
                        let first = to.add((y + ky) * POOL_ROW + x * FIRST + j * S::LANES);
                        S::store(first, S::add(S::load(first), acc[ky][0]));
                        let second = first.add(5 * POOL_ROW);
                        S::store(second, S::add(S::load(second), acc[ky][1]));
                    }
                }
            }
        }
    }
}

/// The gradient of the first layer's outputs, from that of the pooled ones.
///
/// # Safety
/// The CPU has `S`; the slices have `14 * POOL_ROW` floats, `MADE1` bytes and `CONV1` floats.
#[inline(always)]
unsafe fn unpool_first<S: Simd>(d_pool1: &[f32], made1: &[u8], d_conv1: &mut [f32]) {
    for channel in 0..FIRST {
        for y in 0..14 {
            // Columns from 28 on are padding and stay zero.
            let mut spread = [0f32; CONV_ROW];
            for x in 0..14 {
                let value = 0.25 * d_pool1[y * POOL_ROW + x * FIRST + channel];
                spread[2 * x] = value;
                spread[2 * x + 1] = value;
            }
            let at = (channel * 28 + 2 * y) * CONV_ROW;
            for offset in (0..2 * CONV_ROW).step_by(S::LANES) {
                // SAFETY: rows of `CONV_ROW` floats are whole vectors, in `spread` as in `d_conv1`.
                unsafe {
                    let value = S::load(spread.as_ptr().add(offset % CONV_ROW));
                    let value = S::keep_bits(read_bits::<S>(made1, at + offset), value);
                    S::store(d_conv1.as_mut_ptr().add(at + offset), value);
                }
            }
        }
    }
}

/// Gradients of the first layer's weights and bias.
///
/// # Safety
/// The CPU has `S`; the slices have `IMAGE`, `CONV1` and `FIRST * 26` floats.
#[inline(always)]
unsafe fn weights_first<S: Simd>(image: &[f32], d_conv1: &[f32], sums: &mut [f32]) {
    /// Channels at a time: 15 accumulators.
    const CHANNELS: usize = 3;
    // SAFETY: the last pixels read are those before column 36 of row 31, less than `ROW`; rows of `d_conv1` are
    // whole vectors; an array of 16 floats has room for any.
    unsafe {
        for ky in 0..5 {
            for first in (0..FIRST).step_by(CHANNELS) {
                let mut acc = [[S::zero(); 5]; CHANNELS];
                for y in 0..28 {
                    let row = image.as_ptr().add((y + ky) * ROW);
                    let d = d_conv1.as_ptr().add((first * 28 + y) * CONV_ROW);
                    let mut x = 0;
                    while x < 28 {
                        let mut grad = [S::zero(); CHANNELS];
                        for (c, grad) in grad.iter_mut().enumerate() {
                            *grad = S::load(d.add(c * 28 * CONV_ROW + x));
                        }
                        for kx in 0..5 {
                            let value = S::load(row.add(x + kx));
                            for c in 0..CHANNELS {
                                acc[c][kx] = S::fma(value, grad[c], acc[c][kx]);
                            }
                        }
                        x += S::LANES;
                    }
                }
                let mut lanes = [[[0f32; 16]; 5]; CHANNELS];
                for c in 0..CHANNELS {
                    for kx in 0..5 {
                        S::store(lanes[c][kx].as_mut_ptr(), acc[c][kx]);
                    }
                }
                for c in 0..CHANNELS {
                    for kx in 0..5 {
                        let sum = S::sum(S::load(lanes[c][kx].as_ptr()));
                        sums[(first + c) * 25 + ky * 5 + kx] += sum;
                    }
                }
            }
        }
        for channel in 0..FIRST {
            let mut sum = S::zero();
            for at in (0..28 * CONV_ROW).step_by(S::LANES) {
                let from = d_conv1.as_ptr().add(channel * 28 * CONV_ROW + at);
                sum = S::add(sum, S::load(from));
            }
            sums[FIRST * 25 + channel] += S::sum(sum);
        }
    }
}

/// Writes an image into the middle of its border, row by row, which the compiler turns into vectors.
pub fn frame<T: Copy>(values: &[T], image: &mut [f32], float: impl Fn(T) -> f32) {
    let (rows, _) = values.as_chunks::<28>();
    for (values, row) in rows.iter().zip(image[2 * ROW..].chunks_exact_mut(ROW)) {
        for (value, to) in values.iter().zip(&mut row[2..30]) {
            *to = float(*value);
        }
    }
}

#[cfg(test)]
mod tests;
