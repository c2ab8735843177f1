//! Max and average pooling over images in height, width, channel order.
//!
//! Max pooling keeps no indices: on the way back the window's maximum is found again, and its first
//! position takes the gradient, as in PyTorch. Both take the way back through the relu before them
//! along, since it is decided by the same values.

#![allow(unsafe_code)] // kernels on raw memory

use super::{Compute, isa::Kernel, simd::Simd};
use crate::threads::SendPtr;

/// The shape of a pooling layer; windows do not reach beyond the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolShape {
    /// Images.
    pub batch: usize,
    /// Rows of an input image.
    pub height: usize,
    /// Columns of an input image.
    pub width: usize,
    pub channels: usize,
    /// Rows and columns of the window.
    pub window: usize,
    /// Step of the window.
    pub stride: usize,
}

impl PoolShape {
    /// Rows of an output image.
    #[must_use]
    pub fn out_height(&self) -> usize {
        (self.height - self.window) / self.stride + 1
    }

    /// Columns of an output image.
    #[must_use]
    pub fn out_width(&self) -> usize {
        (self.width - self.window) / self.stride + 1
    }

    /// Floats of one input image.
    #[must_use]
    pub fn input_image(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Floats of one output image.
    #[must_use]
    pub fn output_image(&self) -> usize {
        self.out_height() * self.out_width() * self.channels
    }

    fn check(&self, input: usize, output: usize) {
        assert!(input >= self.batch * self.input_image(), "pooling input too small");
        assert!(output >= self.batch * self.output_image(), "pooling output too small");
    }
}

struct Image<const AVERAGE: bool> {
    shape: PoolShape,
    /// One input image.
    input: *const f32,
    /// One output image, which this task alone uses.
    output: *mut f32,
}

impl<const AVERAGE: bool> Kernel for Image<AVERAGE> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::cast_precision_loss)]
    unsafe fn run<S: Simd>(self) {
        let shape = &self.shape;
        let (channels, line) = (shape.channels, shape.width * shape.channels);
        let mut output = self.output;
        // SAFETY: windows do not reach beyond the image; lanes are cut to the channels left.
        unsafe {
            let share = S::splat(1.0 / (shape.window * shape.window) as f32);
            for y in 0..shape.out_height() {
                for x in 0..shape.out_width() {
                    let corner =
                        self.input.add(y * shape.stride * line + x * shape.stride * channels);
                    let mut channel = 0;
                    while channel < channels {
                        let left = channels - channel;
                        let mut value = S::load_partial(corner.add(channel), left);
                        if AVERAGE {
                            value = S::zero();
                        }
                        for dy in 0..shape.window {
                            for dx in 0..shape.window {
                                let at = corner.add(dy * line + dx * channels + channel);
                                let next = S::load_partial(at, left);
                                value =
                                    if AVERAGE { S::add(value, next) } else { S::max(value, next) };
                            }
                        }
                        if AVERAGE {
                            value = S::mul(value, share);
                        }
                        S::store_partial(output.add(channel), value, left);
                        channel += S::LANES;
                    }
                    output = output.add(channels);
                }
            }
        }
    }
}

struct ImageBack<const AVERAGE: bool> {
    shape: PoolShape,
    /// One input image.
    input: *const f32,
    /// One output image.
    d_output: *const f32,
    /// One input image, which this task alone uses.
    d_input: *mut f32,
}

impl<const AVERAGE: bool> Kernel for ImageBack<AVERAGE> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::cast_precision_loss)]
    unsafe fn run<S: Simd>(self) {
        let shape = &self.shape;
        let (channels, line) = (shape.channels, shape.width * shape.channels);
        let mut d_output = self.d_output;
        // SAFETY: windows do not reach beyond the image; lanes are cut to the channels left.
        unsafe {
            std::ptr::write_bytes(self.d_input, 0, shape.input_image());
            let share = S::splat(1.0 / (shape.window * shape.window) as f32);
            for y in 0..shape.out_height() {
                for x in 0..shape.out_width() {
                    let corner = y * shape.stride * line + x * shape.stride * channels;
                    let mut channel = 0;
                    while channel < channels {
                        let left = channels - channel;
                        let input = self.input.add(corner + channel);
                        let d_input = self.d_input.add(corner + channel);
                        let mut grad = S::load_partial(d_output.add(channel), left);
                        let mut top = S::load_partial(input, left);
                        if AVERAGE {
                            grad = S::mul(grad, share);
                        } else {
                            for dy in 0..shape.window {
                                for dx in 0..shape.window {
                                    let at = dy * line + dx * channels;
                                    top = S::max(top, S::load_partial(input.add(at), left));
                                }
                            }
                            grad = S::keep_greater(top, S::zero(), grad);
                        }
                        for dy in 0..shape.window {
                            for dx in 0..shape.window {
                                let at = dy * line + dx * channels;
                                let value = S::load_partial(input.add(at), left);
                                let old = S::load_partial(d_input.add(at), left);
                                let part = if AVERAGE {
                                    S::keep_greater(value, S::zero(), grad)
                                } else {
                                    // The first to equal the maximum takes all; nothing is left after.
                                    let part = S::keep_equal(value, top, grad);
                                    grad = S::sub(grad, part);
                                    part
                                };
                                S::store_partial(d_input.add(at), S::add(old, part), left);
                            }
                        }
                        channel += S::LANES;
                    }
                    d_output = d_output.add(channels);
                }
            }
        }
    }
}

impl Compute {
    /// Largest value of each window.
    pub fn max_pool(&self, shape: &PoolShape, input: &[f32], output: &mut [f32]) {
        self.pool_images::<false>(shape, input, output);
    }

    /// Mean of each window.
    pub fn average_pool(&self, shape: &PoolShape, input: &[f32], output: &mut [f32]) {
        self.pool_images::<true>(shape, input, output);
    }

    /// Gradient before the relu that made `input`, from the gradient after max pooling.
    pub fn max_pool_relu_backward(
        &self,
        shape: &PoolShape,
        input: &[f32],
        d_output: &[f32],
        d_input: &mut [f32],
    ) {
        self.pool_images_back::<false>(shape, input, d_output, d_input);
    }

    /// Gradient before the relu that made `input`, from the gradient after average pooling.
    pub fn average_pool_relu_backward(
        &self,
        shape: &PoolShape,
        input: &[f32],
        d_output: &[f32],
        d_input: &mut [f32],
    ) {
        self.pool_images_back::<true>(shape, input, d_output, d_input);
    }

    fn pool_images<const AVERAGE: bool>(
        &self,
        shape: &PoolShape,
        input: &[f32],
        output: &mut [f32],
    ) {
        shape.check(input.len(), output.len());
        let (isa, to) = (self.isa, SendPtr(output.as_mut_ptr()));
        self.pool.run(shape.batch, &|number, _| {
            // SAFETY: sizes were checked; tasks write different images.
            unsafe {
                isa.run(Image::<AVERAGE> {
                    shape: *shape,
                    input: input.as_ptr().add(number * shape.input_image()),
                    output: to.get().add(number * shape.output_image()),
                });
            }
        });
    }

    fn pool_images_back<const AVERAGE: bool>(
        &self,
        shape: &PoolShape,
        input: &[f32],
        d_output: &[f32],
        d_input: &mut [f32],
    ) {
        shape.check(input.len().min(d_input.len()), d_output.len());
        let (isa, to) = (self.isa, SendPtr(d_input.as_mut_ptr()));
        self.pool.run(shape.batch, &|number, _| {
            // SAFETY: sizes were checked; tasks write different images.
            unsafe {
                isa.run(ImageBack::<AVERAGE> {
                    shape: *shape,
                    input: input.as_ptr().add(number * shape.input_image()),
                    d_output: d_output.as_ptr().add(number * shape.output_image()),
                    d_input: to.get().add(number * shape.input_image()),
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    fn check(shape: PoolShape, isa: Isa, average: bool) {
        let compute = Compute::with_isa(isa, 2);
        let mut input = noise(1, shape.batch * shape.input_image());
        // As after a relu, coarse, so that maxima are often shared by several positions.
        input.iter_mut().for_each(|value| *value = (*value * 4.0).round().max(0.0));
        let d_output = noise(2, shape.batch * shape.output_image());
        let (height, width, channels) = (shape.out_height(), shape.out_width(), shape.channels);
        let mut output = vec![f32::NAN; d_output.len()];
        let mut d_input = vec![f32::NAN; input.len()];
        if average {
            compute.average_pool(&shape, &input, &mut output);
            compute.average_pool_relu_backward(&shape, &input, &d_output, &mut d_input);
        } else {
            compute.max_pool(&shape, &input, &mut output);
            compute.max_pool_relu_backward(&shape, &input, &d_output, &mut d_input);
        }
        let mut truth = vec![0.0; input.len()];
        for at in 0..output.len() {
            let (channel, x) = (at % channels, at / channels % width);
            let (y, n) = (at / channels / width % height, at / channels / width / height);
            let window: Vec<usize> = (0..shape.window * shape.window)
                .map(|i| {
                    let row = y * shape.stride + i / shape.window;
                    let column = x * shape.stride + i % shape.window;
                    ((n * shape.height + row) * shape.width + column) * channels + channel
                })
                .collect();
            let share = 1.0 / window.len() as f32;
            if average {
                let mean = window.iter().map(|&i| input[i]).sum::<f32>() * share;
                assert!((output[at] - mean).abs() < 1e-5);
                for &i in window.iter().filter(|&&i| input[i] > 0.0) {
                    truth[i] += d_output[at] * share;
                }
            } else {
                let top = window.iter().map(|&i| input[i]).fold(f32::MIN, f32::max);
                assert_eq!(output[at], top);
                let first = window.iter().find(|&&i| input[i] == top).unwrap();
                if top > 0.0 {
                    truth[*first] += d_output[at];
                }
            }
        }
        for (found, truth) in d_input.iter().zip(&truth) {
            assert!((found - truth).abs() < 1e-5, "{} {shape:?}", isa.name());
        }
    }

    #[test]
    fn pooling_matches_the_definition_and_ties_go_to_the_first() {
        for isa in Isa::available() {
            for (height, width, channels, window, stride) in
                [(4, 4, 6, 2, 2), (13, 13, 37, 3, 2), (7, 9, 16, 3, 2), (5, 6, 1, 2, 1)]
            {
                let shape = PoolShape { batch: 3, height, width, channels, window, stride };
                check(shape, isa, false);
                check(shape, isa, true);
            }
        }
    }
}
