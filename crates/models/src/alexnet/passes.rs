//! Forward and backward through the layers.

use super::{AlexNet, LAYERS};
use crate::{
    input::Pixels,
    kernels::{Finish, dense::Place, dropout::Draw},
    model::{Ready, StepContext},
    profile::Pass,
};
use std::ops::Range;

/// Dropout of a training step.
#[derive(Clone, Copy)]
pub(super) struct Dropout<'a> {
    pub(super) rate: f32,
    pub(super) context: &'a StepContext,
}

impl Dropout<'_> {
    /// Where the units of a layer are drawn.
    pub(super) fn draw(&self, layer: u64) -> Draw {
        let StepContext { seed, step, first_example, .. } = *self.context;
        Draw { seed, step, layer, first_example }
    }
}

impl AlexNet {
    /// Leaves the logits in memory.
    pub(super) fn forward(
        &mut self,
        params: &[f32],
        pixels: Pixels<'_>,
        batch: usize,
        dropout: Option<Dropout<'_>>,
    ) {
        self.forward_convs(params, pixels, batch);
        self.forward_dense(params, batch, dropout);
    }

    /// Leaves the inputs of the first dense layer in memory.
    pub(super) fn forward_convs(&mut self, params: &[f32], pixels: Pixels<'_>, batch: usize) {
        let shapes = self.shapes.with_batch(batch);
        if self.lrn {
            self.memory.reserve_normed(&self.shapes);
        }
        let Self { memory, compute, at, profile, lrn, scaling, .. } = self;
        let weights = |layer: usize| &params[at[layer].0.clone()];
        let finish = |layer: usize| Finish {
            bias: Some(&params[at[layer].1.clone()]),
            relu: true,
            ..Finish::default()
        };
        profile.time("input", Pass::Forward, 0.0, || {
            compute.widen(pixels, scaling, &mut memory.input);
        });
        for layer in 0..5 {
            let shape = &shapes.convs[layer];
            let (before, rest) = memory.convs.split_at_mut(layer);
            let output = &mut rest[0];
            let input = match layer {
                0 => &memory.input,
                1 | 2 => &memory.pools[layer - 1],
                _ => &before[layer - 1],
            };
            profile.time(LAYERS[layer], Pass::Forward, shape.flops(), || {
                compute.conv_forward(shape, input, weights(layer), output, &finish(layer));
            });
            let (pool, mut pooled) = match layer {
                0 | 1 => (layer, &*output),
                4 => (2, &*output),
                _ => continue,
            };
            if *lrn && layer < 2 {
                let len = shape.output_len();
                let normed = &mut memory.normed[layer];
                profile.time("response norm", Pass::Forward, 0.0, || {
                    compute.response_norm(shape.outputs, output, &mut normed[..len]);
                });
                pooled = normed;
            }
            profile.time("pooling", Pass::Forward, 0.0, || {
                compute.max_pool(&shapes.pools[pool], pooled, &mut memory.pools[pool]);
            });
        }
        let len = batch * shapes.dense[0].inputs;
        let pixels = shapes.adaptive.side * shapes.adaptive.side;
        let flat = &mut memory.flat[..len];
        let pooled = if shapes.adaptive.is_identity() {
            &memory.pools[2]
        } else {
            compute.adaptive_pool(&shapes.adaptive, &memory.pools[2], &mut memory.pooled[..len]);
            &memory.pooled
        };
        compute.swap_channels(batch, pixels, shapes.adaptive.channels, pooled, flat);
    }

    fn forward_dense(&mut self, params: &[f32], batch: usize, dropout: Option<Dropout<'_>>) {
        let shapes = self.shapes.with_batch(batch);
        let Self { memory, compute, at, profile, .. } = self;
        let weights = |layer: usize| &params[at[layer].0.clone()];
        let finish = |layer: usize| Finish {
            bias: Some(&params[at[layer].1.clone()]),
            relu: layer < LAYERS.len() - 1,
            ..Finish::default()
        };
        for layer in 0..3 {
            let shape = &shapes.dense[layer];
            let (input, output) = match layer {
                0 => (&mut memory.flat, &mut memory.hidden[0]),
                1 => {
                    let (first, second) = memory.hidden.split_at_mut(1);
                    (&mut first[0], &mut second[0])
                }
                _ => (&mut memory.hidden[1], &mut memory.logits),
            };
            // torchvision drops before the first two dense layers.
            if let Some(dropout) = dropout.filter(|_| layer < 2) {
                let values = &mut input[..batch * shape.inputs];
                let number = layer as u64;
                compute.dropout(dropout.rate, dropout.draw(number), shape.inputs, values);
            }
            let number = layer + 5;
            profile.time(LAYERS[number], Pass::Forward, shape.flops(), || {
                compute.dense_forward(shape, input, weights(number), output, &finish(number));
            });
        }
    }

    /// From the gradient of the logits to those of the parameters, which of dense layers need not stay.
    pub(super) fn backward(
        &mut self,
        params: &mut [f32],
        batch: usize,
        grad: &mut [f32],
        stays: bool,
        ready: &mut Ready<'_>,
    ) {
        self.backward_dense(params, batch, grad, stays, ready);
        self.backward_convs(params, batch, grad, ready);
    }

    /// The last layer's gradient alone; that of the others is zero.
    pub(super) fn backward_head(
        &mut self,
        params: &mut [f32],
        batch: usize,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) {
        let shapes = self.shapes.with_batch(batch);
        let Self { memory, compute, at, profile, .. } = self;
        let (shape, number) = (&shapes.dense[2], LAYERS.len() - 1);
        let start = at[number].0.start;
        let place = Place { weights: start, bias: at[number].1.start, stays: true };
        profile.time(LAYERS[number], Pass::BackwardWeights, shape.flops(), || {
            let (input, d_output) = (&memory.hidden[1], &memory.logits);
            compute
                .dense_backward_weights_ready(shape, input, d_output, place, params, grad, ready);
        });
        compute.pool().for_chunks(&mut grad[..start], 1 << 18, |_, piece| piece.fill(0.0));
        ready(0..start, &mut params[..start], &mut grad[..start]);
    }

    fn backward_dense(
        &mut self,
        params: &mut [f32],
        batch: usize,
        grad: &mut [f32],
        stays: bool,
        ready: &mut Ready<'_>,
    ) {
        let shapes = self.shapes.with_batch(batch);
        // A unit that dropout kept was scaled, and so is its gradient; the mask below drops the others.
        let kept = 1.0 / (1.0 - self.dropout);
        let Self { memory, compute, at, profile, .. } = self;
        for layer in (0..3).rev() {
            let (shape, number) = (&shapes.dense[layer], layer + 5);
            let (lower, upper) = memory.d_dense.split_at_mut(layer + 1);
            let d_input = &mut lower[layer][..batch * shape.inputs];
            let (input, d_output) = match layer {
                0 => (&memory.flat, &*upper[0]),
                1 => (&memory.hidden[0], &*upper[0]),
                _ => (&memory.hidden[1], &*memory.logits),
            };
            let weights = at[number].0.clone();
            // Inputs are not negative (relu, or pooling of it): where they are zero, either the relu
            // or dropout closed the way.
            let mask = Finish { mask: Some(&input[..d_input.len()]), ..Finish::default() };
            profile.time(LAYERS[number], Pass::BackwardInput, shape.flops(), || {
                compute.dense_backward_input(
                    shape,
                    d_output,
                    &params[weights.clone()],
                    d_input,
                    &mask,
                );
                if layer < 2 && kept > 1.0 {
                    d_input.iter_mut().for_each(|value| *value *= kept);
                }
            });
            profile.time(LAYERS[number], Pass::BackwardWeights, shape.flops(), || {
                compute.dense_backward_weights_ready(
                    shape,
                    input,
                    d_output,
                    Place { weights: at[number].0.start, bias: at[number].1.start, stays },
                    params,
                    grad,
                    ready,
                );
            });
        }
    }

    pub(super) fn backward_convs(
        &mut self,
        params: &mut [f32],
        batch: usize,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) {
        let shapes = self.shapes.with_batch(batch);
        let Self { memory, compute, at, profile, lrn, .. } = self;
        let side = shapes.adaptive.side;
        let channels = shapes.adaptive.channels;
        // Back to pixel order; `pooled` is free now.
        let (d_flat, d_pooled) = (&memory.d_dense[0], &mut memory.pooled);
        compute.swap_channels(batch, channels, side * side, d_flat, d_pooled);
        let mut d_pool: &[f32] = d_pooled;
        let len = batch * shapes.pools[2].output_image();
        if !shapes.adaptive.is_identity() {
            compute.adaptive_pool_backward(&shapes.adaptive, d_pooled, &mut memory.d_second[..len]);
            d_pool = &memory.d_second;
        }
        profile.time("pooling", Pass::BackwardInput, 0.0, || {
            compute.max_pool_relu_backward(
                &shapes.pools[2],
                &memory.convs[4],
                d_pool,
                &mut memory.d_first,
            );
        });
        for layer in (0..5).rev() {
            let shape = &shapes.convs[layer];
            // The gradient of this layer's output is in the first buffer, but for the fourth layer.
            let (d_output, d_input) = if layer == 3 {
                (&mut memory.d_second, &mut memory.d_first)
            } else {
                (&mut memory.d_first, &mut memory.d_second)
            };
            let input = match layer {
                0 => &memory.input,
                1 | 2 => &memory.pools[layer - 1],
                _ => &memory.convs[layer - 1],
            };
            if layer > 0 {
                let mask = (layer > 2).then_some(&input[..shape.input_len()]);
                let finish = Finish { mask, ..Finish::default() };
                let weights = &params[at[layer].0.clone()];
                profile.time(LAYERS[layer], Pass::BackwardInput, shape.flops(), || {
                    compute.conv_backward_input(shape, d_output, weights, d_input, &finish);
                });
            }
            let range: Range<usize> = at[layer].0.start..at[layer].1.end;
            profile.time(LAYERS[layer], Pass::BackwardWeights, shape.flops(), || {
                let (d_weights, d_bias) = grad[range.clone()].split_at_mut(at[layer].0.len());
                compute.conv_backward_weights(shape, input, d_output, d_weights, d_bias);
                ready(range.clone(), &mut params[range.clone()], &mut grad[range.clone()]);
            });
            if layer == 1 || layer == 2 {
                let below = layer - 1;
                let len = shapes.convs[below].output_len();
                let made = if *lrn { &memory.normed[below] } else { &memory.convs[below] };
                let d_made = &mut memory.d_first[..len];
                profile.time("pooling", Pass::BackwardInput, 0.0, || {
                    let d_pool = &memory.d_second;
                    compute.max_pool_relu_backward(&shapes.pools[below], made, d_pool, d_made);
                });
                if *lrn {
                    let outputs = shapes.convs[below].outputs;
                    let made = &memory.convs[below][..len];
                    compute.response_norm_relu_backward(outputs, made, d_made);
                }
            }
        }
    }
}
