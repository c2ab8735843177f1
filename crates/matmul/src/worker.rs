//! One worker: three blocks of memory, and its jobs one after the other.

use crate::{
    MatmulError,
    input::{BlockSource, Side},
    npy::Writer,
    numeric,
    plan::{Plan, Work},
    state::JobResult,
    verify::Check,
};
use paceline_kernels::{Buffer, Compute, Finish, Matrix};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of the corner of a pair by which the identity is checked against a product.
const CORNER: usize = 512;

/// A worker's matrices, memory and threads.
pub(crate) struct BlockWorker<'a, S> {
    plan: &'a Plan,
    verify: bool,
    compute: Compute,
    source: S,
    blocks: [Buffer; 3],
    check: Check,
    output: Option<Writer>,
}

impl<'a, S: BlockSource> BlockWorker<'a, S> {
    pub(crate) fn new(
        plan: &'a Plan,
        source: S,
        verify: bool,
        compute: Compute,
        output: Option<Writer>,
    ) -> Self {
        let len = plan.block_rows() * plan.block_rows();
        let result = if plan.work == Work::Identity { CORNER * CORNER } else { len };
        Self {
            plan,
            verify,
            compute,
            source,
            blocks: [Buffer::zeroed(len), Buffer::zeroed(len), Buffer::zeroed(result)],
            check: Check::default(),
            output,
        }
    }

    /// The block that the last job of a product made.
    pub(crate) fn product_block(&self, job: usize) -> &[f32] {
        let (row, column) = self.plan.blocks_of(job);
        &self.blocks[2][..self.plan.range(row).len() * self.plan.range(column).len()]
    }

    /// Does one job; `None` if it was told to stop on the way.
    pub(crate) fn job(
        &mut self,
        job: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<JobResult>, MatmulError> {
        match self.plan.work {
            Work::Trace => self.pair(job).map(Some),
            Work::Identity => self.identity(job).map(Some),
            Work::Product => self.product(job, stop),
        }
    }

    /// Loads `A(row, inner)` and `B(inner, column)`.
    fn load(&mut self, row: usize, inner: usize, column: usize) -> Result<(), MatmulError> {
        let [left, right, _] = &mut self.blocks;
        self.source.load(&self.compute, self.plan, Side::Left, (row, inner), left)?;
        self.source.load(&self.compute, self.plan, Side::Right, (inner, column), right)
    }

    /// Adds `A(row, inner) B(inner, column)` to the result, and to its check.
    fn multiply(&mut self, row: usize, inner: usize, column: usize, accumulate: bool) {
        let rows = self.plan.range(row).len();
        let inside = self.plan.range(inner).len();
        let columns = self.plan.range(column).len();
        let [left, right, result] = &mut self.blocks;
        let finish = Finish { accumulate, ..Finish::default() };
        self.compute.gemm(
            Matrix::new(left, rows, inside),
            Matrix::new(right, inside, columns),
            result,
            columns,
            &finish,
        );
        if self.verify {
            self.check.add(&self.compute, left, right, inside);
        }
    }

    fn pair(&mut self, job: usize) -> Result<JobResult, MatmulError> {
        let (row, inner) = self.plan.blocks_of(job);
        let rows = self.plan.range(row);
        self.load(row, inner, row)?;
        if self.verify {
            self.check.begin(job as u64, rows.len(), rows.len());
        }
        self.multiply(row, inner, row, false);
        let result = &self.blocks[2];
        if self.verify {
            self.check
                .end(&self.compute, result)
                .map_err(|mismatch| mismatch.error((row, row), rows.start))?;
        }
        Ok(JobResult { job, trace: diagonal(result, rows.len()), sum: 0.0, squares: 0.0 })
    }

    fn identity(&mut self, job: usize) -> Result<JobResult, MatmulError> {
        let (row, inner) = self.plan.blocks_of(job);
        let (rows, inside) = (self.plan.range(row).len(), self.plan.range(inner).len());
        self.load(row, inner, row)?;
        let [left, right, result] = &mut self.blocks;
        if job == 0 && self.verify {
            // The identity itself needs no check; the loop that applies it does: against a product.
            let corner = rows.min(inside).min(CORNER);
            let (a, b) = (
                Matrix::strided(left, corner, corner, inside),
                Matrix::strided(right, corner, corner, rows),
            );
            self.compute.gemm(a, b, result, corner, &Finish::default());
            let wanted = diagonal(result, corner);
            let copy = |from: &[f32], stride: usize| -> Vec<f32> {
                from.chunks(stride).take(corner).flat_map(|line| &line[..corner]).copied().collect()
            };
            let (a, b) = (copy(left, inside), copy(right, rows));
            let found = numeric::trace_of_product(&self.compute, &a, &b, corner, corner);
            let size: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(a.abs() + b.abs())).sum();
            let tolerance = 1e-6 * size * f64::from(largest(&a).max(largest(&b)));
            let near = (found - wanted).abs() <= tolerance;
            if !near {
                let (row_block, column_block, row) = (0, 0, 0);
                return Err(MatmulError::Wrong {
                    row_block,
                    column_block,
                    row,
                    found,
                    wanted,
                    tolerance,
                });
            }
        }
        let (left, right) = (&left[..rows * inside], &right[..rows * inside]);
        let trace = numeric::trace_of_product(&self.compute, left, right, rows, inside);
        Ok(JobResult { job, trace, sum: 0.0, squares: 0.0 })
    }

    fn product(
        &mut self,
        job: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<JobResult>, MatmulError> {
        let (row, column) = self.plan.blocks_of(job);
        let (rows, columns) = (self.plan.range(row), self.plan.range(column));
        if self.verify {
            self.check.begin(job as u64, rows.len(), columns.len());
        }
        for inner in 0..self.plan.blocks {
            if stop() {
                return Ok(None);
            }
            self.load(row, inner, column)?;
            self.multiply(row, inner, column, inner > 0);
        }
        let result = &self.blocks[2][..rows.len() * columns.len()];
        if self.verify {
            self.check
                .end(&self.compute, result)
                .map_err(|mismatch| mismatch.error((row, column), rows.start))?;
        }
        if let Some(output) = &mut self.output {
            output.write(rows.start, columns.start, columns.len(), result)?;
            output.sync()?;
        }
        let trace = if row == column { diagonal(result, rows.len()) } else { 0.0 };
        let (mut sum, mut squares) = (0.0, 0.0);
        for &value in result {
            sum += f64::from(value);
            squares += f64::from(value) * f64::from(value);
        }
        Ok(Some(JobResult { job, trace, sum, squares }))
    }
}

/// Sum of the diagonal of a square block.
fn diagonal(block: &[f32], rows: usize) -> f64 {
    (0..rows).map(|at| f64::from(block[at * rows + at])).sum()
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

/// Whether either flag is up.
pub(crate) fn either(first: &AtomicBool, second: &AtomicBool) -> bool {
    first.load(Ordering::Relaxed) || second.load(Ordering::Relaxed)
}
