//! The little linear algebra that small exact models need: dense, symmetric, at most some hundred rows.

/// The lower triangle `L` with `L Lᵀ = A`.
#[derive(Debug, Clone)]
pub struct Cholesky {
    n: usize,
    lower: Vec<f64>,
}

impl Cholesky {
    /// Factors a symmetric matrix given row by row; `None` if it is not positive definite.
    #[must_use]
    pub fn new(mut matrix: Vec<f64>, n: usize) -> Option<Self> {
        for row in 0..n {
            for column in 0..=row {
                let (above, below) = matrix.split_at_mut(row * n);
                let (left, right) = if column == row {
                    (&below[..column], &below[..column])
                } else {
                    (&below[..column], &above[column * n..column * n + column])
                };
                let sum = below[column] - dot(left, right);
                if column == row {
                    // A pivot at the rounding level means the matrix is singular in effect.
                    if sum.is_nan() || sum <= 1e-13 {
                        return None;
                    }
                    below[column] = sum.sqrt();
                } else {
                    below[column] = sum / above[column * n + column];
                }
            }
        }
        Some(Self { n, lower: matrix })
    }

    /// Solves `L x = b` in place.
    pub fn forward(&self, b: &mut [f64]) {
        for row in 0..self.n {
            let line = &self.lower[row * self.n..row * self.n + row + 1];
            b[row] = (b[row] - dot(&line[..row], &b[..row])) / line[row];
        }
    }

    /// Solves `Lᵀ x = b` in place.
    pub fn backward(&self, b: &mut [f64]) {
        for row in (0..self.n).rev() {
            b[row] /= self.lower[row * self.n + row];
            let value = b[row];
            for (b, l) in b[..row].iter_mut().zip(&self.lower[row * self.n..row * self.n + row]) {
                *b -= l * value;
            }
        }
    }

    /// Solves `A x = b` in place.
    pub fn solve(&self, b: &mut [f64]) {
        self.forward(b);
        self.backward(b);
    }

    /// The logarithm of the determinant of `A`.
    #[must_use]
    pub fn log_determinant(&self) -> f64 {
        (0..self.n).map(|at| self.lower[at * self.n + at].ln()).sum::<f64>() * 2.0
    }
}

/// The scalar product.
#[must_use]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_matches_one_computed_by_hand() {
        // [[4, 12, -16], [12, 37, -43], [-16, -43, 98]] has the factor [[2], [6, 1], [-8, 5, 3]].
        let matrix = vec![4.0, 12.0, -16.0, 12.0, 37.0, -43.0, -16.0, -43.0, 98.0];
        let factor = Cholesky::new(matrix, 3).unwrap();
        let at = |row: usize, column: usize| factor.lower[row * 3 + column];
        assert_eq!([at(0, 0), at(1, 0), at(1, 1)], [2.0, 6.0, 1.0]);
        assert_eq!([at(2, 0), at(2, 1), at(2, 2)], [-8.0, 5.0, 3.0]);
        assert!((factor.log_determinant() - 36f64.ln()).abs() < 1e-12);
        let mut b = vec![-8.0, -18.0, 76.0]; // checked below by multiplying back
        factor.solve(&mut b);
        let back = [
            4.0 * b[0] + 12.0 * b[1] - 16.0 * b[2],
            12.0 * b[0] + 37.0 * b[1] - 43.0 * b[2],
            -16.0 * b[0] - 43.0 * b[1] + 98.0 * b[2],
        ];
        for (got, wanted) in back.iter().zip([-8.0, -18.0, 76.0]) {
            assert!((got - wanted).abs() < 1e-9, "{back:?}");
        }
    }

    #[test]
    fn singular_matrix_is_refused() {
        assert!(Cholesky::new(vec![1.0, 1.0, 1.0, 1.0], 2).is_none());
        assert!(Cholesky::new(vec![f64::NAN], 1).is_none());
    }
}
