//! Average pooling to a fixed size, whatever the size of the image: PyTorch's `AdaptiveAvgPool2d`.

use super::Compute;

/// The shape of the layer: images of `height * width` pixels become `side * side`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveShape {
    /// Rows of an input image.
    pub height: usize,
    /// Columns of an input image.
    pub width: usize,
    pub channels: usize,
    /// Rows and columns of an output image.
    pub side: usize,
}

impl AdaptiveShape {
    /// Whether every window is a single pixel.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        (self.height, self.width) == (self.side, self.side)
    }

    /// Calls `visit(input offset, output offset, share)` for every pair of pixels.
    #[allow(clippy::cast_precision_loss)]
    fn pairs(&self, mut visit: impl FnMut(usize, usize, f32)) {
        let window =
            |at: usize, size: usize| at * size / self.side..((at + 1) * size).div_ceil(self.side);
        for y in 0..self.side {
            for x in 0..self.side {
                let (rows, columns) = (window(y, self.height), window(x, self.width));
                let share = 1.0 / (rows.len() * columns.len()) as f32;
                for row in rows {
                    for column in columns.clone() {
                        let from = (row * self.width + column) * self.channels;
                        visit(from, (y * self.side + x) * self.channels, share);
                    }
                }
            }
        }
    }
}

impl Compute {
    /// Means of the windows.
    pub fn adaptive_pool(&self, shape: &AdaptiveShape, input: &[f32], output: &mut [f32]) {
        let image = shape.height * shape.width * shape.channels;
        let channels = shape.channels;
        self.pool.for_chunks(output, shape.side * shape.side * channels, |number, output| {
            let input = &input[number * image..][..image];
            output.fill(0.0);
            shape.pairs(|from, to, share| {
                let (from, to) = (&input[from..][..channels], &mut output[to..][..channels]);
                to.iter_mut().zip(from).for_each(|(to, from)| *to += share * from);
            });
        });
    }

    /// Gradient of the input.
    pub fn adaptive_pool_backward(
        &self,
        shape: &AdaptiveShape,
        d_output: &[f32],
        d_input: &mut [f32],
    ) {
        let image = shape.side * shape.side * shape.channels;
        let channels = shape.channels;
        self.pool.for_chunks(d_input, shape.height * shape.width * channels, |number, d_input| {
            let d_output = &d_output[number * image..][..image];
            d_input.fill(0.0);
            shape.pairs(|from, to, share| {
                let (to, from) = (&d_output[to..][..channels], &mut d_input[from..][..channels]);
                from.iter_mut().zip(to).for_each(|(from, to)| *from += share * to);
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    #[test]
    fn windows_are_those_of_pytorch_and_the_gradient_is_the_transpose() {
        let compute = Compute::with_isa(Isa::current().unwrap(), 2);
        // torch.nn.functional.adaptive_avg_pool1d(torch.tensor([[1., 2, 4, 8, 16]]), 3)
        let shape = AdaptiveShape { height: 5, width: 5, channels: 1, side: 3 };
        let row = [1.0, 2.0, 4.0, 8.0, 16.0];
        let input: Vec<f32> = row.iter().cycle().take(25).copied().collect();
        let mut output = vec![0.0; 9];
        compute.adaptive_pool(&shape, &input, &mut output);
        for (found, wanted) in output.iter().zip([1.5, 14.0 / 3.0, 12.0].iter().cycle()) {
            assert!((found - wanted).abs() < 1e-5, "{output:?}");
        }
        for (height, width) in [(1, 1), (4, 13), (6, 6), (8, 7)] {
            let shape = AdaptiveShape { height, width, channels: 3, side: 6 };
            let (x, d) = (noise(1, 2 * height * width * 3), noise(2, 2 * 36 * 3));
            let (mut y, mut dx) = (vec![0.0; d.len()], vec![0.0; x.len()]);
            compute.adaptive_pool(&shape, &x, &mut y);
            compute.adaptive_pool_backward(&shape, &d, &mut dx);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            assert!((dot(&y, &d) - dot(&x, &dx)).abs() < 1e-4, "{height}x{width}");
        }
    }
}
