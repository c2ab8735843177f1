//! PARIS (Yadwadkar et al., SoCC 2017): a fingerprint on two reference machines predicts all others.
//!
//! The job runs on two reference configurations; their times and metrics are its fingerprint. Random
//! forests, trained on past jobs, map fingerprint and machine to the value relative to the first
//! reference: one for the mean, one for what to be ready for (the worst of repeated runs). The
//! references are the two that tell most about all others, by past jobs.

use super::AdvisorMethod;
use crate::error::AdvisorError;
use crate::forest::{Forest, Growth, Kind, Rows};
use crate::history::{History, PastJob};
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "paris",
    about: "two reference runs as a fingerprint, random forests of past jobs for all others",
    needs_history: true,
    uses_history: true,
    build: |problem, seed| Ok(Box::new(Paris::new(problem, seed)?)),
};

const GROWTH: Growth = Growth { trees: 60, smallest: 4, tries: 5, kind: Kind::RandomForest };
/// Training rows at most; every n-th job's rows are left out beyond that.
const MOST_ROWS: usize = 4_000;

struct Paris {
    features: Vec<Vec<f64>>,
    references: [usize; 2],
    mean: Forest,
    ninety: Forest,
}

impl Paris {
    fn new(problem: &Problem, seed: u64) -> Result<Self, AdvisorError> {
        let history = History::new(problem);
        let features = problem.catalogue.features();
        let references = references(&history, features.len())
            .ok_or(AdvisorError::NeedsHistory { method: ENTRY.name })?;
        let (mut means, mut worsts) = (Rows::default(), Rows::default());
        let every = (history.jobs.len() * features.len()).div_ceil(MOST_ROWS).max(1);
        for job in history.jobs.iter().step_by(every) {
            let Some((fingerprint, base)) = fingerprint(
                references
                    .map(|at| job.values[at].map(|value| (value, job.metrics[at].as_slice()))),
            ) else {
                continue;
            };
            for (at, feature) in features.iter().enumerate() {
                if let (Some(value), Some(worst)) = (job.values[at], job.worst[at]) {
                    let row = [fingerprint.as_slice(), feature].concat();
                    means.push(&row, value - base);
                    worsts.push(&row, worst - base);
                }
            }
        }
        if means.len() == 0 {
            return Err(AdvisorError::NeedsHistory { method: ENTRY.name });
        }
        let mean = Forest::grow(&means, GROWTH, seed);
        let ninety = Forest::grow(&worsts, GROWTH, seed + 1);
        Ok(Self { features, references, mean, ninety })
    }

    /// Mean and upper prediction of every configuration, once both references completed.
    fn model(&self, search: &Search) -> Option<Vec<(f64, f64)>> {
        let seen = self.references.map(|at| {
            let value = search.completed().find(|(known, _)| *known == at)?;
            let run = search.runs().iter().find(|run| run.configuration == at)?;
            Some((search.problem().value(at, value.1).ln(), run.metrics.as_slice()))
        });
        let (fingerprint, base) = fingerprint(seen)?;
        let width = fingerprint.len();
        Some(
            self.features
                .iter()
                .map(|feature| {
                    let row = [&fingerprint[..width], feature].concat();
                    (base + self.mean.predict(&row), base + self.ninety.predict(&row))
                })
                .collect(),
        )
    }
}

/// How the second reference relates to the first, and what both machines did; with the first's value.
fn fingerprint(seen: [Option<(f64, &[f64])>; 2]) -> Option<(Vec<f64>, f64)> {
    let [Some((first, a)), Some((second, b))] = seen else { return None };
    Some(([&[second - first], a, b].concat(), first))
}

/// The configuration whose value, known, leaves least unexplained in all others; then the one that
/// adds most to it.
fn references(history: &History, count: usize) -> Option<[usize; 2]> {
    let jobs: Vec<&PastJob> = history.jobs.iter().collect();
    let usable: Vec<usize> = (0..count)
        .filter(|&at| {
            jobs.iter().filter(|job| job.values[at].is_some()).count() * 10 >= jobs.len() * 9
        })
        .collect();
    // Sum over configurations of the variance of `value - value at the reference`.
    let gaps = |a: usize, b: usize| -> Vec<f64> {
        jobs.iter().filter_map(|job| Some(job.values[a]? - job.values[b]?)).collect()
    };
    let unexplained =
        |reference: usize| -> f64 { (0..count).map(|at| variance(&gaps(at, reference))).sum() };
    let first = *usable.iter().min_by(|&&a, &&b| unexplained(a).total_cmp(&unexplained(b)))?;
    let explained = |second: usize| -> f64 {
        (0..count)
            .map(|at| {
                let pairs: Vec<(f64, f64)> = jobs
                    .iter()
                    .filter_map(|job| {
                        let base = job.values[first]?;
                        Some((job.values[at]? - base, job.values[second]? - base))
                    })
                    .collect();
                covariance(&pairs).powi(2)
                    / variance(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>()).max(1e-12)
            })
            .sum()
    };
    let second = usable
        .iter()
        .copied()
        .filter(|&at| at != first)
        .max_by(|&a, &b| explained(a).total_cmp(&explained(b)))?;
    Some([first, second])
}

fn variance(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n
}

fn covariance(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len().max(1) as f64;
    let (a, b) = pairs.iter().fold((0.0, 0.0), |(a, b), pair| (a + pair.0 / n, b + pair.1 / n));
    pairs.iter().map(|pair| (pair.0 - a) * (pair.1 - b)).sum::<f64>() / n
}

impl Advisor for Paris {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let tried = |at: usize| search.runs().iter().any(|run| run.configuration == at);
        if let Some(&configuration) = self.references.iter().find(|&&at| !tried(at)) {
            let reason = "a reference: its time and metrics are part of the fingerprint".to_owned();
            return Some(Proposal { configuration, stop: None, outlook: None, reason });
        }
        if let Some(model) = self.model(search) {
            let configuration =
                search.untried().min_by(|&a, &b| model[a].0.total_cmp(&model[b].0))?;
            let stop = Some("both references have run; the rest is prediction".to_owned());
            return Some(Proposal {
                configuration,
                stop,
                outlook: None,
                reason: "best prediction".to_owned(),
            });
        }
        // A reference failed: no fingerprint, so continue by memory, largest first.
        let memory = |at: usize| search.problem().catalogue.memory_gib(at);
        let configuration = search.untried().max_by(|&a, &b| memory(a).total_cmp(&memory(b)))?;
        let reason = "a reference failed, so nothing is predicted: most memory first".to_owned();
        Some(Proposal { configuration, stop: None, outlook: None, reason })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        match self.model(search) {
            Some(model) => model
                .into_iter()
                // The upper forest stands 1.28 standard deviations above the mean.
                .map(|(mean, high)| {
                    let sd = ((high - mean) / 1.28).max(0.05);
                    Some(Prediction { mean, sd, completes: 1.0 })
                })
                .collect(),
            None => vec![None; self.features.len()],
        }
    }

    fn recommends_unmeasured(&self) -> bool {
        true
    }
}
