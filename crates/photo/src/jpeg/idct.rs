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
        reduced_blocks(simd, all, ends, quant, side, out, stride);
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

/// Zigzag index of the last coefficient that a transform to `side` by `side` samples looks at.
pub(super) fn reach(side: usize) -> usize {
    match side {
        1 => 0,
        2 => 4,
        4 => 24,
        _ => 63,
    }
}

/// Cosines of the 4-point transform in 13-bit fixed point, scaled so that the mean passes unchanged.
pub(super) const COSINES: [i16; 2] = [10703, 4433];

/// The lowest `side` by `side` frequencies as so many samples: the block seen from farther away.
///
/// Other than at full size nothing wraps or saturates before the sample: sums are exact.
fn reduced_blocks(
    simd: Simd,
    blocks: &[[i16; 64]],
    ends: &[u8],
    quant: &[i16; 64],
    side: usize,
    out: &mut [u8],
    stride: usize,
) {
    for (index, (block, &end)) in blocks.iter().zip(ends).enumerate() {
        let out = &mut out[index * side..];
        if end == 0 || side == 1 {
            let value = flat(block, quant);
            for row in 0..side {
                out[row * stride..row * stride + side].fill(value);
            }
            continue;
        }
        if side == 2 {
            quarter(block, quant, out, stride);
            continue;
        }
        #[cfg(target_arch = "x86_64")]
        if simd == Simd::Avx2 {
            super::idct_avx2::half(block, quant, out, stride);
            continue;
        }
        let _ = simd;
        half(block, quant, out, stride);
    }
}

/// Two samples by two: sums and differences of four coefficients.
fn quarter(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], stride: usize) {
    let [a, b, c, d] = [0, 1, 8, 9].map(|at| i32::from(block[at].wrapping_mul(quant[at])));
    let samples = [a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d];
    let [top @ .., third, fourth] =
        samples.map(|sum| (((sum + 4) >> 3).clamp(-128, 127) + 128) as u8);
    out[..2].copy_from_slice(&top);
    out[stride..stride + 2].copy_from_slice(&[third, fourth]);
}

/// The 4-point transform, times 2^13.
fn four([a, b, c, d]: [i64; 4]) -> [i64; 4] {
    let [large, small] = COSINES.map(i64::from);
    let (sum, difference) = ((a + c) << FRACTION, (a - c) << FRACTION);
    let (outer, inner) = (large * b + small * d, small * b - large * d);
    [sum + outer, difference + inner, difference - inner, sum - outer]
}

/// Four samples by four.
fn half(block: &[i16; 64], quant: &[i16; 64], out: &mut [u8], stride: usize) {
    let columns: [[i64; 4]; 4] = std::array::from_fn(|column| {
        four(std::array::from_fn(|row| {
            let at = row * 8 + column;
            i64::from(block[at].wrapping_mul(quant[at]))
        }))
    });
    // Two factors of 2^13, and the 1/8 by which coefficients exceed samples.
    const SHIFT: u32 = 2 * FRACTION + 3;
    for row in 0..4 {
        let sums = four(columns.map(|column| column[row]));
        let samples =
            sums.map(|sum| (((sum + (1 << (SHIFT - 1))) >> SHIFT).clamp(-128, 127) + 128) as u8);
        out[row * stride..row * stride + 4].copy_from_slice(&samples);
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

    /// The lowest frequencies as samples, by the matrices of the 4-point and 2-point transforms.
    fn by_matrices(block: &[i16; 64], quant: &[i16; 64], side: usize) -> Vec<u8> {
        let four = [
            [8192, 10703, 8192, 4433],
            [8192, 4433, -8192, -10703],
            [8192, -4433, -8192, 10703],
            [8192, -10703, 8192, -4433],
        ];
        let two = [[8192, 8192, 0, 0], [8192, -8192, 0, 0], [0; 4], [0; 4]];
        let cosines: [[i128; 4]; 4] = if side == 4 { four } else { two };
        let places = (0..side * side).map(|at| (at / side, at % side));
        let sample = |(y, x): (usize, usize)| {
            let mut sum = 1i128 << 28;
            for (v, u) in (0..side * side).map(|at| (at / side, at % side)) {
                let value = block[v * 8 + u].wrapping_mul(quant[v * 8 + u]);
                sum += i128::from(value) * cosines[y][v] * cosines[x][u];
            }
            ((sum >> 29).clamp(-128, 127) + 128) as u8
        };
        places.map(sample).collect()
    }

    #[test]
    fn reduced_transforms_are_exact_on_every_path() {
        let mut seed = 3;
        for round in 0..2000 {
            let range = [40, 400, 4000, 65536][round % 4];
            let mut value = || (random(&mut seed) % range) as i16;
            let block: [i16; 64] =
                std::array::from_fn(|_| value().wrapping_sub((range / 2) as i16));
            let quant = std::array::from_fn(|_| 1 + (random(&mut seed) % 20) as i16);
            for side in [2, 4] {
                let wanted = by_matrices(&block, &quant, side);
                for simd in [Simd::Portable, Simd::Avx2.or_portable()] {
                    let mut out = vec![0; side * side];
                    blocks(simd, &block, &[63], &quant, side, &mut out, side);
                    assert_eq!(out, wanted, "side {side}, {simd:?}");
                }
            }
        }
    }

    #[test]
    fn halves_that_lie_between_two_samples_are_rounded_up_on_every_path() {
        // One coefficient: a mean of n + 1/2 for every n, and beyond both ends.
        for mean in -1200..1200i16 {
            let mut block = [0i16; 64];
            (block[0], block[9]) = (mean * 8 + 4, 0);
            let wanted = by_matrices(&block, &[1; 64], 4);
            for simd in [Simd::Portable, Simd::Avx2.or_portable()] {
                for end in [0, 63] {
                    let mut out = [0; 16];
                    blocks(simd, &block, &[end], &[1; 64], 4, &mut out, 4);
                    assert_eq!(out, *wanted, "mean {mean}, {simd:?}, end {end}");
                }
            }
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
            blocks(Simd::Portable, &block, &[63], &quant, side, &mut out, side);
            let small = out[..side * side].iter().map(|&v| f64::from(v)).sum::<f64>()
                / (side * side) as f64;
            assert!((small - mean).abs() < 1.0, "side {side}: {small} against {mean}");
        }
    }
}
