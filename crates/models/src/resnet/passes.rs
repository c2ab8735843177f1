//! Forward and backward through the layers.

use super::{
    ResNet,
    plan::{HEAD, Memory, STAGES, coefficient},
};
use crate::{
    image_model::{Images, ModelCore, Step},
    kernels::{Compute, ConvShape, DenseShape, Finish, batch_norm::Coefficients},
    profile::Pass,
};

/// Where a training step leaves the changes of running statistics, and how much its batch weighs.
type Statistics<'a> = Option<(&'a mut [f32], f32)>;

/// The last layer's shape.
fn head(core: &ModelCore, batch: usize) -> DenseShape {
    DenseShape { batch, inputs: STAGES[2], outputs: core.classes }
}

impl ResNet {
    pub(super) fn forward_layers(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
        mut statistics: Statistics<'_>,
    ) {
        let input = &mut self.memory.input[..images.count * core.image.len()];
        core.compute.widen(images.pixels, &core.scaling, input);
        let ModelCore { compute, profile, .. } = core;
        for index in 0..self.layers.convs.len() {
            let shape = ConvShape { batch: images.count, ..self.layers.convs[index].conv };
            // Taken out, because the pass needs all of the network.
            let name = std::mem::take(&mut self.layers.convs[index].name);
            profile.time(&name, Pass::Forward, shape.flops(), || {
                self.forward_layer(compute, params, index, &shape, statistics.as_mut());
            });
            self.layers.convs[index].name = name;
        }
    }

    /// Leaves the logits in memory.
    pub(super) fn forward_head(&mut self, core: &mut ModelCore, params: &[f32], batch: usize) {
        let (head, area) = (head(core, batch), self.last_area());
        let Self { memory, layers, .. } = self;
        let ModelCore { compute, profile, .. } = core;
        let Some(made) = memory.made.last() else { return };
        means(made, area, &mut memory.features[..batch * STAGES[2]]);
        let (weights, bias) = (&params[layers.head.0.clone()], &params[layers.head.1.clone()]);
        let finish = Finish { bias: Some(bias), ..Finish::default() };
        profile.time(HEAD, Pass::Forward, head.flops(), || {
            compute.dense_forward(&head, &memory.features, weights, &mut memory.logits, &finish);
        });
    }

    /// Pixels of what the last convolution makes of an image.
    fn last_area(&self) -> usize {
        let last = self.layers.convs.last();
        last.map_or(0, |last| last.conv.out_height() * last.conv.out_width())
    }

    #[allow(clippy::needless_pass_by_value)] // a reborrow of the caller's, layer by layer
    fn forward_layer(
        &mut self,
        compute: &mut Compute,
        params: &[f32],
        index: usize,
        shape: &ConvShape,
        statistics: Option<&mut (&mut [f32], f32)>,
    ) {
        let Self { memory, layers, .. } = self;
        let layer = &layers.convs[index];
        let Memory { input, raw, made, coefficients: all, shortcut, parts, .. } = memory;
        let (before, rest) = made.split_at_mut(index);
        let from = if index == 0 { &*input } else { &before[index - 1] };
        let weights = &params[layer.weight.clone()];
        compute.conv_forward(shape, from, weights, &mut raw[index], &Finish::default());
        let raw = &raw[index][..shape.output_len()];
        match statistics {
            Some((grad, weight)) => {
                let parts = Memory::parts_of(parts, shape.outputs);
                compute.moments(raw, shape.outputs, parts);
                let (mean, variance) =
                    grad[layer.mean.start..layer.variance.end].split_at_mut(layer.mean.len());
                let count = raw.len() / shape.outputs;
                Coefficients::of(&mut all[index]).set_from_batch(
                    parts,
                    count,
                    layer.values(params),
                    *weight,
                    (mean, variance),
                );
            }
            None => Coefficients::of(&mut all[index]).set_from_running(layer.values(params)),
        }
        // The second layer of a block gets the block's input added.
        let added = match index {
            0 => None,
            _ if index % 2 == 1 => None,
            _ => {
                let first = &layers.convs[index - 1].conv;
                if first.stride == 1 {
                    Some(&before[index - 2][..raw.len()])
                } else {
                    let first = ConvShape { batch: shape.batch, ..*first };
                    halve(&first, &before[index - 2], &mut shortcut[..raw.len()]);
                    Some(&shortcut[..raw.len()])
                }
            }
        };
        let by = (coefficient(&all[index], 0), coefficient(&all[index], 1));
        compute.normalise(raw, by, added, &mut rest[0][..raw.len()]);
    }

    /// The last layer's gradient.
    pub(super) fn backward_head(
        &mut self,
        core: &mut ModelCore,
        batch: usize,
        step: &mut Step<'_>,
    ) {
        let (head, memory) = (head(core, batch), &self.memory);
        let named = (HEAD, head.flops());
        step.layer(core, named, &self.layers.head, |compute, d_weights, d_bias| {
            let (features, logits) = (&memory.features, &memory.logits);
            compute.dense_backward_weights(&head, features, logits, d_weights, d_bias);
        });
    }

    /// From the gradient of the logits to that of what the last convolution made.
    pub(super) fn backward_features(&mut self, core: &mut ModelCore, params: &[f32], batch: usize) {
        let (head, area) = (head(core, batch), self.last_area());
        let Self { memory, layers, .. } = self;
        let ModelCore { compute, profile, .. } = core;
        let weights = &params[layers.head.0.clone()];
        profile.time(HEAD, Pass::BackwardInput, head.flops(), || {
            let (from, to) = (&memory.logits, &mut memory.d_features);
            compute.dense_backward_input(&head, from, weights, to, &Finish::default());
        });
        let d_made = &mut memory.d_made[..batch * area * STAGES[2]];
        spread_means(&memory.d_features, area, d_made);
    }

    pub(super) fn backward_layers(
        &mut self,
        core: &mut ModelCore,
        batch: usize,
        step: &mut Step<'_>,
    ) {
        let ModelCore { compute, profile, .. } = core;
        for index in (0..self.layers.convs.len()).rev() {
            let shape = ConvShape { batch, ..self.layers.convs[index].conv };
            let passes = if index == 0 { 1.0 } else { 2.0 };
            let name = std::mem::take(&mut self.layers.convs[index].name);
            profile.time(&name, Pass::Backward, passes * shape.flops(), || {
                self.backward_layer(compute, index, &shape, step.params, step.grad);
            });
            self.layers.convs[index].name = name;
            step.hand_over(self.layers.convs[index].all());
        }
    }

    /// Of a block's second layer the gradient comes in `d_made` and stays there, for the way around the block; of all other
    /// layers it comes in `d_input`, or for the stem in `d_made`.
    fn backward_layer(
        &mut self,
        compute: &mut Compute,
        index: usize,
        shape: &ConvShape,
        params: &[f32],
        grad: &mut [f32],
    ) {
        let Self { memory, layers, .. } = self;
        let layer = &layers.convs[index];
        let len = shape.output_len();
        let Memory { input, raw, made, coefficients: all, parts, no_bias, .. } = memory;
        let (d_made, d_raw) = (&mut memory.d_made, &mut memory.d_raw);
        let (d_input, spread) = (&mut memory.d_input, &mut memory.spread);
        let is_first = index % 2 == 1;
        if !is_first {
            compute.relu_backward(&made[index][..len], &mut d_made[..len]);
        }
        let gradient = if is_first { &d_input[..len] } else { &d_made[..len] };
        let raw = &raw[index][..len];
        let parts = Memory::parts_of(parts, shape.outputs);
        compute.gradient_sums(gradient, raw, coefficient(&all[index], 2), parts);
        let (gamma, beta) = grad[layer.norm()].split_at_mut(shape.outputs);
        let values = layer.values(params);
        Coefficients::of(&mut all[index]).set_backward(
            parts,
            len / shape.outputs,
            values.gamma,
            (gamma, beta),
        );
        let by = [4, 5, 6].map(|number| coefficient(&all[index], number));
        compute.normalise_backward(gradient, raw, by, &mut d_raw[..len]);
        let from = if index == 0 { &*input } else { &made[index - 1] };
        let d_raw = &d_raw[..len];
        let d_weights = &mut grad[layer.weight.clone()];
        compute.conv_backward_weights(shape, from, d_raw, d_weights, &mut no_bias[..shape.outputs]);
        if index == 0 {
            return;
        }
        let weights = &params[layer.weight.clone()];
        let to = &mut d_input[..shape.input_len()];
        // Through the relu of the first layer of the block; that of a block's input is looked at in the layer below.
        let mask = (!is_first).then_some(&made[index - 1][..shape.input_len()]);
        backward_input(compute, shape, d_raw, weights, spread, to, mask);
        if is_first {
            around(shape, d_made, to);
            std::mem::swap(d_made, d_input);
        }
    }
}

/// Gradient of a convolution's input, also where it passed over every second pixel.
fn backward_input(
    compute: &mut Compute,
    shape: &ConvShape,
    d_output: &[f32],
    weights: &[f32],
    spread: &mut [f32],
    to: &mut [f32],
    mask: Option<&[f32]>,
) {
    let finish = Finish { mask, ..Finish::default() };
    if shape.stride == 1 {
        return compute.conv_backward_input(shape, d_output, weights, to, &finish);
    }
    // The same as of a convolution that passed over none, and whose other outputs had no gradient.
    let dense = ConvShape { stride: 1, ..*shape };
    let spread = &mut spread[..dense.output_len()];
    spread.fill(0.0);
    let (channels, width) = (shape.outputs, shape.out_width());
    for (number, row) in d_output.chunks_exact(width * channels).enumerate() {
        let (image, y) = (number / shape.out_height(), number % shape.out_height());
        let start = (image * dense.out_height() + 2 * y) * dense.out_width() * channels;
        for (x, pixel) in row.chunks_exact(channels).enumerate() {
            spread[start + 2 * x * channels..][..channels].copy_from_slice(pixel);
        }
    }
    compute.conv_backward_input(&dense, spread, weights, to, &finish);
}

/// Every second pixel of a block's input, with zeros in the place of the channels that it lacks, half of them on each side.
fn halve(first: &ConvShape, from: &[f32], to: &mut [f32]) {
    let (inputs, outputs) = (first.inputs, first.outputs);
    let before = (outputs - inputs) / 2;
    to.fill(0.0);
    let width = first.out_width();
    for (number, row) in to.chunks_exact_mut(width * outputs).enumerate() {
        let (image, y) = (number / first.out_height(), number % first.out_height());
        let start = (image * first.height + 2 * y) * first.width * inputs;
        for (x, pixel) in row.chunks_exact_mut(outputs).enumerate() {
            let from = &from[start + 2 * x * inputs..][..inputs];
            pixel[before..before + inputs].copy_from_slice(from);
        }
    }
}

/// Adds what a block's output passes on to the block's input without going through its layers.
fn around(first: &ConvShape, d_made: &[f32], to: &mut [f32]) {
    if first.stride == 1 {
        return to.iter_mut().zip(d_made).for_each(|(to, from)| *to += from);
    }
    let (inputs, outputs) = (first.inputs, first.outputs);
    let before = (outputs - inputs) / 2;
    let width = first.out_width();
    let rows = first.batch * first.out_height();
    for (number, row) in d_made.chunks_exact(width * outputs).take(rows).enumerate() {
        let (image, y) = (number / first.out_height(), number % first.out_height());
        let start = (image * first.height + 2 * y) * first.width * inputs;
        for (x, pixel) in row.chunks_exact(outputs).enumerate() {
            let to = &mut to[start + 2 * x * inputs..][..inputs];
            for (to, from) in to.iter_mut().zip(&pixel[before..]) {
                *to += from;
            }
        }
    }
}

/// The mean of each channel over an image.
fn means(made: &[f32], area: usize, to: &mut [f32]) {
    let channels = STAGES[2];
    let images = made.chunks_exact(area * channels);
    for (image, to) in images.zip(to.chunks_exact_mut(channels)) {
        to.fill(0.0);
        for pixel in image.chunks_exact(channels) {
            to.iter_mut().zip(pixel).for_each(|(to, value)| *to += value);
        }
        to.iter_mut().for_each(|value| *value /= area as f32);
    }
}

/// The way back: each pixel has its part.
fn spread_means(d_features: &[f32], area: usize, to: &mut [f32]) {
    let channels = STAGES[2];
    let images = to.chunks_exact_mut(area * channels);
    for (image, from) in images.zip(d_features.chunks_exact(channels)) {
        for pixel in image.chunks_exact_mut(channels) {
            pixel.iter_mut().zip(from).for_each(|(to, value)| *to = value / area as f32);
        }
    }
}
