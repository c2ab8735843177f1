//! Steps of several batch sizes, timed on examples of the data set.

use super::{memory, stepping::Stepper};
use crate::batch_size::StepTiming;
use crate::error::ForecastError;
use paceline_batch::Batch;
use paceline_data::{Loader, LoaderOptions, Source};
use paceline_models::{ModelOptions, registry};
use std::sync::Arc;
use std::time::Duration;

/// How long each batch size is timed.
const SPAN: Duration = Duration::from_millis(600);

/// What steps of several sizes took.
#[derive(Debug, Clone)]
pub struct BatchSteps {
    pub timings: Vec<StepTiming>,
    /// Bytes of memory that a step takes whatever its size, and for each example.
    pub memory: (f64, f64),
}

/// Times every batch size on the first examples, and notes the memory each takes; `watch` hears how many are done.
pub fn batch_steps(
    model: &str,
    source: &Arc<dyn Source>,
    sizes: &[usize],
    seed: u64,
    watch: &dyn Fn(usize),
) -> Result<BatchSteps, ForecastError> {
    let threads = paceline_batch::cores().count;
    if let Some(&largest) = sizes.iter().max() {
        // Said before minutes are spent on the smaller ones.
        let options = ModelOptions { threads, ..ModelOptions::default() };
        let built = (registry::find(model)?.build)(source.schema(), &options)?;
        memory::check(&*built, source.schema(), largest)?;
    }
    let mut timings = Vec::new();
    let mut used: Vec<(f64, f64)> = Vec::new();
    for (done, &size) in sizes.iter().enumerate() {
        let before = resident();
        let options =
            LoaderOptions { batch_size: size as u64, seed, threads, ..LoaderOptions::default() };
        let batch = first_batch(source, options)?;
        let mut stepper = Stepper::with(model, source.schema(), batch, threads)?;
        let time = stepper.time(SPAN)?;
        used.push((size as f64, (resident() - before).max(0.0)));
        timings.push(StepTiming { batch: size as f64, seconds: time.whole });
        watch(done + 1);
    }
    Ok(BatchSteps { timings, memory: memory_line(&used) })
}

/// Memory is weights plus a part per example: a line through the smallest and the largest.
fn memory_line(used: &[(f64, f64)]) -> (f64, f64) {
    let (Some(first), Some(last)) = (used.first(), used.last()) else { return (0.0, 0.0) };
    let each = ((last.1 - first.1) / (last.0 - first.0).max(1.0)).max(0.0);
    ((first.1 - each * first.0).max(0.0), each)
}

fn first_batch(source: &Arc<dyn Source>, options: LoaderOptions) -> Result<Batch, ForecastError> {
    let mut loader = Loader::new(Arc::clone(source), options)?;
    loader.next_batch()?.cloned().ok_or(ForecastError::NoExamples)
}

/// Bytes of memory this process has at the moment.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_fixed_part_and_one_for_each_example() {
        assert_eq!(memory_line(&[(8.0, 1080.0), (16.0, 1.0), (108.0, 2080.0)]), (1000.0, 10.0));
        // A process that gave memory back must not make examples free of charge in the other direction.
        assert_eq!(memory_line(&[(8.0, 500.0), (16.0, 100.0)]), (500.0, 0.0));
        assert_eq!(memory_line(&[]), (0.0, 0.0));
    }
}
