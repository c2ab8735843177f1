//! Scores the model on held-out examples; every replica takes a share.

use crate::{TrainError, input::TestFeed};
use paceline_batch::FeatureKind;
use paceline_data::Source;
use paceline_models::{Model, Score};
use paceline_strategies::Exchange;
use std::sync::Arc;

/// Bytes of pixels in one evaluation batch: large enough to keep all cores busy, small enough not to
/// grow the activations of a model that trains on small batches.
const BATCH_BYTES: usize = 4 << 20;
/// Most examples in it. Of tiny ones there may be more, up to this many bytes: a model that scores 256 of
/// them in microseconds spends the rest on waking threads.
const BATCH: usize = 256;
const TINY_BATCH: usize = 1024;
const TINY_BYTES: usize = 1 << 20;
/// Most classes for which a confusion matrix is kept: a thousand make a million counts.
const MOST_CLASSES: usize = 1000;

/// Held-out examples, cut for evaluation.
pub(crate) struct Evaluator {
    feed: TestFeed,
    classes: usize,
}

/// The result over all replicas.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evaluated {
    pub(crate) loss: f64,
    pub(crate) accuracy: f64,
    pub(crate) examples: u64,
    /// Row = label, column = prediction; empty with too many classes.
    pub(crate) confusion: Vec<u64>,
    /// Whether worker 0 asked for a checkpoint.
    pub(crate) save: bool,
}

impl Evaluator {
    /// `share` is the batch a replica trains on: evaluation may be larger, never smaller.
    pub(crate) fn new(
        source: &Arc<dyn Source>,
        share: u64,
        place: (usize, usize),
        threads: usize,
    ) -> Result<Self, TrainError> {
        let schema = source.schema();
        let bytes = match schema.features {
            FeatureKind::Image(shape) => shape.len().max(1),
            FeatureKind::Sparse { .. } => 512,
        };
        let fitting = (BATCH_BYTES / bytes).min(BATCH).max((TINY_BYTES / bytes).min(TINY_BATCH));
        let fitting = fitting.max(1) as u64;
        let classes = schema.labels.classes();
        Ok(Self {
            feed: TestFeed::new(source, fitting.max(share), place, threads)?,
            classes: if classes <= MOST_CLASSES { classes } else { 0 },
        })
    }

    /// Scores this replica's share and adds up with the others. `save` is worker 0's wish, which
    /// all workers learn on this occasion.
    pub(crate) fn run(
        &mut self,
        model: &mut dyn Model,
        params: &[f32],
        exchange: &mut dyn Exchange,
        save: bool,
    ) -> Result<Evaluated, TrainError> {
        let (rank, _) = exchange.place();
        let score = self.score(model, params)?;
        // Counts stay exact in f64 up to 2^53.
        let mut values = vec![
            score.total.loss_sum,
            score.total.correct as f64,
            score.total.examples as f64,
            f64::from(u8::from(save && rank == 0)),
        ];
        values.extend(score.confusion.iter().map(|count| *count as f64));
        exchange.sum(&mut values)?;
        let examples = values[2].max(1.0);
        Ok(Evaluated {
            loss: values[0] / examples,
            accuracy: values[1] / examples,
            examples: values[2] as u64,
            confusion: values[4..].iter().map(|count| *count as u64).collect(),
            save: values[3] > 0.0,
        })
    }

    /// Scores everything by itself.
    pub(crate) fn alone(
        &mut self,
        model: &mut dyn Model,
        params: &[f32],
    ) -> Result<Evaluated, TrainError> {
        let score = self.score(model, params)?;
        let examples = score.total.examples.max(1) as f64;
        Ok(Evaluated {
            loss: score.total.loss_sum / examples,
            accuracy: score.total.correct as f64 / examples,
            examples: score.total.examples,
            confusion: score.confusion,
            save: false,
        })
    }

    fn score(&mut self, model: &mut dyn Model, params: &[f32]) -> Result<Score, TrainError> {
        let mut score =
            Score { confusion: vec![0; self.classes * self.classes], ..Score::default() };
        for _ in 0..self.feed.batches() {
            let batch = self.feed.next()?;
            if !batch.is_empty() {
                model.score(params, batch, &mut score)?;
            }
        }
        Ok(score)
    }
}
