//! Our own: transfer from past jobs, aware of failures and of money, without leaks.
//!
//! The first run goes where other jobs did best, or where laws of scaling expect the least. After that, the model of
//! [`crate::transfer`] gives every configuration an expected value and its uncertainty, [`crate::completion`] the chance that the run
//! completes; the next run is where the expected improvement, times that chance, is largest for the dollars it is
//! expected to cost. A run that has cost half as much again as the best one cannot win and is ended: what it
//! would have cost is then known to be more. Only completed runs are recommended.

use super::AdvisorMethod;
use super::cherrypick::in_time;
use crate::completion::Completion;
use crate::history::History;
use crate::laws;
use crate::measurements::Outcome;
use crate::search::{Advisor, Objective, Prediction, Problem, Proposal, RunOutlook, Search};
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

/// A run is ended when it has cost this many times the best one.
const CUT: f64 = 1.5;
/// Noise of a value that is only known to be larger, over that of a measured one.
const CENSORED_NOISE: f64 = 4.0;
/// A run cut short before any completed would have taken half as long again, as far as anybody knows: `ln 1.5`.
const CUT_SHORT: f64 = 0.405;

pub(crate) struct Paceline {
    transfer: Transfer,
    completion: Completion,
    /// Mean `ln` distance of other jobs to their best; empty without any.
    distances: Vec<Option<f64>>,
    /// The same of laws of scaling.
    laws: Vec<f64>,
    /// How far past jobs are trusted, 0 to 1.
    trust: f64,
    past_jobs: usize,
    tuning: Tuning,
}

impl Paceline {
    pub(crate) fn new(problem: &Problem, seed: u64, tuning: Tuning) -> Self {
        let features = problem.catalogue.features();
        let history = History::new(problem);
        let past_jobs = history.jobs.len();
        let all = laws::all(problem);
        let laws = laws::mean_distance(&all);
        let transfer = Transfer::new(features, &history, all, seed, tuning);
        let trust = transfer.trust();
        Self {
            trust,
            transfer,
            distances: history.mean_distances(),
            completion: Completion::new(&problem.catalogue, &history, trust),
            laws,
            past_jobs,
            tuning,
        }
    }

    /// The model after the job's own runs; `None` before any of them says something.
    fn expect(&self, search: &Search) -> Option<Expectation> {
        let problem = search.problem();
        let (mut at, mut values): (Vec<usize>, Vec<f64>) =
            search.completed().map(|(at, seconds)| (at, problem.value(at, seconds).ln())).unzip();
        let mut noisier = vec![1.0; at.len()];
        let cut = search.runs().iter().filter_map(|run| match run.outcome {
            Outcome::TimedOut { seconds } if !at.contains(&run.configuration) => {
                let paid = problem.value(run.configuration, seconds).ln();
                Some((run.configuration, paid, search.ran_out_of_time(run)))
            }
            _ => None,
        });
        let cut: Vec<(usize, f64, bool)> = cut.collect();
        if cut.is_empty() {
            return (!at.is_empty()).then(|| self.transfer.condition(&at, &values, &noisier));
        }
        // What a run cut short would have cost: more than was paid, and as much more as the other runs let expect.
        let others = (!at.is_empty()).then(|| self.transfer.condition(&at, &values, &noisier));
        let worst = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (configuration, paid, outside) in cut {
            let value = match &others {
                // Ended from outside, at whatever price that was: nothing to hope for there.
                _ if outside => (paid + CUT_SHORT).max(worst),
                Some(others) => {
                    mean_above(others.means[configuration], others.sds[configuration], paid)
                }
                None => paid + CUT_SHORT,
            };
            at.push(configuration);
            values.push(value);
            noisier.push(CENSORED_NOISE);
        }
        Some(self.transfer.condition(&at, &values, &noisier))
    }

    /// Where to begin, and why: where other jobs did best as far as they are trusted, and where laws of scaling expect
    /// little.
    fn first(&self, search: &Search, completes: &[f64]) -> Option<(usize, String)> {
        let problem = search.problem();
        let catalogue = &problem.catalogue;
        // Nothing is known of times yet: under a deadline only much power is a hope of keeping it.
        let hurry = problem.deadline().is_some();
        let fastest: Vec<f64> = if hurry {
            let time = Problem { objective: Objective::Time, ..problem.clone() };
            laws::mean_distance(&laws::all(&time))
        } else {
            vec![0.0; catalogue.len()]
        };
        let score = |at: usize| {
            let law = self.laws[at] + self.tuning.hurry * fastest[at];
            let known = self.distances.get(at).copied().flatten();
            let past = known.unwrap_or(law + 0.1);
            // A failure teaches little and must be followed by another try.
            self.trust * past + (1.0 - self.trust) * law - completes[at].max(1e-3).ln()
        };
        let at = search.untried().min_by(|&a, &b| score(a).total_cmp(&score(b)))?;
        let known = self.distances.get(at).copied().flatten().filter(|_| self.trust >= 0.5);
        let reason = match known {
            Some(distance) => format!(
                "the best start by past jobs: {:.0} % above each one's best on average, completes with {:.0} %",
                distance.exp_m1() * 100.0,
                completes[at] * 100.0
            ),
            None => {
                let why = match self.past_jobs {
                    0 => "no past jobs to learn from".to_owned(),
                    1 => "one past job is too little to learn from".to_owned(),
                    _ if self.distances.iter().all(Option::is_none) => {
                        "past jobs did not run on what is left".to_owned()
                    }
                    some if self.trust < 0.5 => {
                        format!(
                            "{some} past jobs are too few, or too unlike each other, to rely on"
                        )
                    }
                    _ => "past jobs did not run on what is left".to_owned(),
                };
                let least = match problem.objective {
                    Objective::Time => "the least time",
                    Objective::Cost => "the lowest cost",
                    Objective::CostUnderDeadline { .. } => "a low cost in time",
                };
                format!("{why}: begins where laws of scaling expect {least}")
            }
        };
        Some((at, reason))
    }

    /// Seconds after which a run on a configuration cannot become the choice.
    fn limit(problem: &Problem, at: usize, best: Option<f64>) -> Option<f64> {
        let by_best = best.map(|value| problem.seconds(at, CUT * value));
        match (by_best, problem.deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Dollars that a run is expected to cost, ended at its limit.
    fn price(problem: &Problem, at: usize, mean: f64, sd: f64, limit: Option<f64>) -> f64 {
        let limit = limit.map(|seconds| problem.value(at, seconds));
        let value = expected_up_to(mean, sd, limit.unwrap_or(f64::INFINITY));
        problem.catalogue.cost(at, problem.seconds(at, value))
    }
}

impl Advisor for Paceline {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let problem = search.problem();
        let completes = self.completion.probabilities(search);
        let Some(expected) = self.expect(search) else {
            let (configuration, reason) = self.first(search, &completes)?;
            let limit = Self::limit(problem, configuration, None);
            let outlook = Some(RunOutlook { limit, saving: None, usd: None });
            return Some(Proposal { configuration, stop: None, outlook, reason });
        };
        let found = search.best().map(|(_, value)| value);
        let best = found.map_or_else(
            // Nothing counts yet: whatever counts improves on the worst expectation.
            || expected.means.iter().copied().fold(f64::MIN, f64::max),
            f64::ln,
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
        let price = |at: usize| {
            let limit = Self::limit(problem, at, found);
            Self::price(problem, at, expected.means[at], expected.sds[at], limit)
        };
        let rated = search.untried().map(|at| (at, gain(at), price(at)));
        let worth = |&(_, gain, usd): &(usize, f64, f64)| gain / usd.powf(self.tuning.money);
        let all: Vec<(usize, f64, f64)> = rated.collect();
        let most = all.iter().map(|found| found.1).fold(0.0, f64::max);
        let &(configuration, gain, usd) =
            all.iter().max_by(|a, b| worth(a).total_cmp(&worth(b)))?;
        let done = most < self.tuning.enough
            && search.runs().len() >= self.tuning.fewest
            && found.is_some();
        let percent = (1.0 - (-most).exp()) * 100.0;
        let saving = found.map(|_| 1.0 - (-gain).exp());
        Some(Proposal {
            configuration,
            stop: done.then(|| {
                format!("no untried configuration is expected to save more than {percent:.1} %")
            }),
            outlook: Some(RunOutlook {
                limit: Self::limit(problem, configuration, found),
                saving,
                usd: Some(usd),
            }),
            reason: format!(
                "largest expected improvement for its price: {:.1} %, completes with {:.0} %",
                saving.unwrap_or(1.0 - (-gain).exp()) * 100.0,
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
                let (mean, sd) = (expected.means[at], expected.spreads[at]);
                Some(Prediction { mean, sd, completes: completes[at] })
            })
            .collect()
    }
}

/// Mean of a normal variable that is known to be above a bound.
fn mean_above(mean: f64, sd: f64, bound: f64) -> f64 {
    let z = (bound - mean) / sd.max(1e-9);
    let above = normal::below(-z);
    // Far below the bound the tail is nearly at the bound itself.
    if above < 1e-6 { bound + 0.1 * sd } else { mean + sd * normal::density(z) / above }
}

/// Expected value of `e^x`, `x` normal, cut off at a limit.
fn expected_up_to(mean: f64, sd: f64, limit: f64) -> f64 {
    let whole = (mean + sd * sd / 2.0).exp();
    if !limit.is_finite() {
        return whole;
    }
    let z = (limit.ln() - mean) / sd.max(1e-9);
    whole * normal::below(z - sd) + limit * normal::below(-z)
}
