//! Seeded colour images of any size that a network can learn: every class has its own stripes and
//! colours, every example its own phase, contrast and noise.
//!
//! Made for measuring, where reading must not be the bottleneck: about a nanosecond a pixel value.

use super::{digits::wave, random::Random};
use crate::order::mix;

/// Draws example number `example` of `seed` into `pixels` (`side` rows of `side` RGB pixels) and
/// returns its class, below `classes`.
pub fn draw(seed: u64, example: u64, side: usize, classes: u32, pixels: &mut [u8]) -> u32 {
    let mut random = Random::new(mix(seed, 1), example);
    let class = random.below(u64::from(classes));
    // What all examples of a class have in common.
    let mut common = Random::new(mix(seed, 2), class);
    let steps = std::array::from_fn::<f32, 2, _>(|_| common.between(-9.0, 9.0) / side as f32);
    let colour: [f32; 3] = std::array::from_fn(|_| common.between(50.0, 200.0));
    let swing: [f32; 3] = std::array::from_fn(|_| common.between(-60.0, 60.0));
    // What is this example's own.
    let phase = random.unit();
    let contrast = random.between(0.5, 1.0);
    let light = random.normal() * 20.0;
    let table: [[f32; 3]; 256] = std::array::from_fn(|at| {
        let level = wave(at as f32 / 256.0) * contrast;
        std::array::from_fn(|channel| colour[channel] + light + swing[channel] * level)
    });
    // Positions on the wave in 1/2^24 of a period, so that stepping needs no float rounding.
    let fixed = |periods: f32| (periods * (1 << 24) as f32) as i32 as u32;
    let (across, down) = (fixed(steps[0]), fixed(steps[1]));
    let mut row_at = fixed(phase);
    let mut noise = random.bits() | 1;
    for row in pixels.chunks_exact_mut(3 * side) {
        let mut at = row_at;
        for pixel in row.chunks_exact_mut(3) {
            let level = &table[(at >> 16 & 255) as usize];
            at = at.wrapping_add(across);
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            for (channel, value) in pixel.iter_mut().enumerate() {
                let grain = (noise >> (8 * channel) & 63) as f32 - 31.5;
                *value = (level[channel] + grain).clamp(0.0, 255.0) as u8;
            }
        }
        row_at = row_at.wrapping_add(down);
    }
    class as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_a_function_of_seed_and_number() {
        let side = 32;
        let image = |seed, example| {
            let mut pixels = vec![0; side * side * 3];
            let class = draw(seed, example, side, 10, &mut pixels);
            (class, pixels)
        };
        assert_eq!(image(1, 5), image(1, 5));
        assert_ne!(image(1, 5).1, image(1, 6).1);
        assert_ne!(image(1, 5).1, image(2, 5).1);
    }

    #[test]
    fn classes_can_be_told_apart_by_their_mean_colour() {
        // Nearest mean colour of 300 examples of five classes: far above the 20 % of guessing.
        let side = 24;
        let mean = |example| {
            let mut pixels = vec![0; side * side * 3];
            let class = draw(7, example, side, 5, &mut pixels) as usize;
            let mut sums = [0.0_f32; 3];
            for pixel in pixels.chunks_exact(3) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum += f32::from(value) / (side * side) as f32;
                }
            }
            (class, sums)
        };
        let mut centres = [([0.0_f32; 3], 0.0_f32); 5];
        for example in 0..300 {
            let (class, sums) = mean(example);
            centres[class].1 += 1.0;
            for (centre, sum) in centres[class].0.iter_mut().zip(sums) {
                *centre += sum;
            }
        }
        let right = (300..600)
            .filter(|&example| {
                let (class, sums) = mean(example);
                let distance = |(centre, count): &([f32; 3], f32)| {
                    (0..3).map(|c| (centre[c] / count - sums[c]).powi(2)).sum::<f32>()
                };
                let nearest = (0..5)
                    .min_by(|&a, &b| distance(&centres[a]).total_cmp(&distance(&centres[b])))
                    .unwrap();
                nearest == class
            })
            .count();
        assert!(right > 150, "{right} of 300");
    }
}
