//! Ernest on the recorded set: how well a curve through a few cluster sizes predicts the others.

use super::acceptance::medians;
use super::scout::RecordedSet;
use paceline_forecast::scaling::design::sizes_to_run;
use paceline_forecast::scaling::{Scaling, ScalingRun};
use serde::Serialize;

/// How well scaling curves predicted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScalingSummary {
    /// Cluster sizes each curve was fitted to.
    pub fitted_on: usize,
    /// Pairs of job and machine type.
    pub curves: usize,
    pub predictions: usize,
    /// Mean absolute error in per cent.
    pub mean_percent: f64,
    /// Middle absolute error in per cent.
    pub median_percent: f64,
    /// Share of predictions within 20 %.
    pub within_20: f64,
}

/// Fits a curve to `sizes` cluster sizes of every job on every machine type, chosen by the A-optimal
/// design, and predicts the remaining ones.
#[must_use]
pub fn evaluate_scaling(set: &RecordedSet, sizes: usize) -> ScalingSummary {
    let catalogue = &set.catalogue;
    let mut errors = Vec::new();
    let mut curves = 0;
    for times in medians(&set.runs).values() {
        for machine in 0..catalogue.machines().len() {
            let known: Vec<(u32, f64)> = times
                .iter()
                .filter(|&(&at, _)| catalogue.configurations()[at].machine == machine)
                .map(|(&at, &seconds)| (catalogue.count(at), seconds))
                .collect();
            if known.len() <= sizes {
                continue;
            }
            let counts: Vec<u32> = known.iter().map(|(count, _)| *count).collect();
            let chosen = sizes_to_run(&counts, sizes);
            let (inside, outside): (Vec<_>, Vec<_>) =
                known.iter().partition(|(count, _)| chosen.contains(count));
            let runs: Vec<ScalingRun> = inside
                .iter()
                .map(|&(count, seconds)| ScalingRun {
                    fraction: 1.0,
                    machines: f64::from(count),
                    seconds,
                })
                .collect();
            let Ok(curve) = Scaling::fit(&runs) else { continue };
            curves += 1;
            for (count, seconds) in outside {
                errors.push((curve.predict(1.0, f64::from(count)) / seconds - 1.0).abs() * 100.0);
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let n = errors.len().max(1) as f64;
    ScalingSummary {
        fitted_on: sizes,
        curves,
        predictions: errors.len(),
        mean_percent: errors.iter().sum::<f64>() / n,
        median_percent: errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN),
        within_20: errors.iter().filter(|error| **error <= 20.0).count() as f64 / n,
    }
}
