//! How much gradients of a batch differ from those of its parts, after a little training.

use super::memory;
use crate::batch_size::GradientNorms;
use crate::error::ForecastError;
use paceline_batch::Batch;
use paceline_data::{Loader, LoaderOptions, Source};
use paceline_models::optimizer::{self, Optimizer, OptimizerSettings, OptimizerState};
use paceline_models::{Model, ModelOptions, StepContext, kernels::Buffer, registry};
use std::ops::Range;
use std::sync::Arc;

/// Parts of a large batch.
const PARTS: usize = 8;

/// Which gradients are looked at.
#[derive(Debug, Clone, Copy)]
pub struct GradientSample {
    /// Examples of a part.
    pub batch: usize,
    /// The rate of the steps before.
    pub rate: f32,
    /// Steps of training before any gradient is looked at: noise grows as training goes on.
    pub warm_up: u64,
    /// Large batches.
    pub batches: usize,
    /// Seed of weights and order.
    pub seed: u64,
}

impl GradientSample {
    /// Steps that are made in all.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.warm_up + (self.batches * PARTS) as u64
    }
}

/// Trains a little, then compares gradients of large batches with those of their parts. Answers the norms, and how
/// many parameters the model has; `watch` hears how many steps are done.
pub fn gradient_norms(
    model: &str,
    source: &Arc<dyn Source>,
    sample: &GradientSample,
    watch: &dyn Fn(u64),
) -> Result<(GradientNorms, usize), ForecastError> {
    let threads = paceline_batch::cores().count;
    let mut learner = Learner::new(model, source, sample, threads)?;
    let loading = LoaderOptions {
        batch_size: sample.batch as u64,
        seed: sample.seed,
        threads,
        ..LoaderOptions::default()
    };
    let mut loader = Loader::new(Arc::clone(source), loading)?;
    let mut sums = PartSums::new(learner.params.len());
    for step in 0..sample.steps() {
        let Some(batch) = loader.next_batch()? else { break };
        let is_whole = batch.len() == sample.batch;
        learner.gradient(batch, step)?;
        watch(step + 1);
        if step < sample.warm_up {
            learner.update(step);
        } else if is_whole {
            // The end of an epoch may be a smaller batch, which is left out.
            sums.add(&learner.grad, &learner.trained);
        }
    }
    let (small, large) = (sample.batch as f64, (sample.batch * PARTS) as f64);
    Ok((GradientNorms { small, large, pairs: sums.pairs }, learner.params.len()))
}

/// A model that learns by plain gradient descent.
struct Learner {
    model: Box<dyn Model>,
    optimizer: Optimizer,
    state: OptimizerState,
    params: Buffer,
    grad: Buffer,
    rate: f32,
    seed: u64,
    /// Where weights are that training changes.
    trained: Vec<Range<usize>>,
}

impl Learner {
    fn new(
        name: &str,
        source: &Arc<dyn Source>,
        sample: &GradientSample,
        threads: usize,
    ) -> Result<Self, ForecastError> {
        let options = ModelOptions { threads, ..ModelOptions::default() };
        let model = (registry::find(name)?.build)(source.schema(), &options)?;
        memory::check(&*model, source.schema(), sample.batch)?;
        let sgd = optimizer::find("sgd")?;
        let settings = OptimizerSettings { rate: sample.rate, ..sgd.defaults };
        let optimizer = Optimizer::new(sgd, settings, model.layout())?;
        let state = optimizer.state();
        let mut params = Buffer::zeroed(model.layout().len());
        let grad = Buffer::zeroed(model.layout().len());
        model.init(sample.seed, &mut params);
        let trained = model.layout().entries().iter().filter(|entry| entry.trained);
        let trained = trained.map(paceline_models::LayoutEntry::range).collect();
        let (rate, seed) = (sample.rate, sample.seed);
        Ok(Self { model, optimizer, state, params, grad, rate, seed, trained })
    }

    fn gradient(&mut self, batch: &Batch, step: u64) -> Result<(), ForecastError> {
        let context = StepContext {
            seed: self.seed,
            step,
            first_example: 0,
            scale: 1.0 / batch.len().max(1) as f32,
            keeps_gradient: true,
        };
        let Self { model, params, grad, rate, .. } = self;
        let loss = model.loss_and_grad(params, batch, &context, grad, &mut |_, _, _| ())?;
        if loss.loss_sum.is_finite() {
            Ok(())
        } else {
            Err(ForecastError::Diverged { step, rate: *rate })
        }
    }

    fn update(&mut self, step: u64) {
        let all = 0..self.params.len();
        let Self { optimizer, params, grad, state, rate, .. } = self;
        optimizer.update(all, params, grad, state, *rate, step);
    }
}

/// Gradients of parts, added up until a large batch is complete.
struct PartSums {
    sum: Vec<f32>,
    parts: usize,
    /// Squared norms of the parts, added up.
    small: f64,
    pairs: Vec<(f64, f64)>,
}

impl PartSums {
    fn new(parameters: usize) -> Self {
        Self { sum: vec![0.0; parameters], parts: 0, small: 0.0, pairs: Vec::new() }
    }

    fn add(&mut self, grad: &[f32], trained: &[Range<usize>]) {
        self.small += squares(grad, trained);
        self.sum.iter_mut().zip(grad).for_each(|(sum, value)| *sum += value / PARTS as f32);
        self.parts += 1;
        if self.parts == PARTS {
            self.pairs.push((self.small / PARTS as f64, squares(&self.sum, trained)));
            self.sum.fill(0.0);
            (self.parts, self.small) = (0, 0.0);
        }
    }
}

fn squares(values: &[f32], ranges: &[Range<usize>]) -> f64 {
    let chosen = ranges.iter().flat_map(|range| &values[range.clone()]);
    chosen.map(|value| f64::from(*value) * f64::from(*value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_the_mean_of_the_parts_and_the_norm_of_their_mean() {
        let mut sums = PartSums::new(3);
        for part in 0..2 * PARTS {
            // The last weight is not trained and must not count.
            sums.add(&[1.0, if part % 2 == 0 { 2.0 } else { -2.0 }, 9.0], &[0..1, 1..2]);
        }
        assert_eq!(sums.pairs, [(5.0, 1.0); 2]);
    }
}
