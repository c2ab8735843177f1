//! Learning rates over a run, as pure functions of the step.
//!
//! Compact text form, as users type it: `constant`, `step:30:0.1`, `step:60,120,160:0.2`, `cosine`,
//! `cosine:0.01`, each optionally behind `warmup:5+`. Lengths are epochs; with the suffix `steps`
//! they are steps (`warmup:500steps+cosine`).

use std::{fmt, str::FromStr};

mod grow;
mod parse;

pub use grow::{GrowBatch, Phase};

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Global step, from 0.
    pub step: u64,
    /// Steps in one epoch; fractional where the last batch of an epoch is smaller.
    pub steps_per_epoch: f64,
    /// Steps of the whole run, where known: runs that stop at a loss have no end.
    pub total_steps: Option<u64>,
}

/// A length of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Span {
    /// So many passes over the data.
    Epochs(f64),
    /// So many updates.
    Steps(u64),
}

impl Span {
    fn steps(self, steps_per_epoch: f64) -> f64 {
        match self {
            Self::Epochs(epochs) => epochs * steps_per_epoch,
            Self::Steps(steps) => steps as f64,
        }
    }
}

/// How the rate falls after the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub enum Decay {
    /// It does not.
    Constant,
    /// Multiplied by `gamma` every so often.
    Every {
        /// Distance between two falls.
        span: Span,
        /// Factor of each fall.
        gamma: f64,
    },
    /// Multiplied by `gamma` at each milestone.
    At {
        /// When, counted from the start of the run.
        milestones: Vec<Span>,
        /// Factor of each fall.
        gamma: f64,
    },
    /// Half a cosine from 1 down to `last` at the end of the run.
    Cosine {
        /// Share of the base rate at the end.
        last: f64,
    },
}

/// A learning-rate schedule: an optional linear warm-up, then a decay.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Length of the linear rise from near 0 to the base rate.
    pub warmup: Option<Span>,
    /// What follows.
    pub decay: Decay,
}

/// Why a schedule cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The text names no schedule.
    #[error(
        "unknown schedule `{name}` in `{text}`; known: constant, step:EPOCHS:FACTOR, cosine, and warmup:EPOCHS+… before any of them"
    )]
    Unknown {
        /// The part that is not understood.
        name: String,
        /// The whole text.
        text: String,
    },
    /// A schedule has the wrong number of arguments.
    #[error("schedule `{text}`: `{name}` takes {wanted}, found {found}")]
    Arguments {
        name: &'static str,
        wanted: &'static str,
        found: usize,
        /// The whole text.
        text: String,
    },
    /// A number does not parse or is out of range.
    #[error("schedule `{text}`: {what} is `{found}`, must be {wanted}")]
    Number {
        what: &'static str,
        /// What was written.
        found: String,
        /// What it may be.
        wanted: &'static str,
        /// The whole text.
        text: String,
    },
    /// Milestones do not rise.
    #[error("schedule `{text}`: milestones must rise and share one unit")]
    Order {
        /// The whole text.
        text: String,
    },
    /// The batch can grow only where the rate falls by steps.
    #[error(
        "growing the batch replaces the falls of a step schedule, but the schedule is `{schedule}`"
    )]
    NothingToGrow { schedule: String },
    /// The batch is already too large to grow, or too small to exist.
    #[error("batch {batch} must be between 1 and the largest allowed, {max_batch}")]
    Batch {
        /// Batch to start from.
        batch: u64,
        max_batch: u64,
    },
}

impl Schedule {
    /// Whether the rate depends on the run's length, which must then be known.
    #[must_use]
    pub fn needs_end(&self) -> bool {
        matches!(self.decay, Decay::Cosine { .. })
    }

    /// The learning rate of one step.
    #[must_use]
    pub fn rate(&self, base: f32, progress: &Progress) -> f32 {
        (f64::from(base) * self.factor(progress)) as f32
    }

    /// The share of the base rate at one step.
    #[must_use]
    pub fn factor(&self, progress: &Progress) -> f64 {
        let step = progress.step as f64;
        let warmup = self.warmup.map_or(0.0, |span| span.steps(progress.steps_per_epoch));
        if step < warmup {
            // The first step already moves: a rate of 0 would waste a batch.
            return ((step + 1.0) / warmup).min(1.0);
        }
        // A step that begins exactly on a boundary lies behind it; the slack absorbs the rounding
        // of fractional epochs.
        let reached = |boundary: f64| step + 1e-6 >= boundary;
        match &self.decay {
            Decay::Constant => 1.0,
            Decay::Every { span, gamma } => {
                let falls = ((step + 1e-6) / span.steps(progress.steps_per_epoch)).floor();
                gamma.powf(falls)
            }
            Decay::At { milestones, gamma } => {
                let falls = milestones
                    .iter()
                    .filter(|milestone| reached(milestone.steps(progress.steps_per_epoch)))
                    .count();
                gamma.powi(i32::try_from(falls).unwrap_or(i32::MAX))
            }
            Decay::Cosine { last } => {
                let Some(total) = progress.total_steps else { return 1.0 };
                let length = (total as f64 - warmup).max(1.0);
                let done = ((step - warmup) / length).clamp(0.0, 1.0);
                last + (1.0 - last) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
        }
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        parse::schedule(text)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epochs(epochs) => write!(f, "{epochs}"),
            Self::Steps(steps) => write!(f, "{steps}steps"),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(span) = self.warmup {
            write!(f, "warmup:{span}+")?;
        }
        match &self.decay {
            Decay::Constant => write!(f, "constant"),
            Decay::Every { span, gamma } => write!(f, "step:{span}:{gamma}"),
            Decay::At { milestones, gamma } => {
                write!(f, "step:")?;
                for (i, milestone) in milestones.iter().enumerate() {
                    write!(f, "{}{milestone}", if i > 0 { "," } else { "" })?;
                }
                // One milestone is written with a trailing comma, to tell it from "every".
                write!(f, "{}:{gamma}", if milestones.len() == 1 { "," } else { "" })
            }
            Decay::Cosine { last } if *last == 0.0 => write!(f, "cosine"),
            Decay::Cosine { last } => write!(f, "cosine:{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str, step: u64) -> f64 {
        let schedule: Schedule = text.parse().unwrap();
        schedule.factor(&Progress { step, steps_per_epoch: 10.0, total_steps: Some(100) })
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn falls_happen_on_the_first_step_of_the_epoch() {
        close(at("step:3:0.1", 29), 1.0);
        close(at("step:3:0.1", 30), 0.1);
        close(at("step:3:0.1", 60), 0.01);
        close(at("step:25steps:0.5", 25), 0.5);
        close(at("step:2,5:0.5", 19), 1.0);
        close(at("step:2,5:0.5", 20), 0.5);
        close(at("step:2,5:0.5", 99), 0.25);
        close(at("step:2,:0.5", 99), 0.5);
    }

    #[test]
    fn cosine_starts_at_one_and_ends_at_its_floor() {
        close(at("cosine", 0), 1.0);
        close(at("cosine", 50), 0.5);
        close(at("cosine", 100), 0.0);
        close(at("cosine:0.2", 100), 0.2);
        close(at("cosine", 1000), 0.0);
    }

    #[test]
    fn warm_up_rises_to_the_base_rate_and_hands_over() {
        close(at("warmup:2+constant", 0), 0.05);
        close(at("warmup:2+constant", 19), 1.0);
        close(at("warmup:2+cosine", 20), 1.0);
        close(at("warmup:2+cosine", 60), 0.5);
        close(at("warmup:4steps", 1), 0.5);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "unknown schedule ``"),
            ("cosin", "`cosin`"),
            ("step:30", "takes"),
            ("step:0:0.1", "`0`"),
            ("step:30:2", "`2`"),
            ("step:30:nan", "`nan`"),
            ("step:60,30:0.1", "must rise"),
            ("step:60,90steps:0.1", "one unit"),
            ("warmup:5+warmup:5", "`warmup`"),
            ("warmup:-1+cosine", "`-1`"),
            ("cosine:1.5", "`1.5`"),
            ("step:1steps5:0.1", "`1steps5`"),
        ] {
            let error = text.parse::<Schedule>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn text_form_survives_a_round_trip(
            warmup in prop::option::of(1u32..20),
            kind in 0..5,
            span in 1u32..90,
            gamma in 1u32..100,
            steps in any::<bool>(),
        ) {
            let unit = |n: u32| if steps {
                Span::Steps(u64::from(n))
            } else {
                Span::Epochs(f64::from(n) / 4.0)
            };
            let gamma = f64::from(gamma) / 100.0;
            let decay = match kind {
                0 => Decay::Constant,
                1 => Decay::Every { span: unit(span), gamma },
                2 => Decay::At { milestones: vec![unit(span), unit(span + 3)], gamma },
                3 => Decay::At { milestones: vec![unit(span)], gamma },
                _ => Decay::Cosine { last: gamma },
            };
            let schedule = Schedule { warmup: warmup.map(unit), decay };
            prop_assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }

        #[test]
        fn any_text_is_answered(text in "[a-z0-9:+,.-]{0,24}") {
            if let Ok(schedule) = text.parse::<Schedule>() {
                let progress = Progress { step: 7, steps_per_epoch: 3.5, total_steps: Some(9) };
                let factor = schedule.factor(&progress);
                prop_assert!((0.0..=1.0).contains(&factor), "{} gives {}", text, factor);
            }
        }
    }
}
