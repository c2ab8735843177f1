//! Random numbers as a function of their place, not of the order in which they are drawn.
//!
//! Initial weights and dropped units must not depend on threads, workers or batch sizes.

use crate::layout::Layout;
pub use paceline_kernels::random::mix;

/// Fills with values even between `-bound` and `bound`; `stream` tells tensors apart.
#[allow(clippy::cast_precision_loss)]
pub fn fill_uniform(seed: u64, stream: u64, bound: f32, values: &mut [f32]) {
    let key = mix(mix(seed) ^ stream);
    for (at, value) in values.iter_mut().enumerate() {
        let unit = (mix(key ^ at as u64) >> 40) as f32 / (1u32 << 24) as f32;
        *value = (2.0 * unit - 1.0) * bound;
    }
}

/// PyTorch's default for dense and convolution layers: weights and bias even between
/// -1 / sqrt(inputs of one output) and the opposite. Each `.bias` follows its `.weight`.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn init_layers(seed: u64, layout: &Layout, params: &mut [f32]) {
    let mut bound = 0.0;
    for (number, entry) in layout.entries().iter().enumerate() {
        if entry.shape.len() > 1 {
            bound = 1.0 / (entry.shape[1..].iter().product::<usize>() as f32).sqrt();
        }
        fill_uniform(seed, number as u64, bound, &mut params[entry.range()]);
    }
}

/// Normally distributed numbers by Box and Muller.
pub(crate) struct Normals {
    key: u64,
    drawn: u64,
}

impl Normals {
    pub(crate) fn new(seed: u64) -> Self {
        Self { key: mix(seed), drawn: 0 }
    }

    fn unit(&mut self) -> f64 {
        self.drawn += 1;
        // Above 0, so that its logarithm is finite.
        ((mix(self.key ^ self.drawn) >> 11) as f64 + 0.5) / 2f64.powi(53)
    }

    pub(crate) fn fill(&mut self, to: &mut [f32], deviation: f64) {
        for pair in to.chunks_mut(2) {
            let radius = deviation * (-2.0 * self.unit().ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
            for (value, part) in pair.iter_mut().zip([cos, sin]) {
                *value = (radius * part) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_values_fill_their_range_and_differ_by_seed_and_stream() {
        let draw = |seed, stream| {
            let mut values = vec![0.0; 10_000];
            fill_uniform(seed, stream, 0.5, &mut values);
            values
        };
        let values = draw(1, 2);
        assert_eq!(values, draw(1, 2));
        assert_ne!(values, draw(1, 3));
        assert_ne!(values, draw(2, 2));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        let square = values.iter().map(|value| value * value).sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.01 && (square - 1.0 / 12.0).abs() < 0.005, "{mean} {square}");
        assert!(values.iter().all(|value| value.abs() <= 0.5));
    }
}
