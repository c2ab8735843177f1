//! Every operation on every instruction set against plain arithmetic.

use super::*;
use crate::Isa;

struct Transpose<'a>(&'a [f32], &'a mut [f32]);

impl Kernel for Transpose<'_> {
    type Output = usize;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        assert!(self.0.len() >= 20 * S::LANES && self.1.len() >= 24 * S::LANES);
        // SAFETY: a block at strides of 20 and 24 ends within the lengths just asserted.
        unsafe { S::transpose(self.0.as_ptr(), 20, self.1.as_mut_ptr(), 24) };
        S::LANES
    }
}

#[test]
fn transposed_blocks_swap_rows_and_columns() {
    let from: Vec<f32> = (0..320u16).map(f32::from).collect();
    for isa in Isa::available() {
        let mut to = vec![-1.0; 384];
        // SAFETY: the kernel asserts what it needs.
        let lanes = unsafe { isa.run(Transpose(&from, &mut to)) };
        for row in 0..lanes {
            for column in 0..lanes {
                assert_eq!(to[column * 24 + row], from[row * 20 + column], "{}", isa.name());
            }
        }
        assert_eq!(to[lanes], -1.0, "wrote beyond the block");
    }
}

struct Exp<'a>(&'a mut [f32]);

impl Kernel for Exp<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut at = 0;
        while at < self.0.len() {
            let left = self.0.len() - at;
            // SAFETY: lanes are cut to what is left of the slice.
            unsafe {
                let to = self.0.as_mut_ptr().add(at);
                S::store_partial(to, S::exp(S::load_partial(to, left)), left);
            }
            at += S::LANES;
        }
    }
}

#[test]
fn exp_is_right_to_a_few_units_in_the_last_place() {
    let arguments: Vec<f32> = (-870..=880).map(|tenth| tenth as f32 * 0.1).collect();
    for isa in Isa::available() {
        let mut values = arguments.clone();
        // SAFETY: the kernel stays within its slice.
        unsafe { isa.run(Exp(&mut values)) };
        for (argument, value) in arguments.iter().zip(&values) {
            let truth = f64::from(*argument).exp();
            let error = (f64::from(*value) - truth).abs() / truth;
            assert!(error < 3e-7, "{}: exp({argument}) = {value}, off by {error}", isa.name());
        }
    }
}

struct Each<'a>(&'a [f32], &'a [u8], &'a mut Vec<Vec<f32>>);

impl Kernel for Each<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let from = self.0.as_ptr();
        // SAFETY: the slices have two of the widest vectors.
        unsafe {
            let (a, b) = (S::load(from), S::load(from.add(S::LANES)));
            let one = S::splat(1.0);
            for value in [
                S::add(a, b),
                S::sub(a, b),
                S::mul(a, b),
                S::div(a, b),
                S::fma(a, b, one),
                S::max(a, b),
                S::min(a, b),
                S::keep_greater(a, b, one),
                S::keep_equal(a, a, b),
                S::keep_bits(S::positive(a), b),
                S::keep_bits(!0b10, a),
                S::round(a),
                S::sqrt(S::mul(a, a)),
                S::load_bytes(self.1.as_ptr()),
                S::load_partial(from, 3),
                S::splat(S::sum(a)),
                S::splat(S::largest(a)),
            ] {
                let mut out = vec![0.0; S::LANES];
                S::store(out.as_mut_ptr(), value);
                self.2.push(out);
            }
            let mut out = vec![9.0; S::LANES];
            S::store_partial(out.as_mut_ptr(), a, 2);
            self.2.push(out);
        }
    }
}

#[test]
fn lane_wise_operations_match_scalar_ones() {
    let from: Vec<f32> = (0..32).map(|at| (at * 37 % 17) as f32 * 0.75 - 5.0).collect();
    let bytes: Vec<u8> = (0..32).map(|at| at * 8).collect();
    for isa in Isa::available() {
        let mut found = Vec::new();
        // SAFETY: slices of 32.
        unsafe { isa.run(Each(&from, &bytes, &mut found)) };
        let lanes = found[0].len();
        let sum: f32 = from[..lanes].iter().sum();
        let largest = from[..lanes].iter().copied().fold(f32::MIN, f32::max);
        for lane in 0..lanes {
            let (a, b) = (from[lane], from[lanes + lane]);
            let wanted = [
                a + b,
                a - b,
                a * b,
                a / b,
                a * b + 1.0,
                a.max(b),
                a.min(b),
                if a > b { 1.0 } else { 0.0 },
                b,
                if a > 0.0 { b } else { 0.0 },
                if lane == 1 { 0.0 } else { a },
                a.round_ties_even(),
                a.abs(),
                f32::from(bytes[lane]),
                if lane < 3 { a } else { 0.0 },
                sum,
                largest,
                if lane < 2 { a } else { 9.0 },
            ];
            for (number, wanted) in wanted.into_iter().enumerate() {
                let value = found[number][lane];
                assert!((value - wanted).abs() <= 1e-5, "{} operation {number}", isa.name());
            }
        }
    }
}

struct Sums<'a>(&'a [f32], &'a mut Vec<(f32, f32)>);

impl Sums<'_> {
    /// Sums `N` vectors both ways.
    ///
    /// # Safety
    /// The CPU has `S`; the slice has `16 * N` floats.
    #[inline(always)]
    unsafe fn of<S: Simd, const N: usize>(&mut self) {
        // SAFETY: vectors of at most 16 floats; there is room for 17 sums.
        unsafe {
            let mut vectors = [S::zero(); N];
            for (n, vector) in vectors.iter_mut().enumerate() {
                *vector = S::load(self.0.as_ptr().add(n * 16));
            }
            let mut sums = [7.5; 17];
            S::sums(&vectors, sums.as_mut_ptr());
            assert!(sums[N..].iter().all(|&beyond| beyond == 7.5), "wrote more than {N} sums");
            self.1.extend((0..N).map(|n| (sums[n], S::sum(vectors[n]))));
        }
    }
}

impl Kernel for Sums<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        // SAFETY: the slice has 256 floats.
        unsafe {
            self.of::<S, 1>();
            self.of::<S, 5>();
            self.of::<S, 10>();
            self.of::<S, 16>();
        }
    }
}

#[test]
fn sums_of_several_vectors_are_those_of_each_to_the_bit() {
    let from: Vec<f32> = (0..256).map(|at| (at as f32 * 0.618).sin() * 1e3).collect();
    for isa in Isa::available() {
        let mut found = Vec::new();
        // SAFETY: as long as the kernel needs.
        unsafe { isa.run(Sums(&from, &mut found)) };
        assert_eq!(found.len(), 1 + 5 + 10 + 16);
        for (number, (together, alone)) in found.into_iter().enumerate() {
            assert_eq!(together.to_bits(), alone.to_bits(), "{} sum {number}", isa.name());
        }
    }
}
