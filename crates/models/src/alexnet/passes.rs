//! Forward and backward through the layers.

use super::{AlexNet, LAYERS};
use crate::{
    image_model::{Images, ModelCore, Step},
    kernels::{Compute, Finish, dense::LayerPosition, dropout::Draw},
    model::StepContext,
    profile::Pass,
};

/// Dropout of a training step.
#[derive(Clone, Copy)]
pub(super) struct Dropout<'a> {
    pub(super) rate: f32,
    context: &'a StepContext,
}

impl<'a> Dropout<'a> {
    pub(super) fn of(rate: f32, context: &'a StepContext) -> Self {
        Self { rate, context }
    }

    /// Where the units of a layer are drawn.
    pub(super) fn draw(&self, layer: u64) -> Draw {
        let StepContext { seed, step, first_example, .. } = *self.context;
        Draw { seed, step, layer, first_example }
    }
}

impl AlexNet {
    /// Leaves the inputs of the first dense layer in memory.
    pub(super) fn forward_convs(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
    ) {
        let (shapes, batch) = (self.shapes.with_batch(images.count), images.count);
        if self.lrn {
            self.memory.reserve_normed(&self.shapes);
        }
        let Self { memory, at, lrn, .. } = self;
        let ModelCore { compute, profile, scaling, .. } = core;
        let weights = |layer: usize| &params[at[layer].0.clone()];
        let finish = |layer: usize| Finish {
            bias: Some(&params[at[layer].1.clone()]),
            relu: true,
            ..Finish::default()
        };
        profile.time("input", Pass::Forward, 0.0, || {
            compute.widen(images.pixels, scaling, &mut memory.input);
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
        self.flatten(core, batch);
    }

    /// From the last pooling to the inputs of the first dense layer.
    fn flatten(&mut self, core: &ModelCore, batch: usize) {
        let (Self { memory, adaptive, shapes, .. }, compute) = (self, &core.compute);
        let len = batch * shapes.dense[0].inputs;
        let pixels = adaptive.side * adaptive.side;
        let flat = &mut memory.flat[..len];
        let pooled = if adaptive.is_identity() {
            &memory.pools[2]
        } else {
            compute.adaptive_pool(adaptive, &memory.pools[2], &mut memory.pooled[..len]);
            &memory.pooled
        };
        compute.swap_channels(batch, pixels, adaptive.channels, pooled, flat);
    }

    /// Leaves the logits in memory.
    pub(super) fn forward_dense(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        batch: usize,
        dropout: Option<Dropout<'_>>,
    ) {
        let shapes = self.shapes.with_batch(batch);
        let Self { memory, at, .. } = self;
        let ModelCore { compute, profile, .. } = core;
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

    /// The last layer's gradient alone; that of the others is zero.
    pub(super) fn backward_head(
        &mut self,
        core: &mut ModelCore,
        batch: usize,
        step: &mut Step<'_>,
    ) {
        let (shapes, number) = (self.shapes.with_batch(batch), LAYERS.len() - 1);
        let place = self.place(number, true);
        let ModelCore { compute, profile, .. } = &mut *core;
        profile.time(LAYERS[number], Pass::BackwardWeights, shapes.dense[2].flops(), || {
            let (input, d_output) = (&self.memory.hidden[1], &self.memory.logits);
            let Step { params, grad, ready, .. } = &mut *step;
            compute.dense_backward_weights_ready(
                &shapes.dense[2],
                input,
                d_output,
                place,
                params,
                grad,
                *ready,
            );
        });
        step.freeze_before(core, self.at[number].0.start);
    }

    fn place(&self, layer: usize, stays: bool) -> LayerPosition {
        LayerPosition { weights: self.at[layer].0.start, bias: self.at[layer].1.start, stays }
    }

    /// From the gradient of the logits to those of the dense layers, which need not stay.
    pub(super) fn backward_dense(
        &mut self,
        core: &mut ModelCore,
        batch: usize,
        step: &mut Step<'_>,
    ) {
        let shapes = self.shapes.with_batch(batch);
        // A unit that dropout kept was scaled, and so is its gradient; the mask below drops the others.
        let kept = 1.0 / (1.0 - self.dropout);
        let ModelCore { compute, profile, .. } = core;
        let Step { params, grad, stays, ready, .. } = step;
        for layer in (0..3).rev() {
            let (shape, number) = (&shapes.dense[layer], layer + 5);
            let place = self.place(number, *stays);
            let Self { memory, at, .. } = self;
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
            let mask = &input[..d_input.len()];
            let scale = |d_input: &mut [f32]| {
                if layer < 2 && kept > 1.0 {
                    d_input.iter_mut().for_each(|value| *value *= kept);
                }
            };
            if !*stays && Compute::dense_fuses(shape) {
                profile.time(LAYERS[number], Pass::Backward, 2.0 * shape.flops(), || {
                    compute.dense_backward_ready(
                        shape, input, d_output, place, params, grad, d_input, mask, *ready,
                    );
                    scale(d_input);
                });
                continue;
            }
            let mask = Finish { mask: Some(mask), ..Finish::default() };
            profile.time(LAYERS[number], Pass::BackwardInput, shape.flops(), || {
                compute.dense_backward_input(
                    shape,
                    d_output,
                    &params[weights.clone()],
                    d_input,
                    &mask,
                );
                scale(d_input);
            });
            profile.time(LAYERS[number], Pass::BackwardWeights, shape.flops(), || {
                compute.dense_backward_weights_ready(
                    shape, input, d_output, place, params, grad, *ready,
                );
            });
        }
    }

    /// From the gradient of the first dense layer's inputs to that of the last convolution's outputs.
    fn backward_flat(&mut self, core: &mut ModelCore, batch: usize) {
        let shapes = self.shapes.with_batch(batch);
        let Self { memory, adaptive, .. } = self;
        let ModelCore { compute, profile, .. } = core;
        let side = adaptive.side;
        let channels = adaptive.channels;
        // Back to pixel order; `pooled` is free now.
        let (d_flat, d_pooled) = (&memory.d_dense[0], &mut memory.pooled);
        compute.swap_channels(batch, channels, side * side, d_flat, d_pooled);
        let mut d_pool: &[f32] = d_pooled;
        let len = batch * shapes.pools[2].output_image();
        if !adaptive.is_identity() {
            compute.adaptive_pool_backward(adaptive, d_pooled, &mut memory.d_second[..len]);
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
    }

    pub(super) fn backward_convs(
        &mut self,
        core: &mut ModelCore,
        batch: usize,
        step: &mut Step<'_>,
    ) {
        self.backward_flat(core, batch);
        let shapes = self.shapes.with_batch(batch);
        let Self { memory, at, lrn, .. } = self;
        for layer in (0..5).rev() {
            let shape = &shapes.convs[layer];
            let ModelCore { compute, profile, .. } = &mut *core;
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
                let weights = &step.params[at[layer].0.clone()];
                profile.time(LAYERS[layer], Pass::BackwardInput, shape.flops(), || {
                    compute.conv_backward_input(shape, d_output, weights, d_input, &finish);
                });
            }
            let named = (LAYERS[layer], shape.flops());
            step.layer(core, named, &at[layer], |compute, d_weights, d_bias| {
                compute.conv_backward_weights(shape, input, d_output, d_weights, d_bias);
            });
            let ModelCore { compute, profile, .. } = &mut *core;
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
