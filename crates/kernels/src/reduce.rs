//! Sums over rows, in an order that does not depend on chance.

#![allow(unsafe_code)] // kernels on raw memory

use super::{Compute, isa::Kernel, simd::Simd};
use crate::threads::SendPtr;

/// Rows below which the sum is not worth a second thread.
const ALONE: usize = 1 << 14;

struct ColumnSums {
    /// `rows * columns` floats.
    from: *const f32,
    rows: usize,
    columns: usize,
    /// `columns` floats, which this task alone uses.
    to: *mut f32,
}

impl Kernel for ColumnSums {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut column = 0;
        while column < self.columns {
            let left = self.columns - column;
            // SAFETY: lanes are cut to the columns left of each row.
            unsafe {
                let from = self.from.add(column);
                // Four sums side by side hide the latency of additions.
                let mut sums = [S::zero(); 4];
                for row in 0..self.rows {
                    let value = S::load_partial(from.add(row * self.columns), left);
                    sums[row % 4] = S::add(sums[row % 4], value);
                }
                let sum = S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]));
                S::store_partial(self.to.add(column), sum, left);
            }
            column += S::LANES;
        }
    }
}

impl Compute {
    /// Sums of the columns of a matrix with `columns` columns.
    ///
    /// # Panics
    /// If `sums` is not one row long, or `matrix` not whole rows.
    pub fn column_sums(&mut self, matrix: &[f32], columns: usize, sums: &mut [f32]) {
        assert_eq!(sums.len(), columns, "one sum per column");
        if columns == 0 {
            return;
        }
        assert_eq!(matrix.len() % columns, 0, "whole rows");
        let rows = matrix.len() / columns;
        let isa = self.isa;
        let parts = if matrix.len() < ALONE { 1 } else { (4 * self.pool.threads()).min(rows) };
        if parts == 1 {
            let sums = ColumnSums { from: matrix.as_ptr(), rows, columns, to: sums.as_mut_ptr() };
            // SAFETY: sizes were checked above.
            unsafe { isa.run(sums) };
            return;
        }
        self.shared.reserve(parts * columns);
        let partial = SendPtr(self.shared.as_mut_ptr());
        self.pool.run(parts, &|part, _| {
            let (first, last) = (part * rows / parts, (part + 1) * rows / parts);
            // SAFETY: a part reads its rows and writes its own partial sums.
            unsafe {
                isa.run(ColumnSums {
                    from: matrix.as_ptr().add(first * columns),
                    rows: last - first,
                    columns,
                    to: partial.get().add(part * columns),
                });
            }
        });
        sums.fill(0.0);
        for part in 0..parts {
            let partial = &self.shared[part * columns..(part + 1) * columns];
            sums.iter_mut().zip(partial).for_each(|(sum, value)| *sum += value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    #[test]
    fn column_sums_match_a_plain_loop() {
        for isa in Isa::available() {
            for (rows, columns) in [(1, 1), (5, 3), (1000, 37), (700, 64), (0, 4)] {
                let matrix = noise(7, rows * columns);
                let mut sums = vec![f32::NAN; columns];
                Compute::with_isa(isa, 2).column_sums(&matrix, columns, &mut sums);
                for (column, sum) in sums.iter().enumerate() {
                    let truth: f64 =
                        (0..rows).map(|row| f64::from(matrix[row * columns + column])).sum();
                    assert!((f64::from(*sum) - truth).abs() < 1e-4, "{rows}x{columns}");
                }
            }
        }
    }
}
