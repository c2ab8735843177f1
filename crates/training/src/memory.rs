//! How much memory a run will take, before it takes any.
//!
//! What is counted is planned to the byte: weights, gradient, the optimiser's state, and the activations of a batch. Input
//! that waits, kernels' scratch memory and the program itself come on top, so a run that is refused here could not have run.

use crate::TrainError;
use paceline_models::Model;

/// Share of the limit that a suggested batch may fill: the rest is for what is not counted.
pub(crate) const FILLED: f64 = 0.8;

/// Memory of one process of a run, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryPlan {
    /// Weights, gradients and the optimiser's state of all replicas.
    pub weights: f64,
    /// Activations of a whole batch.
    pub batch: f64,
}

impl MemoryPlan {
    /// What a model takes whose `replicas` share a batch, with so many state buffers in the optimiser.
    #[must_use]
    pub fn new(model: &dyn Model, replicas: usize, slots: usize, batch: u64) -> Self {
        let share = usize::try_from(batch.div_ceil(replicas.max(1) as u64)).unwrap_or(usize::MAX);
        let parameters = 4.0 * model.layout().len() as f64;
        Self {
            weights: parameters * (1 + replicas + slots) as f64,
            batch: replicas as f64 * model.batch_bytes(share) as f64,
        }
    }

    /// Refuses what cannot fit.
    ///
    /// # Errors
    /// [`TrainError::Memory`], with the largest batch that fits.
    pub fn check(&self, batch: u64, limit: f64) -> Result<(), TrainError> {
        if self.weights + self.batch <= limit {
            return Ok(());
        }
        let each = self.batch / batch.max(1) as f64;
        let fits = (FILLED * limit - self.weights) / each;
        Err(TrainError::Memory {
            batch,
            weights: self.weights,
            activations: self.batch,
            limit,
            fits: (fits >= 1.0).then_some(fits as u64),
        })
    }
}

/// Memory that this process may use, in bytes: the machine's, or less where its control group or `ulimit -v` says so.
#[must_use]
pub fn limit() -> f64 {
    paceline_batch::memory_limit().bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_cannot_fit_is_refused_with_one_that_does() {
        let plan = |batch: u64| MemoryPlan { weights: 1e9, batch: 4e6 * batch as f64 };
        plan(1000).check(1000, 10e9).unwrap();
        let error = plan(50_000).check(50_000, 10e9).unwrap_err();
        let TrainError::Memory { fits: Some(fits), .. } = error else { panic!("{error}") };
        assert_eq!(fits, 1750);
        plan(fits).check(fits, 10e9).unwrap();
        let error = plan(10).check(10, 1e8).unwrap_err();
        assert!(matches!(error, TrainError::Memory { fits: None, .. }), "{error}");
        assert!(error.is_usage());
    }
}
