//! Batch size and learning rate of every step, and where a run by epochs ends.
//!
//! Pure: a function of step and position, so that a resumed run and every replica agree.

use paceline_data::order::{Batches, Position};
use paceline_models::schedule::{Phase, Progress, Schedule};

/// Batch size and learning rate over a run.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub(crate) batches: Batches,
    pub(crate) examples: u64,
    pub(crate) batch: u64,
    pub(crate) rate: f32,
    pub(crate) schedule: Schedule,
    /// Stretches with a batch of their own, where the batch grows instead of the rate falling.
    pub(crate) phases: Vec<Phase>,
    /// Steps of the run, where they are known.
    pub(crate) total_steps: Option<u64>,
    /// Steps of an epoch, where it is not one pass over the examples.
    pub(crate) steps_per_epoch: Option<u64>,
}

impl Pace {
    /// Batch size and learning rate of a step.
    pub(crate) fn at(&self, step: u64, position: Position) -> (u64, f32) {
        if self.phases.is_empty() {
            let progress = Progress {
                step,
                steps_per_epoch: self
                    .steps_per_epoch
                    .map_or(self.examples as f64 / self.batch as f64, |steps| steps as f64),
                total_steps: self.total_steps,
            };
            return (self.batch, self.schedule.rate(self.rate, &progress));
        }
        let epochs = self.epochs(position);
        let phase = self
            .phases
            .iter()
            .rev()
            .find(|phase| phase.from_epoch <= epochs + 1e-9)
            .unwrap_or(&self.phases[0]);
        (phase.batch, (f64::from(self.rate) * phase.factor) as f32)
    }

    /// Where the global batch of that number begins.
    pub(crate) fn position_of(&self, batch: u64) -> Position {
        if self.phases.is_empty() {
            let per_epoch = self.batches.per_epoch(self.batch);
            let example = batch % per_epoch * self.batch;
            return Position { epoch: batch / per_epoch, example };
        }
        // Sizes change on the way, so it has to be walked: a few nanoseconds a batch, and only when
        // a run begins or continues elsewhere.
        let mut position = Position::default();
        for step in 0..batch {
            let (size, _) = self.at(step, position);
            position = self.batches.next(position, size).1;
        }
        position
    }

    /// Examples of the global batch of that number.
    pub(crate) fn examples_of(&self, batch: u64) -> u64 {
        let position = self.position_of(batch);
        self.batches.next(position, self.at(batch, position).0).0.len()
    }

    /// Passes over the training data by `position`.
    pub(crate) fn epochs(&self, position: Position) -> f64 {
        position.epoch as f64 + position.example as f64 / self.examples as f64
    }

    /// Steps until `epochs` passes are done, counted by walking them.
    pub(crate) fn steps_for(&self, epochs: f64) -> u64 {
        if let Some(steps) = self.steps_per_epoch {
            return (epochs * steps as f64 - 1e-9).ceil().max(0.0) as u64;
        }
        if self.phases.is_empty() && epochs.fract() == 0.0 {
            return self.batches.per_epoch(self.batch) * epochs as u64;
        }
        let (mut position, mut step) = (Position::default(), 0);
        while self.epochs(position) + 1e-9 < epochs {
            // Learning rates may need the number that is being computed; batch sizes do not.
            let (batch, _) = self.at(step, position);
            position = self.batches.next(position, batch).1;
            step += 1;
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_data::order::LastBatch;
    use paceline_models::schedule::GrowBatch;

    fn pace(examples: u64, batch: u64, schedule: &str) -> Pace {
        Pace {
            batches: Batches::new(examples, LastBatch::Keep).unwrap(),
            examples,
            batch,
            rate: 0.1,
            schedule: schedule.parse().unwrap(),
            phases: Vec::new(),
            total_steps: None,
            steps_per_epoch: None,
        }
    }

    #[test]
    fn an_epoch_of_so_many_steps_is_what_schedules_and_the_end_count() {
        let mut pace = pace(1000, 64, "step:2:0.5");
        pace.steps_per_epoch = Some(5);
        assert_eq!((pace.steps_for(3.0), pace.steps_for(0.5), pace.steps_for(0.1)), (15, 3, 1));
        assert_eq!(pace.at(9, Position::default()).1, 0.1);
        assert_eq!(pace.at(10, Position::default()).1, 0.05);
        assert_eq!(
            pace.position_of(16),
            Position { epoch: 1, example: 0 },
            "data end where they end"
        );
    }

    #[test]
    fn epochs_end_where_the_data_ends() {
        let pace = pace(1000, 64, "constant");
        assert_eq!(pace.steps_for(1.0), 16);
        assert_eq!(pace.steps_for(3.0), 48);
        assert_eq!(pace.steps_for(0.5), 8);
        assert_eq!(pace.steps_for(0.0), 0);
    }

    #[test]
    fn positions_by_number_are_those_of_walking() {
        let mut paces = vec![pace(1000, 64, "constant"), pace(1000, 10, "step:1:0.5")];
        let grow = GrowBatch::up_to_a_tenth(1000);
        paces[1].phases = grow.phases(&paces[1].schedule, 10, 3.0).unwrap();
        for pace in paces {
            let mut position = Position::default();
            for batch in 0..100 {
                assert_eq!(pace.position_of(batch), position, "batch {batch}");
                let (size, _) = pace.at(batch, position);
                let (examples, next) = pace.batches.next(position, size);
                assert_eq!(pace.examples_of(batch), examples.len(), "batch {batch}");
                position = next;
            }
        }
    }

    #[test]
    fn a_growing_batch_takes_fewer_steps_and_keeps_the_rate() {
        let mut pace = pace(1000, 10, "step:1:0.5");
        let grow = GrowBatch::up_to_a_tenth(1000);
        pace.phases = grow.phases(&pace.schedule, 10, 3.0).unwrap();
        assert_eq!(pace.at(0, Position::default()), (10, 0.1));
        assert_eq!(pace.at(100, Position { epoch: 1, example: 0 }), (20, 0.1));
        assert_eq!(pace.at(150, Position { epoch: 2, example: 500 }), (40, 0.1));
        assert_eq!(pace.steps_for(3.0), 100 + 50 + 25);
    }
}
