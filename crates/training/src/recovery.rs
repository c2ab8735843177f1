//! Time in which a worker makes no steps because another task was lost: it is part of the run and belongs to a phase of it.

use std::time::Instant;

/// Where a worker stands between two steps, as far as the time after a loss is concerned. It begins with the step that
/// failed, because that step's own time is in no other phase, and ends with the next one that is begun.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// When the step that is being made began.
    step: Option<Instant>,
    since: Option<Instant>,
}

impl Standstill {
    /// A step begins.
    pub(crate) fn step(&mut self, began: Instant) {
        self.step = Some(began);
    }

    /// It was made, and its time is in its phases.
    pub(crate) fn step_made(&mut self) {
        self.step = None;
    }

    /// A task was lost. A second loss before the next step belongs to the same standstill.
    pub(crate) fn begin(&mut self) {
        let step = self.step.take();
        self.since.get_or_insert_with(|| step.unwrap_or_else(Instant::now));
    }

    /// Seconds of the standstill that ends now; 0 where there was none.
    pub(crate) fn end(&mut self) -> f64 {
        self.since.take().map_or(0.0, |since| since.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const STEP: Duration = Duration::from_secs(8);

    /// A worker waited 8 s in a step for one that was dead; only the time after that was recovery.
    #[test]
    fn the_step_that_failed_belongs_to_the_standstill() {
        let Some(began) = Instant::now().checked_sub(STEP) else { return };
        let mut stands = Standstill::default();
        stands.step(began);
        stands.begin();
        stands.begin(); // another loss before the next step
        assert!(stands.end() >= STEP.as_secs_f64());
        assert_eq!(stands.end(), 0.0, "counted once");
    }

    #[test]
    fn steps_that_were_made_are_in_no_standstill() {
        let Some(began) = Instant::now().checked_sub(STEP) else { return };
        let mut stands = Standstill::default();
        stands.step(began);
        stands.step_made();
        assert_eq!(stands.end(), 0.0);
        stands.begin();
        assert!(stands.end() < STEP.as_secs_f64());
    }
}
