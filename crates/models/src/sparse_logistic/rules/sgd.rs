//! Plain steps of one rate. The second float of a slot stays unused.

use super::{Rule, RuleEntry, RuleSettings, Update};

/// This rule.
pub const ENTRY: RuleEntry = RuleEntry {
    name: "sgd",
    about: "plain steps of one rate",
    settings: &[],
    defaults: RuleSettings { rate: 0.01, l1: 0.0, l2: 0.0, beta: 0.0 },
    rescale: Some(|settings, scale| RuleSettings {
        rate: settings.rate / (scale * scale),
        ..settings
    }),
    build: |settings| {
        Rule::Sgd(Sgd { rate: settings.rate, keep: 1.0 - settings.rate * settings.l2 })
    },
};

/// Plain steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    rate: f32,
    /// What the L2 penalty leaves of a weight in one step.
    keep: f32,
}

impl Update for Sgd {
    #[inline(always)]
    fn weight(self, slot: [f32; 2]) -> f32 {
        slot[0]
    }

    #[inline(always)]
    fn update(self, [weight, unused]: [f32; 2], grad: f32) -> [f32; 2] {
        [self.keep * weight - self.rate * grad, unused]
    }
}
