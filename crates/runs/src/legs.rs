//! The stretches that a run was trained in: one for each time it was started or resumed.
//!
//! A checkpoint carries the legs up to itself, because a process that is killed writes no summary. What counts of
//! a leg is what the next one continued from.

use crate::{Final, Status, Summary, figures::rate};
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
    /// Seconds that the slowest worker spent in steps; the chief, where the leg died before it could ask the others.
    /// Nothing in legs of 0.1.
    pub step_seconds: Option<f64>,
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
            step_seconds: Some(summary.step_seconds),
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
        if !earlier.is_empty() {
            self.sum_legs();
        }
    }

    fn sum_legs(&mut self) {
        self.started = self.legs[0].started;
        self.seconds = self.legs.iter().map(|leg| leg.seconds).sum();
        self.examples = self.legs.iter().map(|leg| leg.examples).sum();
        self.examples_per_second = rate(self.examples, self.seconds);
        let in_steps: Option<f64> = self.legs.iter().map(|leg| leg.step_seconds).sum();
        self.step_seconds = in_steps.unwrap_or(0.0);
    }

    /// Turns the summary of a leg that made no step, because the stop rule was met before it, into one of the whole
    /// run: what was done until then stays, beside the score that was found now.
    pub fn add_no_step(&mut self, before: Summary, earlier: &[Leg]) {
        let own = std::mem::take(self);
        let known = |own: f64, before: f64| if own.is_finite() { own } else { before };
        let mut warnings = before.warnings;
        warnings.extend(own.warnings);
        // Nothing is known of workers that were killed before they wrote down a step.
        let workers = if before.workers.is_empty() { own.workers } else { before.workers };
        *self = Summary {
            run: own.run,
            status: own.status,
            model: own.model,
            data: own.data,
            strategy: own.strategy,
            seed: own.seed,
            global_batch: own.global_batch,
            global_steps: own.global_steps,
            last: Final {
                train_loss: known(own.last.train_loss, before.last.train_loss),
                test_loss: known(own.last.test_loss, before.last.test_loss),
                test_accuracy: known(own.last.test_accuracy, before.last.test_accuracy),
            },
            learning: own.learning.or(before.learning),
            reached: own.reached.or(before.reached),
            legs: earlier.to_vec(),
            workers,
            warnings,
            ..before
        };
        if !earlier.is_empty() {
            self.sum_legs();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(started: f64, seconds: f64, examples: u64, status: Option<Status>) -> Leg {
        let examples_per_second = examples as f64 / seconds;
        let step_seconds = Some(seconds / 2.0);
        let steps = examples / 10;
        Leg { started, seconds, examples, steps, examples_per_second, step_seconds, status }
    }

    #[test]
    fn figures_of_a_resumed_run_cover_all_of_it() {
        let earlier = [leg(100.0, 2.0, 400, Some(Status::Cancelled)), leg(200.0, 1.0, 100, None)];
        let mut summary = Summary {
            started: 300.0,
            seconds: 7.0,
            examples: 500,
            examples_per_second: 500.0 / 7.0,
            step_seconds: 3.5,
            global_steps: 100,
            status: Status::Done,
            ..Summary::default()
        };
        summary.add_legs(&earlier, 50);
        assert_eq!((summary.started, summary.seconds, summary.examples), (100.0, 10.0, 1000));
        assert!((summary.examples_per_second - 100.0).abs() < 1e-9);
        assert_eq!(summary.step_seconds, 5.0, "it was that of the last leg alone");
        assert_eq!(summary.legs[2], leg(300.0, 7.0, 500, Some(Status::Done)));
        assert_eq!(summary.legs[1].status_word(), "died");
    }

    #[test]
    fn step_time_is_unknown_where_a_leg_does_not_say_it() {
        let old = Leg { step_seconds: None, ..leg(100.0, 2.0, 400, Some(Status::Done)) };
        let mut summary = Summary { step_seconds: 3.5, seconds: 7.0, ..Summary::default() };
        summary.add_legs(&[old], 50);
        assert_eq!((summary.seconds, summary.step_seconds), (9.0, 0.0));
    }

    /// A run that was resumed beyond its stop rule lost the figures of what it had done.
    #[test]
    fn a_leg_without_steps_keeps_what_was_done_before_it() {
        let earlier = [leg(100.0, 2.0, 400, Some(Status::Cancelled))];
        let before = Summary {
            last: Final { train_loss: 0.5, test_loss: 0.6, test_accuracy: f64::NAN },
            workers: vec![crate::WorkerSummary {
                iterations: 40,
                ..crate::WorkerSummary::default()
            }],
            status: Status::Cancelled,
            global_steps: 40,
            warnings: vec!["one".to_owned()],
            ..Summary::default()
        };
        let mut summary = Summary {
            last: Final { test_loss: 0.4, test_accuracy: 0.9, ..Final::default() },
            workers: vec![crate::WorkerSummary::default()],
            status: Status::Done,
            global_steps: 40,
            warnings: vec!["two".to_owned()],
            ..Summary::default()
        };
        summary.add_no_step(before, &earlier);
        assert_eq!((summary.status, summary.workers[0].iterations), (Status::Done, 40));
        let Final { train_loss, test_loss, test_accuracy } = summary.last;
        assert_eq!((train_loss, test_loss, test_accuracy), (0.5, 0.4, 0.9));
        assert_eq!((summary.seconds, summary.examples), (2.0, 400));
        assert_eq!((summary.step_seconds, summary.legs.len()), (1.0, 1));
        assert_eq!(summary.warnings, ["one", "two"]);
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
