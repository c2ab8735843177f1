//! Gradients as fewer words, and back.
//!
//! The number of words follows from the number of values alone, so that every worker knows how much will come. What is not
//! in the words stays with the sender ([`encode`] leaves it in the values).

use crate::Compression;

/// Values that share a scale (int8).
const BLOCK: usize = 256;
/// Of so many values one is sent (top-k).
const ONE_OF: usize = 100;

/// Words of so many values.
pub(super) fn words(how: Compression, values: usize) -> usize {
    match how {
        Compression::None => values,
        Compression::Fp16 => values.div_ceil(2),
        Compression::Int8 => values.div_ceil(BLOCK) + values.div_ceil(4),
        Compression::TopK => 2 * kept(values),
    }
}

fn kept(values: usize) -> usize {
    values.div_ceil(ONE_OF)
}

/// Writes `values` as words; what the words do not say stays in `values`.
pub(super) fn encode(how: Compression, values: &mut [f32], words: &mut [u32]) {
    debug_assert_eq!(words.len(), self::words(how, values.len()));
    match how {
        Compression::None => {
            for (value, word) in values.iter_mut().zip(words) {
                *word = value.to_bits();
                *value = 0.0;
            }
        }
        Compression::Fp16 => {
            for (pair, word) in values.chunks_mut(2).zip(words) {
                *word = 0;
                for (at, value) in pair.iter_mut().enumerate() {
                    let half = to_half(*value);
                    *value -= from_half(half);
                    *word |= u32::from(half) << (16 * at);
                }
            }
        }
        Compression::Int8 => encode_bytes(values, words),
        Compression::TopK => encode_largest(values, words),
    }
}

/// Adds what the words say to `sums`.
pub(super) fn add_decoded(how: Compression, words: &[u32], sums: &mut [f32]) {
    match how {
        Compression::None => {
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum += f32::from_bits(*word));
        }
        Compression::Fp16 => {
            for (pair, word) in sums.chunks_mut(2).zip(words) {
                for (at, sum) in pair.iter_mut().enumerate() {
                    *sum += from_half((word >> (16 * at)) as u16);
                }
            }
        }
        Compression::Int8 => {
            let (scales, bytes) = words.split_at(sums.len().div_ceil(BLOCK));
            let blocks = sums.chunks_mut(BLOCK).zip(bytes.chunks(BLOCK / 4));
            for ((block, bytes), scale) in blocks.zip(scales) {
                let scale = f32::from_bits(*scale);
                for (sums, word) in block.chunks_mut(4).zip(bytes) {
                    for (sum, byte) in sums.iter_mut().zip(word.to_le_bytes()) {
                        *sum += scale * f32::from(byte.cast_signed());
                    }
                }
            }
        }
        Compression::TopK => {
            let (places, values) = words.split_at(words.len() / 2);
            for (place, value) in places.iter().zip(values) {
                // A place from a peer of another size would be out of range: it says nothing here.
                if let Some(sum) = sums.get_mut(*place as usize) {
                    *sum += f32::from_bits(*value);
                }
            }
        }
    }
}

fn encode_bytes(values: &mut [f32], words: &mut [u32]) {
    let (scales, bytes) = words.split_at_mut(values.len().div_ceil(BLOCK));
    let blocks = values.chunks_mut(BLOCK).zip(bytes.chunks_mut(BLOCK / 4));
    for ((block, bytes), scale) in blocks.zip(scales) {
        let most = block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let step = most / 127.0;
        *scale = step.to_bits();
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        for (values, word) in block.chunks_mut(4).zip(bytes) {
            let mut four = [0; 4];
            for (value, byte) in values.iter_mut().zip(&mut four) {
                let level = (*value * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
                *value -= step * f32::from(level);
                *byte = level.cast_unsigned();
            }
            *word = u32::from_le_bytes(four);
        }
    }
}

/// The values of largest magnitude. A histogram over the leading bits of the magnitudes finds where they begin: one pass more
/// than sorting would need at the least, and no memory for a permutation.
fn encode_largest(values: &mut [f32], words: &mut [u32]) {
    const BINS: usize = 1 << 15;
    let keep = kept(values.len());
    let bin = |value: f32| (value.to_bits() & 0x7FFF_FFFF) as usize >> 16;
    let mut counts = vec![0usize; BINS];
    values.iter().for_each(|value| counts[bin(*value)] += 1);
    // The lowest bin of which some are sent, and how many of it.
    let (mut lowest, mut above) = (BINS - 1, 0);
    while lowest > 0 && above + counts[lowest] < keep {
        above += counts[lowest];
        lowest -= 1;
    }
    let mut of_lowest = keep - above.min(keep);
    let (places, sent) = words.split_at_mut(keep);
    places.fill(u32::MAX);
    sent.fill(0);
    let mut slots = places.iter_mut().zip(sent);
    for (at, value) in values.iter_mut().enumerate() {
        let own = bin(*value);
        let chosen = own > lowest || (own == lowest && of_lowest > 0);
        if !chosen {
            continue;
        }
        of_lowest -= usize::from(own == lowest);
        let Some((place, word)) = slots.next() else { break };
        *place = u32::try_from(at).unwrap_or(u32::MAX);
        *word = value.to_bits();
        *value = 0.0;
    }
}

/// The half-precision number nearest to a value, ties to even; what is too large becomes the largest.
fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, size) = ((bits >> 16) as u16 & 0x8000, bits & 0x7FFF_FFFF);
    if size > 0x7F80_0000 {
        return sign | 0x7E00; // not a number
    }
    if size >= 0x477F_F000 {
        return sign | 0x7BFF;
    }
    if size < 0x3880_0000 {
        // Below the normal numbers: adding 0.5 puts the bits that count at the end of the fraction, rounded.
        let small = f32::from_bits(size) + 0.5;
        return sign | (small.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let rounded = size + 0xFFF + ((size >> 13) & 1);
    sign | ((rounded - (112 << 23)) >> 13) as u16
}

fn from_half(half: u16) -> f32 {
    let (sign, size) = (u32::from(half & 0x8000) << 16, u32::from(half & 0x7FFF));
    let value = match size >> 10 {
        0 => size as f32 * f32::from_bits(103 << 23), // times 2^-24
        31 => f32::from_bits(0x7F80_0000 | (size & 0x3FF) << 13),
        _ => f32::from_bits((size << 13) + (112 << 23)),
    };
    f32::from_bits(value.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_nearest_and_read_back() {
        for half in 0..=u16::MAX {
            let value = from_half(half);
            if value.is_finite() {
                assert_eq!(to_half(value), half, "{value}");
            }
        }
        // Half way between two numbers: the even one.
        for (value, wanted) in [(1.0 + 1.0 / 2048.0, 1.0), (1.0 + 3.0 / 2048.0, 1.0 + 2.0 / 1024.0)]
        {
            assert_eq!(from_half(to_half(value)), wanted);
        }
        for (value, wanted) in [
            (65519.0, 65504.0),
            (1e30, 65504.0),
            (-1e30, -65504.0),
            (1e-9, 0.0),
            (4e-8, 5.960_464_5e-8),
        ] {
            assert_eq!(from_half(to_half(value)), wanted, "{value}");
        }
        assert!(from_half(to_half(f32::NAN)).is_nan());
    }

    /// What is said and what stays are the whole, for lengths that fill no block and no word.
    #[test]
    fn nothing_is_lost_between_words_and_rest() {
        for how in Compression::ALL {
            for length in [0, 1, 2, 3, 99, 100, 101, 255, 256, 257, 1023, 4321] {
                let values: Vec<f32> = (0..length)
                    .map(|at| ((at * 7919 % 1009) as f32 - 504.0) * 0.001 * (1.0 + (at % 7) as f32))
                    .collect();
                let mut rest = values.clone();
                let mut coded = vec![0; words(how, length)];
                encode(how, &mut rest, &mut coded);
                let mut whole = rest.clone();
                add_decoded(how, &coded, &mut whole);
                let most = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                for (at, (whole, value)) in whole.iter().zip(&values).enumerate() {
                    assert!((whole - value).abs() <= 1e-6 * most, "{how} {length} at {at}");
                }
                let left = rest.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                let bound = match how {
                    Compression::None => 0.0,
                    Compression::Fp16 => most / 2000.0,
                    Compression::Int8 => most / 253.0,
                    Compression::TopK => most,
                };
                assert!(left <= bound, "{how} {length}: {left} of {most}");
            }
        }
    }

    #[test]
    fn the_largest_are_sent_each_once() {
        let mut values = vec![0.25f32; 1000];
        for at in [3, 500, 999] {
            values[at] = -1.0;
        }
        let mut coded = vec![0; words(Compression::TopK, 1000)];
        assert_eq!(coded.len(), 20);
        encode(Compression::TopK, &mut values, &mut coded);
        let places: std::collections::BTreeSet<u32> = coded[..10].iter().copied().collect();
        assert_eq!(places.len(), 10);
        assert!([3, 500, 999].iter().all(|at| places.contains(at)));
        assert_eq!(values.iter().filter(|value| **value == 0.0).count(), 10);
        // Zeros only: nothing to say, and nothing wrong either.
        let mut zeros = vec![0.0f32; 1000];
        encode(Compression::TopK, &mut zeros, &mut coded);
        let mut sums = vec![1.0f32; 1000];
        add_decoded(Compression::TopK, &coded, &mut sums);
        assert_eq!(sums, vec![1.0; 1000]);
    }
}
