//! Rules that turn a gradient into a change of one weight.
//!
//! Adding a rule is one file with an `ENTRY`, a line in [`ALL`] and an arm in [`Rule`].

pub mod adagrad;
pub mod ftrl;
pub mod sgd;

use crate::{ModelError, names::UnknownName};

/// Settings of a rule; each uses what concerns it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
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
pub struct Entry {
    /// What users type.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Flags of `paceline train` that it has and not every rule, without dashes.
    pub settings: &'static [&'static str],
    /// What each setting is without being set, for features whose values are about 1.
    pub defaults: Settings,
    /// The same settings for features that are larger by a factor: what they learn stays the same.
    rescale: fn(Settings, f32) -> Settings,
    build: fn(Settings) -> Rule,
}

impl Entry {
    /// What each setting is without being set, for features whose values are about `scale`.
    ///
    /// Features `s` times as large need weights `1 / s` as large and have gradients `s` times as large. A rate that does not know it
    /// learns nothing from rows of unit length, whose values are about 0.1, and overshoots on raw counts.
    #[must_use]
    pub fn defaults_for(&self, scale: f32) -> Settings {
        if scale == 1.0 { self.defaults } else { (self.rescale)(self.defaults, scale) }
    }
}

/// Rates per weight divide a gradient by the root of its squares: one power of the scale is gone already.
fn rescale_adaptive(settings: Settings, scale: f32) -> Settings {
    Settings { rate: settings.rate / scale, beta: settings.beta * scale, ..settings }
}

/// Every rule, simplest first.
pub const ALL: &[&Entry] = &[&sgd::ENTRY, &adagrad::ENTRY, &ftrl::ENTRY];

/// The rule of that name.
///
/// # Errors
/// An unknown name, with those there are.
pub fn find(name: &str) -> Result<&'static Entry, ModelError> {
    let found = ALL.iter().copied().find(|entry| entry.name == name);
    let known = ALL.iter().map(|entry| entry.name);
    found.ok_or_else(|| UnknownName::new("optimiser of sparse-logistic", name, known).into())
}

/// How a slot of two floats gives a weight, and how it learns.
pub trait Update: Copy + Send + Sync {
    /// The weight of a slot.
    fn weight(self, slot: [f32; 2]) -> f32;

    /// The slot after a gradient.
    fn update(self, slot: [f32; 2], grad: f32) -> [f32; 2];
}

/// A rule with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Plain steps.
    Sgd(sgd::Sgd),
    /// A rate for every weight that falls with the gradients it has seen.
    Adagrad(adagrad::Adagrad),
    /// Follow the regularised leader.
    Ftrl(ftrl::Ftrl),
}

impl Rule {
    /// The rule of that name.
    ///
    /// # Errors
    /// An unknown name, or settings out of range.
    pub fn new(name: &str, settings: Settings) -> Result<Self, ModelError> {
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
            Self::Ftrl(rule) => rule.weight(slot),
        }
    }

    /// The slot after a gradient.
    #[inline]
    #[must_use]
    pub fn update(&self, slot: [f32; 2], grad: f32) -> [f32; 2] {
        match self {
            Self::Sgd(rule) => rule.update(slot, grad),
            Self::Adagrad(rule) => rule.update(slot, grad),
            Self::Ftrl(rule) => rule.update(slot, grad),
        }
    }
}
