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
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows of the corner of a pair by which the identity is checked against a product.
const CORNER: usize = 512;
/// Multiplications and additions before it is asked whether to stop: as many as a pair of the largest blocks that are chosen for a
/// trace, a fraction of a second.
const UNASKED: usize = 1 << 34;
/// Rows and columns of the parts that a larger product is made of, and what they are summed over at once: whole panels of the kernel.
const PART: (usize, usize) = (2048, 1920);

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
        let outcome = match self.plan.work {
            Work::Trace => self.pair(job, stop),
            Work::Identity => self.identity(job, stop),
            Work::Product => self.product(job, stop),
        };
        match outcome {
            Err(MatmulError::Stopped) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Loads `A(row, inner)` and `B(inner, column)`.
    fn load(
        &mut self,
        (row, inner, column): (usize, usize, usize),
        stop: &dyn Fn() -> bool,
    ) -> Result<(), MatmulError> {
        let [left, right, _] = &mut self.blocks;
        self.source.load(&self.compute, self.plan, Side::Left, (row, inner), left, stop)?;
        self.source.load(&self.compute, self.plan, Side::Right, (inner, column), right, stop)
    }

    /// Adds `A(row, inner) B(inner, column)` to the result, and to its check.
    fn multiply(
        &mut self,
        (row, inner, column): (usize, usize, usize),
        accumulate: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), MatmulError> {
        let rows = self.plan.range(row).len();
        let inside = self.plan.range(inner).len();
        let columns = self.plan.range(column).len();
        let [left, right, result] = &mut self.blocks;
        for [row, inner, column] in parts([rows, inside, columns]) {
            if stop() {
                return Err(MatmulError::Stopped);
            }
            let finish = Finish { accumulate: accumulate || inner.start > 0, ..Finish::default() };
            let a = &left[row.start * inside + inner.start..];
            let b = &right[inner.start * columns + column.start..];
            self.compute.gemm(
                Matrix::strided(a, row.len(), inner.len(), inside),
                Matrix::strided(b, inner.len(), column.len(), columns),
                &mut result[row.start * columns + column.start..],
                columns,
                &finish,
            );
        }
        if stop() {
            return Err(MatmulError::Stopped);
        }
        if self.verify {
            self.check.add(&self.compute, left, right, inside);
        }
        Ok(())
    }

    fn pair(&mut self, job: usize, stop: &dyn Fn() -> bool) -> Result<JobResult, MatmulError> {
        let (row, inner) = self.plan.blocks_of(job);
        let rows = self.plan.range(row);
        self.load((row, inner, row), stop)?;
        if self.verify {
            self.check.begin(job as u64, rows.len(), rows.len());
        }
        self.multiply((row, inner, row), false, stop)?;
        let result = &self.blocks[2];
        if self.verify {
            self.check
                .end(&self.compute, result)
                .map_err(|mismatch| mismatch.error((row, row), rows.start))?;
        }
        Ok(JobResult { job, trace: diagonal(result, rows.len()), sum: 0.0, squares: 0.0 })
    }

    fn identity(&mut self, job: usize, stop: &dyn Fn() -> bool) -> Result<JobResult, MatmulError> {
        let (row, inner) = self.plan.blocks_of(job);
        let (rows, inside) = (self.plan.range(row).len(), self.plan.range(inner).len());
        self.load((row, inner, row), stop)?;
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

    fn product(&mut self, job: usize, stop: &dyn Fn() -> bool) -> Result<JobResult, MatmulError> {
        let (row, column) = self.plan.blocks_of(job);
        let (rows, columns) = (self.plan.range(row), self.plan.range(column));
        if self.verify {
            self.check.begin(job as u64, rows.len(), columns.len());
        }
        for inner in 0..self.plan.blocks {
            self.load((row, inner, column), stop)?;
            self.multiply((row, inner, column), inner > 0, stop)?;
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
        Ok(JobResult { job, trace, sum, squares })
    }
}

/// Ranges of rows, of what is summed over, and of columns, that together are a product of so many; in the order in which sums grow.
fn parts(lengths: [usize; 3]) -> impl Iterator<Item = [Range<usize>; 3]> {
    let [rows, inner, columns] = lengths;
    let small = rows.saturating_mul(inner).saturating_mul(columns) <= UNASKED / 2;
    let (across, along) = if small { (usize::MAX, usize::MAX) } else { PART };
    let cut = |length: usize, step: usize| {
        (0..length).step_by(step).map(move |start| start..start.saturating_add(step).min(length))
    };
    cut(rows, across).flat_map(move |row| {
        cut(columns, across).flat_map(move |column| {
            let row = row.clone();
            cut(inner, along).map(move |inner| [row.clone(), inner, column.clone()])
        })
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Matrices;
    use crate::{Input, Placement};
    use paceline_kernels::Isa;
    use std::cell::Cell;

    /// More multiplications than are done without asking.
    const SIZE: usize = 2100;

    fn one_block(work: Work) -> Plan {
        let placement = Placement::default();
        Plan { work, size: SIZE, blocks: 1, workers: 1, placement }
    }

    fn worker(plan: &Plan) -> BlockWorker<'_, Matrices> {
        let input = |matrix| Input::Generated { size: SIZE as u64, seed: 5, matrix };
        let matrices = Matrices::open((&input(0), &input(1))).unwrap();
        BlockWorker::new(plan, matrices, true, Compute::with_isa(Isa::current().unwrap(), 2), None)
    }

    #[test]
    fn parts_of_a_product_are_all_of_it_and_small_ones_are_whole() {
        assert_eq!(parts([2048; 3]).collect::<Vec<_>>(), [[0..2048, 0..2048, 0..2048]]);
        for lengths in [[3000, 5000, 2500], [1, 1 << 30, 17], [9000, 1, 1 << 20]] {
            let found: Vec<[Range<usize>; 3]> = parts(lengths).collect();
            assert!(found.len() > 1, "{lengths:?}");
            let covered: usize =
                found.iter().map(|part| part.iter().map(Range::len).product::<usize>()).sum();
            assert_eq!(covered, lengths.iter().product::<usize>());
            // Each sum begins at zero and goes on where it was.
            let begun = found.iter().filter(|part| part[1].start == 0).count();
            let ended = found.iter().filter(|part| part[1].end == lengths[1]).count();
            assert_eq!((begun, ended), (begun, begun));
        }
    }

    #[test]
    fn a_job_of_one_large_block_did_not_hear_of_ctrl_c() {
        for work in [Work::Trace, Work::Product, Work::Identity] {
            let plan = one_block(work);
            let mut worker = worker(&plan);
            let asked = Cell::new(0);
            let most = if work == Work::Identity { 1 } else { 3 };
            let stop = || asked.replace(asked.get() + 1) >= most;
            assert_eq!(worker.job(0, &stop).unwrap(), None, "{work:?}");
            assert_eq!(asked.get(), most + 1, "it stops at the first yes");
        }
    }

    #[test]
    fn a_product_in_parts_is_the_product() {
        let plan = one_block(Work::Trace);
        // The check compares with what the whole blocks give.
        let whole = worker(&plan).job(0, &|| false).unwrap().unwrap().trace;
        let plan = one_block(Work::Identity);
        let identity = worker(&plan).job(0, &|| false).unwrap().unwrap().trace;
        assert!((whole - identity).abs() < 1e-2, "{whole} {identity}");
    }
}
