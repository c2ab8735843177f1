//! The figures of an evaluation.

use super::replay::JobTraces;
use paceline_stats::describe::{self, quantile_of_sorted};
use paceline_stats::paired::{cliffs_delta, group_bootstrap, holm, wilcoxon};
use serde::Serialize;

/// Numbers of runs after which the regret is reported.
pub const CHECKPOINTS: [usize; 8] = [1, 3, 6, 10, 12, 15, 20, 30];

/// Dollars spent, in units of the optimum's, at which the regret is reported.
pub const BUDGETS: [f64; 8] = [2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0];

/// A distribution in four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Average over seeds, then jobs.
    pub mean: f64,
    /// Middle of all searches.
    pub median: f64,
    /// Nine of ten searches are below.
    pub p90: f64,
    pub max: f64,
}

/// How one method did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub method: String,
    pub jobs: usize,
    /// Searches per job.
    pub seeds: usize,
    /// Regret after so many runs.
    pub regret: Vec<(usize, Spread)>,
    /// Nine-in-ten interval of the mean regret, resampling whole applications.
    pub interval: Vec<(usize, [f64; 2])>,
    /// Share of searches within 0, 5, 10, 20 % of the optimum after so many runs.
    pub within: Vec<(usize, [f64; 4])>,
    /// Share of searches that had run the optimal configuration after so many runs.
    pub found: Vec<(usize, f64)>,
    /// Share of jobs of which at least half of the searches had: what a study that shows the median of
    /// its repetitions counts.
    pub found_jobs: Vec<(usize, f64)>,
    /// Mean runs until within 20 %, within 10 % and optimal; a search that never was counts as one
    /// more than it made.
    pub steps: [f64; 3],
    /// Dollars spent until within 20 % and within 10 %, in units of the optimum, and standard errors over seeds; a search that never
    /// was counts with all it spent.
    pub money_to: [[f64; 2]; 2],
    /// Dollars spent after so many runs, failed ones included, in units of the optimum.
    pub spent: Vec<(usize, f64)>,
    /// Mean regret after so many units of the optimum's dollars were spent, and its standard error over seeds.
    pub by_money: Vec<(f64, f64, f64)>,
    /// Standard errors of the mean regret over seeds, at the same numbers of runs.
    pub standard_error: Vec<(usize, f64)>,
    /// Share of recommendations that do not complete.
    pub failing: f64,
    /// Mean runs and mean regret at the method's own stop; searches that never stopped count at their end.
    pub own_stop: [f64; 2],
    /// Root mean square relative error of predictions at the own stop, where the method predicts: mean.
    pub prediction_error: Option<f64>,
    /// Share of predictions at the own stop whose nine-in-ten interval held the recorded value.
    pub coverage: Option<f64>,
    /// Share of searches that stopped by themselves.
    pub stopped: f64,
    /// Cost of the search to its own stop plus 1, 10, 100 runs of the choice, in units of the optimum,
    /// divided by 1, 10, 100.
    pub total: [f64; 3],
}

impl Summary {
    /// Sums up all searches of a method.
    #[must_use]
    pub fn of(method: &str, jobs: &[JobTraces]) -> Self {
        let per_job = |value: &dyn Fn(&super::Trace) -> f64| -> Vec<f64> {
            jobs.iter()
                .map(|job| mean(job.traces.iter().map(value)))
                .filter(|value| value.is_finite())
                .collect()
        };
        let overall = |value: &dyn Fn(&super::Trace) -> f64| mean(per_job(value));
        let longest = jobs.iter().flat_map(|job| &job.traces).map(|trace| trace.regret.len()).max();
        let longest = longest.unwrap_or(0);
        let points: Vec<usize> =
            CHECKPOINTS.into_iter().filter(|&point| point <= longest).collect();
        // A search that ran out of candidates keeps its last value.
        let after = |values: &[f64], point: usize| -> f64 {
            values.get(point.min(values.len()).saturating_sub(1)).copied().unwrap_or(f64::NAN)
        };
        let mut regret = Vec::new();
        let mut interval = Vec::new();
        let mut within = Vec::new();
        let mut found = Vec::new();
        let mut found_jobs = Vec::new();
        let mut spent = Vec::new();
        let groups: Vec<&str> = jobs.iter().map(|job| job.application.as_str()).collect();
        for &point in &points {
            let mut all: Vec<f64> = jobs
                .iter()
                .flat_map(|job| &job.traces)
                .map(|trace| after(&trace.regret, point))
                .filter(|value| value.is_finite())
                .collect();
            all.sort_by(f64::total_cmp);
            let at = |share: f64| {
                if all.is_empty() { f64::NAN } else { quantile_of_sorted(&all, share) }
            };
            let spread = Spread {
                mean: overall(&|trace| after(&trace.regret, point)),
                median: at(0.5),
                p90: at(0.9),
                max: at(1.0),
            };
            regret.push((point, spread));
            let means = per_job(&|trace| after(&trace.regret, point));
            interval.push((point, group_bootstrap(&means, &groups, 2000)));
            let share = |limit: f64| {
                overall(&|trace| f64::from(after(&trace.regret, point) <= limit + 1e-9))
            };
            within.push((point, [share(1.0), share(1.05), share(1.1), share(1.2)]));
            let had = |trace: &super::Trace| trace.optimum_at.is_some_and(|at| at <= point);
            let shares = per_job(&|trace| f64::from(had(trace)));
            found_jobs.push((point, mean(shares.iter().map(|&share| f64::from(share >= 0.5)))));
            found.push((point, mean(shares)));
            spent.push((point, overall(&|trace| after(&trace.spent, point))));
        }
        let seeds = jobs.first().map_or(0, |job| job.traces.len());
        // Searches of one seed make one mean over jobs; how these differ says how sure the overall mean is.
        let error = |value: &dyn Fn(&super::Trace) -> f64| -> f64 {
            let means: Vec<f64> = (0..seeds)
                .map(|seed| mean(jobs.iter().filter_map(|job| job.traces.get(seed)).map(value)))
                .collect();
            let centre = mean(means.iter().copied());
            let squares: f64 = means.iter().map(|value| (value - centre).powi(2)).sum();
            (squares / (seeds as f64 - 1.0).max(1.0) / seeds.max(1) as f64).sqrt()
        };
        let standard_error = points
            .iter()
            .map(|&point| (point, error(&|trace| after(&trace.regret, point))))
            .collect();
        // With too little money for the first run, the worst choice stands.
        let afforded = |trace: &super::Trace, budget: f64| -> f64 {
            let runs = trace.spent.iter().take_while(|spent| **spent <= budget).count();
            if runs == 0 { trace.worst } else { after(&trace.regret, runs) }
        };
        let by_money = BUDGETS
            .iter()
            .map(|&budget| {
                let value = |trace: &super::Trace| afforded(trace, budget);
                (budget, overall(&value), error(&value))
            })
            .collect();
        let steps_to = |limit: f64| {
            overall(&|trace| {
                let first = trace.regret.iter().position(|&regret| regret <= limit + 1e-9);
                first.unwrap_or(trace.regret.len()) as f64 + 1.0
            })
        };
        let money_to = [1.2, 1.1].map(|limit| {
            let value = |trace: &super::Trace| {
                let first = trace.regret.iter().position(|&regret| regret <= limit + 1e-9);
                after(&trace.spent, first.map_or(trace.spent.len(), |at| at + 1))
            };
            [overall(&value), error(&value)]
        });
        let steps_to_optimum = overall(&|trace| {
            trace.optimum_at.map_or(trace.regret.len() as f64 + 1.0, |at| at as f64)
        });
        let stop = |trace: &super::Trace| -> (usize, f64) {
            let end = trace.regret.len();
            trace.stop.unwrap_or((end, trace.regret.last().copied().unwrap_or(f64::NAN)))
        };
        let total = |uses: f64| {
            overall(&|trace| {
                let (runs, regret) = stop(trace);
                let search = if runs == 0 { 0.0 } else { after(&trace.spent, runs) };
                (search + uses * regret) / uses
            })
        };
        let (asked, failing) = jobs
            .iter()
            .flat_map(|job| &job.traces)
            .fold((0, 0), |sum, t| (sum.0 + t.recommendations, sum.1 + t.failing));
        Self {
            method: method.to_owned(),
            jobs: jobs.len(),
            seeds: jobs.first().map_or(0, |job| job.traces.len()),
            regret,
            interval,
            within,
            found,
            found_jobs,
            steps: [steps_to(1.2), steps_to(1.1), steps_to_optimum],
            money_to,
            spent,
            by_money,
            standard_error,
            failing: failing as f64 / f64::from(asked.max(1) as u32),
            own_stop: [overall(&|t| stop(t).0 as f64), overall(&|t| stop(t).1)],
            prediction_error: {
                let errors: Vec<f64> = jobs
                    .iter()
                    .flat_map(|job| &job.traces)
                    .filter_map(|trace| trace.prediction_error)
                    .collect();
                (!errors.is_empty()).then(|| mean(errors))
            },
            coverage: {
                let all = jobs.iter().flat_map(|job| &job.traces).map(|trace| trace.covered);
                let [inside, asked] =
                    all.fold([0; 2], |sum, own| [sum[0] + own[0], sum[1] + own[1]]);
                (asked > 0).then(|| inside as f64 / asked as f64)
            },
            stopped: overall(&|trace| f64::from(trace.stop.is_some())),
            total: [total(1.0), total(10.0), total(100.0)],
        }
    }

    /// The mean regret after so many runs.
    #[must_use]
    pub fn mean_regret(&self, runs: usize) -> Option<f64> {
        self.regret.iter().find(|(point, _)| *point == runs).map(|(_, spread)| spread.mean)
    }
}

/// How each of several methods differs from the first one after `runs` runs, job by job: name, Wilcoxon's p
/// after Holm's correction, Cliff's delta (negative: smaller regret than the first).
#[must_use]
pub fn compare(all: &[(&str, &[JobTraces])], runs: usize) -> Vec<(String, f64, f64)> {
    let per_job = |jobs: &[JobTraces]| -> Vec<f64> {
        jobs.iter()
            .map(|job| {
                mean(job.traces.iter().map(|trace| {
                    let at = runs.min(trace.regret.len()).saturating_sub(1);
                    trace.regret.get(at).copied().unwrap_or(f64::NAN)
                }))
            })
            .collect()
    };
    let Some(((_, first), others)) = all.split_first() else { return Vec::new() };
    let base = per_job(first);
    let values: Vec<Vec<f64>> = others.iter().map(|(_, jobs)| per_job(jobs)).collect();
    let raw: Vec<f64> = values.iter().map(|values| wilcoxon(values, &base)).collect();
    others
        .iter()
        .zip(holm(&raw))
        .zip(&values)
        .map(|(((name, _), p), values)| ((*name).to_owned(), p, cliffs_delta(values, &base)))
        .collect()
}

/// What no search has is left out where figures are summed up, and empty on a page.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    describe::mean(values).unwrap_or(f64::NAN)
}
