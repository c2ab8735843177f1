//! The test loss of a run, on examples and on rows alike: the lowest, and when one was reached.
//!
//! The test loss is known only at checks, so the crossing lies between two of them. Where exactly is
//! interpolated on a straight line and said to be so: both checks are in the result.

use paceline_runs::Reached;

/// A check of the test loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Check {
    pub(crate) step: u64,
    /// Seconds of training by then.
    pub(crate) seconds: f64,
    pub(crate) loss: f64,
}

/// What a check said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    /// There was never a lower loss.
    pub(crate) improved: bool,
    /// The loss to reach was reached, now or before; or there were as many checks without a lower loss as are allowed.
    pub(crate) reached: bool,
}

/// Follows the test loss of a run: the lowest so far, and when the one to reach was reached.
#[derive(Debug, Clone)]
pub(crate) struct LossWatch {
    target: Option<f64>,
    best: f64,
    last: Option<Check>,
    reached: Option<Reached>,
    /// Checks in a row without a lower loss after which it is enough, and how many there were.
    most_idle: Option<u64>,
    idle: u64,
}

impl LossWatch {
    /// `best` is the lowest loss of the run so far, if there was one.
    pub(crate) fn new(target: Option<f64>, best: Option<f64>) -> Self {
        Self {
            target,
            best: best.unwrap_or(f64::INFINITY),
            last: None,
            reached: None,
            most_idle: None,
            idle: 0,
        }
    }

    /// The same, with an end after so many checks in a row without a lower loss.
    pub(crate) fn idle_at_most(self, checks: Option<u64>) -> Self {
        Self { most_idle: checks, ..self }
    }

    /// Whether there were so many.
    pub(crate) fn is_idle(&self) -> bool {
        self.most_idle.is_some_and(|most| self.idle >= most)
    }

    /// What a user should know of such an end.
    pub(crate) fn idle_words(&self) -> Option<String> {
        self.is_idle().then(|| {
            format!(
                "stopped early: {} evaluations in a row found no lower test loss than {:.4}",
                self.idle, self.best
            )
        })
    }

    /// Takes note of a check.
    pub(crate) fn check(&mut self, check: Check) -> Noted {
        let improved = check.loss < self.best;
        self.best = self.best.min(check.loss);
        if let Some(target) = self.target.filter(|target| check.loss <= *target)
            && self.reached.is_none()
        {
            self.reached = Some(self.crossing(target, check));
        }
        // The state before the first step is not an achievement that a later one must surpass.
        self.idle = if improved || check.step == 0 { 0 } else { self.idle + 1 };
        self.last = Some(check);
        Noted { improved, reached: self.reached.is_some() || self.is_idle() }
    }

    /// Where the loss was crossed, on a line between the last check and this one.
    fn crossing(&self, target: f64, check: Check) -> Reached {
        // Without an earlier check the crossing can only be said to lie before this one. One of a later
        // step is of weights that were lost with a server, and not on the way here.
        let earlier = self.last.filter(|last| last.step <= check.step);
        let before = earlier.unwrap_or(Check { step: 0, seconds: 0.0, ..check });
        let fall = before.loss - check.loss;
        let share = if fall > 0.0 { (before.loss - target) / fall } else { 1.0 };
        let share = share.clamp(0.0, 1.0);
        Reached {
            loss: target,
            step: before.step as f64 + share * (check.step - before.step) as f64,
            seconds: before.seconds + share * (check.seconds - before.seconds),
            between: [before.step, check.step],
        }
    }

    /// Whether there is a loss to reach.
    pub(crate) fn has_target(&self) -> bool {
        self.target.is_some()
    }

    /// The lowest loss so far.
    pub(crate) fn best(&self) -> Option<f64> {
        self.best.is_finite().then_some(self.best)
    }

    /// Takes over the lowest loss of another worker.
    pub(crate) fn set_best(&mut self, best: Option<f64>) {
        self.best = best.unwrap_or(f64::INFINITY);
    }

    /// The loss of a step, if the last check was of that very step.
    pub(crate) fn loss_at(&self, step: u64) -> Option<f64> {
        self.last.filter(|last| last.step == step).map(|last| last.loss)
    }

    pub(crate) fn reached(&self) -> Option<Reached> {
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(step: u64, loss: f64) -> Check {
        Check { step, seconds: step as f64 / 100.0, loss }
    }

    #[test]
    fn enough_checks_without_a_lower_loss_end_a_run_and_a_lower_one_begins_again() {
        let mut watch = LossWatch::new(None, None).idle_at_most(Some(2));
        for (step, loss, ends) in
            [(0, 1.0, false), (1, 0.9, false), (2, 0.95, false), (3, 0.8, false), (4, 0.8, false)]
        {
            assert_eq!(watch.check(check(step, loss)).reached, ends, "{step}");
        }
        assert!(watch.check(check(5, f64::NAN)).reached && watch.is_idle());
        assert!(watch.reached().is_none(), "no loss was to be reached");
    }

    #[test]
    fn the_crossing_is_interpolated_between_the_checks_around_it() {
        let mut watch = LossWatch::new(Some(0.35), None);
        assert!(!watch.check(check(0, 2.3)).reached);
        assert!(!watch.check(check(100, 0.45)).reached);
        assert!(watch.check(check(200, 0.25)).reached);
        let reached = watch.reached().unwrap();
        assert!((reached.step - 150.0).abs() < 1e-9 && (reached.seconds - 1.5).abs() < 1e-9);
        assert_eq!(reached.between, [100, 200]);
        assert!(watch.check(check(300, 0.9)).reached, "once reached, always reached");
        assert_eq!(watch.reached().unwrap().between, [100, 200]);
    }

    #[test]
    fn a_run_that_went_back_to_a_checkpoint_crosses_where_it_is_now() {
        let mut watch = LossWatch::new(Some(0.35), None);
        assert!(!watch.check(check(1000, 0.4)).reached);
        assert!(watch.check(check(600, 0.3)).reached);
        let reached = watch.reached().unwrap();
        assert_eq!((reached.step, reached.between), (600.0, [0, 600]));
    }

    #[test]
    fn odd_losses_do_not_confuse_it() {
        let mut watch = LossWatch::new(Some(0.35), None);
        assert!(!watch.check(check(10, f64::NAN)).reached);
        assert!(watch.check(check(20, 0.35)).reached, "exactly the target counts");
        assert_eq!(watch.reached().unwrap().step, 20.0);
        let mut first = LossWatch::new(Some(1.0), None);
        assert!(first.check(check(50, 0.5)).reached);
        assert_eq!(first.reached().unwrap().between, [0, 50]);
    }

    #[test]
    fn the_lowest_loss_is_kept_and_nan_is_never_one() {
        let mut watch = LossWatch::new(None, Some(0.5));
        let noted = |improved| Noted { improved, reached: false };
        assert_eq!(watch.check(check(10, 0.6)), noted(false));
        assert_eq!(watch.check(check(20, 0.4)), noted(true));
        assert_eq!(watch.check(check(30, f64::NAN)), noted(false));
        assert_eq!((watch.best(), watch.loss_at(20)), (Some(0.4), None));
        assert!(watch.loss_at(30).is_some_and(f64::is_nan));
    }
}
