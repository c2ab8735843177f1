//! A batch in several passes: gradients of its parts are added up before anyone sees them.
//!
//! Activations are what a large batch needs memory for, and they are those of one part here, while the update is that of the
//! whole batch: batch sizes of large clusters can be had on any machine. Dropout depends on the place of an example in the
//! global batch, so it drops the same units as one pass would. Batch normalisation sees one part at a time; a part counts in
//! the running statistics by its examples.

use crate::{
    Model, ModelError, Ready, Score, StepContext, StepLoss, layout::Layout, profile::Profile,
    shapes::LayerShape, threads::Pool,
};
use paceline_batch::{Batch, Features};
use paceline_kernels::Buffer;
use std::ops::Range;

/// A model that takes its batches in parts.
pub struct Accumulate {
    inner: Box<dyn Model>,
    parts: usize,
    /// Sums over the parts before the last, as long as the parameters.
    sums: Buffer,
    batch: Batch,
}

impl std::fmt::Debug for Accumulate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Accumulate: {} parts", self.parts)
    }
}

impl Accumulate {
    /// `inner`, fed `parts` times for each batch; less often where a batch has fewer examples.
    #[must_use]
    pub fn new(inner: Box<dyn Model>, parts: usize) -> Self {
        let layout = inner.layout();
        let sums = Buffer::zeroed(layout.len());
        Self { inner, parts: parts.max(1), sums, batch: Batch::pixels(1, 0) }
    }
}

/// Makes `some` the examples of `range`, in the memory it has.
fn copy_part(some: &mut Batch, batch: &Batch, range: Range<usize>) {
    fn fill<T: Copy>(into: &mut Vec<T>, from: &[T], range: &Range<usize>, width: usize) {
        into.clear();
        into.extend_from_slice(&from[range.start * width..range.end * width]);
    }
    fill(&mut some.labels, &batch.labels, &range, 1);
    match (&mut some.features, &batch.features) {
        (Features::Pixels { values, width }, Features::Pixels { values: from, width: wide })
            if width == wide =>
        {
            fill(values, from, &range, *wide);
        }
        (Features::Dense { values, width }, Features::Dense { values: from, width: wide })
            if width == wide =>
        {
            fill(values, from, &range, *wide);
        }
        (features, Features::Pixels { values: from, width }) => {
            let mut values = Vec::new();
            fill(&mut values, from, &range, *width);
            *features = Features::Pixels { values, width: *width };
        }
        (features, Features::Dense { values: from, width }) => {
            let mut values = Vec::new();
            fill(&mut values, from, &range, *width);
            *features = Features::Dense { values, width: *width };
        }
        (_, Features::Sparse { .. }) => unreachable!("models of the registry take images"),
    }
}

/// Adds the gradients of other parts.
fn add(sums: &[f32], grad: &mut [f32]) {
    grad.iter_mut().zip(sums).for_each(|(value, sum)| *value += sum);
}

impl Model for Accumulate {
    fn layout(&self) -> &Layout {
        self.inner.layout()
    }

    fn init(&self, seed: u64, params: &mut [f32]) {
        self.inner.init(seed, params);
    }

    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError> {
        let examples = batch.len();
        let parts = self.parts.min(examples).max(1);
        if parts == 1 {
            return self.inner.loss_and_grad(params, batch, context, grad, ready);
        }
        let Self { inner, sums, batch: some, .. } = self;
        let mut total = StepLoss::default();
        for part in 0..parts {
            let range = part * examples / parts..(part + 1) * examples / parts;
            copy_part(some, batch, range.clone());
            let last = part + 1 == parts;
            let context = StepContext {
                first_example: context.first_example + range.start as u64,
                keeps_gradient: context.keeps_gradient || !last,
                ..*context
            };
            let loss = if last {
                inner.loss_and_grad(params, some, &context, grad, &mut |range, params, grad| {
                    add(&sums[range.clone()], grad);
                    ready(range, params, grad);
                })?
            } else {
                // The first part is written where it belongs, the others are added to it.
                let into: &mut [f32] = if part == 0 { sums } else { grad };
                let loss = inner.loss_and_grad(params, some, &context, into, &mut |_, _, _| ())?;
                if part > 0 {
                    add(grad, sums);
                }
                loss
            };
            total.loss_sum += loss.loss_sum;
            total.correct += loss.correct;
            total.examples += loss.examples;
        }
        Ok(total)
    }

    fn set_head_only(&mut self, head_only: bool) {
        self.inner.set_head_only(head_only);
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        // In parts too: otherwise the first evaluation would take the memory that training does without.
        let (examples, parts) = (batch.len(), self.parts.min(batch.len()).max(1));
        for part in 0..parts {
            let range = part * examples / parts..(part + 1) * examples / parts;
            copy_part(&mut self.batch, batch, range);
            self.inner.score(params, &self.batch, score)?;
        }
        Ok(())
    }

    fn pool(&self) -> Option<&Pool> {
        self.inner.pool()
    }

    /// Those of a part, and the sum of the gradients before the last.
    fn batch_bytes(&self, examples: usize) -> usize {
        self.inner.batch_bytes(examples.div_ceil(self.parts))
            + size_of::<f32>() * self.inner.layout().len()
    }

    fn profile(&mut self) -> Option<&mut Profile> {
        self.inner.profile()
    }

    fn shapes(&self) -> Vec<LayerShape> {
        self.inner.shapes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ModelOptions, registry};
    use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};

    fn schema(side: usize, channels: usize) -> Schema {
        let shape = ImageShape { height: side, width: side, channels };
        let names = (0..10).map(|class| class.to_string()).collect();
        Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } }
    }

    fn batch(width: usize, examples: usize) -> Batch {
        let values = (0..width * examples).map(|at| (at * 7919 % 251) as u8).collect();
        let labels = (0..examples as u32).map(|example| example % 10).collect();
        Batch { features: Features::Pixels { values, width }, labels }
    }

    /// Loss, gradient and the number of ranges that were told as ready.
    fn step(
        model: &mut dyn Model,
        batch: &Batch,
        (seed, global): (u64, usize),
    ) -> (StepLoss, Vec<f32>, usize) {
        let mut params = vec![0.0; model.layout().len()];
        model.init(seed, &mut params);
        let mut grad = vec![f32::NAN; params.len()];
        let scale = 1.0 / global as f32;
        let context = StepContext { seed, step: 3, first_example: 0, scale, keeps_gradient: true };
        let mut covered = 0;
        let loss = model
            .loss_and_grad(&mut params, batch, &context, &mut grad, &mut |range, _, _| {
                covered += range.len();
            })
            .unwrap();
        (loss, grad, covered)
    }

    /// The same score, and no more memory for it than for a part.
    #[test]
    fn scores_are_those_of_the_whole_batch() {
        let options = ModelOptions::default();
        let build = || (registry::find("lenet").unwrap().build)(&schema(28, 1), &options).unwrap();
        let (batch, mut alone) = (batch(28 * 28, 13), build());
        let mut params = vec![0.0; alone.layout().len()];
        alone.init(5, &mut params);
        let (mut whole, mut in_parts) = (Score::default(), Score::default());
        alone.score(&params, &batch, &mut whole).unwrap();
        Accumulate::new(build(), 4).score(&params, &batch, &mut in_parts).unwrap();
        assert_eq!(in_parts.total.examples, 13);
        assert_eq!(in_parts.total.correct, whole.total.correct);
        assert!((in_parts.total.loss_sum - whole.total.loss_sum).abs() < 1e-4);
    }

    /// Also with dropout, and with parts of different sizes.
    #[test]
    fn parts_add_up_to_the_gradient_of_the_whole_batch() {
        for (name, side, channels, examples, dropout) in [
            ("softmax", 28, 1, 13, None),
            ("lenet", 28, 1, 13, None),
            ("alexnet", 64, 3, 5, Some(0.5)),
        ] {
            let options = ModelOptions { dropout, ..ModelOptions::default() };
            let build = || {
                (registry::find(name).unwrap().build)(&schema(side, channels), &options).unwrap()
            };
            let batch = batch(side * side * channels, examples);
            let (loss, grad, covered) = step(&mut *build(), &batch, (5, examples));
            assert_eq!(covered, grad.len());
            for parts in [2, 3, examples, examples + 4] {
                let mut model = Accumulate::new(build(), parts);
                let (in_parts, parts_grad, covered) = step(&mut model, &batch, (5, examples));
                assert_eq!(covered, grad.len(), "{name}: every range once");
                assert_eq!(in_parts.examples, loss.examples);
                assert_eq!(in_parts.correct, loss.correct);
                assert!((in_parts.loss_sum - loss.loss_sum).abs() < 1e-3 * loss.loss_sum);
                let most = grad.iter().fold(0.0f32, |most, value| most.max(value.abs()));
                for (a, b) in grad.iter().zip(&parts_grad) {
                    assert!((a - b).abs() < 2e-5 * most, "{name} in {parts}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn statistics_are_those_of_the_parts_and_memory_is_that_of_one() {
        let (options, side) = (ModelOptions::default(), 32);
        let build =
            || (registry::find("mobilenet-v2").unwrap().build)(&schema(side, 3), &options).unwrap();
        let batch = batch(side * side * 3, 8);
        let mut model = Accumulate::new(build(), 2);
        let (_, grad, _) = step(&mut model, &batch, (1, 8));
        let mut alone = build();
        let mut halves = (0..2).map(|half| {
            let mut some = batch.clone();
            copy_part(&mut some, &batch, half * 4..half * 4 + 4);
            step(&mut *alone, &some, (1, 8)).1
        });
        let (first, second) = (halves.next().unwrap(), halves.next().unwrap());
        let entries = model.layout().entries().to_vec();
        for entry in entries.iter().filter(|entry| !entry.trained) {
            for at in entry.range() {
                let sum = first[at] + second[at];
                assert!((grad[at] - sum).abs() <= 1e-5 * sum.abs().max(1e-3), "{}", entry.name);
            }
        }
        let weights = 4 * model.layout().len();
        assert_eq!(model.batch_bytes(64), build().batch_bytes(32) + weights);
    }
}
