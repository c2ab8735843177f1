//! Dropped units as a function of their place in the run, not of who computes them.

use super::Compute;
use crate::random::mix;

/// Where dropped units are drawn: what decides them besides the example and the unit.
#[derive(Debug, Clone, Copy)]
pub struct Draw {
    /// Seed of the run.
    pub seed: u64,
    /// Global step.
    pub step: u64,
    /// Tells the layers of a model apart.
    pub layer: u64,
    /// Position of the first example within the global batch.
    pub first_example: u64,
}

impl Compute {
    /// Sets units to zero with probability `rate` and scales the others by `1 / (1 - rate)`.
    /// Which ones follows from `draw`, the example's position in the global batch and the unit, so that neither threads nor workers change them.
    ///
    /// For the way back nothing need be kept where units were not negative: a unit that is positive
    /// afterwards was kept.
    pub fn dropout(&self, rate: f32, draw: Draw, width: usize, values: &mut [f32]) {
        if rate <= 0.0 || width == 0 {
            return;
        }
        let key = mix(mix(mix(draw.seed) ^ draw.step) ^ draw.layer);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // rate is below 1
        let threshold = (f64::from(rate) * f64::from(u32::MAX)) as u64;
        let scale = 1.0 / (1.0 - rate);
        self.pool.for_chunks(values, width, |example, units| {
            let key = mix(key ^ (draw.first_example + example as u64));
            // Two units from each word.
            for (word, pair) in units.chunks_mut(2).enumerate() {
                let random = mix(key ^ word as u64);
                for (unit, half) in pair.iter_mut().zip([random >> 32, random & 0xffff_ffff]) {
                    *unit = if half >= threshold { *unit * scale } else { 0.0 };
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn dropped_units_do_not_depend_on_how_a_batch_is_cut() {
        let compute = Compute::with_isa(Isa::current().unwrap(), 2);
        let draw = |layer, first_example| Draw { seed: 9, step: 4, layer, first_example };
        let mut whole = vec![1.0; 6 * 501];
        compute.dropout(0.3, draw(1, 0), 501, &mut whole);
        let mut part = vec![1.0; 2 * 501];
        compute.dropout(0.3, draw(1, 4), 501, &mut part);
        assert_eq!(part, whole[4 * 501..]);
        let dropped = whole.iter().filter(|&&value| value == 0.0).count();
        assert!((800..1010).contains(&dropped), "{dropped} of 3006 at rate 0.3");
        assert!(whole.iter().all(|&value| value == 0.0 || (value - 1.0 / 0.7).abs() < 1e-6));
        let mut other = vec![1.0; 6 * 501];
        compute.dropout(0.3, draw(2, 0), 501, &mut other);
        assert_ne!(other, whole);
    }
}
