//! Layers that workers share out among themselves instead of each computing all of them.
//!
//! Copies of a convolution exchange few weights for much arithmetic. A large dense layer is the
//! opposite: its weights are passed over several times a step whatever the batch, and their gradient
//! is most of what copies exchange. So each worker takes a range of such a layer's outputs for the
//! examples of all workers (A. Krizhevsky, "One weird trick for parallelizing convolutional neural
//! networks", 2014): weights are read and updated where they are owned, and only activations travel.

use crate::model::ModelError;
use std::ops::Range;

/// A dense layer as it lies in the flat buffers: weights `[outputs, inputs]` row by row, and biases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitLayer {
    /// Values per example before.
    pub inputs: usize,
    /// Values per example after: these are shared out.
    pub outputs: usize,
    /// Where the weights begin.
    pub weights: usize,
    /// Where the biases begin.
    pub bias: usize,
}

impl SplitLayer {
    /// The outputs that a worker owns, by its place: which one, and of how many.
    #[must_use]
    pub fn rows(&self, (rank, of): (usize, usize)) -> Range<usize> {
        self.outputs * rank / of..self.outputs * (rank + 1) / of
    }

    /// Numbers of outputs that the workers own, in order of rank.
    #[must_use]
    pub fn counts(&self, of: usize) -> Vec<usize> {
        (0..of).map(|rank| self.rows((rank, of)).len()).collect()
    }
}

/// The layers of a model that workers can share out: its last ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    pub layers: Vec<SplitLayer>,
}

impl Split {
    /// Where the parameters of the layers begin; those before belong to every worker.
    #[must_use]
    pub fn start(&self) -> usize {
        self.layers.iter().map(|layer| layer.weights.min(layer.bias)).min().unwrap_or(usize::MAX)
    }

    /// Parameters of the layers.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(|layer| (layer.inputs + 1) * layer.outputs).sum()
    }

    /// The most workers that each get an output of every layer.
    #[must_use]
    pub fn most_workers(&self) -> usize {
        self.layers.iter().map(|layer| layer.outputs).min().unwrap_or(0)
    }

    /// The ranges of the flat buffers that consist of one part per worker, in order of rank, with the
    /// length of each part.
    #[must_use]
    pub fn parts(&self, of: usize) -> Vec<(Range<usize>, Vec<usize>)> {
        let parts = |layer: &SplitLayer| {
            let SplitLayer { inputs, outputs, weights, bias } = *layer;
            let rows = layer.counts(of);
            let lengths = rows.iter().map(|rows| rows * inputs).collect();
            [(weights..weights + outputs * inputs, lengths), (bias..bias + outputs, rows)]
        };
        self.layers.iter().flat_map(parts).collect()
    }
}

/// What a model asks of the other workers in the middle of a step. All of them make the same calls
/// in the same order.
pub trait Peers {
    /// Collects one part from every worker at all of them: `values` holds the parts one after the other,
    /// `lengths` values each. The own one must be there; on return all are.
    fn gather(&mut self, values: &mut [f32], lengths: &[usize]) -> Result<(), Interrupted>;

    /// Adds up over all workers; every worker gets the sums.
    fn sum(&mut self, values: &mut [f32]) -> Result<(), Interrupted>;

    /// As [`Ready`](crate::Ready). A range of a split layer holds owned outputs alone and its gradient
    /// is complete, to be used at once: it need not stay. Others still have to be added up.
    fn ready(&mut self, range: Range<usize>, params: &mut [f32], grad: &mut [f32]);
}

/// The workers of one global batch.
pub struct Together<'a> {
    /// Which worker this is, and of how many.
    pub place: (usize, usize),
    /// Examples of each in this global batch, in order of rank; may be 0.
    pub examples: &'a [usize],
    /// The way to the others.
    pub peers: &'a mut dyn Peers,
}

impl std::fmt::Debug for Together<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, examples, .. } = self;
        f.debug_struct("Together").field("place", place).field("examples", examples).finish()
    }
}

/// Another worker could not be reached. The creator of the [`Peers`] knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl From<Interrupted> for ModelError {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_the_layers_has_one_owner() {
        let first = SplitLayer { inputs: 5, outputs: 7, weights: 30, bias: 65 };
        let second = SplitLayer { inputs: 7, outputs: 3, weights: 72, bias: 93 };
        let split = Split { layers: vec![first, second] };
        assert_eq!((split.start(), split.parameters(), split.most_workers()), (30, 66, 3));
        for of in 1..=3 {
            let mut next = split.start();
            for (range, lengths) in split.parts(of) {
                assert_eq!(range.start, next);
                assert_eq!(lengths.len(), of);
                assert!(lengths.iter().all(|length| *length > 0));
                assert_eq!(lengths.iter().sum::<usize>(), range.len());
                next = range.end;
            }
            assert_eq!(next, split.start() + split.parameters());
        }
    }
}
