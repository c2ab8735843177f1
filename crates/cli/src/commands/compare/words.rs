//! What a comparison says.

use super::Stopped;
use crate::terminal::show_seconds;
use crate::terminal::{Table, Terminal};
use paceline_stats::{describe::median, sequential::SpeedRatio};
use paceline_sweep::{MeasuredBy, PairResult, PairedComparison, Side};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// The answer in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Faster,
    Slower,
    NoDifference,
    /// Too few pairs to say anything.
    Unknown,
}

/// How a comparison ended.
pub(super) struct Outcome {
    pub(super) answer: Answer,
    pub(super) stopped: Stopped,
    ratio: Option<SpeedRatio>,
    measured_by: MeasuredBy,
    results: Vec<PairResult>,
    took: Duration,
}

impl Outcome {
    pub(super) fn new(comparison: &PairedComparison<'_>, stopped: Stopped, took: Duration) -> Self {
        let ratio = comparison.ratio();
        let answer = match &ratio {
            None => Answer::Unknown,
            Some(ratio) if !ratio.differs() => Answer::NoDifference,
            Some(ratio) if ratio.value > 1.0 => Answer::Faster,
            Some(_) => Answer::Slower,
        };
        Self {
            answer,
            stopped,
            ratio,
            measured_by: comparison.measured_by().unwrap_or(MeasuredBy::Time),
            results: comparison.results().to_vec(),
            took,
        }
    }

    fn medians(&self) -> [f64; 2] {
        let of = |side: fn(&PairResult) -> f64| {
            median(&self.results.iter().map(side).collect::<Vec<_>>())
        };
        [of(|pair| pair.a), of(|pair| pair.b)]
    }

    pub(super) fn tell(&self, sides: &[Side; 2], terminal: &Terminal) -> anyhow::Result<()> {
        if !self.results.is_empty() {
            let head = match self.measured_by {
                MeasuredBy::Rate => "rate (median)",
                MeasuredBy::Time => "time (median)",
            };
            let mut shown = Table::new(["", head, "command"]);
            for (side, middle) in sides.iter().zip(self.medians()) {
                let middle = match self.measured_by {
                    MeasuredBy::Rate => format!("{middle:.1} examples/s"),
                    MeasuredBy::Time => show_seconds(middle),
                };
                shown.row([side.name.to_owned(), middle, side.typed.clone()]);
            }
            terminal.data(shown)?;
        }
        terminal.data(self.sentence())?;
        let why = match self.stopped {
            Stopped::Interrupted => "interrupted; this is what was measured so far",
            Stopped::Budget => {
                "the time was used up; --budget gives it more, --until asks for less precision"
            }
            _ => return Ok(()),
        };
        terminal.note(why);
        Ok(())
    }

    fn sentence(&self) -> String {
        let pairs = self.results.len();
        let Some(ratio) = &self.ratio else {
            return format!(
                "nothing can be said yet: {}",
                match pairs {
                    0 => "no pair was measured".to_owned(),
                    1 => "one pair was measured, some ten are needed".to_owned(),
                    2..20 => format!("{pairs} pairs were measured, some ten are needed"),
                    _ => "the ratio of the two changed while they were measured".to_owned(),
                }
            );
        };
        let (low, high) = (ratio.interval.low, ratio.interval.high);
        match self.answer {
            Answer::NoDifference => format!(
                "no difference found: B is between {} and {} than A ({pairs} pairs, 95 % interval)",
                relative(low),
                relative(high)
            ),
            _ => format!(
                "B is {} than A: between {} and {} ({pairs} pairs, 95 % interval)",
                relative(ratio.value),
                relative(low),
                relative(high)
            ),
        }
    }

    pub(super) fn json(
        &self,
        sides: &[Side; 2],
        warm_up: u32,
        proof: Option<&serde_json::Value>,
        terminal: &Terminal,
    ) -> anyhow::Result<()> {
        let [a, b] = self.medians();
        let unit = match self.measured_by {
            MeasuredBy::Rate => "examples/s",
            MeasuredBy::Time => "s",
        };
        let of = |side: &Side, middle: f64| json!({ "command": side.typed, "median": middle });
        terminal.json(&json!({
            "answer": self.answer,
            "words": self.sentence(),
            "ratio": self.ratio,
            "measured_by": self.measured_by,
            "unit": unit,
            "a": of(&sides[0], a),
            "b": of(&sides[1], b),
            "pairs": self.results,
            "warm_up": warm_up,
            "proof": proof,
            "stopped": self.stopped,
            "seconds": self.took.as_secs_f64(),
        }))
    }
}

/// `3.10 % faster`.
fn relative(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 1.0 => format!("{:.2} % faster", 100.0 * (ratio - 1.0)),
        ratio => format!("{:.2} % slower", 100.0 * (1.0 - ratio)),
    }
}

/// The interval for a progress bar.
pub(super) fn short(ratio: &SpeedRatio) -> String {
    let percent = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
    format!(
        "B {} ({} to {})",
        percent(ratio.value),
        percent(ratio.interval.low),
        percent(ratio.interval.high)
    )
}
