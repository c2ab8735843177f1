//! From coefficients to samples.
//!
//! The arithmetic is that of libjpeg's accurate integer transform (Loeffler, Ligtenberg and
//! Moschytz, 13-bit constants, two extra bits between the passes), so pixels equal those of most
//! other programs. Overflow, which only damaged files cause, is defined to act as in the 16-bit SIMD
//! form: sums wrap, the pass between saturates.

use crate::simd::Simd;

/// Bits of fraction in the constants.
const FRACTION: u32 = 13;
/// Extra bits kept between the passes.
const EXTRA: u32 = 2;

/// The even constants: pairs of multipliers for coefficients 2 and 6.
pub(super) const EVEN: [(i16, i16); 2] = [(10703, 4433), (4433, -10704)];
/// The odd constants: for the sums 3+7, 1+5, and then for 7, 1 and 5, 3.
pub(in crate::jpeg) const ODD: [(i16, i16); 6] =
    [(-6436, 9633), (9633, 6437), (-4927, -7373), (-7373, 4926), (-4176, -20995), (-20995, 4177)];

fn pair(a: i16, b: i16, (x, y): (i16, i16)) -> i32 {
    (i32::from(a) * i32::from(x)).wrapping_add(i32::from(b) * i32::from(y))
}

fn descale(value: i32, bits: u32) -> i16 {
    let rounded = value.wrapping_add(1 << (bits - 1)) >> bits;
    rounded.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

/// One pass over eight values.
fn pass(input: [i16; 8], shift: u32) -> [i16; 8] {
    let third = pair(input[2], input[6], EVEN[0]);
    let second = pair(input[2], input[6], EVEN[1]);
    let zero = i32::from(input[0].wrapping_add(input[4])) << FRACTION;
    let first = i32::from(input[0].wrapping_sub(input[4])) << FRACTION;
    let even = [
        zero.wrapping_add(third),
        first.wrapping_add(second),
        first.wrapping_sub(second),
        zero.wrapping_sub(third),
    ];
    let z3 = input[7].wrapping_add(input[3]);
    let z4 = input[5].wrapping_add(input[1]);
    let (z3, z4) = (pair(z3, z4, ODD[0]), pair(z3, z4, ODD[1]));
    let odd = [
        pair(input[7], input[1], ODD[3]).wrapping_add(z4),
        pair(input[5], input[3], ODD[5]).wrapping_add(z3),
        pair(input[5], input[3], ODD[4]).wrapping_add(z4),
        pair(input[7], input[1], ODD[2]).wrapping_add(z3),
    ];
    let mut output = [0; 8];
    for index in 0..4 {
        output[index] = descale(even[index].wrapping_add(odd[index]), shift);
        output[7 - index] = descale(even[index].wrapping_sub(odd[index]), shift);
    }
    output
}

fn sample(value: i16) -> u8 {
    (value.clamp(-128, 127) + 128) as u8
}

fn full(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], stride: usize) {
    let mut middle = [[0i16; 8]; 8];
    for column in 0..8 {
        let input = std::array::from_fn(|row| {
            block[row * 8 + column].wrapping_mul(quant[row * 8 + column])
        });
        let output = pass(input, FRACTION - EXTRA);
        for row in 0..8 {
            middle[row][column] = output[row];
        }
    }
    for (row, input) in middle.iter().enumerate() {
        let output = pass(*input, FRACTION + EXTRA + 3);
        out[row * stride..row * stride + 8].copy_from_slice(&output.map(sample));
    }
}

/// The one sample of a block that has only a DC coefficient.
fn flat(block: &[i16; 64], quant: &[i16; 64]) -> u8 {
    let mean = i32::from(block[0].wrapping_mul(quant[0]));
    let middle = (mean << EXTRA).clamp(i32::from(i16::MIN), i32::from(i16::MAX));
    sample(((middle + (1 << (EXTRA + 2))) >> (EXTRA + 3)) as i16)
}

/// Transforms a row of blocks to samples `side` by `side` each, placed next to each other in `out`.
///
/// `ends` has the zigzag index of each block's last coefficient, or more. `side` is 8 for full
/// resolution; 4, 2 and 1 keep the lowest frequencies only.
pub(super) fn blocks(
    simd: Simd,
    coefficients: &[i16],
    ends: &[u8],
    quant: &[i16; 64],
    side: usize,
    out: &mut [u8],
    stride: usize,
) {
    let (all, _) = coefficients.as_chunks::<64>();
    if side != 8 {
        for (index, block) in all.iter().enumerate() {
            reduced(block, quant, side, &mut out[index * side..], stride);
        }
        return;
    }
    let mut index = 0;
    while index < all.len() {
        let out = &mut out[index * 8..];
        if ends[index] == 0 {
            let value = flat(&all[index], quant);
            for row in 0..8 {
                out[row * stride..row * stride + 8].fill(value);
            }
            index += 1;
            continue;
        }
        #[cfg(target_arch = "x86_64")]
        if simd == Simd::Avx2 {
            // The last block of a row has no partner; it is paired with itself and stored once.
            let partner = all.get(index + 1).unwrap_or(&all[index]);
            let both = index + 1 < all.len();
            super::idct_avx2::two(&all[index], partner, quant, both, out, stride);
            index += 2;
            continue;
        }
        let _ = simd;
        full(&all[index], quant, out, stride);
        index += 1;
    }
}

/// Cosines of the 4-point and 2-point transforms in 13-bit fixed point: row = sample, column =
/// frequency, scaled so that the mean passes unchanged.
const FOUR: [[i32; 4]; 4] = [
    [8192, 10703, 8192, 4433],
    [8192, 4433, -8192, -10703],
    [8192, -4433, -8192, 10703],
    [8192, -10703, 8192, -4433],
];
const TWO: [[i32; 4]; 4] = [[8192, 8192, 0, 0], [8192, -8192, 0, 0], [0; 4], [0; 4]];

/// The lowest `side` by `side` frequencies as so many samples: the block seen from farther away.
fn reduced(block: &[i16; 64], quant: &[i16; 64], side: usize, out: &mut [u8], stride: usize) {
    let cosines = match side {
        4 => &FOUR,
        2 => &TWO,
        _ => {
            out[0] = flat(block, quant);
            return;
        }
    };
    let mut middle = [[0i64; 4]; 4];
    for row in 0..side {
        let input: [i32; 4] = std::array::from_fn(|column| {
            i32::from(block[row * 8 + column].wrapping_mul(quant[row * 8 + column]))
        });
        for column in 0..side {
            middle[row][column] =
                (0..side).map(|k| i64::from(input[k]) * i64::from(cosines[column][k])).sum();
        }
    }
    // Two factors of 2^13, and the 1/8 by which coefficients exceed samples.
    const SHIFT: u32 = 2 * FRACTION + 3;
    for row in 0..side {
        for column in 0..side {
            let sum: i64 = (0..side).map(|k| middle[k][column] * i64::from(cosines[row][k])).sum();
            let value = (sum + (1 << (SHIFT - 1))) >> SHIFT;
            out[row * stride + column] = (value.clamp(-128, 127) + 128) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(block: &[i16; 64], quant: &[i16; 64]) -> [f64; 64] {
        use std::f64::consts::{FRAC_1_SQRT_2, PI};
        let scale = |k: usize| if k == 0 { FRAC_1_SQRT_2 } else { 1.0 };
        std::array::from_fn(|at| {
            let (y, x) = (at / 8, at % 8);
            let mut sum = 0.0;
            for v in 0..8 {
                for u in 0..8 {
                    let value = f64::from(block[v * 8 + u]) * f64::from(quant[v * 8 + u]);
                    let wave = ((2 * x + 1) as f64 * u as f64 * PI / 16.0).cos()
                        * ((2 * y + 1) as f64 * v as f64 * PI / 16.0).cos();
                    sum += scale(u) * scale(v) * value * wave / 4.0;
                }
            }
            sum + 128.0
        })
    }

    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *seed >> 33
    }

    #[test]
    fn the_transform_is_within_one_of_the_exact_one() {
        let mut seed = 1;
        for _ in 0..200 {
            let mut block = [0i16; 64];
            for _ in 0..12 {
                block[random(&mut seed) as usize % 64] = (random(&mut seed) % 21) as i16 - 10;
            }
            let quant = [3; 64];
            let mut out = [0; 64];
            full(&block, &quant, &mut out, 8);
            for (found, wanted) in out.iter().zip(exact(&block, &quant)) {
                assert!((f64::from(*found) - wanted.clamp(0.0, 255.0)).abs() <= 1.0);
            }
        }
    }

    #[test]
    fn all_paths_agree_even_on_wild_coefficients() {
        if !Simd::Avx2.available() {
            return;
        }
        let mut seed = 7;
        for round in 0..400 {
            let mut coefficients = [0i16; 64 * 3];
            for value in &mut coefficients {
                let wild = random(&mut seed) as i16;
                *value = if round % 2 == 0 { wild } else { wild % 40 };
            }
            let quant = std::array::from_fn(|_| random(&mut seed) as i16 % 300);
            let mut ends = [63; 3];
            if round % 3 == 0 {
                coefficients[65..128].fill(0);
                ends[1] = 0;
            }
            let (mut one, mut two) = ([0; 192], [0; 192]);
            blocks(Simd::Portable, &coefficients, &ends, &quant, 8, &mut one, 24);
            blocks(Simd::Avx2, &coefficients, &ends, &quant, 8, &mut two, 24);
            assert_eq!(one, two);
        }
    }

    #[test]
    fn reduced_transforms_keep_the_mean() {
        let mut block = [0i16; 64];
        block[0] = 100;
        block[1] = 30;
        block[8] = -20;
        let quant = [4; 64];
        let mut whole = [0; 64];
        full(&block, &quant, &mut whole, 8);
        let mean = whole.iter().map(|&v| f64::from(v)).sum::<f64>() / 64.0;
        for side in [1, 2, 4] {
            let mut out = [0; 16];
            reduced(&block, &quant, side, &mut out, side);
            let small = out[..side * side].iter().map(|&v| f64::from(v)).sum::<f64>()
                / (side * side) as f64;
            assert!((small - mean).abs() < 1.0, "side {side}: {small} against {mean}");
        }
    }
}
