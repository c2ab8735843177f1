//! The stretches that a run was trained in: one for each time it was started or resumed.
//!
//! A checkpoint carries the legs up to itself, because a process that is killed writes no summary. What counts of
//! a leg is what the next one continued from.

use crate::{Status, Summary, figures::rate};
use serde::{Deserialize, Serialize};

/// What one process, or the tasks of one start, did for a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leg {
    /// When it started, in seconds since 1970.
    pub started: f64,
    /// Seconds of training.
    pub seconds: f64,
    /// Examples trained on.
    pub examples: u64,
    /// Updates made.
    pub steps: u64,
    /// Examples a second, as the summary of this leg alone has it.
    pub examples_per_second: f64,
    /// How it ended; nothing where it died before it could say.
    pub status: Option<Status>,
}

impl Leg {
    /// The legs before one that continues from a checkpoint: as the checkpoint has them, or as the summary does
    /// where the run ended right there. `whole` is all of it together, for checkpoints that have no legs.
    #[must_use]
    pub fn earlier(of_checkpoint: &[Self], whole: &Self, summary: Option<&Summary>) -> Vec<Self> {
        if let Some(summary) = summary.filter(|summary| summary.global_steps == whole.steps) {
            let mut legs = summary.legs.clone();
            if legs.is_empty() {
                legs.push(Self::of(summary, summary.global_steps));
            }
            return legs;
        }
        let mut legs = of_checkpoint.to_vec();
        if legs.is_empty() && whole.steps > 0 {
            let started = summary.map_or(0.0, |summary| summary.started);
            legs.push(Self { started, ..whole.clone() });
        }
        let ended = summary.and_then(|summary| summary.legs.last());
        if let (Some(last), Some(ended)) = (legs.last_mut(), ended)
            && last.started == ended.started
        {
            last.status = ended.status;
        }
        legs
    }

    /// What a summary that knows of one leg says about it.
    fn of(summary: &Summary, steps: u64) -> Self {
        Self {
            started: summary.started,
            seconds: summary.seconds,
            examples: summary.examples,
            steps,
            examples_per_second: summary.examples_per_second,
            status: Some(summary.status),
        }
    }

    /// The status in a word.
    #[must_use]
    pub fn status_word(&self) -> String {
        self.status.map_or_else(|| "died".to_owned(), |status| status.to_string())
    }
}

impl Summary {
    /// Turns the summary of the last leg, of so many steps, into one of the whole run.
    pub fn add_legs(&mut self, earlier: &[Leg], steps: u64) {
        let own = Leg::of(self, steps);
        self.legs = earlier.to_vec();
        self.legs.push(own);
        if earlier.is_empty() {
            return;
        }
        self.started = self.legs[0].started;
        self.seconds = self.legs.iter().map(|leg| leg.seconds).sum();
        self.examples = self.legs.iter().map(|leg| leg.examples).sum();
        self.examples_per_second = rate(self.examples, self.seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(started: f64, seconds: f64, examples: u64, status: Option<Status>) -> Leg {
        let examples_per_second = examples as f64 / seconds;
        Leg { started, seconds, examples, steps: examples / 10, examples_per_second, status }
    }

    #[test]
    fn figures_of_a_resumed_run_cover_all_of_it() {
        let earlier = [leg(100.0, 2.0, 400, Some(Status::Cancelled)), leg(200.0, 1.0, 100, None)];
        let mut summary = Summary {
            started: 300.0,
            seconds: 7.0,
            examples: 500,
            examples_per_second: 500.0 / 7.0,
            global_steps: 100,
            status: Status::Done,
            ..Summary::default()
        };
        summary.add_legs(&earlier, 50);
        assert_eq!((summary.started, summary.seconds, summary.examples), (100.0, 10.0, 1000));
        assert!((summary.examples_per_second - 100.0).abs() < 1e-9);
        assert_eq!(summary.legs[2], leg(300.0, 7.0, 500, Some(Status::Done)));
        assert_eq!(summary.legs[1].status_word(), "died");
    }

    #[test]
    fn legs_come_from_the_checkpoint_and_their_end_from_the_summary() {
        let kept = [leg(100.0, 2.0, 400, None)];
        let whole = Leg { steps: 40, ..leg(0.0, 2.0, 400, None) };
        assert_eq!(Leg::earlier(&kept, &whole, None), kept, "it was killed");
        let ended = leg(100.0, 2.5, 450, Some(Status::Failed));
        let mut summary = Summary { global_steps: 45, legs: vec![ended], ..Summary::default() };
        let legs = Leg::earlier(&kept, &whole, Some(&summary));
        assert_eq!(
            legs,
            [leg(100.0, 2.0, 400, Some(Status::Failed))],
            "what was not saved is lost"
        );
        summary.global_steps = 40;
        assert_eq!(Leg::earlier(&kept, &whole, Some(&summary)), summary.legs);
        assert_eq!(Leg::earlier(&[], &whole, None), [whole], "of an earlier version");
        assert_eq!(Leg::earlier(&[], &Leg::default(), None), [], "nothing was done yet");
    }
}
