//! One question, the runs made for it so far, and the answer.
//!
//! An [`Advisor`] is a pure function of the question, the runs and a seed: it keeps nothing between
//! calls. So a search survives any interruption as the list of its runs, and is repeatable.

use crate::catalogue::Catalogue;
use crate::error::AdvisorError;
use crate::measurements::{Measurements, Outcome};
use paceline_forecast::Estimate;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// What is to be small.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Objective {
    /// Dollars per run.
    Cost,
    /// Seconds per run.
    Time,
    /// Dollars per run, among the configurations that finish in time.
    CostUnderDeadline {
        /// The limit in seconds.
        deadline: f64,
    },
}

/// The question.
#[derive(Debug, Clone)]
pub struct Problem {
    /// What can be rented.
    pub catalogue: Arc<Catalogue>,
    /// Runs of other jobs.
    pub history: Arc<Measurements>,
    /// What is to be small.
    pub objective: Objective,
}

impl Problem {
    /// The objective's value for a run of `seconds`: dollars or seconds.
    #[must_use]
    pub fn value(&self, configuration: usize, seconds: f64) -> f64 {
        match self.objective {
            Objective::Time => seconds,
            Objective::Cost | Objective::CostUnderDeadline { .. } => {
                self.catalogue.cost(configuration, seconds)
            }
        }
    }

    /// The time at which a configuration reaches a value of the objective.
    #[must_use]
    pub fn seconds(&self, configuration: usize, value: f64) -> f64 {
        value / self.value(configuration, 1.0)
    }

    /// The time limit, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<f64> {
        match self.objective {
            Objective::CostUnderDeadline { deadline } => Some(deadline),
            Objective::Cost | Objective::Time => None,
        }
    }
}

/// One run made for this question.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Index into the catalogue.
    pub configuration: usize,
    pub outcome: Outcome,
    /// Resource metrics in the order of the history's names; empty where none were taken.
    pub metrics: Vec<f64>,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    problem: Problem,
    runs: Vec<Run>,
    seed: u64,
}

/// What a run tells a model: `ln` of the objective, and how far to believe it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Observation {
    pub(crate) configuration: usize,
    pub(crate) value: f64,
    /// Multiplies the noise variance: 1 for a measured value, more for an assumed one.
    pub(crate) noisier: f64,
}

impl Search {
    /// A search without any run yet.
    #[must_use]
    pub fn new(problem: Problem, seed: u64) -> Self {
        Self { problem, runs: Vec::new(), seed }
    }

    /// The question.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The runs so far.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The seed of every random choice.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Adds a result.
    pub fn tell(&mut self, run: Run) -> Result<(), AdvisorError> {
        if !run.outcome.possible() {
            return Err(AdvisorError::ImpossibleTime { seconds: run.outcome.seconds() });
        }
        self.runs.push(run);
        Ok(())
    }

    /// Configurations that have not been tried.
    pub fn untried(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.problem.catalogue.len())
            .filter(|&at| self.runs.iter().all(|run| run.configuration != at))
    }

    /// The best completed run that keeps the deadline: configuration and value of the objective.
    #[must_use]
    pub fn best(&self) -> Option<(usize, f64)> {
        let deadline = self.problem.deadline().unwrap_or(f64::INFINITY);
        self.completed()
            .filter(|&(_, seconds)| seconds <= deadline)
            .map(|(at, seconds)| (at, self.problem.value(at, seconds)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether a run was ended from outside before it had cost what the best one did: it is not known to be dear, but it does not
    /// complete in the time there is.
    pub(crate) fn ran_out_of_time(&self, run: &Run) -> bool {
        let Outcome::TimedOut { seconds } = run.outcome else { return false };
        let paid = self.problem.value(run.configuration, seconds);
        self.best().is_none_or(|(_, best)| paid < best)
    }

    /// Completed configurations with their mean times.
    pub(crate) fn completed(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let mut seen = Vec::new();
        for run in &self.runs {
            if run.outcome.completed().is_some() && !seen.contains(&run.configuration) {
                seen.push(run.configuration);
            }
        }
        seen.into_iter().map(|at| {
            let times: Vec<f64> = self
                .runs
                .iter()
                .filter(|run| run.configuration == at)
                .filter_map(|run| run.outcome.completed())
                .collect();
            (at, times.iter().sum::<f64>() / times.len() as f64)
        })
    }

    /// Dollars spent on all runs, failed ones too.
    #[must_use]
    pub fn spent_usd(&self) -> f64 {
        let catalogue = &self.problem.catalogue;
        self.runs.iter().map(|run| catalogue.cost(run.configuration, run.outcome.seconds())).sum()
    }

    /// Seconds spent on all runs, failed ones too.
    #[must_use]
    pub fn spent_seconds(&self) -> f64 {
        self.runs.iter().map(|run| run.outcome.seconds()).sum()
    }

    /// What the runs tell a model. A run that did not complete counts as bad as the worst completed one,
    /// or as what was paid for it if that is more: its true value is unknown, its neighbours'
    /// prospects are poor.
    pub(crate) fn observations(&self) -> Vec<Observation> {
        let mut observations: Vec<Observation> = self
            .completed()
            .map(|(configuration, seconds)| Observation {
                configuration,
                value: self.problem.value(configuration, seconds).ln(),
                noisier: 1.0,
            })
            .collect();
        let worst = observations.iter().map(|seen| seen.value).fold(f64::NEG_INFINITY, f64::max);
        for run in &self.runs {
            let known = observations.iter().any(|seen| seen.configuration == run.configuration);
            if known {
                continue;
            }
            let paid = self.problem.value(run.configuration, run.outcome.seconds()).ln();
            let value = paid.max(worst);
            // Nothing at all is known of the size of a value: no observation.
            if value.is_finite() {
                let configuration = run.configuration;
                observations.push(Observation { configuration, value, noisier: 4.0 });
            }
        }
        observations
    }
}

/// What is expected of a run before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RunOutlook {
    /// Seconds after which it cannot become a choice worth having and is better ended; its result is then a lower bound, not lost.
    pub limit: Option<f64>,
    /// What it is expected to take off the best value so far, as a share of it; `None` before any run counts.
    pub saving: Option<f64>,
    /// Dollars it is expected to cost, ended at the limit.
    pub usd: Option<f64>,
}

/// What to run next.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// Index into the catalogue.
    pub configuration: usize,
    /// Why the method would stop instead; a caller with a budget may go on.
    pub stop: Option<String>,
    /// What is expected of the run, where the method has a model.
    pub outlook: Option<RunOutlook>,
    pub reason: String,
}

/// What a model expects of one configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// `ln` of the objective.
    pub mean: f64,
    /// Its standard deviation.
    pub sd: f64,
    /// Probability that the run completes.
    pub completes: f64,
}

/// The answer so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// Index into the catalogue.
    pub configuration: usize,
    /// Expected wall time in seconds.
    pub seconds: Estimate,
    /// Expected dollars per run.
    pub usd: Estimate,
    /// Whether it has been run, or is only predicted.
    pub measured: bool,
    /// The next best, with its expected dollars and seconds.
    pub runner_up: Option<(usize, f64, f64)>,
    pub reason: String,
    pub runs: usize,
    /// Runs among them that did not complete.
    pub failed_runs: usize,
    /// Seconds the search has taken on the machines.
    pub search_seconds: f64,
    /// Dollars the search has cost.
    pub search_usd: f64,
}

/// A method of choosing configurations.
pub trait Advisor: Send + Sync {
    /// What to run next; `None` once everything has been tried.
    fn propose(&self, search: &Search) -> Option<Proposal>;

    /// What the method expects of each configuration, where it has a model.
    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        vec![None; search.problem().catalogue.len()]
    }

    /// Whether a prediction may outrank a measured run in the recommendation.
    fn recommends_unmeasured(&self) -> bool {
        false
    }

    /// The answer so far; `None` while nothing completed and nothing is predicted.
    fn recommend(&self, search: &Search) -> Option<Recommendation> {
        recommend(search, &self.predict(search), self.recommends_unmeasured())
    }
}

/// Repeated runs of one configuration differ by about this much (median coefficient of variation of the
/// Scout set's repeats: 6.3 %).
pub(crate) const REPEAT_SD: f64 = 0.065;
/// Nine of ten pairs of repeated runs on rented machines differ by at most this much, in `ln` (Scout's single machines): most
/// differ little, a few by a lot, which no bell curve through the typical difference shows.
const REPEATS_WITHIN: f64 = 0.32;
/// A history with fewer pairs of repeats does not say how much they differ.
const FEWEST_PAIRS: usize = 30;
/// Half the width of a nine-in-ten interval, in standard deviations.
pub(crate) const NINE_IN_TEN: f64 = 1.645;

/// By how much two runs of one job on one configuration differ nine times in ten, in `ln`: as past jobs' repeats did, where there
/// are enough of them.
#[must_use]
pub fn repeats_within(history: &Measurements) -> f64 {
    let mut cells: HashMap<(&str, usize), Vec<f64>> = HashMap::new();
    for row in history.rows().iter().filter(|row| !row.stands_in) {
        if let Some(seconds) = row.outcome.completed() {
            cells.entry((&row.workload, row.configuration)).or_default().push(seconds.ln());
        }
    }
    let mut gaps: Vec<f64> = Vec::new();
    for times in cells.values() {
        for (at, first) in times.iter().enumerate() {
            gaps.extend(times[at + 1..].iter().map(|second| (first - second).abs()));
        }
    }
    if gaps.len() < FEWEST_PAIRS {
        return REPEATS_WITHIN;
    }
    let place = (gaps.len() * 9 / 10).min(gaps.len() - 1);
    *gaps.select_nth_unstable_by(place, f64::total_cmp).1
}

fn recommend(
    search: &Search,
    predictions: &[Option<Prediction>],
    unmeasured: bool,
) -> Option<Recommendation> {
    let problem = search.problem();
    let deadline = problem.deadline().unwrap_or(f64::INFINITY);
    // (configuration, ln value, sd, measured)
    let mut ranked: Vec<(usize, f64, f64, bool)> = search
        .completed()
        .filter(|&(_, seconds)| seconds <= deadline)
        .map(|(at, seconds)| (at, problem.value(at, seconds).ln(), 0.0, true))
        .collect();
    if unmeasured || ranked.is_empty() {
        for at in search.untried() {
            if let Some(found) = predictions.get(at).copied().flatten() {
                let in_time = problem.seconds(at, found.mean.exp()) <= deadline;
                if in_time && found.completes > 0.5 {
                    ranked.push((at, found.mean, found.sd, false));
                }
            }
        }
    }
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    let &(configuration, mean, sd, measured) = ranked.first()?;
    // The next run differs from the measured ones as repeats do; the mean of several is surer than one.
    let within = if measured {
        let own =
            |run: &&Run| run.configuration == configuration && run.outcome.completed().is_some();
        let runs = search.runs().iter().filter(own).count().max(1) as f64;
        repeats_within(&problem.history) * (0.5 + 0.5 / runs).sqrt()
    } else {
        NINE_IN_TEN * sd
    };
    // A predicted runner-up is worth naming even where only measured runs may win.
    let predicted = search.untried().filter_map(|at| {
        predictions.get(at).copied().flatten().map(|found| (at, found.mean, found.sd, false))
    });
    let second = ranked
        .get(1)
        .copied()
        .or_else(|| predicted.filter(|p| p.0 != configuration).min_by(|a, b| a.1.total_cmp(&b.1)));
    let price = problem.catalogue.usd_per_hour(configuration) / 3600.0;
    let time = |ln_value: f64| problem.seconds(configuration, ln_value.exp());
    let seconds =
        Estimate { value: time(mean), low: time(mean - within), high: time(mean + within) };
    let usd = Estimate {
        value: seconds.value * price,
        low: seconds.low * price,
        high: seconds.high * price,
    };
    let failed_runs = search.runs().iter().filter(|run| run.outcome.completed().is_none()).count();
    let what = match problem.objective {
        Objective::Time => "fastest",
        Objective::Cost => "cheapest",
        Objective::CostUnderDeadline { .. } => "cheapest in time",
    };
    let completed = search.runs().len() - failed_runs;
    let mut reason = if measured {
        format!("{what} of {completed} completed runs")
    } else {
        format!("{what} by prediction from {completed} completed runs; not run itself")
    };
    if let Some(second) = second {
        let gap = (second.1 - mean).exp_m1() * 100.0;
        let name = problem.catalogue.name(second.0);
        let name = if second.3 { name } else { format!("{name} (predicted)") };
        let takes = if problem.objective == Objective::Time { "takes" } else { "costs" };
        reason += &match gap.round() {
            0.0 => format!("; {name} {takes} the same"),
            more if more > 0.0 => format!("; {name} {takes} {more:.0} % more"),
            less => format!("; {name} {takes} {:.0} % less, if the prediction holds", -less),
        };
    }
    Some(Recommendation {
        configuration,
        seconds,
        usd,
        measured,
        runner_up: second.map(|(at, mean, ..)| {
            let seconds = problem.seconds(at, mean.exp());
            (at, problem.catalogue.cost(at, seconds), seconds)
        }),
        reason,
        runs: search.runs().len(),
        failed_runs,
        search_seconds: search.spent_seconds(),
        search_usd: search.spent_usd(),
    })
}
