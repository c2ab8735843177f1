//! Follow the regularised leader, with one rate per weight (McMahan et al. 2013).
//!
//! A weight is not stored but follows from the sum of its gradients `z` and of their squares `n`; an L1
//! penalty keeps weights exactly zero until enough gradients agree.

use super::{Rule, RuleEntry, RuleSettings, Update};

/// This rule.
pub const ENTRY: RuleEntry = RuleEntry {
    name: "ftrl",
    about: "follow the regularised leader: sparse weights by an L1 penalty",
    settings: &["l1"],
    defaults: RuleSettings { rate: 0.2, l1: 0.0, l2: 0.0, beta: 1.0 },
    rescale: Some(super::rescale_adaptive),
    build: |settings| {
        Rule::Ftrl(Ftrl {
            inverse_rate: 1.0 / settings.rate,
            l1: settings.l1,
            // `(beta + sqrt(n)) / rate + l2`, with its constant part added up beforehand.
            constant: settings.beta / settings.rate + settings.l2,
        })
    },
};

/// Slots hold `z` and `n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ftrl {
    inverse_rate: f32,
    l1: f32,
    constant: f32,
}

impl Update for Ftrl {
    #[inline(always)]
    fn weight(self, [z, n]: [f32; 2]) -> f32 {
        let excess = (z.abs() - self.l1).max(0.0);
        // An untouched slot with neither beta nor L2 would divide zero by zero.
        let denominator = self.constant + n.sqrt() * self.inverse_rate;
        if excess > 0.0 { -excess.copysign(z) / denominator } else { 0.0 }
    }

    /// What `weight` is of, while `n` is 0.
    #[inline(always)]
    fn slot_of(self, weight: f32) -> [f32; 2] {
        if weight == 0.0 {
            return [0.0; 2];
        }
        [-(weight.abs() * self.constant + self.l1).copysign(weight), 0.0]
    }

    #[inline(always)]
    fn update(self, slot: [f32; 2], grad: f32) -> [f32; 2] {
        let [z, n] = slot;
        let sum = n + grad * grad;
        let sigma = (sum.sqrt() - n.sqrt()) * self.inverse_rate;
        [z + grad - sigma * self.weight(slot), sum]
    }
}
