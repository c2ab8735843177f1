//! Rules that turn a gradient into a change of one weight.
//!
//! Adding a rule is one file with an `ENTRY`, a line in [`ALL`] and an arm in [`Rule`].

pub mod adagrad;
pub mod ftrl;
pub mod scaled_adagrad;
pub mod sgd;

use super::Size;
use crate::{ModelError, names::UnknownName};

/// RuleSettings of a rule; each uses what concerns it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuleSettings {
    /// Learning rate.
    pub rate: f32,
    /// L1 penalty: weights that stay below it are exactly zero. For FTRL.
    pub l1: f32,
    /// L2 penalty.
    pub l2: f32,
    /// Added to the square root of the sum of squares before dividing by it. For FTRL and Adagrad.
    pub beta: f32,
}

/// A rule as users know it.
#[derive(Debug, Clone, Copy)]
pub struct RuleEntry {
    /// What users type.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Flags of `paceline train` that it has and not every rule, without dashes.
    pub settings: &'static [&'static str],
    /// What each setting is without being set, for features whose values are about 1.
    pub defaults: RuleSettings,
    /// The same settings for features that are larger by a factor: what they learn stays the same. Nothing where the rule itself sees
    /// to it.
    rescale: Option<fn(RuleSettings, f32) -> RuleSettings>,
    build: fn(RuleSettings) -> Rule,
}

impl RuleEntry {
    /// What each setting is without being set, for features whose values are about `scale`.
    ///
    /// Features `s` times as large need weights `1 / s` as large and have gradients `s` times as large. A rate that does not know it
    /// learns nothing from rows of unit length, whose values are about 0.1, and overshoots on raw counts.
    #[must_use]
    pub fn defaults_for(&self, scale: f32) -> RuleSettings {
        match self.rescale {
            Some(rescale) if scale != 1.0 => rescale(self.defaults, scale),
            _ => self.defaults,
        }
    }

    /// Whether its settings depend on how large features are.
    #[must_use]
    pub fn needs_scale(&self) -> bool {
        self.rescale.is_some()
    }
}

/// Rates per weight divide a gradient by the root of its squares: one power of the scale is gone already.
fn rescale_adaptive(settings: RuleSettings, scale: f32) -> RuleSettings {
    RuleSettings { rate: settings.rate / scale, beta: settings.beta * scale, ..settings }
}

/// Every rule, simplest first.
pub const ALL: &[&RuleEntry] =
    &[&sgd::ENTRY, &adagrad::ENTRY, &scaled_adagrad::ENTRY, &ftrl::ENTRY];

/// The rule of that name.
///
/// # Errors
/// An unknown name, with those there are.
pub fn find(name: &str) -> Result<&'static RuleEntry, ModelError> {
    let found = ALL.iter().copied().find(|entry| entry.name == name);
    let known = ALL.iter().map(|entry| entry.name);
    found.ok_or_else(|| UnknownName::new("optimiser of sparse-logistic", name, known).into())
}

/// How a slot of two floats gives a weight, and how it learns.
pub trait Update: Copy + Send + Sync {
    /// The weight of a slot.
    fn weight(self, slot: [f32; 2]) -> f32;

    /// A slot that no gradient has reached, of this weight.
    #[inline(always)]
    fn slot_of(self, weight: f32) -> [f32; 2] {
        [weight, 0.0]
    }

    /// The slot after a gradient.
    fn update(self, slot: [f32; 2], grad: f32) -> [f32; 2];

    /// The slot after a gradient of values of this size.
    #[inline(always)]
    fn update_sized(self, slot: [f32; 2], grad: f32, _: Size) -> [f32; 2] {
        self.update(slot, grad)
    }
}

/// A rule with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Plain steps.
    Sgd(sgd::Sgd),
    /// A rate for every weight that falls with the gradients it has seen.
    Adagrad(adagrad::Adagrad),
    /// The same, with every feature measured in its own size.
    ScaledAdagrad(scaled_adagrad::ScaledAdagrad),
    /// Follow the regularised leader.
    Ftrl(ftrl::Ftrl),
}

impl Rule {
    /// The rule of that name.
    ///
    /// # Errors
    /// An unknown name, or settings out of range.
    pub fn new(name: &str, settings: RuleSettings) -> Result<Self, ModelError> {
        let entry = find(name)?;
        for (option, value, positive) in [
            ("the learning rate", settings.rate, true),
            ("the L1 penalty", settings.l1, false),
            ("the L2 penalty", settings.l2, false),
            ("beta", settings.beta, false),
        ] {
            if !value.is_finite() || value < 0.0 || (positive && value == 0.0) {
                return Err(ModelError::Option {
                    model: super::NAME,
                    option,
                    found: value.to_string(),
                    wanted: if positive { "positive" } else { "0 or more" },
                });
            }
        }
        Ok((entry.build)(settings))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sgd(_) => sgd::ENTRY.name,
            Self::Adagrad(_) => adagrad::ENTRY.name,
            Self::ScaledAdagrad(_) => scaled_adagrad::ENTRY.name,
            Self::Ftrl(_) => ftrl::ENTRY.name,
        }
    }

    /// What the floats of a slot are called in files, beside the weight itself; the weight is the
    /// first float of rules that do not name it.
    #[must_use]
    pub fn slots(&self) -> &'static [(&'static str, usize)] {
        match self {
            Self::Sgd(_) => &[],
            Self::Adagrad(_) => &[("squares", 1)],
            Self::ScaledAdagrad(_) => &[("squares_and_size", 1)],
            Self::Ftrl(_) => &[("z", 0), ("n", 1)],
        }
    }

    /// The weight of a slot.
    #[inline]
    #[must_use]
    pub fn weight(&self, slot: [f32; 2]) -> f32 {
        match self {
            Self::Sgd(rule) => rule.weight(slot),
            Self::Adagrad(rule) => rule.weight(slot),
            Self::ScaledAdagrad(rule) => rule.weight(slot),
            Self::Ftrl(rule) => rule.weight(slot),
        }
    }

    /// A slot that no gradient has reached, of this weight.
    #[must_use]
    pub fn slot_of(&self, weight: f32) -> [f32; 2] {
        match self {
            Self::Sgd(rule) => rule.slot_of(weight),
            Self::Adagrad(rule) => rule.slot_of(weight),
            Self::ScaledAdagrad(rule) => rule.slot_of(weight),
            Self::Ftrl(rule) => rule.slot_of(weight),
        }
    }

    /// The slot after a gradient.
    #[inline]
    #[must_use]
    pub fn update(&self, slot: [f32; 2], grad: f32) -> [f32; 2] {
        match self {
            Self::Sgd(rule) => rule.update(slot, grad),
            Self::Adagrad(rule) => rule.update(slot, grad),
            Self::ScaledAdagrad(rule) => rule.update(slot, grad),
            Self::Ftrl(rule) => rule.update(slot, grad),
        }
    }

    /// The slot after a gradient of values of this size.
    #[inline]
    #[must_use]
    pub fn update_sized(&self, slot: [f32; 2], grad: f32, size: Size) -> [f32; 2] {
        match self {
            Self::ScaledAdagrad(rule) => rule.update_sized(slot, grad, size),
            _ => self.update(slot, grad),
        }
    }
}
