//! Will a run complete at all?
//!
//! Failures are rare and mostly about memory. The estimate counts completed and failed runs near a
//! configuration: few from past jobs, many from the job itself; a failure of the job speaks
//! against everything with no more memory, a success for everything with no less. Causes other than memory are weighed
//! by [`crate::causes`].

use crate::catalogue::Catalogue;
use crate::causes::Causes;
use crate::gp::matern;
use crate::history::History;
use crate::measurements::Outcome;
use crate::search::Search;

/// Failures believed in before any evidence: one in thirty, worth one run.
const BELIEF: (f64, f64) = (0.033, 1.0);
/// A past application's run counts as this share of one of the job's own.
const PAST: f64 = 0.15;
/// Distance in the unit cube over which runs speak for each other.
const REACH: f64 = 0.35;

/// What is known of completion before the job's first run.
#[derive(Debug)]
pub(crate) struct Completion {
    features: Vec<Vec<f64>>,
    causes: Causes,
    /// Weighted failures and runs of past jobs near each configuration.
    past: Vec<(f64, f64)>,
}

impl Completion {
    /// Past jobs count as far as they are trusted.
    pub(crate) fn new(catalogue: &Catalogue, history: &History, trust: f64) -> Self {
        let features = catalogue.features();
        let count = features.len();
        let applications = {
            let mut names: Vec<&str> =
                history.jobs.iter().map(|job| job.application.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            names.len().max(1) as f64
        };
        let each = trust * PAST * applications / history.jobs.len().max(1) as f64;
        let mut past = vec![(0.0, 0.0); count];
        for job in &history.jobs {
            for (at, sum) in past.iter_mut().enumerate() {
                if let Some(share) = job.completed[at] {
                    *sum = (sum.0 + each * (1.0 - share), sum.1 + each);
                }
            }
        }
        Self { features, causes: Causes::new(catalogue), past }
    }

    /// Probability that a run on each configuration completes.
    pub(crate) fn probabilities(&self, search: &Search) -> Vec<f64> {
        let catalogue = &search.problem().catalogue;
        let seen: Vec<(usize, bool)> = search
            .runs()
            .iter()
            .filter_map(|run| match run.outcome {
                Outcome::Completed { .. } => Some((run.configuration, false)),
                Outcome::Failed { .. } => Some((run.configuration, true)),
                // A run that was ended because it had become dear says nothing of failing.
                Outcome::TimedOut { .. } => {
                    search.ran_out_of_time(run).then_some((run.configuration, true))
                }
            })
            .collect();
        let caused = self.causes.probabilities(&seen, self.features.len());
        (0..self.features.len())
            .map(|at| {
                let (mut failures, mut runs) =
                    (BELIEF.0 * BELIEF.1 + self.past[at].0, BELIEF.1 + self.past[at].1);
                for &(tried, failed) in &seen {
                    let squares: f64 = self.features[at]
                        .iter()
                        .zip(&self.features[tried])
                        .map(|(a, b)| (a - b).powi(2))
                        .sum();
                    let mut weight = matern(squares.sqrt() / REACH);
                    let (less, more) = if failed { (at, tried) } else { (tried, at) };
                    if no_more_memory(catalogue, less, more) {
                        weight = 1.0f64.max(weight);
                    }
                    runs += weight;
                    failures += if failed { weight } else { 0.0 };
                }
                (1.0 - failures / runs) * (1.0 - caused[at])
            })
            .collect()
    }
}

/// Whether the first has at most the memory of the second, per machine, per core and in total.
fn no_more_memory(catalogue: &Catalogue, first: usize, second: usize) -> bool {
    let amounts = |at: usize| {
        let machine = catalogue.machine(at);
        [machine.memory_gib, machine.memory_gib / machine.cores, catalogue.memory_gib(at)]
    };
    amounts(first).iter().zip(amounts(second)).all(|(a, b)| *a <= b)
}
