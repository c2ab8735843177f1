//! How a run starts. Its first steps read and unpack data, warm caches and connect to others: what they take says nothing of a
//! longer run, and must not be lost either.

use paceline_runs::{Event, Record, Step};
use std::collections::BTreeMap;

/// Tasks with fewer events are taken whole.
const FEWEST: usize = 10;
/// The first of so many events belong to the start.
const PART: usize = 10;
/// A start below this share of a run's steps is not worth a word.
const NOTABLE: f64 = 0.05;

/// What a run's first steps took beyond what as many later ones do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunStart {
    /// Seconds, of the task that took longest.
    pub seconds: f64,
    /// Its share of the time of all that task's steps, 0 to 1.
    pub share: f64,
    /// Part of the first steps' time that was input, 0 to 1.
    pub input: f64,
    /// Steps that belong to it.
    pub steps: u64,
}

impl RunStart {
    /// Steps of each task, those of the start taken away.
    pub(super) fn split(records: &[Record]) -> (BTreeMap<&str, Vec<Step>>, Self) {
        let mut tasks: BTreeMap<&str, Vec<Step>> = BTreeMap::new();
        for record in records {
            if let Some(Event::Step(step)) = &record.event
                && step.steps > 0
                && step.examples > 0
                && step.seconds > 0.0
            {
                tasks.entry(&record.task).or_default().push(*step);
            }
        }
        let starts = tasks.values_mut().map(take);
        let longest = starts.max_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or_default();
        (tasks, longest)
    }

    /// Whether it is a part of the run that its reader must know of.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.share > NOTABLE
    }
}

/// Takes the first steps of a task away, and says what they took beyond others.
fn take(steps: &mut Vec<Step>) -> RunStart {
    if steps.len() < FEWEST {
        return RunStart::default();
    }
    let first: Vec<Step> = steps.drain(..steps.len() / PART).collect();
    let sum = |steps: &[Step]| {
        steps.iter().fold((0.0, 0.0), |(seconds, count), step| {
            (seconds + step.seconds, count + step.steps as f64)
        })
    };
    let ((begun, count), (later, others)) = (sum(&first), sum(steps));
    let seconds = (begun - count * later / others).max(0.0);
    RunStart {
        seconds,
        share: seconds / (begun + later),
        input: first.iter().map(|step| step.phases.input).sum::<f64>() / begun,
        steps: count as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::PhaseTimes;

    fn records(seconds: &[f64]) -> Vec<Record> {
        let event = |&seconds: &f64| {
            let phases = PhaseTimes { input: 0.75 * seconds, ..PhaseTimes::default() };
            Step { steps: 2, examples: 20, seconds, phases, ..Step::default() }
        };
        let record = |step: Step| Record {
            time: 0.0,
            task: "worker/0".to_owned(),
            kind: "step".to_owned(),
            event: Some(Event::Step(step)),
        };
        seconds.iter().map(event).map(record).collect()
    }

    #[test]
    fn what_the_first_steps_took_beyond_others_is_the_start() {
        let mut seconds = vec![0.5; 20];
        seconds[0] = 9.0;
        let records = records(&seconds);
        let (tasks, start) = RunStart::split(&records);
        assert_eq!((tasks["worker/0"].len(), start.steps), (18, 4));
        assert!((start.seconds - 8.5).abs() < 1e-9 && start.is_notable(), "{start:?}");
        assert!((start.share - 8.5 / 18.5).abs() < 1e-9);
        assert!((start.input - 0.75).abs() < 1e-9);
    }

    #[test]
    fn steps_that_all_take_the_same_have_no_start() {
        let even = records(&[0.5; 40]);
        let (_, start) = RunStart::split(&even);
        assert!(start.seconds < 1e-9 && !start.is_notable());
        let few = records(&[9.0, 0.5, 0.5]);
        let (tasks, start) = RunStart::split(&few);
        assert_eq!((tasks["worker/0"].len(), start), (3, RunStart::default()));
    }
}
