//! The dense layers, in which both forms of the model end.

use super::{CONVS, LAYERS, LayerPlaces};
use crate::{
    image_model::{ModelCore, Step},
    kernels::{Buffer, DenseShape, Finish},
    model::Activation,
    profile::Pass,
};

/// Activations and gradients of the dense layers.
#[derive(Default)]
pub(super) struct Dense {
    /// Set before the pass forward.
    pub(super) flat: Buffer,
    hidden: [Buffer; 2],
    pub(super) logits: Buffer,
    d_hidden: [Buffer; 2],
    /// What the pass backward leaves, unless the last layer alone is trained.
    pub(super) d_flat: Buffer,
}

impl Dense {
    /// Every buffer, and how many floats it needs for a batch.
    pub(super) fn plan(&mut self, shapes: &[DenseShape; 3]) -> [(&mut Buffer, usize); 7] {
        let [flat, first, second] = shapes.map(|shape| shape.batch * shape.inputs);
        let [hidden1, hidden2] = &mut self.hidden;
        let [d_hidden1, d_hidden2] = &mut self.d_hidden;
        [
            (&mut self.flat, flat),
            (hidden1, first),
            (hidden2, second),
            (&mut self.logits, shapes[2].batch * shapes[2].outputs),
            (d_hidden2, second),
            (d_hidden1, first),
            (&mut self.d_flat, flat),
        ]
    }

    /// Leaves the logits.
    pub(super) fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        at: &LayerPlaces,
        shapes: &[DenseShape; 3],
        activation: Activation,
    ) {
        let ModelCore { compute, profile, .. } = core;
        for (number, shape) in shapes.iter().enumerate() {
            let (name, (weights, bias)) = (LAYERS[CONVS + number], &at[CONVS + number]);
            let (lower, upper) = self.hidden.split_at_mut(1);
            let (input, output) = match number {
                0 => (&self.flat, &mut lower[0]),
                1 => (&lower[0], &mut upper[0]),
                _ => (&upper[0], &mut self.logits),
            };
            let activation = (number < 2).then_some(activation);
            let finish = Finish {
                bias: Some(&params[bias.clone()]),
                relu: activation == Some(Activation::Relu),
                ..Finish::default()
            };
            profile.time(name, Pass::Forward, shape.flops(), || {
                compute.dense_forward(shape, input, &params[weights.clone()], output, &finish);
                if activation == Some(Activation::Tanh) {
                    compute.tanh(&mut output[..shape.batch * shape.outputs]);
                }
            });
        }
    }

    /// From the gradient of the logits to those of these layers, and of all layers where the last alone is trained.
    pub(super) fn backward(
        &mut self,
        core: &mut ModelCore,
        step: &mut Step<'_>,
        at: &LayerPlaces,
        shapes: &[DenseShape; 3],
        activation: Activation,
    ) {
        for (number, shape) in shapes.iter().enumerate().rev() {
            let (name, place) = (LAYERS[CONVS + number], &at[CONVS + number]);
            let (lower, upper) = self.d_hidden.split_at_mut(1);
            let (input, d_output, d_input) = match number {
                0 => (&self.flat, &lower[0], &mut self.d_flat),
                1 => (&self.hidden[0], &upper[0], &mut lower[0]),
                _ => (&self.hidden[1], &self.logits, &mut upper[0]),
            };
            if !core.head_only {
                let made = &input[..shape.batch * shape.inputs];
                // What the convolutions made is pooled: their activation is looked at behind the pooling.
                let activation = (number > 0).then_some(activation);
                let mask = (activation == Some(Activation::Relu)).then_some(made);
                let finish = Finish { mask, ..Finish::default() };
                let (weights, compute) = (&step.params[place.0.clone()], &mut core.compute);
                core.profile.time(name, Pass::BackwardInput, shape.flops(), || {
                    compute.dense_backward_input(shape, d_output, weights, d_input, &finish);
                    if activation == Some(Activation::Tanh) {
                        compute.tanh_backward(made, &mut d_input[..made.len()]);
                    }
                });
            }
            step.layer(core, (name, shape.flops()), place, |compute, d_weights, d_bias| {
                compute.dense_backward_weights(shape, input, d_output, d_weights, d_bias);
            });
            if core.head_only {
                return step.freeze_before(core, place.0.start);
            }
        }
    }
}
