//! A rate for every weight that falls with the gradients it has seen: rare features learn fast, common
//! ones settle (Duchi, Hazan and Singer 2011).

use super::{Rule, RuleEntry, RuleSettings, Update};

/// This rule.
pub const ENTRY: RuleEntry = RuleEntry {
    name: "adagrad",
    about: "a rate per weight that falls with the gradients it has seen",
    settings: &[],
    defaults: RuleSettings { rate: 0.2, l1: 0.0, l2: 0.0, beta: 1.0 },
    rescale: Some(super::rescale_adaptive),
    build: |settings| {
        Rule::Adagrad(Adagrad { rate: settings.rate, l2: settings.l2, beta: settings.beta })
    },
};

/// Slots hold the weight and the sum of its squared gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adagrad {
    rate: f32,
    l2: f32,
    beta: f32,
}

impl Update for Adagrad {
    #[inline(always)]
    fn weight(self, slot: [f32; 2]) -> f32 {
        slot[0]
    }

    #[inline(always)]
    fn update(self, [weight, squares]: [f32; 2], grad: f32) -> [f32; 2] {
        let grad = grad + self.l2 * weight;
        let squares = squares + grad * grad;
        [weight - self.rate * grad / (self.beta + squares.sqrt()), squares]
    }
}
