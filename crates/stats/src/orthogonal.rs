//! Orthogonal factors of a few long columns: the numerical heart of multiple regression.
//!
//! Columns come centred and scaled to length 1, so what is left of one after projection is exactly the part that the earlier ones do
//! not explain, and rank deficiency shows as a short rest. Each column is projected twice, which keeps the factors orthogonal to
//! rounding; normal equations would square the condition number and lose the Longley data.

/// Rest of a unit column below which it counts as a linear combination of the earlier ones. Measured parameters are exact
/// decimal numbers, so true collinearity leaves about 1e-15 and real designs leave far more than this.
const DEPENDENT_BELOW: f64 = 1e-9;

/// `columns = Q R` for the columns kept, in their given order.
pub(crate) struct Factors {
    /// Orthonormal columns.
    pub(crate) q: Vec<Vec<f64>>,
    /// Upper triangle by columns: `r[j][i]` for i ≤ j.
    pub(crate) r: Vec<Vec<f64>>,
    /// Indices of the columns kept.
    pub(crate) kept: Vec<usize>,
    /// Indices of dependent columns, each with the kept columns it follows from.
    pub(crate) dependent: Vec<(usize, Vec<usize>)>,
}

impl Factors {
    /// Factors unit columns one after the other.
    pub(crate) fn of(columns: &[Vec<f64>]) -> Factors {
        let mut factors =
            Factors { q: Vec::new(), r: Vec::new(), kept: Vec::new(), dependent: Vec::new() };
        for (index, column) in columns.iter().enumerate() {
            let mut rest = column.clone();
            let mut parts = factors.project(&mut rest);
            let length = norm(&rest);
            if length < DEPENDENT_BELOW {
                let weights = factors.solve(&parts);
                let from =
                    weights.iter().zip(&factors.kept).filter(|(weight, _)| weight.abs() > 1e-7);
                factors.dependent.push((index, from.map(|(_, &kept)| kept).collect()));
                continue;
            }
            parts.push(length);
            rest.iter_mut().for_each(|value| *value /= length);
            factors.q.push(rest);
            factors.r.push(parts);
            factors.kept.push(index);
        }
        factors
    }

    /// Takes from `vector` its parts along the factors and returns them; `vector` becomes the residual.
    pub(crate) fn project(&self, vector: &mut [f64]) -> Vec<f64> {
        let mut parts = vec![0.0; self.q.len()];
        for _ in 0..2 {
            for (part, q) in parts.iter_mut().zip(&self.q) {
                let along: f64 = q.iter().zip(vector.iter()).map(|(a, b)| a * b).sum();
                *part += along;
                vector.iter_mut().zip(q).for_each(|(value, direction)| *value -= along * direction);
            }
        }
        parts
    }

    /// Solves `R x = parts`.
    pub(crate) fn solve(&self, parts: &[f64]) -> Vec<f64> {
        let mut x = parts.to_vec();
        for j in (0..x.len()).rev() {
            x[j] /= self.r[j][j];
            for i in 0..j {
                x[i] -= self.r[j][i] * x[j];
            }
        }
        x
    }

    /// The inverse of R, by columns.
    pub(crate) fn inverse(&self) -> Vec<Vec<f64>> {
        (0..self.r.len())
            .map(|j| {
                let mut unit = vec![0.0; self.r.len()];
                unit[j] = 1.0;
                self.solve(&unit)
            })
            .collect()
    }

    /// Ratio of the largest to the smallest singular value of R, by one-sided Jacobi rotations.
    pub(crate) fn condition_number(&self) -> f64 {
        let size = self.r.len();
        let mut columns: Vec<Vec<f64>> = self.r.iter().map(|column| padded(column, size)).collect();
        for _ in 0..60 {
            let mut turned = false;
            for i in 0..size {
                for j in i + 1..size {
                    turned |= rotate(&mut columns, i, j);
                }
            }
            if !turned {
                break;
            }
        }
        let lengths: Vec<f64> = columns.iter().map(|column| norm(column)).collect();
        let largest = lengths.iter().copied().fold(0.0, f64::max);
        let smallest = lengths.iter().copied().fold(f64::INFINITY, f64::min);
        if size == 0 { 1.0 } else { largest / smallest }
    }
}

fn padded(column: &[f64], size: usize) -> Vec<f64> {
    let mut column = column.to_vec();
    column.resize(size, 0.0);
    column
}

/// Makes columns `i` and `j` orthogonal; false if they already were.
fn rotate(columns: &mut [Vec<f64>], i: usize, j: usize) -> bool {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let (alpha, beta) = (dot(&columns[i], &columns[i]), dot(&columns[j], &columns[j]));
    let gamma = dot(&columns[i], &columns[j]);
    if gamma.abs() <= 1e-15 * (alpha * beta).sqrt() {
        return false;
    }
    let zeta = (beta - alpha) / (2.0 * gamma);
    let tangent = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
    let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
    let sine = cosine * tangent;
    for row in 0..columns[i].len() {
        let (a, b) = (columns[i][row], columns[j][row]);
        columns[i][row] = cosine * a - sine * b;
        columns[j][row] = sine * a + cosine * b;
    }
    true
}

/// Euclidean length, scaled so that squares neither overflow nor vanish.
pub(crate) fn norm(vector: &[f64]) -> f64 {
    let largest = vector.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    largest * vector.iter().map(|value| (value / largest).powi(2)).sum::<f64>().sqrt()
}
