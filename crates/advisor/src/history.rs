//! The history as a matrix: past jobs by configurations.

use crate::search::Problem;
use paceline_stats::describe::mean;
use std::collections::{BTreeMap, BTreeSet};

/// What past jobs took, ready for models.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) jobs: Vec<PastJob>,
}

/// One past job.
#[derive(Debug, Clone)]
pub(crate) struct PastJob {
    pub(crate) application: String,
    /// Mean `ln` of the objective over completed runs; `None` where none completed.
    pub(crate) values: Vec<Option<f64>>,
    /// Largest `ln` of the objective over completed runs: what one should be ready for.
    pub(crate) worst: Vec<Option<f64>>,
    /// Share of runs that completed; `None` where there were none.
    pub(crate) completed: Vec<Option<f64>>,
    /// Mean metrics of completed runs; empty where there are none.
    pub(crate) metrics: Vec<Vec<f64>>,
}

impl History {
    pub(crate) fn new(problem: &Problem) -> Self {
        let count = problem.catalogue.len();
        type Cell = (Vec<f64>, usize, Vec<Vec<f64>>);
        let mut jobs: BTreeMap<&str, (&str, Vec<Cell>)> = BTreeMap::new();
        for row in problem.history.rows() {
            let (_, cells) = jobs
                .entry(&row.workload)
                .or_insert_with(|| (&row.application, vec![Cell::default(); count]));
            let (values, runs, metrics) = &mut cells[row.configuration];
            *runs += 1;
            if let Some(seconds) = row.outcome.completed() {
                values.push(problem.value(row.configuration, seconds).ln());
                if !row.metrics.is_empty() {
                    metrics.push(row.metrics.clone());
                }
            }
        }
        let jobs = jobs
            .into_values()
            .map(|(application, cells)| PastJob {
                application: application.to_owned(),
                values: cells.iter().map(|cell| mean(cell.0.iter().copied())).collect(),
                worst: cells.iter().map(|cell| cell.0.iter().copied().reduce(f64::max)).collect(),
                completed: cells
                    .iter()
                    .map(|cell| (cell.1 > 0).then(|| cell.0.len() as f64 / cell.1 as f64))
                    .collect(),
                metrics: cells.iter().map(|cell| mean_rows(&cell.2)).collect(),
            })
            // A job that completed nowhere, or once, says nothing of differences.
            .filter(|job: &PastJob| job.values.iter().flatten().count() >= 2)
            .collect();
        Self { jobs }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How well jobs of other applications, or other jobs where there is one application, rank each job's configurations: 1 where the
    /// order is the same, 0 where it is chance or there is one job.
    pub(crate) fn agreement(&self) -> f64 {
        let mut names: Vec<&str> = self.jobs.iter().map(|job| job.application.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let group = |at: usize| {
            let application = names.binary_search(&self.jobs[at].application.as_str());
            if names.len() < 2 { at } else { application.unwrap_or(0) }
        };
        let groups: BTreeSet<usize> = (0..self.jobs.len()).map(group).collect();
        let mut shares = Vec::new();
        for held_out in groups {
            let (own, others): (Vec<usize>, Vec<usize>) =
                (0..self.jobs.len()).partition(|&at| group(at) == held_out);
            if others.is_empty() {
                return 0.0;
            }
            let job = |at: usize| &self.jobs[at];
            let others = Self { jobs: others.into_iter().map(|at| job(at).clone()).collect() };
            let expected = others.mean_distances();
            for job in own.into_iter().map(job) {
                let both = job.values.iter().zip(&expected);
                let (values, expected): (Vec<f64>, Vec<f64>) =
                    both.filter_map(|(value, other)| Some(((*value)?, (*other)?))).unzip();
                shares.push(1.0 - 2.0 * disorder(&values, &expected));
            }
        }
        mean(shares).unwrap_or(0.0)
    }

    /// The configuration that other jobs did best on: `ln` distance to each job's best, failures
    /// charged with the job's worst, averaged over jobs, then applications.
    pub(crate) fn mean_distances(&self) -> Vec<Option<f64>> {
        let count = self.jobs.first().map_or(0, |job| job.values.len());
        (0..count)
            .map(|at| {
                let mut groups: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
                for job in &self.jobs {
                    let (best, worst) = job.range();
                    let distance = match (job.values[at], job.completed[at]) {
                        (Some(value), _) => value - best,
                        (None, Some(_)) => worst - best,
                        (None, None) => continue,
                    };
                    let group = groups.entry(&job.application).or_default();
                    *group = (group.0 + distance, group.1 + 1.0);
                }
                mean(groups.values().map(|(sum, n)| sum / n))
            })
            .collect()
    }
}

impl PastJob {
    /// Smallest and largest value.
    pub(crate) fn range(&self) -> (f64, f64) {
        self.values
            .iter()
            .flatten()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
    }
}

/// Share of pairs that two rankings put in different orders; a tie is half a disagreement.
pub(crate) fn disorder(a: &[f64], b: &[f64]) -> f64 {
    let (mut wrong, mut all) = (0.0, 0.0);
    for first in 0..a.len() {
        for second in 0..first {
            let agrees = (a[first] - a[second]) * (b[first] - b[second]);
            wrong += if agrees > 0.0 {
                0.0
            } else if agrees < 0.0 {
                1.0
            } else {
                0.5
            };
            all += 1.0;
        }
    }
    if all > 0.0 { wrong / all } else { 0.5 }
}

fn mean_rows(rows: &[Vec<f64>]) -> Vec<f64> {
    let Some(first) = rows.first() else { return Vec::new() };
    (0..first.len())
        .map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64)
        .collect()
}
