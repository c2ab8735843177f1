//! The dense layers shared out over the workers of a global batch.
//!
//! Convolutions have few weights and stay with each worker's own examples. From the first dense layer on
//! every worker has the inputs of all examples, computes the outputs it owns from the weights it owns, and
//! gets the other outputs from the others. On the way back each has a part of every input's gradient, and
//! the parts add up; gradients of owned weights are complete by themselves.

use super::{AlexNet, LAYERS, passes::Dropout};
use crate::{
    image_model::{Images, ModelCore, Step},
    input::Pixels,
    kernels::{Buffer, DenseShape, Finish, dense::LayerPosition, dropout::Draw},
    model::{ModelError, StepContext, StepLoss},
    profile::Pass,
    split::{Split, SplitLayer, Together},
};
use paceline_batch::Batch;

/// Dense layers come after this many convolutions.
const CONVS: usize = 5;

/// Activations of the dense layers for the examples of all workers.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// Inputs of the three layers.
    inputs: [Buffer; 3],
    /// Logits, then their gradient.
    logits: Buffer,
    /// Outputs of one layer, worker by worker.
    parts: Buffer,
    /// Gradient of the owned outputs of one layer.
    d_own: Buffer,
    /// Gradient of one layer's inputs.
    d_input: Buffer,
    lengths: Vec<usize>,
}

impl Whole {
    fn reserve(&mut self, layers: &[SplitLayer], examples: usize) {
        let most = |each: fn(&SplitLayer) -> usize| {
            examples * layers.iter().map(each).max().unwrap_or_default()
        };
        for (input, layer) in self.inputs.iter_mut().zip(layers) {
            input.reserve(examples * layer.inputs);
        }
        self.logits.reserve(examples * layers.last().map_or(0, |layer| layer.outputs));
        self.parts.reserve(most(|layer| layer.outputs));
        self.d_own.reserve(most(|layer| layer.outputs));
        self.d_input.reserve(most(|layer| layer.inputs));
    }
}

impl AlexNet {
    /// The dense layers, as they lie in the flat buffers.
    pub(super) fn dense_split(&self) -> Split {
        let layers = self.shapes.dense.iter().zip(&self.at[CONVS..]);
        let layers = layers.map(|(shape, (weights, bias))| SplitLayer {
            inputs: shape.inputs,
            outputs: shape.outputs,
            weights: weights.start,
            bias: bias.start,
        });
        Split { layers: layers.collect() }
    }

    /// A step with the dense layers shared out.
    pub(super) fn shared_step(
        &mut self,
        core: &mut ModelCore,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        together: &mut Together<'_>,
    ) -> Result<StepLoss, ModelError> {
        let own = batch.len();
        assert_eq!(own, together.examples[together.place.0], "the own share of the global batch");
        let pixels = match own {
            0 => Pixels::Floats(&[]),
            _ => core.pixels(batch)?,
        };
        self.memory.reserve(&self.shapes, own, true);
        if own > 0 {
            self.forward_convs(core, params, Images { pixels, count: own });
        }
        let dropout = (self.dropout > 0.0).then_some(Dropout::of(self.dropout, context));
        self.forward_together(core, params, dropout, together)?;

        let (rank, _) = together.place;
        let before: usize = together.examples[..rank].iter().sum();
        let classes = core.classes;
        let Whole { logits, lengths, .. } = &mut self.whole;
        let mine = &mut logits[before * classes..(before + own) * classes];
        let isa = core.compute.isa();
        let loss = core.objective.gradient(isa, mine, classes, &batch.labels, context.scale);
        lengths.clear();
        lengths.extend(together.examples.iter().map(|examples| examples * classes));
        let all = lengths.iter().sum();
        together.peers.gather(&mut logits[..all], lengths)?;

        // Owners use the gradients of what they own at once, but for the cause of a loss that is not finite.
        let stays = !logits[..all].iter().all(|value| value.is_finite());
        self.backward_together(core, params, grad, stays, together)?;
        let replicated = self.at[CONVS].0.start;
        if own == 0 {
            grad[..replicated].fill(0.0);
            return Ok(loss);
        }
        let width = self.shapes.dense[0].inputs;
        let d_flat = &self.whole.d_input[before * width..(before + own) * width];
        self.memory.d_dense[0][..d_flat.len()].copy_from_slice(d_flat);
        let ready = &mut |range, params: &mut [f32], grad: &mut [f32]| {
            together.peers.ready(range, params, grad);
        };
        self.backward_convs(core, own, &mut Step { params, grad, context, stays, ready });
        Ok(loss)
    }

    /// Leaves the logits of all examples.
    fn forward_together(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        dropout: Option<Dropout<'_>>,
        together: &mut Together<'_>,
    ) -> Result<(), ModelError> {
        let layers = self.dense_split().layers;
        let Self { memory, whole, .. } = self;
        let ModelCore { compute, profile, .. } = core;
        let Together { place, examples, peers } = together;
        let (rank, of) = *place;
        let all: usize = examples.iter().sum();
        whole.reserve(&layers, all);

        let width = layers[0].inputs;
        let before: usize = examples[..rank].iter().sum();
        let mine = &mut whole.inputs[0][before * width..(before + examples[rank]) * width];
        mine.copy_from_slice(&memory.flat[..mine.len()]);
        if let Some(dropout) = dropout {
            compute.dropout(dropout.rate, dropout.draw(0), width, mine);
        }
        whole.lengths.clear();
        whole.lengths.extend(examples.iter().map(|examples| examples * width));
        peers.gather(&mut whole.inputs[0][..all * width], &whole.lengths)?;

        for (number, layer) in layers.iter().enumerate() {
            let SplitLayer { inputs, outputs, .. } = *layer;
            let rows = layer.rows(*place);
            let shape = DenseShape { batch: all, inputs, outputs: rows.len() };
            let (input, output) = match number {
                0 | 1 => {
                    let (first, second) = whole.inputs.split_at_mut(number + 1);
                    (&mut first[number], &mut second[0])
                }
                _ => (&mut whole.inputs[2], &mut whole.logits),
            };
            // All examples are here, so every worker drops the same units of all of them.
            if let Some(dropout) = dropout.filter(|_| number == 1) {
                let draw = Draw { first_example: 0, ..dropout.draw(1) };
                let values = &mut input[..all * inputs];
                compute.dropout(dropout.rate, draw, inputs, values);
            }
            let weights = &params[layer.weights + rows.start * inputs..];
            let finish = Finish {
                bias: Some(&params[layer.bias + rows.start..layer.bias + rows.end]),
                relu: number + 1 < layers.len(),
                ..Finish::default()
            };
            let mine = &mut whole.parts[all * rows.start..all * rows.end];
            profile.time(LAYERS[CONVS + number], Pass::Forward, shape.flops(), || {
                let weights = &weights[..shape.weights_len()];
                compute.dense_forward(&shape, input, weights, mine, &finish);
            });
            whole.lengths.clear();
            whole.lengths.extend((0..of).map(|rank| all * layer.rows((rank, of)).len()));
            peers.gather(&mut whole.parts[..all * outputs], &whole.lengths)?;
            for rank in 0..of {
                let rows = layer.rows((rank, of));
                let part = &whole.parts[all * rows.start..all * rows.end];
                let lines = output[..all * outputs].chunks_exact_mut(outputs);
                for (line, part) in lines.zip(part.chunks_exact(rows.len())) {
                    line[rows.clone()].copy_from_slice(part);
                }
            }
        }
        Ok(())
    }

    /// From the gradient of all logits to those of the owned weights and of the inputs of all examples.
    fn backward_together(
        &mut self,
        core: &mut ModelCore,
        params: &mut [f32],
        grad: &mut [f32],
        stays: bool,
        together: &mut Together<'_>,
    ) -> Result<(), ModelError> {
        let layers = self.dense_split().layers;
        // As without others: kept units were scaled, and masks drop the rest.
        let kept = 1.0 / (1.0 - self.dropout);
        let whole = &mut self.whole;
        let ModelCore { compute, profile, .. } = core;
        let Together { place, examples, peers } = together;
        let all: usize = examples.iter().sum();
        for (number, layer) in layers.iter().enumerate().rev() {
            let SplitLayer { inputs, outputs, .. } = *layer;
            let rows = layer.rows(*place);
            let shape = DenseShape { batch: all, inputs, outputs: rows.len() };
            let d_output = if number == 2 { &whole.logits } else { &whole.d_input };
            let d_own = &mut whole.d_own[..all * rows.len()];
            let lines = d_output[..all * outputs].chunks_exact(outputs);
            for (own, line) in d_own.chunks_exact_mut(rows.len()).zip(lines) {
                own.copy_from_slice(&line[rows.clone()]);
            }
            let input = &whole.inputs[number][..all * inputs];
            let d_input = &mut whole.d_input[..all * inputs];
            let start = layer.weights + rows.start * inputs;
            let weights = &params[start..start + shape.weights_len()];
            profile.time(LAYERS[CONVS + number], Pass::BackwardInput, shape.flops(), || {
                let mask = Finish { mask: Some(input), ..Finish::default() };
                compute.dense_backward_input(&shape, d_own, weights, d_input, &mask);
                if number < 2 && kept > 1.0 {
                    d_input.iter_mut().for_each(|value| *value *= kept);
                }
            });
            peers.sum(d_input)?;
            profile.time(LAYERS[CONVS + number], Pass::BackwardWeights, shape.flops(), || {
                let place = LayerPosition { weights: start, bias: layer.bias + rows.start, stays };
                compute.dense_backward_weights_ready(
                    &shape,
                    input,
                    d_own,
                    place,
                    params,
                    grad,
                    &mut |range, params, grad| peers.ready(range, params, grad),
                );
            });
        }
        Ok(())
    }
}
