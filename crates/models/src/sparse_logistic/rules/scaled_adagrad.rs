//! Adagrad with every feature measured in its own size: income in thousands, a share below a hundredth and a category of 0 or 1
//! learn alike, at one rate.
//!
//! A feature whose values are `s` times as large needs a weight `1 / s` as large. Dividing a gradient by the root of its squares, as
//! Adagrad does (Duchi, Hazan and Singer 2011), leaves one power of `s`; this rule divides by it too, as normalised online learning does
//! (Ross, Mineiro and Langford 2013), with the mean magnitude of a feature's first values where theirs is the largest so far: one outlier
//! does not slow its feature down for good. When the mean moves, the weight moves the other way, so that a first value that was small by
//! chance does not leave a weight behind that is far too large.

use super::{Rule, RuleEntry, RuleSettings, Update};
use crate::sparse_logistic::Size;

/// This rule.
pub const ENTRY: RuleEntry = RuleEntry {
    name: "scaled-adagrad",
    about: "adagrad that measures every feature in its own size",
    settings: &[],
    defaults: RuleSettings { rate: 0.15, l1: 0.0, l2: 0.0, beta: 1.0 },
    rescale: None,
    build: |settings| {
        Rule::ScaledAdagrad(ScaledAdagrad {
            rate: settings.rate,
            l2: settings.l2,
            beta: settings.beta,
        })
    },
};

/// Slots hold the weight and the sum of its squared gradients while the feature's values are 1. Others have the sign of the sum set and
/// their [`Size`] in the last eight bits of both floats: a weight to five digits, and a sum that is rounded up or down at
/// random, so that small squares are not lost on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaledAdagrad {
    rate: f32,
    l2: f32,
    beta: f32,
}

const SIGN: u32 = 1 << 31;
const BYTE: u32 = 0xff;
/// Smaller weights count as this one: numbers that are not normal are slow.
const LEAST: u32 = 0x1e3c_e508; // 1e-20

impl ScaledAdagrad {
    /// As Adagrad: values of 1 need no measure.
    #[inline(always)]
    fn plain(self, [weight, squares]: [f32; 2], grad: f32) -> [f32; 2] {
        let grad = grad + self.l2 * weight;
        let squares = squares + grad * grad;
        [weight - self.rate * grad / (self.beta + squares.sqrt()), squares]
    }

    fn measured(self, slot: [f32; 2], grad: f32, later: Size) -> [f32; 2] {
        let (mut weight, squares, before) = unpack(slot);
        let size = before.join(later);
        if size.count() == 0 {
            return slot; // nothing but zeros so far
        }
        let scale = size.mean();
        if before.count() > 0 {
            weight *= before.mean() / scale;
        }
        let grad = grad + self.l2 * weight;
        let squares = (squares + grad * grad).min(1e38);
        let weight = weight - self.rate * grad / (scale * (self.beta * scale + squares.sqrt()));
        pack(weight, squares, size, chance(weight, grad))
    }
}

/// Weight, sum of squares and size of a slot.
#[inline(always)]
fn unpack([weight, squares]: [f32; 2]) -> (f32, f32, Size) {
    let bits = squares.to_bits();
    if bits & SIGN != 0 {
        let size = Size::from_bits(((bits & BYTE) << 8 | weight.to_bits() & BYTE) as u16);
        return (weight, f32::from_bits(bits & !(SIGN | BYTE)), size);
    }
    if weight == 0.0 && squares == 0.0 {
        return (0.0, 0.0, Size::default());
    }
    // How often it was 1 is not known; a square is a quarter at first and smaller later.
    let count = (4.0 * squares).clamp(1.0, f32::from(Size::MOST)) as u16;
    (weight, squares, Size::new(1.0, count))
}

#[inline(always)]
fn pack(weight: f32, squares: f32, size: Size, chance: u32) -> [f32; 2] {
    let (low, high) = (u32::from(size.to_bits()) & BYTE, u32::from(size.to_bits()) >> 8);
    let bits = weight.to_bits();
    // The nearest weight that ends in the byte.
    let magnitude = (bits & !SIGN).max(LEAST);
    let weight = ((magnitude - low + 128) & !BYTE) | low | (bits & SIGN);
    let squares = (squares.to_bits() + chance) & !BYTE;
    [f32::from_bits(weight), f32::from_bits(squares | high | SIGN)]
}

/// A byte that is as good as a random one, and the same in every run.
#[inline(always)]
fn chance(weight: f32, grad: f32) -> u32 {
    (weight.to_bits() ^ grad.to_bits().rotate_left(16)).wrapping_mul(0x9e37_79b1) >> 24
}

impl Update for ScaledAdagrad {
    #[inline(always)]
    fn weight(self, slot: [f32; 2]) -> f32 {
        slot[0]
    }

    #[inline(always)]
    fn update(self, slot: [f32; 2], grad: f32) -> [f32; 2] {
        if slot[1].is_sign_negative() {
            self.measured(slot, grad, Size::ONE)
        } else {
            self.plain(slot, grad)
        }
    }

    #[inline(always)]
    fn update_sized(self, slot: [f32; 2], grad: f32, size: Size) -> [f32; 2] {
        if size.is_one() { self.update(slot, grad) } else { self.measured(slot, grad, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_weight_squares_and_size() {
        let mut worst = [0.0_f32; 2];
        for n in 0..20_000_u32 {
            let weight = ((n as f32) * 0.37).sin() * (n as f32 / 1000.0 - 10.0).exp2();
            let squares = (n as f32 / 500.0 - 20.0).exp2();
            let size = Size::new((n as f32 / 300.0 - 30.0).exp2(), 1 + (n % 15) as u16);
            let slot = pack(weight, squares, size, n % 256);
            assert!(slot[0].is_finite() && slot[1].is_finite());
            let (found, sum, same) = unpack(slot);
            assert_eq!(same, size);
            worst[0] = worst[0].max((found - weight).abs() / weight.abs().max(1e-14));
            worst[1] = worst[1].max((sum / squares - 1.0).abs());
        }
        assert!(worst[0] < 2e-5 && worst[1] < 4e-5, "{worst:?}");
    }

    #[test]
    fn small_squares_add_up_though_the_sum_is_short() {
        let rule = ScaledAdagrad { rate: 0.1, l2: 0.0, beta: 1.0 };
        let mut slot = [0.0; 2];
        for n in 0..1_000_000 {
            let grad = 0.01 * (n as f32).sin();
            slot = rule.update_sized(slot, grad, Size::of(0.5));
        }
        let sum = unpack(slot).1;
        assert!((sum / 50.0 - 1.0).abs() < 0.05, "{sum}");
    }

    #[test]
    fn values_that_are_zero_leave_a_slot_untouched() {
        let rule = ScaledAdagrad { rate: 0.1, l2: 0.0, beta: 1.0 };
        assert_eq!(rule.update_sized([0.0; 2], 0.0, Size::of(0.0)), [0.0; 2]);
    }
}
