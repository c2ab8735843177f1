//! When to save and what to keep, as data: nothing here touches a disk.

/// What to do about checkpoints at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Write the present state.
    Save,
    /// Hold the present state in memory: it is the best so far, and will be written with the next
    /// save. A run whose epochs take milliseconds must not wait for the disk after each of them.
    Remember,
    /// Remove the checkpoint of that step.
    Delete(u64),
}

/// The rules of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Save after every so many steps or rows.
    pub every: Option<u64>,
    /// Where `every` is not given: save at the end of an epoch or evaluation, but not more often than
    /// this, in seconds.
    pub seconds: f64,
    /// How many of the latest to keep; at least 1.
    pub last: usize,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moment {
    /// Global step.
    pub step: u64,
    /// Step of the latest save, if any.
    pub saved: Option<u64>,
    /// Seconds since the latest save or the start.
    pub since: f64,
    /// An epoch or an evaluation just ended.
    pub boundary: bool,
    /// The evaluation that just ended was the best so far.
    pub improved: bool,
    /// The run is over, or was asked to stop.
    pub ending: bool,
    /// The interval between checkpoints ended since the last look: where workers are asynchronous,
    /// the chief may not see the very step at which it did.
    pub passed: bool,
    /// The training loss has exploded just now, so the weights may be worthless.
    pub suspect: bool,
    /// Whether a copy of the state is cheap to hold in memory.
    pub light: bool,
}

/// A checkpoint on disk, as far as the policy cares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kept {
    pub step: u64,
    /// Test loss at that step, where it was evaluated.
    pub loss: Option<f64>,
}

/// Seconds between checkpoints where no number of steps or rows was asked for.
const SECONDS: f64 = 30.0;

impl Policy {
    /// Saves after every so many steps or rows, else by time, and keeps the latest `last`.
    #[must_use]
    pub const fn new(every: Option<u64>, last: usize) -> Self {
        Self { every, seconds: SECONDS, last }
    }

    /// Whether a stream of which `done` rows were learned from in so many seconds since the latest save asks for
    /// another one.
    #[must_use]
    pub fn is_due(&self, done: u64, seconds: f64) -> bool {
        self.every.map_or(seconds >= self.seconds, |every| done >= every)
    }

    /// Whether the present state is to be saved or held.
    #[must_use]
    pub fn decide(&self, moment: &Moment) -> Option<Action> {
        if moment.saved == Some(moment.step) {
            return None;
        }
        // The latest checkpoint stays one of good weights; a run that a user stops keeps what there is.
        if moment.suspect && !moment.ending {
            return None;
        }
        let due = match self.every {
            Some(every) => moment.passed || moment.step > 0 && moment.step.is_multiple_of(every),
            None => moment.boundary && moment.since >= self.seconds,
        };
        if moment.ending || due {
            Some(Action::Save)
        } else if moment.improved {
            Some(if moment.light { Action::Remember } else { Action::Save })
        } else {
            None
        }
    }

    /// Which of the checkpoints on disk may go: all but the latest `last` and the one with the lowest
    /// loss.
    #[must_use]
    pub fn prune(&self, present: &[Kept]) -> Vec<Action> {
        let mut steps: Vec<u64> = present.iter().map(|kept| kept.step).collect();
        steps.sort_unstable();
        let latest = &steps[steps.len().saturating_sub(self.last.max(1))..];
        let best = present
            .iter()
            .filter_map(|kept| Some((kept.loss.filter(|loss| !loss.is_nan())?, kept.step)))
            // Of equal losses the earlier one: later training added nothing.
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .map(|(_, step)| step);
        steps
            .iter()
            .filter(|step| !latest.contains(step) && Some(**step) != best)
            .map(|step| Action::Delete(*step))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMED: Policy = Policy { every: None, seconds: 30.0, last: 2 };

    #[test]
    fn epochs_of_milliseconds_do_not_hammer_the_disk() {
        let boundary = Moment { step: 600, since: 0.02, boundary: true, ..Moment::default() };
        assert_eq!(TIMED.decide(&boundary), None);
        let improved = Moment { improved: true, light: true, ..boundary };
        assert_eq!(TIMED.decide(&improved), Some(Action::Remember));
        assert_eq!(TIMED.decide(&Moment { light: false, ..improved }), Some(Action::Save));
        assert_eq!(TIMED.decide(&Moment { since: 31.0, ..boundary }), Some(Action::Save));
        assert_eq!(TIMED.decide(&Moment { ending: true, ..boundary }), Some(Action::Save));
    }

    #[test]
    fn nothing_is_saved_twice() {
        let ending =
            Moment { step: 7, saved: Some(7), ending: true, improved: true, ..Moment::default() };
        assert_eq!(TIMED.decide(&ending), None);
    }

    #[test]
    fn exploded_weights_do_not_replace_good_ones() {
        let due = Moment { step: 600, since: 31.0, boundary: true, ..Moment::default() };
        assert_eq!(TIMED.decide(&due), Some(Action::Save));
        let suspect = Moment { suspect: true, saved: Some(300), ..due };
        assert_eq!(TIMED.decide(&suspect), None);
        let stopped = Moment { ending: true, ..suspect };
        assert_eq!(TIMED.decide(&stopped), Some(Action::Save), "a user may know better");
    }

    #[test]
    fn every_so_many_steps_means_exactly_that() {
        let policy = Policy { every: Some(50), ..TIMED };
        let at = |step| policy.decide(&Moment { step, since: 0.0, ..Moment::default() });
        assert_eq!(
            (at(0), at(49), at(50), at(100)),
            (None, None, Some(Action::Save), Some(Action::Save))
        );
        let boundary = Moment { step: 49, since: 99.0, boundary: true, ..Moment::default() };
        assert_eq!(policy.decide(&boundary), None, "asked for steps, so time does not matter");
    }

    proptest! {
        #[test]
        fn latest_and_best_always_stay(
            losses in proptest::collection::vec(proptest::option::of(0u8..20), 0..12),
            last in 0usize..4,
        ) {
            let policy = Policy { last, ..TIMED };
            let present: Vec<Kept> = losses
                .iter()
                .enumerate()
                .map(|(i, loss)| Kept { step: i as u64 * 10, loss: loss.map(f64::from) })
                .collect();
            let deleted = policy.prune(&present);
            let gone = |step| deleted.contains(&Action::Delete(step));
            for kept in present.iter().rev().take(last.max(1)) {
                prop_assert!(!gone(kept.step));
            }
            let best = losses.iter().flatten().min();
            if let Some(best) = best {
                let survives = present
                    .iter()
                    .any(|kept| kept.loss == Some(f64::from(*best)) && !gone(kept.step));
                prop_assert!(survives);
            }
            prop_assert!(present.len() - deleted.len() <= last.max(1) + 1);
        }
    }
}
