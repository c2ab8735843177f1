//! When a loss was reached.
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

/// Watches for a loss.
#[derive(Debug, Clone)]
pub(crate) struct LossWatch {
    target: f64,
    before: Option<Check>,
    reached: Option<Reached>,
}

impl LossWatch {
    pub(crate) fn new(target: f64) -> Self {
        Self { target, before: None, reached: None }
    }

    /// Takes note of a check; says whether the loss has been reached.
    pub(crate) fn check(&mut self, check: Check) -> bool {
        if self.reached.is_none() && check.loss <= self.target {
            // Without an earlier check the crossing can only be said to lie before this one. One of a later
            // step is of weights that were lost with a server, and not on the way here.
            let earlier = self.before.filter(|before| before.step <= check.step);
            let before = earlier.unwrap_or(Check { step: 0, seconds: 0.0, ..check });
            let fall = before.loss - check.loss;
            let share = if fall > 0.0 { (before.loss - self.target) / fall } else { 1.0 };
            let share = share.clamp(0.0, 1.0);
            self.reached = Some(Reached {
                loss: self.target,
                step: before.step as f64 + share * (check.step - before.step) as f64,
                seconds: before.seconds + share * (check.seconds - before.seconds),
                between: [before.step, check.step],
            });
        }
        self.before = Some(check);
        self.reached.is_some()
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
    fn the_crossing_is_interpolated_between_the_checks_around_it() {
        let mut watch = LossWatch::new(0.35);
        assert!(!watch.check(check(0, 2.3)));
        assert!(!watch.check(check(100, 0.45)));
        assert!(watch.check(check(200, 0.25)));
        let reached = watch.reached().unwrap();
        assert!((reached.step - 150.0).abs() < 1e-9 && (reached.seconds - 1.5).abs() < 1e-9);
        assert_eq!(reached.between, [100, 200]);
        assert!(watch.check(check(300, 0.9)), "once reached, always reached");
        assert_eq!(watch.reached().unwrap().between, [100, 200]);
    }

    #[test]
    fn a_run_that_went_back_to_a_checkpoint_crosses_where_it_is_now() {
        let mut watch = LossWatch::new(0.35);
        assert!(!watch.check(check(1000, 0.4)));
        assert!(watch.check(check(600, 0.3)));
        let reached = watch.reached().unwrap();
        assert_eq!((reached.step, reached.between), (600.0, [0, 600]));
    }

    #[test]
    fn odd_losses_do_not_confuse_it() {
        let mut watch = LossWatch::new(0.35);
        assert!(!watch.check(check(10, f64::NAN)));
        assert!(watch.check(check(20, 0.35)), "exactly the target counts");
        assert_eq!(watch.reached().unwrap().step, 20.0);
        let mut first = LossWatch::new(1.0);
        assert!(first.check(check(50, 0.5)));
        assert_eq!(first.reached().unwrap().between, [0, 50]);
    }
}
