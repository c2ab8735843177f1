//! Our own: transfer from past jobs, aware of failures, without leaks.
//!
//! The first run goes where other jobs did best. After that, the model of [`crate::transfer`] gives every
//! configuration an expected value and its uncertainty, [`crate::completion`] the chance that the run
//! completes; the next run is where the expected improvement, times that chance, is largest.
//! Without any history, or with a very short one, it is plain Bayesian optimisation. Only completed runs are
//! recommended.

use super::AdvisorMethod;
use super::cherrypick::in_time;
use crate::completion::Completion;
use crate::history::History;
use crate::measurements::Outcome;
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};
use crate::transfer::{Expectation, TUNING, Transfer, Tuning};
use paceline_stats::normal;

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "paceline",
    about: "learns from past jobs which configurations go together, and which fail; our own",
    needs_history: false,
    uses_history: true,
    build: |problem, seed| Ok(Box::new(Paceline::new(problem, seed, TUNING))),
};

/// Runs before the search may stop.
const FEWEST: usize = 3;
/// Expected improvement, in `ln` of the objective, below which it stops.
const ENOUGH: f64 = 0.03;

/// With fewer past jobs the search begins cold: replayed with one to eight past jobs, searches that used them
/// were worse after six runs than those that did not.
const FEWEST_PAST: usize = 10;

/// A run cut short would have taken half as long again, as far as anybody knows: `ln 1.5`.
const CUT_SHORT: f64 = 0.405;

pub(crate) struct Paceline {
    transfer: Transfer,
    completion: Completion,
    /// Mean `ln` distance of other jobs to their best; empty where the past is not used.
    distances: Vec<Option<f64>>,
    /// Past jobs that are too few to be used.
    unused: usize,
}

impl Paceline {
    pub(crate) fn new(problem: &Problem, seed: u64, tuning: Tuning) -> Self {
        let features = problem.catalogue.features();
        let past = History::new(problem);
        let unused = if past.jobs.len() < FEWEST_PAST { past.jobs.len() } else { 0 };
        let history = if unused > 0 { History::default() } else { past };
        Self {
            transfer: Transfer::new(features.clone(), &history, seed, tuning),
            distances: history.mean_distances(),
            completion: Completion::new(features, &history),
            unused,
        }
    }

    /// The model after the job's own runs; `None` before any of them says something.
    fn expect(&self, search: &Search) -> Option<Expectation> {
        let problem = search.problem();
        let mut at = Vec::new();
        let mut values = Vec::new();
        let mut noisier = Vec::new();
        for (configuration, seconds) in search.completed() {
            at.push(configuration);
            values.push(problem.value(configuration, seconds).ln());
            noisier.push(1.0);
        }
        let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for run in search.runs() {
            // A run cut short would have cost more than was paid, and is no better than the worst that
            // completed; a failed one says nothing of its value.
            if let Outcome::TimedOut { seconds } = run.outcome
                && !at.contains(&run.configuration)
            {
                at.push(run.configuration);
                values
                    .push((problem.value(run.configuration, seconds).ln() + CUT_SHORT).max(worst));
                noisier.push(4.0);
            }
        }
        (!at.is_empty()).then(|| self.transfer.condition(&at, &values, &noisier))
    }

    /// Where to begin, and why: where other jobs did best, or the middle of the catalogue's prices where
    /// past jobs say nothing.
    fn first(&self, search: &Search, completes: &[f64]) -> Option<(usize, String)> {
        let known = search
            .untried()
            .filter_map(|at| {
                let distance = self.distances.get(at).copied().flatten()?;
                // A failure teaches little and must be followed by another try.
                Some((at, distance, distance - completes[at].max(1e-3).ln()))
            })
            .min_by(|a, b| a.2.total_cmp(&b.2));
        if let Some((at, distance, _)) = known {
            let reason = format!(
                "the best start by past jobs: {:.0} % above each one's best on average, completes with {:.0} %",
                distance.exp_m1() * 100.0,
                completes[at] * 100.0
            );
            return Some((at, reason));
        }
        let catalogue = &search.problem().catalogue;
        let mut untried: Vec<usize> = search.untried().collect();
        untried.sort_by(|&a, &b| catalogue.usd_per_hour(a).total_cmp(&catalogue.usd_per_hour(b)));
        let why = match (self.unused, self.distances.is_empty()) {
            (0, true) => "no past jobs to learn from".to_owned(),
            (0, false) => "past jobs did not run on what is left".to_owned(),
            (unused, _) => format!("{unused} past jobs are too few to learn from"),
        };
        let reason = format!("{why}: begins in the middle of the price range");
        untried.get(untried.len() / 2).map(|&at| (at, reason))
    }
}

impl Advisor for Paceline {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let problem = search.problem();
        let completes = self.completion.probabilities(search);
        let Some(expected) = self.expect(search) else {
            let (configuration, reason) = self.first(search, &completes)?;
            return Some(Proposal { configuration, stop: None, reason });
        };
        let best = search.best().map_or_else(
            // Nothing counts yet: whatever counts improves on the worst expectation.
            || expected.means.iter().copied().fold(f64::MIN, f64::max),
            |(_, value)| value.ln(),
        );
        let gain = |at: usize| -> f64 {
            let improvement: f64 = expected
                .members
                .iter()
                .map(|(weight, all)| {
                    let (mean, sd) = all[at];
                    let gain = normal::expected_improvement(mean, sd, best);
                    weight * gain * in_time(problem, at, mean, sd)
                })
                .sum();
            improvement * completes[at]
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
            reason: format!(
                "largest expected improvement: {percent:.1} %, completes with {:.0} %",
                completes[configuration] * 100.0
            ),
        })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        let count = search.problem().catalogue.len();
        let Some(expected) = self.expect(search) else { return vec![None; count] };
        let completes = self.completion.probabilities(search);
        (0..count)
            .map(|at| {
                let (mean, sd) = (expected.means[at], expected.sds[at]);
                Some(Prediction { mean, sd, completes: completes[at] })
            })
            .collect()
    }
}
