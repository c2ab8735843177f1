//! The question as people ask it: a model and a data set in, the measurements, the curve and the advice out.

use super::{BatchAdvice, Limits, NoiseScale, StepCurve, StepTiming, advise_batch};
use crate::error::ForecastError;
use crate::measure::{GradientSample, batch_steps, gradient_norms, step_timings};
use paceline_data::{OpenOptions, Split, open_split};
use paceline_models::{optimizer, registry};
use serde::Serialize;
use std::path::PathBuf;

/// Which batch size suits a model on its data?
#[derive(Debug, Clone)]
pub struct BatchQuestion {
    /// A model of the registry.
    pub model: String,
    /// The training data, as every command names it.
    pub data: String,
    /// A folder of runs whose step times are taken, instead of measuring.
    pub runs: Option<PathBuf>,
    /// Batch sizes to judge.
    pub sizes: Vec<usize>,
    /// A batch size that is known to work with the rate.
    pub known_batch: usize,
    /// The learning rate that goes with it; without it the optimiser's.
    pub rate: Option<f32>,
    /// Steps of training before the gradients' noise is measured.
    pub warm_up: u64,
    /// Large batches whose gradients are compared with those of their parts.
    pub gradients: usize,
    /// Bytes of memory the run may take; without it what this process may use here.
    pub memory: Option<f64>,
    /// Seed of weights and order.
    pub seed: u64,
}

/// What takes time, for those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStage {
    /// Steps of every size are timed.
    Sizes,
    /// Gradients are compared.
    Gradients,
}

/// The answer and all it rests on.
#[derive(Debug, Clone, Serialize)]
pub struct BatchForecast {
    pub timings: Vec<StepTiming>,
    pub curve: StepCurve,
    pub noise_scale: NoiseScale,
    pub limits: Limits,
    pub advice: BatchAdvice,
}

impl BatchQuestion {
    /// Measures and answers; `watch` hears what is done of how much.
    pub fn answer(
        &self,
        watch: &dyn Fn(BatchStage, u64, u64),
    ) -> Result<BatchForecast, ForecastError> {
        let mut sizes: Vec<usize> = self.sizes.iter().copied().filter(|size| *size > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 2 || self.known_batch == 0 || self.gradients < 2 {
            return Err(ForecastError::NothingToCompare);
        }
        let model = registry::find(&self.model)?.name;
        let source = open_split(&self.data, Split::Train, &OpenOptions::default())?;
        let (timings, memory) = match &self.runs {
            Some(folder) => (step_timings(folder, model)?, None),
            None => {
                let total = sizes.len() as u64;
                watch(BatchStage::Sizes, 0, total);
                let told = |done: usize| watch(BatchStage::Sizes, done as u64, total);
                let steps = batch_steps(model, &source, &sizes, self.seed, &told)?;
                (steps.timings, Some(steps.memory))
            }
        };
        let curve = StepCurve::fit(&timings)?;
        let rate = match self.rate {
            Some(rate) => rate,
            None => optimizer::find("sgd")?.defaults.rate,
        };
        let sample = GradientSample {
            batch: self.known_batch,
            rate,
            warm_up: self.warm_up,
            batches: self.gradients,
            seed: self.seed,
        };
        let told = |done: u64| watch(BatchStage::Gradients, done, sample.steps());
        told(0);
        let (norms, parameters) = gradient_norms(model, &source, &sample, &told)?;
        let noise_scale = norms.noise_scale()?;
        let limits = Limits {
            // Weights, gradients, and what the optimiser keeps; activations as measured.
            memory: memory.unwrap_or((parameters as f64 * 8.0, 0.0)),
            memory_limit: self
                .memory
                .unwrap_or_else(|| paceline_batch::memory_limit().bytes as f64),
            examples: source.len() as f64,
        };
        let candidates: Vec<f64> = sizes.iter().map(|size| *size as f64).collect();
        let known = (self.known_batch as f64, f64::from(rate));
        let advice = advise_batch(&curve, &noise_scale, &limits, known, &candidates);
        Ok(BatchForecast { timings, curve, noise_scale, limits, advice })
    }
}
