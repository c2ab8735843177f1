//! Ernest (Venkataraman et al., NSDI 2016): how time scales with machines, from a few cheap runs.
//!
//! `T(s, m) = a + b s/m + c ln m + d m` with non-negative coefficients: fixed work, parallel work on
//! the share `s` of the input, tree aggregation, overhead per machine. Which runs to make is an A-optimal
//! experiment design under a budget. One curve per machine type; shuffles and memory cliffs are
//! outside of it.

use super::Entry;
use crate::error::AdvisorError;
use crate::linear::{Cholesky, dot};
use crate::nnls;
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};
use crate::table::Table;
use std::path::Path;

/// The registry's line.
pub(super) const ENTRY: Entry = Entry {
    name: "ernest",
    about: "a scaling curve for each machine type, from runs chosen by optimal design",
    needs_history: false,
    build: |problem, _| Ok(Box::new(Ernest::new(problem))),
};

/// One run of a scaling study.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingRun {
    /// Share of the input, above 0; 1 is all of it.
    pub fraction: f64,
    /// How many machines.
    pub machines: f64,
    /// Wall time.
    pub seconds: f64,
}

impl ScalingRun {
    /// Reads runs from CSV: `machines`, `seconds`, and `fraction` where runs had part of the input.
    pub fn read(path: &Path) -> Result<Vec<Self>, AdvisorError> {
        let mut table = Table::open(path)?;
        let machines = table.column("machines")?;
        let seconds = table.column("seconds")?;
        let fraction = table.find("fraction");
        let mut runs = Vec::new();
        while let Some(row) = table.next()? {
            let above = |value: f64| value > 0.0;
            let share = match fraction {
                Some(at) => row.number(at, "fraction", "a share above 0, 1 being all", above)?,
                None => 1.0,
            };
            runs.push(Self {
                fraction: share,
                machines: row.number(machines, "machines", "a number above zero", above)?,
                seconds: row.number(seconds, "seconds", "a time above zero", above)?,
            });
        }
        Ok(runs)
    }
}

/// A fitted scaling curve.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Scaling {
    /// Seconds that no machine shortens.
    pub fixed: f64,
    /// Machine-seconds of parallel work.
    pub parallel: f64,
    /// Seconds for each natural logarithm of the number of machines.
    pub aggregation: f64,
    /// Seconds for each machine.
    pub per_machine: f64,
    /// Standard deviation of the relative error on the runs it was fitted to.
    pub spread: f64,
}

fn terms(fraction: f64, machines: f64) -> Vec<f64> {
    vec![1.0, fraction / machines, machines.ln(), machines]
}

impl Scaling {
    /// Fits the curve; at least three different sizes are needed to say anything of its shape.
    pub fn fit(runs: &[ScalingRun]) -> Result<Self, AdvisorError> {
        let mut sizes: Vec<(u64, u64)> =
            runs.iter().map(|run| (run.fraction.to_bits(), run.machines.to_bits())).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 3 {
            return Err(AdvisorError::TooFewRuns { needed: 3, found: sizes.len() });
        }
        if let Some(bad) = runs.iter().find(|run| !(run.seconds.is_finite() && run.seconds > 0.0)) {
            return Err(AdvisorError::ImpossibleTime { seconds: bad.seconds });
        }
        Ok(Self::of(runs))
    }

    /// Relative errors are what counts: rows are divided by the measured time.
    fn of(runs: &[ScalingRun]) -> Self {
        let rows: Vec<Vec<f64>> = runs
            .iter()
            .map(|run| {
                terms(run.fraction, run.machines).iter().map(|term| term / run.seconds).collect()
            })
            .collect();
        let x = nnls::solve(&rows, &vec![1.0; runs.len()]);
        let squares: f64 = rows.iter().map(|row| (dot(row, &x) - 1.0).powi(2)).sum();
        // Coefficients that are in use take a degree of freedom each.
        let used = x.iter().filter(|value| **value > 0.0).count();
        let freedom = runs.len().saturating_sub(used).max(1) as f64;
        Self {
            fixed: x[0],
            parallel: x[1],
            aggregation: x[2],
            per_machine: x[3],
            spread: (squares / freedom).sqrt(),
        }
    }

    /// Seconds on so many machines for this share of the input.
    #[must_use]
    pub fn predict(&self, fraction: f64, machines: f64) -> f64 {
        let x = [self.fixed, self.parallel, self.aggregation, self.per_machine];
        dot(&terms(fraction, machines), &x)
    }
}

/// Which of the candidate runs `(fraction, machines)` to make so that the curve is known best: minimises
/// the summed variance of the coefficients under a budget, where a run costs
/// `(fraction / smallest fraction) / machines`. Returns indices, most useful first.
#[must_use]
pub fn design(candidates: &[(f64, f64)], budget: f64) -> Vec<usize> {
    let smallest = candidates.iter().map(|c| c.0).fold(f64::INFINITY, f64::min);
    let costs: Vec<f64> = candidates.iter().map(|c| c.0 / smallest / c.1).collect();
    let rows: Vec<Vec<f64>> = candidates.iter().map(|c| terms(c.0, c.1)).collect();
    let shares = a_optimal(&rows, &costs, budget);
    let mut chosen: Vec<usize> = (0..rows.len()).filter(|&at| shares[at] > KEPT).collect();
    chosen.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    chosen
}

/// Shares above this are worth a run.
const KEPT: f64 = 0.3;
/// Steps of the optimiser; the gap is below a thousandth long before.
const STEPS: usize = 500;

/// Frank and Wolfe on `tr (Σ λ a aᵀ)⁻¹`, `0 ≤ λ ≤ 1`, `Σ λ c ≤ budget`; the linear step is a fractional
/// knapsack by gain over cost.
fn a_optimal(rows: &[Vec<f64>], costs: &[f64], budget: f64) -> Vec<f64> {
    let n = rows.first().map_or(0, Vec::len);
    // Columns by their means, so that the trace adds up comparable things.
    let scaled: Vec<Vec<f64>> = {
        let mean = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>() / rows.len() as f64;
        let means: Vec<f64> = (0..n).map(mean).map(|m| if m > 0.0 { m } else { 1.0 }).collect();
        rows.iter().map(|row| row.iter().zip(&means).map(|(v, m)| v / m).collect()).collect()
    };
    let start = (budget / costs.iter().sum::<f64>()).min(1.0);
    let mut shares = vec![start; rows.len()];
    for step in 0..STEPS {
        let mut information = vec![0.0; n * n];
        for (row, share) in scaled.iter().zip(&shares) {
            for i in 0..n {
                for j in 0..n {
                    information[i * n + j] += share * row[i] * row[j];
                }
            }
        }
        for i in 0..n {
            information[i * n + i] += 1e-9; // a catalogue may not determine every term
        }
        let Some(factor) = Cholesky::new(information, n) else { break };
        let gains: Vec<f64> = scaled
            .iter()
            .map(|row| {
                let mut solved = row.clone();
                factor.solve(&mut solved);
                dot(&solved, &solved)
            })
            .collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| (gains[b] / costs[b]).total_cmp(&(gains[a] / costs[a])));
        let mut corner = vec![0.0; rows.len()];
        let mut left = budget;
        for at in order {
            corner[at] = (left / costs[at]).clamp(0.0, 1.0);
            left -= corner[at] * costs[at];
            if left <= 0.0 {
                break;
            }
        }
        let gap: f64 = (0..rows.len()).map(|at| gains[at] * (corner[at] - shares[at])).sum();
        let scale: f64 = (0..rows.len()).map(|at| gains[at] * shares[at]).sum();
        if gap < 1e-4 * scale {
            break;
        }
        let pace = 2.0 / (step as f64 + 3.0);
        for (share, corner) in shares.iter_mut().zip(&corner) {
            *share += pace * (corner - *share);
        }
    }
    shares
}

struct Ernest {
    /// Runs to make, in order.
    plan: Vec<usize>,
}

/// Runs per machine type: as many as the curve has terms, less one that is mostly zero.
const PER_TYPE: usize = 3;

impl Ernest {
    fn new(problem: &Problem) -> Self {
        let catalogue = &problem.catalogue;
        let mut plan: Vec<usize> = Vec::new();
        for machine in 0..catalogue.machines().len() {
            let own: Vec<usize> = (0..catalogue.len())
                .filter(|&at| catalogue.configurations()[at].machine == machine)
                .collect();
            plan.extend(spread(&own, |at| f64::from(catalogue.count(at)), PER_TYPE));
        }
        plan.sort_by(|&a, &b| catalogue.usd_per_hour(a).total_cmp(&catalogue.usd_per_hour(b)));
        Self { plan }
    }

    /// A curve for each machine type with enough completed runs.
    fn curves(search: &Search) -> Vec<Option<Scaling>> {
        let catalogue = &search.problem().catalogue;
        (0..catalogue.machines().len())
            .map(|machine| {
                let runs: Vec<ScalingRun> = search
                    .completed()
                    .filter(|&(at, _)| catalogue.configurations()[at].machine == machine)
                    .map(|(at, seconds)| ScalingRun {
                        fraction: 1.0,
                        machines: f64::from(catalogue.count(at)),
                        seconds,
                    })
                    .collect();
                Scaling::fit(&runs).ok()
            })
            .collect()
    }
}

/// The A-optimal choice of `wanted` sizes for one machine type at full input; all if there are no more.
fn spread(own: &[usize], machines: impl Fn(usize) -> f64, wanted: usize) -> Vec<usize> {
    if own.len() <= wanted {
        return own.to_vec();
    }
    let candidates: Vec<(f64, f64)> = own.iter().map(|&at| (1.0, machines(at))).collect();
    let rows: Vec<Vec<f64>> = candidates.iter().map(|c| terms(c.0, c.1)).collect();
    // Runs cost the same here: what counts is their number.
    let shares = a_optimal(&rows, &vec![1.0; rows.len()], wanted as f64);
    let mut order: Vec<usize> = (0..own.len()).collect();
    order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]));
    order.truncate(wanted);
    order.into_iter().map(|at| own[at]).collect()
}

/// The sizes Ernest would run for one machine type.
pub(crate) fn sizes_to_run(counts: &[u32], wanted: usize) -> Vec<u32> {
    let all: Vec<usize> = (0..counts.len()).collect();
    spread(&all, |at| f64::from(counts[at]), wanted).into_iter().map(|at| counts[at]).collect()
}

impl Advisor for Ernest {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let tried = |at: usize| search.runs().iter().any(|run| run.configuration == at);
        if let Some(&configuration) = self.plan.iter().find(|&&at| !tried(at)) {
            let reason = "part of the experiment design of its machine type".to_owned();
            return Some(Proposal { configuration, stop: None, reason });
        }
        let predicted = self.predict(search);
        let value = |at: usize| predicted[at].map_or(f64::INFINITY, |found| found.mean);
        let configuration = search.untried().min_by(|&a, &b| value(a).total_cmp(&value(b)))?;
        let stop = Some("every machine type has its curve".to_owned());
        Some(Proposal { configuration, stop, reason: "best prediction of the curves".to_owned() })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        let problem = search.problem();
        let curves = Self::curves(search);
        (0..problem.catalogue.len())
            .map(|at| {
                let curve = curves[problem.catalogue.configurations()[at].machine].as_ref()?;
                let seconds = curve.predict(1.0, f64::from(problem.catalogue.count(at)));
                let mean = problem.value(at, seconds).ln();
                let sd = curve.spread.max(crate::search::REPEAT_SD);
                mean.is_finite().then_some(Prediction { mean, sd, completes: 1.0 })
            })
            .collect()
    }

    fn recommends_unmeasured(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_of_known_coefficients_is_recovered() {
        let truth = Scaling {
            fixed: 20.0,
            parallel: 900.0,
            aggregation: 5.0,
            per_machine: 0.4,
            spread: 0.0,
        };
        let runs: Vec<ScalingRun> =
            [(0.1, 1.0), (0.2, 2.0), (0.5, 4.0), (0.3, 8.0), (1.0, 16.0), (0.1, 32.0)]
                .map(|(fraction, machines)| ScalingRun {
                    fraction,
                    machines,
                    seconds: truth.predict(fraction, machines),
                })
                .to_vec();
        let found = Scaling::fit(&runs).unwrap();
        assert!((found.predict(1.0, 64.0) / truth.predict(1.0, 64.0) - 1.0).abs() < 1e-6);
        assert!((found.parallel - 900.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn two_sizes_are_too_few() {
        let run = |machines| ScalingRun { fraction: 1.0, machines, seconds: 10.0 };
        let error = Scaling::fit(&[run(1.0), run(2.0), run(2.0)]).unwrap_err();
        assert!(matches!(error, AdvisorError::TooFewRuns { found: 2, .. }));
    }

    #[test]
    fn design_prefers_spread_sizes_and_keeps_the_budget() {
        let candidates: Vec<(f64, f64)> = (1..=10)
            .flat_map(|s| [1.0, 2.0, 4.0, 8.0, 16.0].map(|m| (f64::from(s) / 10.0, m)))
            .collect();
        let chosen = design(&candidates, 10.0);
        assert!(chosen.len() >= 4, "{chosen:?}");
        let machines: Vec<f64> = chosen.iter().map(|&at| candidates[at].1).collect();
        assert!(machines.contains(&16.0) && machines.iter().any(|&m| m <= 2.0), "{machines:?}");
        // Repeating one point would leave the information singular; a good design is far better
        // than the four cheapest points.
        let trace = |chosen: &[usize]| {
            let rows: Vec<Vec<f64>> =
                chosen.iter().map(|&at| terms(candidates[at].0, candidates[at].1)).collect();
            let mut information = vec![0.0; 16];
            for row in &rows {
                for i in 0..4 {
                    for j in 0..4 {
                        information[i * 4 + j] += row[i] * row[j];
                    }
                }
            }
            let factor = Cholesky::new(information, 4)?;
            Some((0..4).fold(0.0, |sum, at| {
                let mut unit = vec![0.0; 4];
                unit[at] = 1.0;
                factor.solve(&mut unit);
                sum + unit[at]
            }))
        };
        let ours = trace(&chosen).unwrap();
        let mut cheapest: Vec<usize> = (0..candidates.len()).collect();
        cheapest.sort_by(|&a, &b| {
            let cost = |at: usize| candidates[at].0 / candidates[at].1;
            cost(a).total_cmp(&cost(b))
        });
        cheapest.truncate(chosen.len());
        assert!(trace(&cheapest).is_none_or(|other| other > ours));
    }
}
