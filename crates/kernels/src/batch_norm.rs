//! Batch normalisation between the passes: from sums to the coefficients the kernels apply.
//!
//! The kernels around it sum while they write, so that normalising never needs a pass of its own.
//! The few numbers per channel are worked out here in f64.

/// Added to the variance before the root.
pub const EPSILON: f64 = 1e-5;
/// Share of a new batch in the running statistics.
pub const MOMENTUM: f64 = 0.1;

/// Coefficients of one layer's batch norm, one value per channel in each.
#[derive(Debug)]
pub struct Coefficients<'a> {
    /// Forward: factor.
    pub scale: &'a mut [f32],
    /// Forward: summand.
    pub shift: &'a mut [f32],
    /// Mean of the raw values.
    pub mean: &'a mut [f32],
    /// One over the standard deviation.
    pub inverse: &'a mut [f32],
    /// Backward: factor of the gradient.
    pub by_gradient: &'a mut [f32],
    /// Backward: factor of the raw value.
    pub by_raw: &'a mut [f32],
    /// Backward: summand.
    pub constant: &'a mut [f32],
}

/// The trained and running values of one layer, one per channel in each.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// Trained factor.
    pub gamma: &'a [f32],
    /// Trained summand.
    pub beta: &'a [f32],
    /// Running mean.
    pub mean: &'a [f32],
    /// Running variance.
    pub variance: &'a [f32],
}

/// Both sums of one channel, added over the parts in order.
fn total(parts: &[f64], channels: usize, channel: usize) -> (f64, f64) {
    parts.chunks_exact(2 * channels).fold((0.0, 0.0), |(first, second), part| {
        (first + part[channel], second + part[channels + channel])
    })
}

impl<'a> Coefficients<'a> {
    /// The seven parts of a buffer.
    ///
    /// # Panics
    /// If it is empty.
    #[must_use]
    pub fn of(buffer: &'a mut [f32]) -> Self {
        let mut parts = buffer.chunks_exact_mut(buffer.len() / 7);
        let mut next = || parts.next().expect("seven parts");
        Self {
            scale: next(),
            shift: next(),
            mean: next(),
            inverse: next(),
            by_gradient: next(),
            by_raw: next(),
            constant: next(),
        }
    }

    /// From sums and sums of squares over `count` values a channel. Writes the weighted change of
    /// the running statistics to `changes` (mean, variance).
    pub fn set_from_batch(
        &mut self,
        parts: &[f64],
        count: usize,
        values: Values<'_>,
        weight: f32,
        (mean_change, variance_change): (&mut [f32], &mut [f32]),
    ) {
        let channels = self.scale.len();
        let count = count as f64;
        let unbiased = count / (count - 1.0).max(1.0);
        for c in 0..channels {
            let (sum, squares) = total(parts, channels, c);
            let mean = sum / count;
            // `max` would turn NaN into 0 and hide a diverged run.
            let variance = squares / count - mean * mean;
            let variance = if variance < 0.0 { 0.0 } else { variance };
            let inverse = 1.0 / (variance + EPSILON).sqrt();
            let scale = f64::from(values.gamma[c]) * inverse;
            self.scale[c] = scale as f32;
            self.shift[c] = (f64::from(values.beta[c]) - mean * scale) as f32;
            self.mean[c] = mean as f32;
            self.inverse[c] = inverse as f32;
            let change =
                |new: f64, old: f32| (MOMENTUM * (new - f64::from(old)) * f64::from(weight)) as f32;
            mean_change[c] = change(mean, values.mean[c]);
            variance_change[c] = change(variance * unbiased, values.variance[c]);
        }
    }

    /// From the running statistics: evaluation.
    pub fn set_from_running(&mut self, values: Values<'_>) {
        for c in 0..self.scale.len() {
            let scale =
                f64::from(values.gamma[c]) / (f64::from(values.variance[c]) + EPSILON).sqrt();
            self.scale[c] = scale as f32;
            self.shift[c] = (f64::from(values.beta[c]) - f64::from(values.mean[c]) * scale) as f32;
        }
    }

    /// From the sums of the masked gradient, alone and times the centred raw value. Writes the
    /// gradients of gamma and beta.
    pub fn set_backward(
        &mut self,
        parts: &[f64],
        count: usize,
        gamma: &[f32],
        (gamma_grad, beta_grad): (&mut [f32], &mut [f32]),
    ) {
        let channels = self.scale.len();
        let count = count as f64;
        for c in 0..channels {
            let (sum, product) = total(parts, channels, c);
            let (mean, inverse) = (f64::from(self.mean[c]), f64::from(self.inverse[c]));
            let by_normal = product * inverse;
            beta_grad[c] = sum as f32;
            gamma_grad[c] = by_normal as f32;
            let scale = f64::from(gamma[c]) * inverse;
            let by_raw = -scale * inverse * by_normal / count;
            self.by_gradient[c] = scale as f32;
            self.by_raw[c] = by_raw as f32;
            self.constant[c] = (-scale * sum / count - by_raw * mean) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the textbook formulas on a few values of one channel.
    #[test]
    fn gradients_match_finite_differences_in_f64() {
        let z = [0.5f64, -1.0, 2.0, 0.25, 3.0];
        let g = [0.3f64, -0.2, 0.1, 0.7, -0.5];
        let (gamma, beta) = (1.3f32, -0.4f32);
        let loss = |z: &[f64]| {
            let mean = z.iter().sum::<f64>() / 5.0;
            let variance = z.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 5.0;
            let normal = |v: f64| (v - mean) / (variance + EPSILON).sqrt();
            z.iter()
                .zip(g)
                .map(|(&v, g)| g * (f64::from(gamma) * normal(v) + f64::from(beta)))
                .sum::<f64>()
        };
        let mut buffer = [0.0; 7];
        let mut norm = Coefficients::of(&mut buffer);
        let parts = [z.iter().sum(), z.iter().map(|v| v * v).sum()];
        let values = Values { gamma: &[gamma], beta: &[beta], mean: &[0.25], variance: &[2.0] };
        let (mut mean_change, mut variance_change) = ([0.0], [0.0]);
        norm.set_from_batch(&parts, 5, values, 0.5, (&mut mean_change, &mut variance_change));
        let mean = parts[0] / 5.0;
        assert!((f64::from(mean_change[0]) - 0.05 * (mean - 0.25)).abs() < 1e-7);
        let unbiased = (parts[1] - 5.0 * mean * mean) / 4.0;
        assert!((f64::from(variance_change[0]) - 0.05 * (unbiased - 2.0)).abs() < 1e-7);

        let sums = [g.iter().sum(), z.iter().zip(g).map(|(z, g)| g * (z - mean)).sum()];
        let (mut gamma_grad, mut beta_grad) = ([0.0], [0.0]);
        norm.set_backward(&sums, 5, &[gamma], (&mut gamma_grad, &mut beta_grad));
        for i in 0..5 {
            let step = |by: f64| {
                let mut moved = z;
                moved[i] += by;
                loss(&moved)
            };
            let wanted = (step(1e-5) - step(-1e-5)) / 2e-5;
            let found = f64::from(norm.by_gradient[0]) * g[i]
                + f64::from(norm.by_raw[0]) * z[i]
                + f64::from(norm.constant[0]);
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
    }
}
