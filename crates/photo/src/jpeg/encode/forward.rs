//! From samples to quantised coefficients, two blocks at a time.
//!
//! The arithmetic is that of libjpeg's accurate integer transform, the inverse of the decoder's.

use crate::jpeg::idct::ODD;
use crate::simd::Simd;

/// Two blocks of quantised coefficients, in natural order.
pub(super) type Pair = [[i16; 64]; 2];

/// Division by a table of 1 to 255, prepared as multiplication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Divisors {
    /// Half the divisor of the coefficients, which are eight times too large, for rounding.
    pub(super) half: [u16; 64],
    /// `ceil(2^(15 + s) / q)` with `s = floor(log2 q)`, and `2^(15 - s)`.
    pub(super) reciprocal: [u16; 64],
    pub(super) shift: [u16; 64],
}

impl Divisors {
    pub(super) fn new(table: &[u8; 64]) -> Self {
        let exponent = |q: u8| 7 - u32::from(q).leading_zeros().saturating_sub(24);
        Self {
            half: table.map(|q| u16::from(q) * 4),
            reciprocal: table.map(|q| (1u32 << (15 + exponent(q))).div_ceil(u32::from(q)) as u16),
            shift: table.map(|q| 1 << (15 - exponent(q))),
        }
    }

    /// The quantised value at place `at`; exact while `|value| + half` is below 2^14 * 8.
    fn divide(&self, value: i16, at: usize) -> i16 {
        let high = |a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16;
        let eighth = value.unsigned_abs().wrapping_add(self.half[at]) >> 3;
        let divided = high(high(2 * eighth, self.reciprocal[at]) * 2, self.shift[at]) as i16;
        if value < 0 { -divided } else { divided }
    }
}

/// Transforms the 8 x 8 samples at the start of `first` and of `second`, lines `stride` apart.
pub(super) fn two(
    simd: Simd,
    first: &[u8],
    second: &[u8],
    stride: usize,
    divisors: &Divisors,
    out: &mut Pair,
) {
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx2 {
        super::forward_avx2::two(first, second, stride, divisors, out);
        return;
    }
    let _ = simd;
    one(first, stride, divisors, &mut out[0]);
    one(second, stride, divisors, &mut out[1]);
}

fn one(samples: &[u8], stride: usize, divisors: &Divisors, out: &mut [i16; 64]) {
    let mut rows = [[0i16; 8]; 8];
    for (row, values) in rows.iter_mut().enumerate() {
        let line = &samples[row * stride..row * stride + 8];
        *values = pass::<true>(std::array::from_fn(|column| i16::from(line[column]) - 128));
    }
    for column in 0..8 {
        let values = pass::<false>(std::array::from_fn(|row| rows[row][column]));
        for (row, &value) in values.iter().enumerate() {
            out[row * 8 + column] = divisors.divide(value, row * 8 + column);
        }
    }
}

/// One pass over eight values; the first keeps two extra bits, the second takes them away.
fn pass<const FIRST: bool>(input: [i16; 8]) -> [i16; 8] {
    let shift = if FIRST { 11 } else { 15 };
    let wide = input.map(i32::from);
    let pair = |a: i32, b: i32, (x, y): (i16, i16)| a * i32::from(x) + b * i32::from(y);
    let descale = |value: i32| ((value + (1 << (shift - 1))) >> shift) as i16;
    let sum = |index: usize| wide[index] + wide[7 - index];
    let difference = |index: usize| wide[index] - wide[7 - index];
    let (outer, outer_less) = (sum(0) + sum(3), sum(0) - sum(3));
    let (inner, inner_less) = (sum(1) + sum(2), sum(1) - sum(2));
    let ends = [outer + inner, outer - inner]
        .map(|value| if FIRST { (value << 2) as i16 } else { ((value + 2) >> 2) as i16 });
    let (t4, t5, t6, t7) = (difference(3), difference(2), difference(1), difference(0));
    let (z3, z4) = (t4 + t6, t5 + t7);
    let (z3, z4) = (pair(z3, z4, ODD[0]), pair(z3, z4, ODD[1]));
    [
        ends[0],
        descale(pair(t4, t7, ODD[3]) + z4),
        descale(pair(inner_less, outer_less, EVEN[0])),
        descale(pair(t5, t6, ODD[5]) + z3),
        ends[1],
        descale(pair(t5, t6, ODD[4]) + z4),
        descale(pair(inner_less, outer_less, EVEN[1])),
        descale(pair(t4, t7, ODD[2]) + z3),
    ]
}

/// Multipliers for coefficients 2 and 6.
pub(super) const EVEN: [(i16, i16); 2] = [(4433, 10703), (-10704, 4433)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_multiplication_is_exact() {
        for q in 1..=255u8 {
            let divisors = Divisors::new(&[q; 64]);
            for value in -9000..=9000i16 {
                let wanted = (i32::from(value).abs() + i32::from(q) * 4) / (i32::from(q) * 8);
                let wanted = if value < 0 { -wanted } else { wanted };
                assert_eq!(i32::from(divisors.divide(value, 0)), wanted, "{value} / {q}");
            }
        }
    }

    #[test]
    fn all_paths_agree() {
        let mut seed = 5u32;
        let mut random = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        for round in 0..200 {
            let samples: Vec<u8> = (0..8 * 40)
                .map(|_| match round % 3 {
                    0 => random(),
                    1 => (random() & 1) * 255,
                    _ => 100 + (random() & 15),
                })
                .collect();
            let table = std::array::from_fn(|_| random().max(1));
            let divisors = Divisors::new(&table);
            let (mut plain, mut fast) = ([[0; 64]; 2], [[0; 64]; 2]);
            two(Simd::Portable, &samples, &samples[13..], 40, &divisors, &mut plain);
            two(Simd::Avx2.or_portable(), &samples, &samples[13..], 40, &divisors, &mut fast);
            assert_eq!(plain, fast);
        }
    }
}
