//! Local response normalisation across channels, as in the first AlexNet; off by default.
//!
//! `y = x * s^-0.75`, `s = 2 + 1e-4 / 5 * Σ x²` over five neighbouring channels. Inputs come from a
//! relu, and the way back goes through that relu too.

use super::Compute;

const NEIGHBOURS: usize = 5;
const ALPHA: f32 = 1e-4 / NEIGHBOURS as f32;
const OFFSET: f32 = 2.0;
/// Most channels; on the stack, so that a step allocates nothing.
const MAX: usize = 512;
/// Pixels of one task.
const SHARE: usize = 256;

/// Sums over each channel's neighbours.
fn neighbours(values: &[f32], sums: &mut [f32]) {
    for (channel, sum) in sums.iter_mut().enumerate() {
        let from = channel.saturating_sub(NEIGHBOURS / 2);
        let to = (channel + NEIGHBOURS / 2 + 1).min(values.len());
        *sum = values[from..to].iter().sum();
    }
}

/// `s^-0.75`
fn power(s: f32) -> f32 {
    let root = s.sqrt();
    1.0 / (root * root.sqrt())
}

impl Compute {
    /// Normalises every pixel's channels.
    pub fn response_norm(&self, channels: usize, input: &[f32], output: &mut [f32]) {
        self.pool.for_chunks(output, SHARE * channels, |number, piece| {
            let input = &input[number * SHARE * channels..][..piece.len()];
            let (mut squares, mut sums) = ([0.0; MAX], [0.0; MAX]);
            let (squares, sums) = (&mut squares[..channels], &mut sums[..channels]);
            for (x, y) in input.chunks_exact(channels).zip(piece.chunks_exact_mut(channels)) {
                squares.iter_mut().zip(x).for_each(|(square, x)| *square = x * x);
                neighbours(squares, sums);
                for ((y, x), sum) in y.iter_mut().zip(x).zip(&*sums) {
                    *y = x * power(OFFSET + ALPHA * sum);
                }
            }
        });
    }

    /// Replaces the gradient after normalisation by the one before the relu that made `input`.
    pub fn response_norm_relu_backward(
        &self,
        channels: usize,
        input: &[f32],
        gradient: &mut [f32],
    ) {
        self.pool.for_chunks(gradient, SHARE * channels, |number, piece| {
            let input = &input[number * SHARE * channels..][..piece.len()];
            let mut rows = [0.0; 4 * MAX];
            let rows = &mut rows[..4 * channels];
            let (squares, rest) = rows.split_at_mut(channels);
            let (sums, rest) = rest.split_at_mut(channels);
            let (terms, spread) = rest.split_at_mut(channels);
            for (x, d) in input.chunks_exact(channels).zip(piece.chunks_exact_mut(channels)) {
                squares.iter_mut().zip(x).for_each(|(square, x)| *square = x * x);
                neighbours(squares, sums);
                for (channel, term) in terms.iter_mut().enumerate() {
                    let s = OFFSET + ALPHA * sums[channel];
                    *term = d[channel] * x[channel] * power(s) / s;
                }
                neighbours(terms, spread);
                for channel in 0..channels {
                    let s = OFFSET + ALPHA * sums[channel];
                    let direct = d[channel] * power(s);
                    let through = 2.0 * 0.75 * ALPHA * x[channel] * spread[channel];
                    d[channel] = if x[channel] > 0.0 { direct - through } else { 0.0 };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    #[test]
    fn gradient_agrees_with_differences() {
        let compute = Compute::with_isa(Isa::current().unwrap(), 1);
        let channels = 7;
        let input: Vec<f32> = noise(1, channels).iter().map(|value| 40.0 + value * 39.0).collect();
        let weights = noise(2, channels);
        let value = |input: &[f32]| -> f64 {
            let mut output = vec![0.0; channels];
            compute.response_norm(channels, input, &mut output);
            output.iter().zip(&weights).map(|(y, w)| f64::from(*y) * f64::from(*w)).sum()
        };
        let mut gradient = weights.clone();
        compute.response_norm_relu_backward(channels, &input, &mut gradient);
        for channel in 0..channels {
            let (mut up, mut down) = (input.clone(), input.clone());
            up[channel] += 0.05;
            down[channel] -= 0.05;
            let slope = (value(&up) - value(&down)) / 0.1;
            assert!((slope - f64::from(gradient[channel])).abs() < 2e-3, "channel {channel}");
        }
    }
}
