//! Growing the batch instead of lowering the rate.
//!
//! The noise of gradient descent goes with rate / batch, so wherever a step schedule divides the
//! rate by k, the batch may be multiplied by k instead: the same number of epochs with far fewer
//! updates, each of which spreads over more workers. It holds while the batch is small against the
//! data (about a tenth of it); what growth the limit leaves over, the rate takes.

use super::{Decay, Schedule, ScheduleError, Span};

/// The rule: how far the batch may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowBatch {
    /// Examples in one epoch.
    pub examples: u64,
    pub max_batch: u64,
}

/// A stretch of training with one batch size and one share of the base rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// When it begins, in epochs.
    pub from_epoch: f64,
    /// When it ends, in epochs.
    pub to_epoch: f64,
    /// Global batch size.
    pub batch: u64,
    /// Share of the base rate.
    pub factor: f64,
}

impl Phase {
    /// Updates of this phase; fractional, since an epoch rarely divides by the batch.
    #[must_use]
    pub fn updates(&self, examples: u64) -> f64 {
        (self.to_epoch - self.from_epoch) * examples as f64 / self.batch as f64
    }
}

impl GrowBatch {
    /// The usual limit: a tenth of the examples.
    #[must_use]
    pub fn up_to_a_tenth(examples: u64) -> Self {
        Self { examples, max_batch: (examples / 10).max(1) }
    }

    /// Replaces the falls of a step schedule over `epochs` epochs by growth of `batch`.
    ///
    /// # Errors
    /// [`ScheduleError::NothingToGrow`] for schedules without falls at whole points in epochs, and
    /// [`ScheduleError::Batch`] when `batch` is 0 or above the limit from the start.
    pub fn phases(
        &self,
        schedule: &Schedule,
        batch: u64,
        epochs: f64,
    ) -> Result<Vec<Phase>, ScheduleError> {
        if batch == 0 || batch > self.max_batch {
            return Err(ScheduleError::Batch { batch, max_batch: self.max_batch });
        }
        let unfit = || ScheduleError::NothingToGrow { schedule: schedule.to_string() };
        let (falls, gamma) = match &schedule.decay {
            Decay::Every { span: Span::Epochs(every), gamma } => {
                let falls = (1..).map(|i| f64::from(i) * every).take_while(|&at| at < epochs);
                (falls.collect(), *gamma)
            }
            Decay::At { milestones, gamma } => {
                let falls = milestones.iter().map(|milestone| match milestone {
                    Span::Epochs(at) => Ok(*at),
                    Span::Steps(_) => Err(unfit()),
                });
                (falls.collect::<Result<Vec<_>, _>>()?, *gamma)
            }
            _ => return Err(unfit()),
        };
        if gamma <= 0.0 {
            return Err(unfit());
        }
        let mut phases: Vec<Phase> =
            vec![Phase { from_epoch: 0.0, to_epoch: epochs, batch, factor: 1.0 }];
        for at in falls.into_iter().filter(|&at| at < epochs) {
            let last = phases.last_mut().expect("starts with one phase and only grows");
            last.to_epoch = at;
            // Nearest whole batch; the rate takes what the limit and the rounding leave over.
            let wished = last.batch as f64 / gamma;
            let grown = wished.round().min(self.max_batch as f64).max(last.batch as f64);
            let factor = last.factor * gamma * grown / last.batch as f64;
            phases.push(Phase { from_epoch: at, to_epoch: epochs, batch: grown as u64, factor });
        }
        Ok(phases)
    }

    /// Updates of a whole run.
    #[must_use]
    pub fn updates(&self, phases: &[Phase]) -> f64 {
        phases.iter().map(|phase| phase.updates(self.examples)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Update counts of the published experiments (CIFAR-10, 200 epochs, falls by 5 at 60, 120 and
    /// 160; ImageNet, 90 epochs, growth by 8 at 30). The counts were rounded by hand, hence the
    /// slack of 1.3 updates.
    #[test]
    fn published_update_counts() {
        let cifar = |max_batch| GrowBatch { examples: 50_000, max_batch };
        let imagenet = |max_batch| GrowBatch { examples: 1_280_000, max_batch };
        let fives: Schedule = "step:60,120,160:0.2".parse().unwrap();
        let once = |gamma: &str| format!("step:30,:{gamma}").parse::<Schedule>().unwrap();
        for (rule, schedule, batch, epochs, wanted) in [
            (cifar(128), &fives, 128, 200.0, 78_125.0), // the limit forbids growth: rates fall
            (cifar(5120), &fives, 128, 200.0, 29_140.0),
            (cifar(5120), &fives, 640, 200.0, 6_405.0),
            (cifar(5120), &fives, 3200, 200.0, 2_305.0),
            (imagenet(8192), &once("0.1"), 8192, 90.0, 14_062.0),
            (imagenet(65_536), &once("0.125"), 8192, 90.0, 5_859.0),
            (imagenet(65_536), &once("0.5"), 32_768, 90.0, 2_344.0),
        ] {
            let phases = rule.phases(schedule, batch, epochs).unwrap();
            let found = rule.updates(&phases);
            assert!((found - wanted).abs() < 1.3, "batch {batch}: {found}, published {wanted}");
        }
    }

    #[test]
    fn the_rate_takes_what_the_limit_leaves_over() {
        let rule = GrowBatch::up_to_a_tenth(50_000);
        let phases = rule.phases(&"step:60,120,160:0.2".parse().unwrap(), 128, 200.0).unwrap();
        let batches: Vec<u64> = phases.iter().map(|phase| phase.batch).collect();
        assert_eq!(batches, [128, 640, 3200, 5000]);
        assert_eq!(phases[2].factor, 1.0);
        assert!((phases[3].factor - 0.2 * 5000.0 / 3200.0).abs() < 1e-12);
        // Noise scale rate / batch falls exactly as the original schedule's.
        for (i, phase) in phases.iter().enumerate() {
            let noise = phase.factor / phase.batch as f64 * 128.0;
            assert!((noise - 0.2f64.powi(i as i32)).abs() < 1e-12);
        }
    }

    #[test]
    fn schedules_without_falls_cannot_grow() {
        let rule = GrowBatch::up_to_a_tenth(1000);
        for text in ["constant", "cosine", "step:0.5:0", "step:5steps,9steps:0.1"] {
            let error = rule.phases(&text.parse().unwrap(), 10, 9.0).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        assert!(rule.phases(&"step:3:0.1".parse().unwrap(), 101, 9.0).is_err());
        assert!(rule.phases(&"step:3:0.1".parse().unwrap(), 0, 9.0).is_err());
    }
}
