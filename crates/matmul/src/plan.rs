//! Cuts the work into jobs, assigns them to workers, and computes the memory they need.
//!
//! Pure: no files, no threads, no clock.

use crate::{MatmulError, Placement};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// `trace(A B)` by products of the matching block pairs.
    Trace,
    /// `trace(A B) = Σ a_ij b_ji`, without a product.
    Identity,
    /// The whole product.
    Product,
}

/// Rows of the smallest block that is chosen: below it products are slow.
pub const LEAST_BLOCK: usize = 64;
/// Rows of the largest blocks that are chosen. A trace by block products takes time in proportion
/// to them; larger blocks than these gain nothing for products either.
const LARGEST: [usize; 3] = [2048, 2048, 8192];
/// What a worker needs beside its blocks: packed operands of a product (32 MiB), stacks, lines of files.
const BESIDE: u64 = 48 << 20;
/// Columns are named by 32 bits.
const MOST: u64 = 1 << 31;

/// The assignment of jobs to workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub work: Work,
    /// Rows and columns of the matrices.
    pub size: usize,
    /// Blocks along each side.
    pub blocks: usize,
    /// Tasks that share the jobs.
    pub workers: usize,
    /// Which of them holds which block.
    #[serde(default)]
    pub placement: Placement,
}

impl Plan {
    /// A plan within `memory` bytes, with blocks of at most `block` rows where that is given.
    pub fn new(
        work: Work,
        size: u64,
        workers: usize,
        memory: u64,
        block: Option<usize>,
    ) -> Result<Self, MatmulError> {
        if size == 0 || size > MOST {
            return Err(MatmulError::Size { size, most: MOST });
        }
        if workers == 0 {
            return Err(MatmulError::None { what: "workers" });
        }
        if block == Some(0) {
            return Err(MatmulError::None { what: "rows in a block" });
        }
        let size = usize::try_from(size).expect("below 2^31");
        let mut rows = block.unwrap_or(LARGEST[work as usize]).min(size);
        let fits =
            |rows: usize| Self::bytes_for(work, rows).saturating_mul(workers as u64) <= memory;
        if !fits(rows) {
            if block.is_none() {
                while rows > LEAST_BLOCK && !fits(rows) {
                    rows = (rows - rows / 16).max(LEAST_BLOCK);
                }
            }
            if !fits(rows) {
                let needed = Self::bytes_for(work, rows).saturating_mul(workers as u64);
                return Err(MatmulError::Memory { memory, workers, needed, block: rows });
            }
        }
        let placement = Placement::default();
        Ok(Self { work, size, blocks: size.div_ceil(rows), workers, placement })
    }

    /// Bytes of a worker with blocks of so many rows.
    fn bytes_for(work: Work, rows: usize) -> u64 {
        let block = (rows as u64).saturating_mul(rows as u64).saturating_mul(4);
        let blocks = if work == Work::Identity { 2 } else { 3 };
        block.saturating_mul(blocks).saturating_add(BESIDE)
    }

    /// Bytes all workers need at most.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        Self::bytes_for(self.work, self.block_rows()) * self.workers as u64
    }

    /// Rows of the largest block.
    #[must_use]
    pub fn block_rows(&self) -> usize {
        self.size.div_ceil(self.blocks)
    }

    /// Rows (or columns) of block `number`: even shares.
    #[must_use]
    pub fn range(&self, number: usize) -> Range<usize> {
        number * self.size / self.blocks..(number + 1) * self.size / self.blocks
    }

    /// Jobs in all.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.blocks * self.blocks
    }

    /// The blocks of a job: the pair `A(i, k)`, `B(k, i)` of a trace, the result `C(i, k)` of a product.
    #[must_use]
    pub fn blocks_of(&self, job: usize) -> (usize, usize) {
        (job / self.blocks, job % self.blocks)
    }

    /// The worker that holds blocks `A(row, column)`, `B(row, column)` and, of a product, `C(row, column)`.
    #[must_use]
    pub fn holder(&self, row: usize, column: usize) -> usize {
        self.placement.holder(row, column, self.workers)
    }

    /// The worker of a job: the one that holds its block of `A`, of a product the block of the result.
    #[must_use]
    pub fn worker_of(&self, job: usize) -> usize {
        let (row, column) = self.blocks_of(job);
        self.holder(row, column)
    }

    /// Bytes of block `(row, column)`.
    #[must_use]
    pub fn block_bytes(&self, row: usize, column: usize) -> u64 {
        4 * (self.range(row).len() * self.range(column).len()) as u64
    }

    /// Bytes of blocks that must go from one worker to another where every block is read by its holder alone.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        if self.work != Work::Product {
            let pairs = (0..self.jobs()).map(|job| self.blocks_of(job));
            let apart =
                pairs.filter(|&(row, inner)| self.holder(row, inner) != self.holder(inner, row));
            return apart.map(|(row, inner)| self.block_bytes(inner, row)).sum();
        }
        // What each worker holds of every row of blocks of A and of every column of blocks of B.
        let mut rows = vec![0; self.blocks * self.workers];
        let mut columns = rows.clone();
        for job in 0..self.jobs() {
            let (row, column) = self.blocks_of(job);
            let (holder, bytes) = (self.holder(row, column), self.block_bytes(row, column));
            rows[row * self.workers + holder] += bytes;
            columns[column * self.workers + holder] += bytes;
        }
        let line = |number: usize| 4 * (self.range(number).len() * self.size) as u64;
        let missing = |job: usize| {
            let (row, column) = self.blocks_of(job);
            let worker = self.worker_of(job);
            line(row) - rows[row * self.workers + worker] + line(column)
                - columns[column * self.workers + worker]
        };
        (0..self.jobs()).map(missing).sum()
    }

    /// Multiplications and additions of a job.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn flops_of(&self, job: usize) -> f64 {
        let (row, column) = self.blocks_of(job);
        let (rows, columns) = (self.range(row).len() as f64, self.range(column).len() as f64);
        match self.work {
            Work::Trace => 2.0 * rows * columns * rows,
            Work::Identity => 2.0 * rows * columns,
            Work::Product => 2.0 * rows * columns * self.size as f64,
        }
    }

    /// Multiplications and additions of all jobs.
    #[must_use]
    pub fn flops(&self) -> f64 {
        (0..self.jobs()).map(|job| self.flops_of(job)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn plans_fit_their_memory_and_cover_the_matrix(
            size in 1u64..200_000,
            workers in 1usize..9,
            mebibytes in 200u64..20_000,
            work in prop::sample::select(&[Work::Trace, Work::Identity, Work::Product][..]),
        ) {
            let memory = mebibytes << 20;
            match Plan::new(work, size, workers, memory, None) {
                Ok(plan) => {
                    prop_assert!(plan.bytes() <= memory, "{} of {memory}", plan.bytes());
                    let mut next = 0;
                    for number in 0..plan.blocks {
                        let range = plan.range(number);
                        prop_assert!(range.start == next && !range.is_empty());
                        prop_assert!(range.len() <= plan.block_rows());
                        next = range.end;
                    }
                    prop_assert_eq!(next as u64, size);
                }
                Err(MatmulError::Memory { needed, .. }) => prop_assert!(needed > memory),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_block_and_its_mirror_image_live_together_and_every_worker_works() {
        let plan = Plan::new(Work::Trace, 1000, 3, 1 << 30, Some(150)).unwrap();
        let mut counts = [0; 3];
        for job in 0..plan.jobs() {
            let (row, column) = plan.blocks_of(job);
            let mirror = column * plan.blocks + row;
            assert_eq!(plan.worker_of(job), plan.worker_of(mirror));
            counts[plan.worker_of(job)] += 1;
        }
        assert_eq!((counts.iter().sum::<usize>(), plan.blocks), (49, 7));
        assert!(counts.iter().all(|&count| (16..=17).contains(&count)), "{counts:?}");
    }

    /// By hand: every block that is needed where it is not held, counted one by one.
    fn counted(plan: &Plan) -> u64 {
        let mut bytes = 0;
        for job in 0..plan.jobs() {
            let ((row, column), worker) = (plan.blocks_of(job), plan.worker_of(job));
            let needed: Vec<(usize, usize)> = match plan.work {
                Work::Product => {
                    (0..plan.blocks).flat_map(|inner| [(row, inner), (inner, column)]).collect()
                }
                _ => vec![(row, column), (column, row)],
            };
            let far = needed.into_iter().filter(|&(a, b)| plan.holder(a, b) != worker);
            bytes += far.map(|(a, b)| plan.block_bytes(a, b)).sum::<u64>();
        }
        bytes
    }

    #[test]
    fn pairs_meet_on_the_diagonal_and_nowhere_else() {
        for work in [Work::Trace, Work::Identity, Work::Product] {
            for workers in [1, 2, 3, 4, 6] {
                for placement in Placement::ALL {
                    let plan = Plan::new(work, 1000, 1, 1 << 30, Some(130)).unwrap();
                    let plan = Plan { workers, placement, ..plan };
                    assert_eq!(plan.moved_bytes(), counted(&plan), "{plan:?}");
                    let nothing =
                        workers == 1 || placement == Placement::Diagonal && work != Work::Product;
                    assert_eq!(plan.moved_bytes() == 0, nothing, "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn a_hundred_thousand_rows_fit_two_gigabytes() {
        let plan = Plan::new(Work::Trace, 100_000, 2, 2 << 30, None).unwrap();
        assert!(plan.bytes() <= 2 << 30 && plan.block_rows() >= 2000, "{plan:?}");
        assert!(matches!(
            Plan::new(Work::Product, 100_000, 2, 1 << 20, None),
            Err(MatmulError::Memory { .. })
        ));
        assert!(Plan::new(Work::Product, 0, 2, 1 << 30, None).is_err());
        assert!(Plan::new(Work::Product, 5, 0, 1 << 30, None).is_err());
        assert!(Plan::new(Work::Product, 5, 1, 1 << 30, Some(0)).is_err());
    }
}
