//! Least squares without negative coefficients, by active sets (Lawson and Hanson, 1974).

use crate::linear::{Cholesky, dot};

/// The `x >= 0` that minimises `|A x - b|`; `rows` are the rows of `A`.
#[must_use]
pub fn solve(rows: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let n = rows.first().map_or(0, Vec::len);
    let column = |at: usize| rows.iter().map(move |row| row[at]);
    // Columns to unit length: the test of optimality below is then free of units.
    let lengths: Vec<f64> = (0..n)
        .map(|at| column(at).map(|v| v * v).sum::<f64>().sqrt())
        .map(|length| if length > 0.0 { length } else { 1.0 })
        .collect();
    let scaled: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.iter().zip(&lengths).map(|(v, length)| v / length).collect())
        .collect();
    let tolerance = 1e-12 * dot(b, b).sqrt().max(1e-300);
    let mut x = vec![0.0; n];
    let mut free = vec![false; n];
    // Each round frees one coefficient; a cycle is impossible in exact arithmetic, and this many
    // rounds are more than rounding can cause.
    for _ in 0..3 * n + 10 {
        let residual: Vec<f64> = scaled.iter().zip(b).map(|(row, b)| b - dot(row, &x)).collect();
        let slope = |at: usize| scaled.iter().zip(&residual).map(|(row, r)| row[at] * r).sum();
        let steepest = (0..n)
            .filter(|&at| !free[at])
            .map(|at| (at, slope(at)))
            .max_by(|a: &(usize, f64), b| a.1.total_cmp(&b.1));
        let Some((at, _)) = steepest.filter(|(_, slope)| *slope > tolerance) else { break };
        free[at] = true;
        loop {
            let Some(full) = unconstrained(&scaled, b, &free) else {
                free[at] = false; // depends on the columns already free
                break;
            };
            // Walk towards the unconstrained solution until a coefficient reaches zero.
            let step = (0..n)
                .filter(|&at| free[at] && full[at] <= 0.0)
                .map(|at| x[at] / (x[at] - full[at]))
                .fold(1.0, f64::min);
            for at in 0..n {
                x[at] += step * (full[at] - x[at]);
                if free[at] && x[at] <= 1e-15 {
                    x[at] = 0.0;
                    free[at] = false;
                }
            }
            if step >= 1.0 {
                break;
            }
        }
        if !free[at] && x[at] == 0.0 && slope(at) > tolerance {
            break; // freed and fixed again at once: only rounding is left
        }
    }
    x.iter().zip(&lengths).map(|(x, length)| x / length).collect()
}

/// Least squares over the free columns by the normal equations: at most five columns of unit length.
fn unconstrained(rows: &[Vec<f64>], b: &[f64], free: &[bool]) -> Option<Vec<f64>> {
    let columns: Vec<usize> = (0..free.len()).filter(|&at| free[at]).collect();
    let n = columns.len();
    let mut normal = vec![0.0; n * n];
    let mut right = vec![0.0; n];
    for (row, b) in rows.iter().zip(b) {
        for (i, &a) in columns.iter().enumerate() {
            right[i] += row[a] * b;
            for (j, &c) in columns.iter().enumerate() {
                normal[i * n + j] += row[a] * row[c];
            }
        }
    }
    Cholesky::new(normal, n)?.solve(&mut right);
    let mut x = vec![0.0; free.len()];
    for (value, &at) in right.iter().zip(&columns) {
        x[at] = *value;
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(got: &[f64], wanted: &[f64]) {
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() < 1e-8, "{got} {wanted}");
        }
    }

    #[test]
    fn known_solutions_are_found() {
        // A square system with a positive solution.
        close(&solve(&[vec![2.0, 1.0], vec![1.0, 3.0]], &[4.0, 7.0]), &[1.0, 2.0]);
        // Unconstrained (2, -1): the best point on the edge is the projection on the first column.
        let rows = [vec![1.0, 0.0], vec![1.0, 1.0], vec![0.0, 1.0]];
        close(&solve(&rows, &[2.0, 1.0, -1.0]), &[1.5, 0.0]);
        // Everything points away: all zero.
        close(&solve(&[vec![1.0], vec![1.0]], &[-1.0, -2.0]), &[0.0]);
    }

    #[test]
    fn repeated_columns_do_not_loop() {
        let rows: Vec<Vec<f64>> = (1..6).map(|m| vec![f64::from(m), f64::from(m), 1.0]).collect();
        let b: Vec<f64> = (1..6).map(|m| 3.0 * f64::from(m) + 2.0).collect();
        let x = solve(&rows, &b);
        assert!((x[0] + x[1] - 3.0).abs() < 1e-6 && (x[2] - 2.0).abs() < 1e-6, "{x:?}");
    }

    proptest! {
        /// Karush, Kuhn and Tucker: no free coefficient has a slope, no zero one wants to grow.
        #[test]
        fn solutions_are_optimal(
            values in prop::collection::vec(-5.0..5.0f64, 32),
            b in prop::collection::vec(-5.0..5.0f64, 8),
        ) {
            let rows: Vec<Vec<f64>> = values.chunks(4).map(<[f64]>::to_vec).collect();
            let x = solve(&rows, &b);
            for at in 0..4 {
                let slope: f64 =
                    rows.iter().zip(&b).map(|(row, b)| row[at] * (b - dot(row, &x))).sum();
                prop_assert!(x[at] >= 0.0);
                prop_assert!(slope < 1e-6, "{at}: {slope}");
                if x[at] > 1e-9 {
                    prop_assert!(slope.abs() < 1e-6, "{at}: {slope}");
                }
            }
        }
    }
}
