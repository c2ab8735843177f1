//! Freivalds' check: `C = A B` is right if `C x = A (B x)` for random `x`, at a fraction of the cost.
//!
//! Two vectors of random signs; a wrong element is missed by both at most once in four times, a wrong
//! tile hardly ever. The vectors are multiplied in double precision, so that only the product's own
//! rounding remains: each of its elements errs by about `ε √k` of the sum of absolute values, and the
//! errors of a row add up like a random walk.

use crate::{MatmulError, numeric::Rows};
use paceline_kernels::Compute;
use paceline_kernels::random::mix;

/// Half the distance of 1 to the next single-precision number.
const EPSILON: f64 = f32::EPSILON as f64 / 2.0;
/// Times what rounding makes on average.
const SAFETY: f64 = 4.0;

/// The check of one block of a product, gathered while its parts are added up.
#[derive(Debug, Default)]
pub(crate) struct Check {
    signs: [Vec<f64>; 2],
    ones: Vec<f64>,
    /// `[A (B x), A (B x'), |A| (|B| 1)]` for each row.
    wanted: Vec<[f64; 3]>,
    middle: Vec<[f64; 3]>,
    inner: usize,
}

impl Check {
    /// Begins with a block of `rows x columns`; `job` decides the signs.
    pub(crate) fn begin(&mut self, job: u64, rows: usize, columns: usize) {
        for (number, signs) in self.signs.iter_mut().enumerate() {
            let key = mix(job ^ ((number as u64 + 1) << 60));
            signs.clear();
            signs.extend(
                (0..columns as u64).map(|at| if mix(key ^ at) & 1 == 0 { 1.0 } else { -1.0 }),
            );
        }
        self.ones.clear();
        self.ones.resize(columns, 1.0);
        self.wanted.clear();
        self.wanted.resize(rows, [0.0; 3]);
        self.inner = 0;
    }

    /// Adds the part `left * right`, of `inner` columns and rows.
    pub(crate) fn add(&mut self, compute: &Compute, left: &[f32], right: &[f32], inner: usize) {
        let (rows, columns) = (self.wanted.len(), self.ones.len());
        let mut middle = std::mem::take(&mut self.middle);
        middle.clear();
        middle.resize(inner, [0.0; 3]);
        let signs = [&self.signs[0][..], &self.signs[1][..]];
        multiply(compute, &right[..inner * columns], columns, signs, &self.ones, &mut middle);
        let split = |at: usize| -> Vec<f64> { middle.iter().map(|values| values[at]).collect() };
        let (first, second, sizes) = (split(0), split(1), split(2));
        let mut part = vec![[0.0; 3]; rows];
        let left = &left[..rows * inner];
        multiply(compute, left, inner, [&first, &second], &sizes, &mut part);
        for (wanted, part) in self.wanted.iter_mut().zip(part) {
            for (wanted, part) in wanted.iter_mut().zip(part) {
                *wanted += part;
            }
        }
        self.inner += inner;
        self.middle = middle;
    }

    /// Compares with the finished block; the first row that is wrong, as
    /// (row, found, wanted, tolerance).
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn end(&self, compute: &Compute, block: &[f32]) -> Result<(), Mismatch> {
        let columns = self.ones.len();
        let mut found = vec![[0.0; 3]; self.wanted.len()];
        let signs = [&self.signs[0][..], &self.signs[1][..]];
        let block = &block[..self.wanted.len() * columns];
        multiply(compute, block, columns, signs, &self.ones, &mut found);
        let walk = SAFETY * EPSILON * (self.inner as f64).sqrt() / (columns as f64).sqrt();
        for (row, (found, wanted)) in found.iter().zip(&self.wanted).enumerate() {
            // A single rounding may be larger than the average walk of few.
            let tolerance = walk.max(2.0 * EPSILON / (columns as f64).sqrt()) * wanted[2];
            for vector in 0..2 {
                // Not `>`: a result that is not a number must not pass.
                let near = (found[vector] - wanted[vector]).abs() <= tolerance;
                if !near {
                    let (found, wanted) = (found[vector], wanted[vector]);
                    return Err(Mismatch { row, found, wanted, tolerance });
                }
            }
        }
        Ok(())
    }
}

/// A row that does not agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mismatch {
    pub(crate) row: usize,
    pub(crate) found: f64,
    pub(crate) wanted: f64,
    pub(crate) tolerance: f64,
}

impl Mismatch {
    pub(crate) fn error(self, blocks: (usize, usize), first_row: usize) -> MatmulError {
        MatmulError::Wrong {
            row_block: blocks.0,
            column_block: blocks.1,
            row: (first_row + self.row) as u64,
            found: self.found,
            wanted: self.wanted,
            tolerance: self.tolerance,
        }
    }
}

/// All rows, shared out among the threads of `compute`.
fn multiply(
    compute: &Compute,
    block: &[f32],
    columns: usize,
    vectors: [&[f64]; 2],
    sizes: &[f64],
    to: &mut [[f64; 3]],
) {
    let share = to.len().div_ceil(4 * compute.pool().threads()).max(1);
    compute.pool().for_chunks(to, share, |number, to| {
        let block = &block[number * share * columns..][..to.len() * columns];
        Rows { block, columns, vectors, sizes }.multiply(compute.isa(), to);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numeric::fill_row;
    use paceline_kernels::{Finish, Isa, Matrix};
    use proptest::prelude::*;

    fn product(isa: Isa, rows: usize, inner: usize, columns: usize, context: f32) -> [Vec<f32>; 3] {
        let mut left = vec![0f32; rows * inner];
        let mut right = vec![0f32; inner * columns];
        fill_row(isa, 1, 0, 0, 0, &mut left);
        fill_row(isa, 1, 1, 0, 0, &mut right);
        left.iter_mut().chain(&mut right).for_each(|value| *value += context);
        let mut result = vec![0f32; rows * columns];
        let (a, b) = (Matrix::new(&left, rows, inner), Matrix::new(&right, inner, columns));
        Compute::with_isa(isa, 1).gemm(a, b, &mut result, columns, &Finish::default());
        [left, right, result]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        /// Right products pass, whatever their shape and the signs of their elements; a wrong
        /// element does not, but for the chance of one in four that Freivalds allows.
        #[test]
        fn right_products_pass_and_wrong_ones_do_not(
            rows in 1usize..80,
            inner in 1usize..300,
            columns in 1usize..80,
            context in prop::sample::select(&[0.0f32, 1.5, -40.0][..]),
            at in any::<prop::sample::Index>(),
        ) {
            for isa in Isa::available() {
                let compute = Compute::with_isa(isa, 1);
                let [left, right, mut result] = product(isa, rows, inner, columns, context);
                let mut check = Check::default();
                check.begin(3, rows, columns);
                check.add(&compute, &left, &right, inner);
                prop_assert_eq!(check.end(&compute, &result), Ok(()));
                let at = at.index(result.len());
                let size = (context * context + 1.0) * (inner as f32).sqrt();
                result[at] += size;
                let mismatch = check.end(&compute, &result).unwrap_err();
                prop_assert_eq!(mismatch.row, at / columns);
                result[at] = f32::NAN;
                prop_assert!(check.end(&compute, &result).is_err());
            }
        }
    }

    #[test]
    fn large_products_pass() {
        let isa = Isa::current().unwrap();
        for context in [0.0, 1.0] {
            let [left, right, result] = product(isa, 200, 3000, 400, context);
            let compute = Compute::with_isa(isa, 2);
            let mut check = Check::default();
            check.begin(1, 200, 400);
            check.add(&compute, &left, &right, 3000);
            check.end(&compute, &result).unwrap();
        }
    }
}
