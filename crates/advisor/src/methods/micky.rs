//! Micky (Hsu et al., CLOUD 2018): one good configuration for a whole batch of workloads.
//!
//! Configurations are the arms of a bandit; a pull runs some workload of the batch on one. First every arm
//! is pulled α times, then β pulls per workload go where the upper confidence bound (UCB1) is
//! highest. The reward is the best value known for that workload over the one observed. For a single job,
//! past jobs are the pulls that were made already.

use super::AdvisorMethod;
use crate::error::AdvisorError;
use crate::history::History;
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};
use paceline_stats::random::Random;

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "micky",
    about: "a bandit over a batch of jobs: one configuration that is good for all",
    needs_history: true,
    uses_history: true,
    build: |problem, _| Ok(Box::new(Micky::new(problem)?)),
};

/// A batch of workloads that share one answer.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Pulls of every arm at first.
    pub alpha: f64,
    /// Further pulls per workload.
    pub beta: f64,
    /// Of every random choice.
    pub seed: u64,
}

/// What a batch settled on.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchChoice {
    /// Index of the arm.
    pub configuration: usize,
    /// Runs made.
    pub pulls: usize,
    /// Mean reward of the chosen arm so far, 1 being the best.
    pub reward: f64,
}

impl Batch {
    /// Plays the bandit. `run(workload, arm)` makes a run and returns the objective's value, or `None`
    /// if it did not complete.
    pub fn play(
        &self,
        arms: usize,
        workloads: usize,
        mut run: impl FnMut(usize, usize) -> Option<f64>,
    ) -> Option<BatchChoice> {
        if arms == 0 || workloads == 0 {
            return None;
        }
        let mut random = Random::new(self.seed, 0x3c);
        let mut pulls: Vec<(usize, usize, Option<f64>)> = Vec::new();
        let first = (self.alpha * arms as f64).round() as usize;
        let more = (self.beta * workloads as f64).round() as usize;
        let mut order: Vec<usize> = (0..arms).collect();
        random.shuffle(&mut order);
        // A workload that runs once has nothing to be compared with. So the pulls go to a panel of
        // workloads, few enough for each to meet every arm about once.
        let mut panel: Vec<usize> = (0..workloads).collect();
        random.shuffle(&mut panel);
        panel.truncate((first + more).div_ceil(arms).max(1));
        for pull in 0..first + more {
            let arm = if pull < first {
                order[pull % arms]
            } else {
                let rewards = rewards(&pulls, arms, workloads);
                (0..arms)
                    .max_by(|&a, &b| {
                        bound(rewards[a], pulls.len()).total_cmp(&bound(rewards[b], pulls.len()))
                    })
                    .unwrap_or(0)
            };
            let seen = |workload: usize| {
                pulls.iter().filter(|pull| pull.0 == workload && pull.1 == arm).count()
            };
            let Some(workload) = panel.iter().copied().min_by_key(|&workload| seen(workload))
            else {
                break;
            };
            pulls.push((workload, arm, run(workload, arm)));
        }
        let rewards = rewards(&pulls, arms, workloads);
        let mean =
            |arm: usize| if rewards[arm].1 > 0.0 { rewards[arm].0 / rewards[arm].1 } else { 0.0 };
        // Of arms with equal means the one pulled more often is the surer choice.
        let configuration = (0..arms).max_by(|&a, &b| {
            mean(a).total_cmp(&mean(b)).then(rewards[a].1.total_cmp(&rewards[b].1))
        })?;
        Some(BatchChoice { configuration, pulls: pulls.len(), reward: mean(configuration) })
    }
}

/// Sum of rewards and pulls per arm, by what is known of each workload now.
fn rewards(
    pulls: &[(usize, usize, Option<f64>)],
    arms: usize,
    workloads: usize,
) -> Vec<(f64, f64)> {
    let mut best = vec![f64::INFINITY; workloads];
    for &(workload, _, value) in pulls {
        best[workload] = best[workload].min(value.unwrap_or(f64::INFINITY));
    }
    let mut sums = vec![(0.0, 0.0); arms];
    for &(workload, arm, value) in pulls {
        sums[arm].0 += value.map_or(0.0, |value| best[workload] / value);
        sums[arm].1 += 1.0;
    }
    sums
}

/// UCB1.
fn bound((sum, pulls): (f64, f64), total: usize) -> f64 {
    if pulls == 0.0 {
        return f64::INFINITY;
    }
    sum / pulls + (2.0 * (total.max(1) as f64).ln() / pulls).sqrt()
}

struct Micky {
    /// Rewards and pulls of past jobs per arm.
    past: Vec<(f64, f64)>,
}

impl Micky {
    fn new(problem: &Problem) -> Result<Self, AdvisorError> {
        let history = History::new(problem);
        if history.is_empty() {
            return Err(AdvisorError::NeedsHistory { method: ENTRY.name });
        }
        let mut past = vec![(0.0, 0.0); problem.catalogue.len()];
        for job in &history.jobs {
            let (best, _) = job.range();
            for (at, sum) in past.iter_mut().enumerate() {
                match (job.values[at], job.completed[at]) {
                    (Some(value), _) => *sum = (sum.0 + (best - value).exp(), sum.1 + 1.0),
                    (None, Some(_)) => sum.1 += 1.0,
                    (None, None) => {}
                }
            }
        }
        Ok(Self { past })
    }
}

impl Advisor for Micky {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let total: f64 = self.past.iter().map(|arm| arm.1).sum();
        let index = |at: usize| bound(self.past[at], total as usize + search.runs().len());
        let configuration = search.untried().max_by(|&a, &b| index(a).total_cmp(&index(b)))?;
        // One answer serves all jobs: after a single run there is nothing more to learn for this one.
        let stop = search
            .best()
            .is_some()
            .then(|| "the best arm of past jobs has run; more runs would be a search".to_owned());
        Some(Proposal {
            configuration,
            stop,
            outlook: None,
            reason: "highest bound over past jobs".to_owned(),
        })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        let Some((best, value)) = search.best() else { return vec![None; self.past.len()] };
        let reward = |at: usize| {
            let (sum, pulls) = self.past[at];
            (pulls > 0.0 && sum > 0.0).then(|| (sum / pulls).ln())
        };
        let Some(own) = reward(best) else { return vec![None; self.past.len()] };
        (0..self.past.len())
            .map(|at| {
                let mean = value.ln() + own - reward(at)?;
                Some(Prediction { mean, sd: 0.5, completes: 1.0 })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearly_best_arm_wins_and_failures_count_as_nothing() {
        // Arm 2 takes half the time of the others; arm 3 always fails.
        let choice = Batch { alpha: 2.0, beta: 1.0, seed: 3 }
            .play(4, 40, |workload, arm| match arm {
                3 => None,
                2 => Some(1.0 + workload as f64),
                _ => Some(2.0 * (1.0 + workload as f64)),
            })
            .unwrap();
        assert_eq!(choice.configuration, 2);
        assert_eq!(choice.pulls, 48);
    }
}
