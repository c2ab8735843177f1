//! CherryPick (Alipourfard et al., NSDI 2017): Bayesian optimisation of `ln` cost.
//!
//! Three evenly spread runs, then the configuration with the largest expected improvement under a
//! Gaussian process, weighted by the probability of keeping the deadline; the time follows
//! from the cost model, `ln T = ln C - ln price`, so there is no second process. Stops when nothing
//! is expected to save a tenth, after at least six runs.

use super::AdvisorMethod;
use crate::gp::{Beliefs, Kernels, Mixture, ScalePrior};
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};
use paceline_stats::normal;
use paceline_stats::random::{EvenPoints, Random};

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "cherrypick",
    about: "Bayesian optimisation: Gaussian process and expected improvement, no history",
    needs_history: false,
    uses_history: false,
    build: |problem, seed| Ok(Box::new(CherryPick::new(problem, seed))),
};

/// Evenly spread runs before the model is asked.
const START: usize = 3;
/// Runs before the search may stop.
const FEWEST: usize = 6;
/// Expected improvement, in `ln` of the objective, below which it stops: about ten per cent.
const ENOUGH: f64 = 0.10;
/// Hyper-parameter sets to average over.
const KERNELS: usize = 96;
/// The published code's: length scales evenly up to 2; the squared scale log-normal around 1, `ln` of it with
/// a standard deviation of 1, which this inverse gamma has nearly.
const BELIEFS: Beliefs = Beliefs {
    lengths: (0.02, 2.0),
    logarithmic: false,
    scale: ScalePrior { shape: 1.43, scale: 1.1 },
};

pub(super) struct CherryPick {
    kernels: Kernels,
    features: Vec<Vec<f64>>,
}

impl CherryPick {
    pub(super) fn new(problem: &Problem, seed: u64) -> Self {
        let features = problem.catalogue.features();
        Self { kernels: Kernels::believing(features.clone(), KERNELS, seed, BELIEFS), features }
    }

    fn fit(&self, search: &Search) -> Option<Mixture<'_>> {
        let seen = search.observations();
        if seen.is_empty() {
            return None;
        }
        let at: Vec<usize> = seen.iter().map(|seen| seen.configuration).collect();
        let values: Vec<f64> = seen.iter().map(|seen| seen.value).collect();
        let noisier: Vec<f64> = seen.iter().map(|seen| seen.noisier).collect();
        Some(self.kernels.fit(&at, &values, &noisier))
    }

    /// The untried configuration nearest to the next evenly spread point; the shift is the seed's.
    fn start(&self, search: &Search) -> Option<usize> {
        let dimensions = self.features.first()?.len();
        let mut random = Random::new(search.seed(), 0);
        let shift = (0..dimensions).map(|_| random.uniform()).collect();
        let point = EvenPoints::new(shift).nth(search.runs().len())?;
        nearest(search, &self.features, &point)
    }
}

/// The untried configuration nearest to a point of the unit cube.
pub(super) fn nearest(search: &Search, features: &[Vec<f64>], point: &[f64]) -> Option<usize> {
    let distance =
        |at: usize| -> f64 { features[at].iter().zip(point).map(|(a, b)| (a - b).powi(2)).sum() };
    search.untried().min_by(|&a, &b| distance(a).total_cmp(&distance(b)))
}

/// Probability that a run with this `ln` value keeps the deadline.
pub(super) fn in_time(problem: &Problem, configuration: usize, mean: f64, sd: f64) -> f64 {
    let Some(deadline) = problem.deadline() else { return 1.0 };
    let limit = problem.value(configuration, deadline).ln();
    normal::below((limit - mean) / sd.max(1e-9))
}

impl Advisor for CherryPick {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let problem = search.problem();
        let started = search.runs().len() >= START;
        let Some(mixture) = started.then(|| self.fit(search)).flatten() else {
            return self.start(search).map(|configuration| Proposal {
                configuration,
                stop: None,
                outlook: None,
                reason: "spreads the first runs evenly over the catalogue".to_owned(),
            });
        };
        // Without a run that counts, anything that counts is an improvement on the worst.
        let best = search.best().map_or_else(
            || search.observations().iter().map(|seen| seen.value).fold(f64::MIN, f64::max),
            |(_, value)| value.ln(),
        );
        let gain = |at: usize| -> f64 {
            mixture
                .predict(at)
                .map(|(weight, mean, sd)| {
                    let improvement = normal::expected_improvement(mean, sd, best);
                    weight * improvement * in_time(problem, at, mean, sd)
                })
                .sum()
        };
        let (configuration, gain) =
            search.untried().map(|at| (at, gain(at))).max_by(|a, b| a.1.total_cmp(&b.1))?;
        let done = gain < ENOUGH && search.runs().len() >= FEWEST && search.best().is_some();
        let percent = gain.exp_m1() * 100.0;
        Some(Proposal {
            configuration,
            stop: done.then(|| {
                format!("no untried configuration is expected to save more than {percent:.1} %")
            }),
            outlook: None,
            reason: format!("largest expected improvement: {percent:.1} %"),
        })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        let count = search.problem().catalogue.len();
        let Some(mixture) = self.fit(search) else { return vec![None; count] };
        (0..count)
            .map(|at| {
                let (mean, sd) = mixture.moments(at);
                Some(Prediction { mean, sd, completes: 1.0 })
            })
            .collect()
    }
}
