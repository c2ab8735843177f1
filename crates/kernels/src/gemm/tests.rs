//! Odd shapes, strides and transposes against a plain loop in double precision.

use super::*;
use crate::{Isa, noise};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    a_transposed: bool,
    b_transposed: bool,
    pad: usize,
    accumulate: bool,
    bias: bool,
    relu: bool,
    mask: bool,
    threads: usize,
}

fn element(matrix: &[f32], stride: usize, transposed: bool, row: usize, column: usize) -> f64 {
    f64::from(if transposed {
        matrix[column * stride + row]
    } else {
        matrix[row * stride + column]
    })
}

#[allow(clippy::needless_range_loop)] // the loops mirror the formula
fn check(case: &Case, isa: Isa) {
    let Case { m, n, k, pad, .. } = *case;
    let (a_rows, a_columns) = if case.a_transposed { (k, m) } else { (m, k) };
    let (b_rows, b_columns) = if case.b_transposed { (n, k) } else { (k, n) };
    let (a_stride, b_stride, stride) = (a_columns + pad, b_columns + 2 * pad, n + 3 * pad);
    let a = noise(1, a_rows * a_stride);
    let b = noise(2, b_rows * b_stride);
    let before = noise(3, m * stride);
    let bias = noise(4, n);
    let mask = noise(5, m * stride);
    let mut c = before.clone();
    let view_a = Matrix::strided(&a, a_rows, a_columns, a_stride);
    let view_b = Matrix::strided(&b, b_rows, b_columns, b_stride);
    let finish = Finish {
        accumulate: case.accumulate,
        bias: case.bias.then_some(bias.as_slice()),
        relu: case.relu,
        mask: case.mask.then_some(mask.as_slice()),
    };
    Compute::with_isa(isa, case.threads).gemm(
        if case.a_transposed { view_a.t() } else { view_a },
        if case.b_transposed { view_b.t() } else { view_b },
        &mut c,
        stride,
        &finish,
    );
    for row in 0..m {
        for column in 0..stride {
            let at = row * stride + column;
            if column >= n {
                assert_eq!(c[at].to_bits(), before[at].to_bits(), "wrote between rows: {case:?}");
                continue;
            }
            let (mut sum, mut size) = (0.0, 1.0);
            for step in 0..k {
                let product = element(&a, a_stride, case.a_transposed, row, step)
                    * element(&b, b_stride, case.b_transposed, step, column);
                sum += product;
                size += product.abs();
            }
            if case.accumulate {
                sum += f64::from(before[at]);
            }
            if case.bias {
                sum += f64::from(bias[column]);
            }
            if case.relu {
                sum = sum.max(0.0);
            }
            if case.mask && mask[at] <= 0.0 {
                sum = 0.0;
            }
            let error = (f64::from(c[at]) - sum).abs();
            assert!(
                error <= 1e-6 * size,
                "{} {case:?}: ({row}, {column}) is {} instead of {sum}",
                isa.name(),
                c[at]
            );
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (1usize..70, 1usize..90, 1usize..300);
    let flags = proptest::array::uniform6(any::<bool>());
    (shape, flags, 0usize..4, 1usize..4).prop_map(|((m, n, k), flags, pad, threads)| Case {
        m,
        n,
        k,
        a_transposed: flags[0],
        b_transposed: flags[1],
        pad,
        accumulate: flags[2],
        bias: flags[3],
        relu: flags[4],
        mask: flags[5],
        threads,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn products_match_a_plain_loop(case in cases()) {
        for isa in Isa::available() {
            check(&case, isa);
        }
    }
}

fn plain(m: usize, n: usize, k: usize) -> Case {
    Case {
        m,
        n,
        k,
        a_transposed: false,
        b_transposed: false,
        pad: 0,
        accumulate: false,
        bias: true,
        relu: true,
        mask: false,
        threads: 2,
    }
}

#[test]
fn products_larger_than_every_block_match() {
    for isa in Isa::available() {
        check(&plain(131, 1100, 530), isa);
        for transposed in [false, true] {
            // Few rows and columns, long k: split among threads along k.
            let case = Case { a_transposed: transposed, accumulate: true, ..plain(17, 21, 2500) };
            check(&case, isa);
        }
    }
}

#[test]
fn long_rows_and_few_columns_match() {
    for isa in Isa::available() {
        for (n, threads) in [(1, 1), (32, 1), (61, 1), (33, 2)] {
            // Rows are read where they lie, and what is packed of `k` changes on the way.
            for accumulate in [false, true] {
                let case = Case { b_transposed: true, pad: 3, accumulate, ..plain(31, n, 4400) };
                check(&Case { threads, ..case }, isa);
            }
        }
    }
}

#[test]
fn a_product_in_pieces_is_the_same_to_the_bit() {
    // Wide enough to be cut into parts of rows, with panels of uneven height.
    for (m, n, k) in [(45, 1100, 130), (3, 70, 9), (1, 1, 1)] {
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 2)]) {
            let (a, b, before) = (noise(1, k * m), noise(2, k * n), noise(3, m * n));
            let (a, b) = (Matrix::new(&a, k, m), Matrix::new(&b, k, n));
            let mut compute = Compute::with_isa(isa, threads);
            let mut whole = vec![0.0; m * n];
            compute.gemm(a.t(), b, &mut whole, n, &Finish::default());
            for (stays, floats) in [(false, 1), (false, 1 << 20), (true, 1), (true, 4 * n)] {
                let mut kept = vec![f32::NAN; m * n];
                let mut met = before.clone();
                let into = stays.then_some(kept.as_mut_slice());
                compute.gemm_by_rows(a, b, floats, into, &mut met, &mut |range, met, made| {
                    assert_eq!(met, &before[range.clone()], "met twice");
                    assert_eq!(made, &whole[range]);
                    met.copy_from_slice(made);
                });
                assert_eq!(met, whole, "{m} {n} {k} on {threads}: every part is met");
                assert!(!stays || kept == whole, "what stays is all of it");
            }
        }
    }
}

#[test]
fn an_empty_inner_dimension_gives_the_bias() {
    for isa in Isa::available() {
        check(&plain(5, 7, 0), isa);
        check(&plain(0, 7, 3), isa);
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit_of_a_row_split() {
    let (a, b) = (noise(1, 200 * 300), noise(2, 300 * 100));
    let product = |threads| {
        let mut c = vec![0.0; 200 * 100];
        let mut compute = Compute::with_isa(Isa::current().unwrap(), threads);
        let (a, b) = (Matrix::new(&a, 200, 300), Matrix::new(&b, 300, 100));
        compute.gemm(a, b, &mut c, 100, &Finish::default());
        c
    };
    assert_eq!(product(1), product(3));
}
