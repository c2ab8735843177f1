//! Ernest on the recorded set: how well a curve through a few cluster sizes predicts the others.

use super::acceptance::medians;
use super::scout::RecordedSet;
use paceline_forecast::scaling::design::sizes_to_run;
use paceline_forecast::scaling::{Scaling, ScalingFit, ScalingRun};
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
    /// Share of recorded runs inside the 90 % interval of a further run, where it lies between the sizes the curve was fitted to.
    pub interpolation_coverage: f64,
    /// The same beyond them, with curves through the smallest sizes.
    pub extrapolation_coverage: f64,
}

/// Fits a curve to `sizes` cluster sizes of every job on every machine type, chosen by the A-optimal
/// design, and predicts the remaining ones.
#[must_use]
pub fn evaluate_scaling(set: &RecordedSet, sizes: usize) -> ScalingSummary {
    let catalogue = &set.catalogue;
    let mut errors = Vec::new();
    let mut curves = 0;
    let mut inside_of = [[0usize; 2]; 2];
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
            cover(&known, sizes, &mut inside_of);
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
        interpolation_coverage: share(inside_of[0]),
        extrapolation_coverage: share(inside_of[1]),
    }
}

fn share([inside, all]: [usize; 2]) -> f64 {
    inside as f64 / all.max(1) as f64
}

/// Counts runs inside their intervals: between sizes spread over all, and beyond the smallest ones.
fn cover(known: &[(u32, f64)], sizes: usize, counts: &mut [[usize; 2]; 2]) {
    let mut known = known.to_vec();
    known.sort_by_key(|(count, _)| *count);
    let spread: Vec<usize> = (0..sizes).map(|at| at * (known.len() - 1) / (sizes - 1)).collect();
    let smallest: Vec<usize> = (0..sizes).collect();
    for (fitted, sum) in [spread, smallest].iter().zip(counts) {
        let run = |&at: &usize| ScalingRun {
            fraction: 1.0,
            machines: f64::from(known[at].0),
            seconds: known[at].1,
        };
        let runs: Vec<ScalingRun> = fitted.iter().map(run).collect();
        let Ok(fit) = ScalingFit::new(&runs) else { continue };
        for (_, &(count, seconds)) in
            known.iter().enumerate().filter(|(at, _)| !fitted.contains(at))
        {
            let found = fit.estimate(1.0, f64::from(count));
            sum[1] += 1;
            sum[0] += usize::from((found.run_low..=found.run_high).contains(&seconds));
        }
    }
}
