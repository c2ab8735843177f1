//! What recorded runs at several batch sizes tell of any program's training: how fast it goes at which size.
//!
//! Half of an answer. How many more examples a larger batch needs for the same loss follows from the noise scale, and that from gradients,
//! which no run folder has. So the fastest sizes are named, and the smallest of them: it needs the fewest examples.

use super::{StepCurve, StepTiming};
use crate::error::ForecastError;
use crate::measure::batches_of_runs;
use serde::Serialize;
use std::path::PathBuf;

/// A rate is near the best from this share of it on.
const NEAR: f64 = 0.9;

/// What is not known of a run that another program recorded, and why.
const NO_NOISE_SCALE: &str = "the noise scale is not known: it takes gradients of the model at two batch sizes, and a run folder has none; so this says which size is fast, not which reaches a loss first";

/// A batch size that was run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchRate {
    /// Examples of an update over all workers.
    pub batch: f64,
    /// Seconds of a step: the mean over runs of each run's median.
    pub step_seconds: f64,
    pub examples_per_second: f64,
    /// The rate over that of the fastest size.
    pub share_of_best: f64,
    pub runs: usize,
}

/// What larger batches would come to, were the line to go on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchCeiling {
    /// Examples a second of an endless batch.
    pub examples_per_second: f64,
    /// The batch from which on nine tenths of that are reached, and what the measurements leave open about it.
    pub batch: f64,
    pub low: f64,
    pub high: f64,
    /// No run had a batch as large.
    pub extrapolated: bool,
}

/// The answer and all it rests on.
#[derive(Debug, Clone, Serialize)]
pub struct RecordedBatches {
    /// What was trained, in words.
    pub job: String,
    /// The smallest first.
    pub sizes: Vec<BatchRate>,
    /// The line through the step times, where one fits.
    pub curve: Option<StepCurve>,
    pub ceiling: Option<BatchCeiling>,
    /// The smallest size that is nearly as fast as the fastest.
    pub near_best: BatchRate,
    /// What is not known, and why.
    pub missing: Vec<String>,
    /// Runs that say nothing about step times: they did not end, count no examples, or their workers each went their own way.
    pub left_out: Vec<String>,
}

impl RecordedBatches {
    /// Reads runs, or folders of runs, that differ in their batch size.
    ///
    /// # Errors
    /// No runs, runs of different jobs, or of fewer than two batch sizes.
    pub fn read(paths: &[PathBuf]) -> Result<Self, ForecastError> {
        let found = batches_of_runs(paths)?;
        let mut missing = vec![NO_NOISE_SCALE.to_owned()];
        let curve = match StepCurve::fit(&found.timings) {
            Ok(curve) => Some(curve),
            Err(error @ (ForecastError::NoLine { .. } | ForecastError::StepsDisagree { .. })) => {
                missing.push(format!("what other sizes would do: {error}"));
                None
            }
            Err(error) => return Err(error),
        };
        let sizes = rates(&found.timings);
        let near = sizes.iter().find(|size| size.share_of_best >= NEAR);
        let near_best = *near.expect("the fastest size is as fast as itself");
        let largest = sizes.last().map_or(0.0, |size| size.batch);
        let ceiling = curve.and_then(|curve| curve.ceiling(largest));
        let (job, left_out) = (found.job, found.left_out);
        Ok(Self { job, sizes, curve, ceiling, near_best, missing, left_out })
    }
}

impl StepCurve {
    /// Where the rate levels off; nothing where a larger batch costs no more time.
    fn ceiling(&self, largest: f64) -> Option<BatchCeiling> {
        let most = (self.per_example > 0.0).then(|| 1.0 / self.per_example)?;
        // B / (a + c·B) is the share s of 1 / c at B = a/c · s / (1 - s).
        let at = |fixed: f64| (fixed * most * NEAR / (1.0 - NEAR)).ceil().max(1.0);
        let (low, high) = self.fixed_interval;
        let batch = at(self.fixed);
        Some(BatchCeiling {
            examples_per_second: most,
            batch,
            low: at(low),
            high: at(high),
            extrapolated: batch > largest,
        })
    }
}

/// Every size once, the smallest first.
fn rates(timings: &[StepTiming]) -> Vec<BatchRate> {
    let mut sorted = timings.to_vec();
    sorted.sort_by(|a, b| a.batch.total_cmp(&b.batch));
    let mut sizes: Vec<BatchRate> = sorted
        .chunk_by(|a, b| a.batch == b.batch)
        .map(|same| {
            let (batch, runs) = (same[0].batch, same.len());
            let seconds = same.iter().map(|timing| timing.seconds).sum::<f64>() / runs as f64;
            let rate = batch / seconds;
            BatchRate {
                batch,
                step_seconds: seconds,
                examples_per_second: rate,
                share_of_best: rate,
                runs,
            }
        })
        .collect();
    let best = sizes.iter().map(|size| size.examples_per_second).fold(0.0, f64::max);
    sizes.iter_mut().for_each(|size| size.share_of_best /= best);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_levels_off_where_the_line_says() {
        let fixed_interval = (0.08, 0.2);
        let curve = StepCurve { fixed: 0.1, per_example: 0.001, fixed_interval, spread: 0.0 };
        let found = curve.ceiling(512.0).unwrap();
        assert!((found.examples_per_second - 1000.0).abs() < 1e-9);
        assert!((found.batch - 900.0).abs() <= 1.0 && found.extrapolated, "{found:?}");
        assert!((900.0 / curve.seconds(900.0) - 900.0).abs() < 1e-6, "nine tenths of it");
        assert!(found.low <= found.batch && found.batch <= found.high);
        assert!(!curve.ceiling(1024.0).unwrap().extrapolated);
        assert_eq!(StepCurve { per_example: 0.0, ..curve }.ceiling(8.0), None);
    }

    #[test]
    fn runs_of_one_size_are_one_row() {
        let timing = |batch, seconds| StepTiming { batch, seconds };
        let found = rates(&[timing(64.0, 0.3), timing(16.0, 0.2), timing(64.0, 0.5)]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].batch, found[1].runs), (64.0, 2));
        assert!((found[1].step_seconds - 0.4).abs() < 1e-12);
        assert!((found[0].share_of_best - 0.5).abs() < 1e-12 && found[1].share_of_best == 1.0);
    }
}
