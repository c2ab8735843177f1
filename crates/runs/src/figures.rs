//! Time, examples and rate of a run: one definition for every output.
//!
//! - *Time* is wall-clock time of training, evaluations and checkpoints included.
//! - *Examples* are those that training used. Every task counts its own, so those of all tasks add up; gradients that
//!   came too late were worked on and not used.
//! - *Rate* is these examples over this time, so that dividing the two printed figures gives the third.
//! - *Step time* is the part of the time that the slowest worker spent in steps. Time without steps after a task was
//!   lost is *recovery*: part of the time, of the rate and of the phases' shares, not of step time.
//!
//! A ratio of rates says something about a setting only between runs of the same model on the same data.

use crate::{Event, PhaseTimes, Record, Summary, WorkerSummary};

/// Examples a second; 0 where no time has passed.
#[must_use]
pub fn rate(examples: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { examples as f64 / seconds } else { 0.0 }
}

/// Shares of all workers' time together.
#[must_use]
pub fn shares(workers: &[WorkerSummary]) -> PhaseTimes {
    let total: f64 = workers.iter().map(|worker| worker.seconds).sum();
    let seconds = workers.iter().map(|worker| worker.phases.seconds_of(worker.seconds));
    seconds.sum::<PhaseTimes>().shares_of(total)
}

impl Summary {
    /// Derives what follows from examples, time and workers: rate, step time and shares of phases. Called last, by
    /// everything that fills a summary.
    pub fn settle(&mut self) {
        self.examples_per_second = rate(self.examples, self.seconds);
        let stepping = |one: &WorkerSummary| one.seconds * (1.0 - one.phases.recovery);
        self.step_seconds = self.workers.iter().map(stepping).fold(0.0, f64::max);
        self.phases = shares(&self.workers);
    }

    /// Examples a second while steps were made: what a forecast of other steps needs. Falls back on the rate where step
    /// time is not known.
    #[must_use]
    pub fn step_rate(&self) -> f64 {
        // Workers tell of the last leg alone, where a run was resumed.
        let worked: u64 = self.workers.iter().map(|worker| worker.examples).sum();
        let examples = if self.legs.len() > 1 { self.examples } else { worked };
        if self.step_seconds > 0.0 && examples > 0 {
            rate(examples, self.step_seconds)
        } else {
            self.examples_per_second
        }
    }

    /// Whether figures of this run and another can be compared: the same model on the same data.
    #[must_use]
    pub fn comparable(&self, other: &Summary) -> bool {
        self.model == other.model && self.data == other.data
    }

    /// This run's rate over another's, where they can be compared.
    #[must_use]
    pub fn speedup_over(&self, other: &Summary) -> Option<f64> {
        let ratio = self.examples_per_second / other.examples_per_second;
        (self.comparable(other) && ratio.is_finite()).then_some(ratio)
    }
}

/// The rate over equal stretches of a run's time, all tasks together, each with the moment at which its stretch ends. An event's
/// examples are spread over the seconds that its steps took.
#[must_use]
pub fn rates(records: &[Record], stretches: usize) -> Vec<(f64, f64)> {
    let steps = || {
        records.iter().filter_map(|record| match record.event.as_ref()? {
            Event::Step(step) if step.seconds > 0.0 => {
                Some((record.time - step.seconds, record.time, step.examples as f64))
            }
            _ => None,
        })
    };
    let begin = steps().map(|(from, ..)| from).fold(f64::INFINITY, f64::min);
    let end = steps().map(|(_, to, _)| to).fold(f64::NEG_INFINITY, f64::max);
    let length = (end - begin) / stretches as f64;
    if !length.is_finite() || length <= 0.0 {
        return Vec::new();
    }
    let mut examples = vec![0.0; stretches];
    for (from, to, count) in steps() {
        let place = |time: f64| (((time - begin) / length) as usize).min(stretches - 1);
        for (at, sum) in examples.iter_mut().enumerate().take(place(to) + 1).skip(place(from)) {
            let (low, high) = (begin + at as f64 * length, begin + (at + 1) as f64 * length);
            let inside = (to.min(high) - from.max(low)).max(0.0);
            *sum += count * inside / (to - from);
        }
    }
    let ends = (1..=stretches).map(|at| begin + at as f64 * length);
    ends.zip(examples.into_iter().map(|count| count / length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Step;

    /// `time 8.43 s, 500000 rows, 1024726 rows/s` was printed: the rate was of another time.
    #[test]
    fn the_rate_is_the_printed_examples_over_the_printed_time() {
        let worker = WorkerSummary {
            seconds: 0.49,
            examples: 500_000,
            phases: PhaseTimes { input: 0.5, compute: 0.5, ..PhaseTimes::default() },
            ..WorkerSummary::default()
        };
        let mut summary = Summary {
            examples: 500_000,
            seconds: 8.43,
            workers: vec![worker],
            ..Summary::default()
        };
        summary.settle();
        assert!((summary.examples_per_second - 500_000.0 / 8.43).abs() < 1e-6);
        assert_eq!((summary.step_seconds, summary.phases.input), (0.49, 0.5));
        assert!((summary.step_rate() - 500_000.0 / 0.49).abs() < 1e-6);
        assert_eq!(rate(5, 0.0), 0.0);
    }

    /// Of 16 s, 11 were spent waiting for a lost worker, and were in no figure but the time.
    #[test]
    fn time_without_steps_after_a_loss_has_its_share_and_is_not_step_time() {
        let phases = PhaseTimes { compute: 5.0, recovery: 11.0, ..PhaseTimes::default() };
        let worker = WorkerSummary {
            seconds: phases.total(),
            examples: 1600,
            phases: phases.shares(),
            ..WorkerSummary::default()
        };
        let mut summary =
            Summary { examples: 1600, seconds: 16.0, workers: vec![worker], ..Summary::default() };
        summary.settle();
        assert_eq!((summary.examples_per_second, summary.phases.recovery), (100.0, 11.0 / 16.0));
        assert!((summary.step_seconds - 5.0).abs() < 1e-9, "{}", summary.step_seconds);
        assert!((summary.step_rate() - 320.0).abs() < 1e-6);
    }

    #[test]
    fn runs_of_other_models_or_data_are_not_compared() {
        let run = |model: &str, data: &str, rate| Summary {
            model: model.to_owned(),
            data: data.to_owned(),
            examples_per_second: rate,
            ..Summary::default()
        };
        let base = run("lenet", "digits", 100.0);
        assert_eq!(run("lenet", "digits", 150.0).speedup_over(&base), Some(1.5));
        assert_eq!(run("softmax", "digits", 150.0).speedup_over(&base), None);
        assert_eq!(run("lenet", "flowers", 150.0).speedup_over(&base), None);
        assert_eq!(base.speedup_over(&run("lenet", "digits", 0.0)), None);
    }

    /// All workers' examples were divided by one worker's seconds: two workers looked twice as fast.
    #[test]
    fn examples_of_several_tasks_add_up_over_the_same_time() {
        let record = |task: &str, time: f64| Record {
            time,
            task: task.to_owned(),
            kind: String::new(),
            event: Some(Event::Step(Step { examples: 50, seconds: 1.0, ..Step::default() })),
        };
        let mut records: Vec<Record> =
            (1..=10).map(|at| record("worker/0", f64::from(at))).collect();
        let alone = rates(&records, 5);
        assert!(alone.iter().all(|(_, rate)| (rate - 50.0).abs() < 1e-9), "{alone:?}");
        records.extend((1..=10).map(|at| record("worker/1", f64::from(at))));
        let both = rates(&records, 5);
        assert_eq!(both.len(), 5);
        assert!(both.iter().all(|(_, rate)| (rate - 100.0).abs() < 1e-9), "{both:?}");
        assert_eq!((both[0].0, both[4].0), (2.0, 10.0));
        assert_eq!(rates(&[], 5), []);
    }
}
