//! Loops over blocks, compiled for the instruction set of this machine.

#![allow(unsafe_code)] // kernels are called through a function that carries the instruction set
#![allow(clippy::needless_range_loop)] // rows and columns of tiles

use paceline_kernels::random::mix;
use paceline_kernels::{Compute, Isa, Kernel, simd::Simd};

/// Values of a generated matrix, even between -1 and 1: a function of seed, matrix, row and column.
pub(crate) fn fill_row(isa: Isa, seed: u64, matrix: u64, row: u64, column: u32, to: &mut [f32]) {
    let key = mix(mix(mix(seed) ^ matrix) ^ row);
    // SAFETY: the kernel only uses its slice.
    unsafe { isa.run(Fill { key, column, to }) }
}

struct Fill<'a> {
    key: u64,
    column: u32,
    to: &'a mut [f32],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    #[allow(clippy::cast_precision_loss)] // 24 bits are exact
    unsafe fn run<S: Simd>(self) {
        let (low, high) = (self.key as u32, (self.key >> 32) as u32);
        let mut column = self.column;
        for value in self.to {
            // 32-bit arithmetic throughout, so that the compiler makes vectors of it.
            let mut bits = column.wrapping_mul(0x9e37_79b1) ^ low;
            bits = (bits ^ (bits >> 16)).wrapping_mul(0x85eb_ca6b);
            bits = (bits ^ (bits >> 13)).wrapping_mul(0xc2b2_ae35);
            bits = (bits ^ (bits >> 16)).wrapping_add(high);
            *value = ((bits >> 8) as i32) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
            column = column.wrapping_add(1);
        }
    }
}

/// Lanes of partial sums: enough for the widest vectors.
const LANES: usize = 16;

/// Rows of a block times two vectors, and their absolute values times a third.
pub(crate) struct Rows<'a> {
    pub(crate) block: &'a [f32],
    pub(crate) columns: usize,
    pub(crate) vectors: [&'a [f64]; 2],
    pub(crate) sizes: &'a [f64],
}

impl Rows<'_> {
    /// `[row . vectors[0], row . vectors[1], |row| . sizes]` for each row, in double precision.
    pub(crate) fn multiply(&self, isa: Isa, to: &mut [[f64; 3]]) {
        for (row, to) in self.block.chunks_exact(self.columns).zip(to) {
            // SAFETY: the kernel only uses its slices.
            *to = unsafe { isa.run(RowTimes { row, vectors: self.vectors, sizes: self.sizes }) };
        }
    }
}

struct RowTimes<'a> {
    row: &'a [f32],
    vectors: [&'a [f64]; 2],
    sizes: &'a [f64],
}

impl Kernel for RowTimes<'_> {
    type Output = [f64; 3];

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> [f64; 3] {
        let mut sums = [[0f64; LANES]; 3];
        let whole = self.row.len() / LANES * LANES;
        let mut at = 0;
        while at < whole {
            let row = &self.row[at..at + LANES];
            let [first, second] = self.vectors.map(|vector| &vector[at..at + LANES]);
            let sizes = &self.sizes[at..at + LANES];
            for lane in 0..LANES {
                let value = f64::from(row[lane]);
                sums[0][lane] += value * first[lane];
                sums[1][lane] += value * second[lane];
                sums[2][lane] += value.abs() * sizes[lane];
            }
            at += LANES;
        }
        for at in whole..self.row.len() {
            let value = f64::from(self.row[at]);
            sums[0][0] += value * self.vectors[0][at];
            sums[1][0] += value * self.vectors[1][at];
            sums[2][0] += value.abs() * self.sizes[at];
        }
        sums.map(|lanes| lanes.iter().sum())
    }
}

/// Rows of a band of [`trace_of_product`]: bands are shared out among threads, their sums added in order.
const BAND: usize = 16 * LANES;

/// `Σ left[r][c] * right[c][r]`: the trace of a product of `rows x columns` and `columns x rows`.
pub(crate) fn trace_of_product(
    compute: &Compute,
    left: &[f32],
    right: &[f32],
    rows: usize,
    columns: usize,
) -> f64 {
    let mut bands = vec![0f64; rows.div_ceil(BAND)];
    compute.pool().for_chunks(&mut bands, 1, |band, sum| {
        let (first, last) = (band * BAND, ((band + 1) * BAND).min(rows));
        let kernel = TraceOfProduct { left, right, rows, columns, first, last };
        // SAFETY: the kernel only uses its slices.
        sum[0] = unsafe { compute.isa().run(kernel) };
    });
    bands.iter().sum()
}

struct TraceOfProduct<'a> {
    left: &'a [f32],
    right: &'a [f32],
    rows: usize,
    columns: usize,
    first: usize,
    last: usize,
}

impl Kernel for TraceOfProduct<'_> {
    type Output = f64;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f64 {
        let mut total = 0.0;
        let mut turned = [[0f32; LANES]; LANES];
        // Tiles, so that both ways through memory stay in the first-level cache.
        for top in (self.first..self.last).step_by(LANES) {
            let rows = LANES.min(self.last - top);
            for start in (0..self.columns).step_by(LANES) {
                let columns = LANES.min(self.columns - start);
                for r in 0..rows {
                    let from = &self.left[(top + r) * self.columns + start..][..columns];
                    for (c, value) in from.iter().enumerate() {
                        turned[c][r] = *value;
                    }
                }
                let mut sums = [0f64; LANES];
                for (c, turned) in turned.iter().enumerate().take(columns) {
                    let right = &self.right[(start + c) * self.rows + top..][..rows];
                    for (r, right) in right.iter().enumerate() {
                        sums[r] += f64::from(turned[r]) * f64::from(*right);
                    }
                }
                total += sums.iter().sum::<f64>();
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_even_and_the_same_on_every_instruction_set() {
        let mut first = vec![0f32; 20_000];
        fill_row(Isa::available()[0], 7, 1, 99, 3, &mut first);
        for isa in Isa::available() {
            let mut values = vec![0f32; 19_990];
            fill_row(isa, 7, 1, 99, 13, &mut values);
            assert_eq!(values[..], first[10..], "a value depends on its column alone");
        }
        let mean = first.iter().sum::<f32>() / 2e4;
        let square = first.iter().map(|value| value * value).sum::<f32>() / 2e4;
        assert!(mean.abs() < 0.02 && (square - 1.0 / 3.0).abs() < 0.01, "{mean} {square}");
        assert!(first.iter().all(|value| (-1.0..1.0).contains(value)));
        let mut other = vec![0f32; 20_000];
        fill_row(Isa::available()[0], 7, 1, 100, 3, &mut other);
        let together: f32 = first.iter().zip(&other).map(|(a, b)| a * b).sum::<f32>() / 2e4;
        assert!(together.abs() < 0.02, "rows look alike: {together}");
    }

    #[test]
    fn trace_of_a_product_matches_the_definition_on_ragged_tiles() {
        for (rows, columns) in [(1, 1), (17, 5), (33, 48), (16, 16), (300, 20)] {
            let mut left = vec![0f32; rows * columns];
            let mut right = vec![0f32; rows * columns];
            fill_row(Isa::available()[0], 1, 0, 0, 0, &mut left);
            fill_row(Isa::available()[0], 1, 1, 0, 0, &mut right);
            let mut wanted = 0.0;
            for r in 0..rows {
                for c in 0..columns {
                    wanted += f64::from(left[r * columns + c]) * f64::from(right[c * rows + r]);
                }
            }
            for isa in Isa::available() {
                let compute = Compute::with_isa(isa, 2);
                let found = trace_of_product(&compute, &left, &right, rows, columns);
                assert!((found - wanted).abs() < 1e-9, "{rows} x {columns}: {found}, {wanted}");
            }
        }
    }
}
