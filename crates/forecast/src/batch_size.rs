//! Which batch size, at which rate: from how long steps take and how noisy gradients are.
//!
//! Two measurements decide. A step of B examples takes `a + c·B` seconds. To reach the same loss it takes
//! `S·(1 + N/B)` of them, N being the gradient noise scale (McCandlish et al., 2018): below N a larger
//! batch saves as many steps as it costs examples, above N it only costs. So the time is
//! `S·(1 + N/B)(a + c·B)`, least at `B = √(N·a/c)`, and the rate that goes with B is in proportion to
//! `1 / (1 + N/B)`: linear in B while B is small, constant when it is large.

mod question;
mod recorded;

pub use question::{BatchForecast, BatchQuestion, BatchStage};
pub use recorded::{BatchCeiling, BatchRate, RecordedBatches};

use crate::Estimate;
use crate::error::ForecastError;
use paceline_stats::distribution::t_quantile;
use paceline_stats::random::Random;
use serde::Serialize;

/// A measured step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepTiming {
    /// Examples of the step.
    pub batch: f64,
    pub seconds: f64,
}

/// `seconds = fixed + per_example · batch`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepCurve {
    /// Seconds whatever the batch.
    pub fixed: f64,
    /// Seconds of every example.
    pub per_example: f64,
    /// The interval that holds `fixed` nine times in ten: what the measurements leave open.
    pub fixed_interval: (f64, f64),
    /// Root mean square of the relative distances of the measurements from the line.
    pub spread: f64,
}

/// A line whose measurements lie farther off than this (root mean square, relative) says nothing about the
/// best batch size, which follows from its two coefficients.
const MOST_SPREAD: f64 = 0.25;
/// Relative noise of a timing expected beforehand, and how many measurements that belief is worth.
const BELIEF: (f64, f64) = (0.02, 1.0);

impl StepCurve {
    /// Fits the line; distances count relative to the time, since that is how timings err. Both parts are
    /// held at zero or above. An error where the measurements lie too far off any line.
    pub fn fit(timings: &[StepTiming]) -> Result<Self, ForecastError> {
        for timing in timings {
            for (what, found) in
                [("the time of a step", timing.seconds), ("the batch of a step", timing.batch)]
            {
                if !(found.is_finite() && found > 0.0) {
                    let wanted = "above zero and finite";
                    return Err(ForecastError::OutOfRange { what, found, wanted });
                }
            }
        }
        let mut sizes: Vec<f64> = timings.iter().map(|timing| timing.batch).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        if sizes.len() < 2 {
            return Err(ForecastError::TooFewBatchSizes { found: sizes.len() });
        }
        let [mut w, mut wb, mut wbb, mut wt, mut wbt] = [0.0; 5];
        for timing in timings {
            let weight = timing.seconds.powi(-2);
            w += weight;
            wb += weight * timing.batch;
            wbb += weight * timing.batch * timing.batch;
            wt += weight * timing.seconds;
            wbt += weight * timing.batch * timing.seconds;
        }
        let determinant = w * wbb - wb * wb;
        let free = (wbb * wt - wb * wbt) / determinant;
        let mut fixed = free;
        let mut per_example = (w * wbt - wb * wt) / determinant;
        if fixed < 0.0 {
            (fixed, per_example) = (0.0, wbt / wbb);
        } else if per_example < 0.0 {
            (fixed, per_example) = (wt / w, 0.0);
        }
        let squares: f64 = timings
            .iter()
            .map(|timing| ((fixed + per_example * timing.batch) / timing.seconds - 1.0).powi(2))
            .sum();
        let spread = (squares / timings.len() as f64).sqrt();
        // Two sizes lie on a line whatever their noise: one measurement's worth of belief in it.
        let freedom = BELIEF.1 + timings.len() as f64 - 2.0;
        let variance = (BELIEF.1 * BELIEF.0 * BELIEF.0 + squares) / freedom;
        let error = t_quantile(0.95, freedom) * (variance * wbb / determinant).sqrt();
        let fixed_interval = ((free - error).clamp(0.0, fixed), (free + error).max(fixed));
        let curve = Self { fixed, per_example, fixed_interval, spread };
        if spread > MOST_SPREAD { Err(curve.refused(timings)) } else { Ok(curve) }
    }

    /// Why the line cannot be believed: steps of one size that differ, or a size that lies off.
    fn refused(&self, timings: &[StepTiming]) -> ForecastError {
        let off = |timing: &StepTiming| (self.seconds(timing.batch) / timing.seconds).ln().abs();
        let worst = timings.iter().max_by(|a, b| off(a).total_cmp(&off(b))).copied();
        let worst = worst.unwrap_or(StepTiming { batch: 0.0, seconds: 0.0 });
        let same = || timings.iter().filter(|timing| timing.batch == worst.batch);
        let ends = same().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), timing| {
            (low.min(timing.seconds), high.max(timing.seconds))
        });
        let percent = 100.0 * self.spread;
        if ends.1 > ends.0 * (1.0 + MOST_SPREAD) {
            let (batch, (least, most)) = (worst.batch, ends);
            return ForecastError::StepsDisagree { percent, batch, least, most };
        }
        ForecastError::NoLine {
            percent,
            batch: worst.batch,
            measured: worst.seconds,
            line: self.seconds(worst.batch),
        }
    }

    /// Seconds of a step.
    #[must_use]
    pub fn seconds(&self, batch: f64) -> f64 {
        self.fixed + self.per_example * batch
    }
}

/// Squared lengths of gradients at two batch sizes. Each pair: the mean over the small batches that
/// make up one large batch, and the large batch's own.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GradientNorms {
    /// Examples of a small batch.
    pub small: f64,
    /// Examples of a large batch.
    pub large: f64,
    /// Squared lengths: small, large.
    pub pairs: Vec<(f64, f64)>,
}

/// How noisy gradients are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NoiseScale {
    /// The noise scale in examples, with an interval by resampling the batches.
    pub examples: Estimate,
    /// Squared length of the true gradient.
    pub signal: f64,
    /// Variance of one example's gradient, summed over all weights.
    pub noise: f64,
}

/// Resamples for the interval.
const RESAMPLES: u64 = 1000;

impl GradientNorms {
    /// Estimates the noise scale; an error where the gradient cannot be distinguished from its noise.
    pub fn noise_scale(&self) -> Result<NoiseScale, ForecastError> {
        if self.pairs.len() < 2 || self.large <= self.small || self.small <= 0.0 {
            return Err(ForecastError::TooFewGradients { found: self.pairs.len() });
        }
        let (signal, noise) = self.split(self.pairs.iter().copied());
        if !(signal > 0.0 && noise.is_finite()) {
            return Err(ForecastError::NoSignal { batches: self.pairs.len(), batch: self.large });
        }
        let mut random = Random::new(0, 0x6e6f_6973);
        let mut scales: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let drawn =
                    (0..self.pairs.len()).map(|_| self.pairs[random.below(self.pairs.len())]);
                let (signal, noise) = self.split(drawn);
                // Where a resample has no signal left, there is no upper end.
                if signal > 0.0 { noise.max(0.0) / signal } else { f64::INFINITY }
            })
            .collect();
        scales.sort_by(f64::total_cmp);
        let at = |share: f64| scales[((scales.len() - 1) as f64 * share) as usize];
        let value = noise.max(0.0) / signal;
        let examples = Estimate { value, low: at(0.05).min(value), high: at(0.95).max(value) };
        Ok(NoiseScale { examples, signal, noise: noise.max(0.0) })
    }

    /// The two unknowns from the two means: `E|g|² = |G|² + tr Σ / B`.
    fn split(&self, pairs: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
        let (mut n, mut small, mut large) = (0.0, 0.0, 0.0);
        for (of_small, of_large) in pairs {
            n += 1.0;
            small += of_small;
            large += of_large;
        }
        let (small, large) = (small / n, large / n);
        let signal = (self.large * large - self.small * small) / (self.large - self.small);
        let noise = (small - large) / (1.0 / self.small - 1.0 / self.large);
        (signal, noise)
    }
}

/// What must hold besides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limits {
    /// Bytes a run needs whatever its batch, and for every example.
    pub memory: (f64, f64),
    /// Bytes there are.
    pub memory_limit: f64,
    /// Examples of the training set: a tenth of them is the largest batch worth trying.
    pub examples: f64,
}

/// One batch size, judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchChoice {
    /// Examples.
    pub batch: f64,
    /// Seconds of a step.
    pub step_seconds: f64,
    pub examples_per_second: f64,
    /// Steps to the same loss, over those of an endless batch.
    pub steps: f64,
    /// Time to the same loss, over the best batch's.
    pub time: f64,
    /// Examples to the same loss, over those of the smallest batch.
    pub examples: f64,
    /// Learning rate that goes with it.
    pub rate: f64,
    /// Bytes of memory.
    pub memory: f64,
    /// Whether the limits allow it.
    pub feasible: bool,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchAdvice {
    /// The best batch, with what the intervals of the noise scale and of a step's fixed part make of it.
    pub batch: Estimate,
    /// The rate that goes with it.
    pub rate: Estimate,
    /// Largest batch the limits allow.
    pub largest: f64,
    /// Every candidate.
    pub choices: Vec<BatchChoice>,
}

/// Judges `candidates`; `base` is a batch and the rate known to work with it.
#[must_use]
pub fn advise_batch(
    curve: &StepCurve,
    noise: &NoiseScale,
    limits: &Limits,
    base: (f64, f64),
    candidates: &[f64],
) -> BatchAdvice {
    let by_memory = match limits.memory {
        (_, each) if each <= 0.0 => f64::INFINITY,
        (fixed, each) => (limits.memory_limit - fixed) / each,
    };
    let largest = by_memory.min(limits.examples / 10.0).floor().max(1.0);
    let best = |scale: f64, fixed: f64| {
        // Without a fixed part one example at a time is best; without a part that grows, all at once.
        let free = (scale * fixed / curve.per_example).sqrt();
        if free.is_nan() { 1.0 } else { free.clamp(1.0, largest) }
    };
    let scale = noise.examples;
    let rate = |batch: f64, scale: f64| {
        if scale.is_finite() {
            base.1 * (1.0 + scale / base.0) / (1.0 + scale / batch)
        } else {
            base.1 * batch / base.0
        }
    };
    let time = |batch: f64| (1.0 + scale.value / batch) * curve.seconds(batch);
    let chosen = best(scale.value, curve.fixed);
    let smallest = candidates.iter().copied().fold(f64::INFINITY, f64::min);
    let choices = candidates
        .iter()
        .map(|&batch| {
            let memory = limits.memory.0 + limits.memory.1 * batch;
            BatchChoice {
                batch,
                step_seconds: curve.seconds(batch),
                examples_per_second: batch / curve.seconds(batch),
                steps: 1.0 + scale.value / batch,
                time: time(batch) / time(chosen),
                examples: (batch + scale.value) / (smallest + scale.value),
                rate: rate(batch, scale.value),
                memory,
                feasible: batch <= largest,
            }
        })
        .collect();
    let (least, most) = curve.fixed_interval;
    let batch =
        Estimate { value: chosen, low: best(scale.low, least), high: best(scale.high, most) };
    let rates = [scale.low, scale.value, scale.high].map(|scale| rate(chosen, scale));
    let rate = Estimate {
        value: rates[1],
        low: rates.iter().copied().fold(f64::INFINITY, f64::min),
        high: rates.iter().copied().fold(0.0, f64::max),
    };
    BatchAdvice { batch, rate, largest, choices }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(fixed: f64, per_example: f64) -> StepCurve {
        StepCurve { fixed, per_example, fixed_interval: (fixed, fixed), spread: 0.0 }
    }

    #[test]
    fn line_through_exact_timings_is_found() {
        let timings: Vec<StepTiming> = [1.0, 8.0, 64.0, 512.0]
            .map(|batch| StepTiming { batch, seconds: 2e-3 + 1e-4 * batch })
            .to_vec();
        let curve = StepCurve::fit(&timings).unwrap();
        assert!((curve.fixed - 2e-3).abs() < 1e-12 && (curve.per_example - 1e-4).abs() < 1e-14);
        assert!(curve.spread < 1e-9);
    }

    #[test]
    fn too_little_to_fit_is_said() {
        let one = StepTiming { batch: 8.0, seconds: 1.0 };
        let error = StepCurve::fit(&[one, one]).unwrap_err().to_string();
        assert!(error.contains("two batch sizes"), "{error}");
        let broken = StepTiming { seconds: 0.0, ..one };
        assert!(StepCurve::fit(&[one, broken]).unwrap_err().to_string().contains("time of a step"));
    }

    fn timings(all: &[(f64, f64)]) -> Vec<StepTiming> {
        all.iter().map(|&(batch, seconds)| StepTiming { batch, seconds }).collect()
    }

    /// A line 60 % off was taken for a fit, and "batch 1 (1 to 1)" recommended from it.
    #[test]
    fn timings_far_from_any_line_are_refused_with_the_reason() {
        let curved = timings(&[(8.0, 1e-3), (32.0, 1.2e-3), (128.0, 40e-3), (512.0, 42e-3)]);
        let error = StepCurve::fit(&curved).unwrap_err().to_string();
        assert!(error.contains("% off") && error.contains("a step of batch"), "{error}");
        let mixed = timings(&[(8.0, 1e-3), (8.0, 9e-3), (64.0, 2e-3), (64.0, 17e-3)]);
        let error = StepCurve::fit(&mixed).unwrap_err().to_string();
        assert!(error.contains("differ") && error.contains("batch"), "{error}");
    }

    /// Steps whose time is in proportion to the batch, as far as noise lets anybody see.
    #[test]
    fn batch_of_one_is_not_certain_where_the_fixed_part_is_lost_in_noise() {
        let measured = timings(&[(8.0, 7.8e-4), (32.0, 3.3e-3), (128.0, 12.7e-3), (512.0, 51e-3)]);
        let curve = StepCurve::fit(&measured).unwrap();
        assert!(curve.fixed_interval.1 > 0.0, "{curve:?}");
        let found = advise_batch(&curve, &noise(200.0), &LIMITS, (64.0, 0.1), &[8.0, 512.0]);
        assert!(found.batch.high > 1.5 * found.batch.low.max(1.0), "{found:?}");
    }

    /// Gradients of known length and noise: the estimate must find both.
    #[test]
    fn noise_scale_of_made_up_gradients_is_found() {
        let mut random = Random::new(7, 1);
        // Sum of twelve uniforms: near enough to a normal number.
        let mut normal = move || (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
        let weights = 50;
        // |G|² = 50 · 0.01 = 0.5, tr Σ = 50: a noise scale of 100 examples.
        let mut pairs = Vec::new();
        for _ in 0..200 {
            let (mut whole, mut small) = (vec![0.0; weights], 0.0);
            for _ in 0..8 {
                let mut squares = 0.0;
                for sum in &mut whole {
                    let part = 0.1 + normal() / 16f64.sqrt();
                    squares += part * part;
                    *sum += part / 8.0;
                }
                small += squares / 8.0;
            }
            pairs.push((small, whole.iter().map(|part| part * part).sum()));
        }
        let found = GradientNorms { small: 16.0, large: 128.0, pairs }.noise_scale().unwrap();
        assert!((found.signal - 0.5).abs() < 0.05, "{found:?}");
        assert!((found.examples.value - 100.0).abs() < 15.0, "{found:?}");
        assert!(found.examples.low < 100.0 && found.examples.high > 100.0, "{found:?}");
    }

    #[test]
    fn gradient_without_a_signal_is_said() {
        let norms = GradientNorms { small: 1.0, large: 4.0, pairs: vec![(4.0, 0.9); 5] };
        assert!(norms.noise_scale().unwrap_err().to_string().contains("5 batches"));
        let few = GradientNorms { pairs: Vec::new(), ..norms };
        assert!(few.noise_scale().is_err());
    }

    fn noise(value: f64) -> NoiseScale {
        let examples = Estimate { value, low: value / 2.0, high: value * 2.0 };
        NoiseScale { examples, signal: 1.0, noise: value }
    }

    const LIMITS: Limits = Limits { memory: (1e6, 1e3), memory_limit: 1e9, examples: 60_000.0 };

    #[test]
    fn memory_and_data_bound_the_batch() {
        let curve = line(1.0, 1e-6);
        let wide = advise_batch(&curve, &noise(1e6), &LIMITS, (64.0, 0.1), &[64.0, 8192.0]);
        assert_eq!((wide.largest, wide.batch.value), (6000.0, 6000.0));
        assert!(wide.choices[0].feasible && !wide.choices[1].feasible);
        let tight = Limits { memory_limit: 2e6, ..LIMITS };
        let found = advise_batch(&curve, &noise(1e6), &tight, (64.0, 0.1), &[64.0]);
        assert_eq!(found.batch.value, 1000.0);
    }

    #[test]
    fn rate_is_linear_in_small_batches_and_constant_in_large_ones() {
        let curve = line(1e-3, 1e-5);
        let rates = |scale: f64| {
            let sizes = [10.0, 20.0, 40.0];
            let found = advise_batch(&curve, &noise(scale), &LIMITS, (10.0, 0.1), &sizes);
            found.choices.iter().map(|choice| choice.rate).collect::<Vec<_>>()
        };
        let small = rates(1e6);
        assert!(
            (small[1] / small[0] - 2.0).abs() < 1e-3 && (small[2] / small[0] - 4.0).abs() < 1e-3
        );
        let large = rates(0.01);
        assert!((large[2] / large[0] - 1.0).abs() < 1e-2);
    }

    proptest! {
        /// No candidate may beat the batch that is recommended.
        #[test]
        fn recommended_batch_is_the_fastest(
            fixed in 1e-5..1.0f64, each in 1e-7..1e-2f64, scale in 0.1..1e5f64, batch in 1.0..6000.0f64,
        ) {
            let curve = line(fixed, each);
            let found = advise_batch(&curve, &noise(scale), &LIMITS, (64.0, 0.1), &[batch]);
            prop_assert!(found.choices[0].time >= 1.0 - 1e-9, "{found:?}");
            prop_assert!(found.batch.low <= found.batch.value && found.batch.value <= found.batch.high);
        }
    }
}
