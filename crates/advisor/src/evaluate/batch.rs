//! Micky on the recorded set: one configuration for all jobs.

use super::acceptance::medians;
use super::scout::RecordedSet;
use crate::methods::Batch;
use crate::search::{Objective, Problem};
use paceline_stats::random::Random;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// How the batch bandit did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchSummary {
    /// Jobs in the batch.
    pub jobs: usize,
    /// Runs made for all of them together.
    pub pulls: f64,
    /// Value of the chosen configuration over each job's optimum: mean over jobs and seeds.
    pub mean: f64,
    /// The same, middle.
    pub median: f64,
    /// Share of jobs within 20 % of their optimum.
    pub within_20: f64,
    /// The choice made most often.
    pub choice: String,
    /// What one configuration for all can reach at best: mean.
    pub ceiling: f64,
}

/// Plays the bandit over every job that completed everywhere.
#[must_use]
pub fn evaluate_batch(set: &RecordedSet, objective: Objective, seeds: u64) -> BatchSummary {
    let problem = Problem {
        catalogue: Arc::clone(&set.catalogue),
        history: Arc::clone(&set.runs),
        objective,
    };
    let count = set.catalogue.len();
    let mut repeats: HashMap<(&str, usize), Vec<f64>> = HashMap::new();
    for row in set.runs.rows() {
        if let Some(seconds) = row.outcome.completed() {
            let value = problem.value(row.configuration, seconds);
            repeats.entry((&row.workload, row.configuration)).or_default().push(value);
        }
    }
    let medians = medians(&set.runs);
    let jobs: Vec<(&str, Vec<f64>)> = medians
        .iter()
        .filter(|(_, times)| times.len() == count)
        .map(|(job, times)| (*job, times.iter().map(|(&at, &s)| problem.value(at, s)).collect()))
        .collect();
    let regret = |job: usize, at: usize| {
        let best = jobs[job].1.iter().copied().fold(f64::INFINITY, f64::min);
        jobs[job].1[at] / best
    };
    let mean_of = |at: usize| {
        (0..jobs.len()).map(|job| regret(job, at)).sum::<f64>() / jobs.len().max(1) as f64
    };
    let mut all = Vec::new();
    let mut pulls = 0.0;
    let mut choices = vec![0usize; count];
    for seed in 0..seeds {
        let mut world = Random::new(seed, 0xba7c);
        let played = Batch { alpha: 1.0, beta: 0.5, seed }.play(count, jobs.len(), |job, arm| {
            let seen = repeats.get(&(jobs[job].0, arm))?;
            Some(seen[world.below(seen.len())])
        });
        let Some(choice) = played else { continue };
        pulls += choice.pulls as f64 / seeds as f64;
        choices[choice.configuration] += 1;
        all.extend((0..jobs.len()).map(|job| regret(job, choice.configuration)));
    }
    all.sort_by(f64::total_cmp);
    let favourite = (0..count).max_by_key(|&at| choices[at]).unwrap_or(0);
    BatchSummary {
        jobs: jobs.len(),
        pulls,
        mean: all.iter().sum::<f64>() / all.len().max(1) as f64,
        median: all.get(all.len() / 2).copied().unwrap_or(f64::NAN),
        within_20: all.iter().filter(|regret| **regret <= 1.2).count() as f64
            / all.len().max(1) as f64,
        choice: set.catalogue.name(favourite),
        ceiling: (0..count).map(mean_of).fold(f64::INFINITY, f64::min),
    }
}
