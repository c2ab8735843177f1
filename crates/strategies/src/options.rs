//! What a user may choose about an exchange.

use crate::StrategyError;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

/// How the gradients of one global step become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// Mean over the examples: the result does not depend on the number of workers.
    #[default]
    Mean,
    /// Sum of the workers' means: the effective learning rate is that of the run times the number
    /// of gradients taken. Of sparse models the sum over all examples.
    Sum,
}

/// Which weights and gradients of a sparse model travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transfer {
    /// Only those a batch touches.
    #[default]
    Sparse,
    /// All of them, always.
    Dense,
}

/// Whether workers share out large dense layers instead of each having a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SplitDense {
    /// Where it can be and pays.
    #[default]
    Auto,
    /// Always; a run that cannot is refused.
    On,
    /// Never.
    Off,
}

/// How gradients are made smaller before they travel between workers. What is lost is kept and added to the next gradient
/// (error feedback), so that nothing is lost for good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Half precision: half the bytes.
    Fp16,
    /// One byte a value and a scale for every block: a quarter of the bytes.
    Int8,
    /// The largest hundredth of the values: a fiftieth of the bytes.
    TopK,
}

/// Choices of the strategies that have them; the others ignore them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrategyOptions {
    /// How the gradients of one global step become one (ps-sync).
    pub combine: Combine,
    /// Workers whose gradients a global step does not wait for (ps-sync).
    pub backup_workers: usize,
    /// No update is made from weights that are older than this many updates (ps-async).
    pub max_staleness: Option<u64>,
    /// How gradients are made smaller before they travel (multi-worker).
    pub compression: Compression,
    /// The longest wait for anybody. Peers that die are noticed long before; this is for those that
    /// live and do nothing, so it must be longer than any step or evaluation.
    pub patience: Duration,
}

impl Default for StrategyOptions {
    fn default() -> Self {
        Self {
            combine: Combine::Mean,
            backup_workers: 0,
            max_staleness: None,
            compression: Compression::None,
            patience: Duration::from_secs(3600),
        }
    }
}

impl Combine {
    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
        }
    }

    /// The factor of a gradient that is summed over so many examples.
    #[must_use]
    pub fn scale_of_sum(self, examples: u64) -> f32 {
        match self {
            Self::Mean => 1.0 / examples.max(1) as f32,
            Self::Sum => 1.0,
        }
    }

    /// The learning rate that a plain mean would need for the same update of `gradients` gradients.
    #[must_use]
    pub fn effective_rate(self, rate: f32, gradients: usize) -> f32 {
        match self {
            Self::Mean => rate,
            Self::Sum => rate * gradients as f32,
        }
    }
}

impl fmt::Display for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Combine {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        match text {
            "mean" => Ok(Self::Mean),
            "sum" => Ok(Self::Sum),
            _ => Err(unknown("combine", text, "`mean` or `sum`")),
        }
    }
}

impl Transfer {
    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Dense => "dense",
        }
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transfer {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        match text {
            "sparse" => Ok(Self::Sparse),
            "dense" => Ok(Self::Dense),
            _ => Err(unknown("transfer", text, "`sparse` or `dense`")),
        }
    }
}

impl SplitDense {
    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// Whether it is the default, which older runs do not mention.
    #[must_use]
    #[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl fmt::Display for SplitDense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SplitDense {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        [Self::Auto, Self::On, Self::Off]
            .into_iter()
            .find(|choice| choice.name() == text)
            .ok_or_else(|| unknown("split-dense", text, "`auto`, `on` or `off`"))
    }
}

impl Compression {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::None, Self::Fp16, Self::Int8, Self::TopK];

    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
            Self::TopK => "topk",
        }
    }

    /// Whether it is the default, which older runs do not mention.
    #[must_use]
    #[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        Self::ALL
            .into_iter()
            .find(|choice| choice.name() == text)
            .ok_or_else(|| unknown("compress", text, "`none`, `fp16`, `int8` or `topk`"))
    }
}

fn unknown(option: &'static str, found: &str, wanted: &str) -> StrategyError {
    StrategyError::Option { option, found: format!("`{found}`"), wanted: wanted.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for combine in [Combine::Mean, Combine::Sum] {
            assert_eq!(combine.to_string().parse::<Combine>().unwrap(), combine);
        }
        for transfer in [Transfer::Sparse, Transfer::Dense] {
            assert_eq!(transfer.to_string().parse::<Transfer>().unwrap(), transfer);
        }
        for split in [SplitDense::Auto, SplitDense::On, SplitDense::Off] {
            assert_eq!(split.to_string().parse::<SplitDense>().unwrap(), split);
        }
        for compression in Compression::ALL {
            assert_eq!(compression.to_string().parse::<Compression>().unwrap(), compression);
        }
        assert!("yes".parse::<SplitDense>().unwrap_err().to_string().contains("auto"));
        let error = "average".parse::<Combine>().unwrap_err().to_string();
        assert!(error.contains("average") && error.contains("mean"), "{error}");
        assert_eq!(Combine::Sum.effective_rate(0.1, 4), 0.4);
        assert_eq!(Combine::Mean.effective_rate(0.1, 4), 0.1);
    }
}
