//! Which runs to make so that the curve is known best: an A-optimal experiment design under a budget.

use super::terms;
use crate::doublings;
use paceline_stats::linear::{Cholesky, dot};

/// The runs `(fraction, machines)` to make first, on parts of the input and up to so many machines, by rising number of
/// machines.
#[must_use]
pub fn runs_to_make(up_to: u32, budget: f64) -> Vec<(f64, f64)> {
    let sizes = doublings(up_to as usize);
    let candidates: Vec<(f64, f64)> = (1..=20)
        .flat_map(|part| sizes.iter().map(move |&size| (f64::from(part) / 20.0, size as f64)))
        .collect();
    let mut chosen: Vec<(f64, f64)> =
        design(&candidates, budget).into_iter().map(|at| candidates[at]).collect();
    chosen.sort_by(|a, b| a.1.total_cmp(&b.1));
    chosen
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

/// The A-optimal choice of `wanted` of `own` at full input, whose sizes `machines` tells; all if there are no more.
#[must_use]
pub fn spread(own: &[usize], machines: impl Fn(usize) -> f64, wanted: usize) -> Vec<usize> {
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

/// The sizes to run for one machine type.
#[must_use]
pub fn sizes_to_run(counts: &[u32], wanted: usize) -> Vec<u32> {
    let all: Vec<usize> = (0..counts.len()).collect();
    spread(&all, |at| f64::from(counts[at]), wanted).into_iter().map(|at| counts[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
