//! Dense layers: weights as in PyTorch, a row of inputs for each output.

use super::{Compute, Finish, Matrix, few};
use std::ops::Range;

/// Called with each range of the gradient as it becomes final, and the slices of parameters and
/// gradient there.
pub type Ready<'a> = dyn FnMut(Range<usize>, &mut [f32], &mut [f32]) + 'a;

/// The shape of a dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseShape {
    /// Examples.
    pub batch: usize,
    /// Values per example before.
    pub inputs: usize,
    /// Values per example after.
    pub outputs: usize,
}

impl DenseShape {
    /// Floats of the weights.
    #[must_use]
    pub fn weights_len(&self) -> usize {
        self.inputs * self.outputs
    }

    /// Multiplications and additions of one pass.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn flops(&self) -> f64 {
        2.0 * self.batch as f64 * self.weights_len() as f64
    }
}

/// Examples so few that passing over a large layer's weights costs more than computing with them.
const FEW: usize = 64;
/// Weights of a layer that no second-level cache holds.
const LARGE: usize = 1 << 20;

impl Compute {
    /// `output = input * weights^T`, finished as `finish` says (bias, relu).
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    pub fn dense_forward(
        &mut self,
        shape: &DenseShape,
        input: &[f32],
        weights: &[f32],
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        let DenseShape { batch, inputs, outputs } = *shape;
        let plain = !finish.accumulate && finish.mask.is_none();
        if few::suits(shape) && plain {
            return self.few_forward(shape, input, weights, output, finish);
        }
        let input = Matrix::new(input, batch, inputs);
        let weights = Matrix::new(weights, outputs, inputs);
        if self.pool.threads() > 1 || batch > FEW || shape.weights_len() < LARGE || !plain {
            return self.gemm(input, weights.t(), output, outputs, finish);
        }
        // As the left operand the weights are read from end to end, and not put into another order.
        let mut turned = std::mem::take(&mut self.piece);
        turned.reserve(outputs * batch);
        self.gemm(weights, input.t(), &mut turned, batch, &Finish::default());
        for (example, row) in output.chunks_exact_mut(outputs).take(batch).enumerate() {
            for (number, value) in row.iter_mut().enumerate() {
                let sum = turned[number * batch + example];
                let sum = finish.bias.map_or(sum, |bias| sum + bias[number]);
                *value = if finish.relu { sum.max(0.0) } else { sum };
            }
        }
        self.piece = turned;
    }

    /// Gradient of the input; `finish.mask` takes it back through the relu that made the input.
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    pub fn dense_backward_input(
        &mut self,
        shape: &DenseShape,
        d_output: &[f32],
        weights: &[f32],
        d_input: &mut [f32],
        finish: &Finish<'_>,
    ) {
        if few::suits(shape) && finish.bias.is_none() && !finish.relu {
            let all = 0..shape.outputs;
            return self.few_backward_input(shape, all, d_output, weights, d_input, finish);
        }
        let d_output = Matrix::new(d_output, shape.batch, shape.outputs);
        let weights = Matrix::new(weights, shape.outputs, shape.inputs);
        self.gemm(d_output, weights, d_input, shape.inputs, finish);
    }

    /// Gradients of weights and bias.
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    pub fn dense_backward_weights(
        &mut self,
        shape: &DenseShape,
        input: &[f32],
        d_output: &[f32],
        d_weights: &mut [f32],
        d_bias: &mut [f32],
    ) {
        let input = Matrix::new(input, shape.batch, shape.inputs);
        let d_output_t = Matrix::new(d_output, shape.batch, shape.outputs).t();
        self.gemm(d_output_t, input, d_weights, shape.inputs, &Finish::default());
        self.column_sums(&d_output[..shape.batch * shape.outputs], shape.outputs, d_bias);
    }
}

/// Floats of a piece of gradient, for each thread: with the layer's packed inputs it stays in the second-level caches.
const PIECE: usize = 1 << 16;
/// Of one that stays: it may travel, and messages should not be small.
const KEPT_PIECE: usize = 1 << 20;

/// A layer in the flat buffers, and what becomes of its gradient.
#[derive(Debug, Clone, Copy)]
pub struct LayerPosition {
    /// Where the weights begin.
    pub weights: usize,
    /// Where the biases begin.
    pub bias: usize,
    /// Whether the gradient must be kept; if not, the callback uses each piece before the next one.
    pub stays: bool,
}

impl Compute {
    /// Like [`Compute::dense_backward_weights`]; reports the gradient piece by piece, so that the callee can
    /// use it while it and the weights are hot.
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    #[allow(clippy::too_many_arguments)]
    pub fn dense_backward_weights_ready(
        &mut self,
        shape: &DenseShape,
        input: &[f32],
        d_output: &[f32],
        place: LayerPosition,
        params: &mut [f32],
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) {
        let DenseShape { batch, inputs, outputs } = *shape;
        let range = place.bias..place.bias + outputs;
        self.column_sums(&d_output[..batch * outputs], outputs, &mut grad[range.clone()]);
        ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        let input = Matrix::new(input, batch, inputs);
        let d_output = Matrix::new(d_output, batch, outputs);
        let all = place.weights..place.weights + shape.weights_len();
        let into = place.stays.then_some(&mut grad[all.clone()]);
        let floats = if place.stays { KEPT_PIECE } else { PIECE * self.pool.threads() };
        self.gemm_by_rows(
            d_output,
            input,
            floats,
            into,
            &mut params[all],
            &mut |range, params, grad| {
                ready(place.weights + range.start..place.weights + range.end, params, grad);
            },
        );
    }
}

/// Weights of a large layer on few examples that are on their way from memory to both gradients at once, as many as a
/// third-level cache surely holds.
const BOTH: usize = 1 << 20;

impl Compute {
    /// Whether [`Compute::dense_backward_ready`] is the way back through a layer whose gradient need not stay.
    #[must_use]
    pub fn dense_fuses(shape: &DenseShape) -> bool {
        few::suits(shape)
    }

    /// Gradient of the input and, piece by piece, of weights and bias, for a layer that [fuses](Compute::dense_fuses): each
    /// weight comes from memory once, for both and for the update that the callee makes.
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    #[allow(clippy::too_many_arguments)]
    pub fn dense_backward_ready(
        &mut self,
        shape: &DenseShape,
        input: &[f32],
        d_output: &[f32],
        place: LayerPosition,
        params: &mut [f32],
        grad: &mut [f32],
        d_input: &mut [f32],
        mask: &[f32],
        ready: &mut Ready<'_>,
    ) {
        let DenseShape { batch, inputs, outputs } = *shape;
        let range = place.bias..place.bias + outputs;
        self.column_sums(&d_output[..batch * outputs], outputs, &mut grad[range.clone()]);
        ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        let at_once = (BOTH / inputs).max(1);
        for first in (0..outputs).step_by(at_once) {
            let rows = first..(first + at_once).min(outputs);
            let finish = Finish {
                accumulate: first > 0,
                mask: (rows.end == outputs).then_some(mask),
                ..Finish::default()
            };
            let all = place.weights..place.weights + shape.weights_len();
            self.few_backward_input(shape, rows.clone(), d_output, &params[all], d_input, &finish);
            let start = place.weights + rows.start * inputs;
            let part = Matrix::strided(&d_output[rows.start..], batch, rows.len(), outputs);
            self.gemm_by_rows(
                part,
                Matrix::new(input, batch, inputs),
                PIECE * self.pool.threads(),
                None,
                &mut params[start..start + rows.len() * inputs],
                &mut |range, params, grad| {
                    ready(start + range.start..start + range.end, params, grad);
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    #[test]
    fn both_gradients_at_once_are_those_of_one_after_the_other() {
        let shape = DenseShape { batch: 5, inputs: 2100, outputs: 1003 };
        let (weights, bias) = (shape.weights_len(), shape.outputs);
        let (input, d_output) = (noise(1, 5 * 2100), noise(2, 5 * 1003));
        let place = LayerPosition { weights: 0, bias: weights, stays: false };
        let finish = Finish { mask: Some(&input), ..Finish::default() };
        for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 2)]) {
            let mut compute = Compute::with_isa(isa, threads);
            // What weights become, as plain descent has it, and the gradient of the inputs.
            let mut run = |both: bool| {
                let (mut params, mut grad) = (noise(3, weights + bias), vec![0.0; weights + bias]);
                let mut d_input = vec![f32::NAN; 5 * 2100];
                let mut seen = 0;
                let mut ready = |range: Range<usize>, params: &mut [f32], grad: &mut [f32]| {
                    seen += range.len();
                    params.iter_mut().zip(grad).for_each(|(p, g)| *p -= 0.1 * *g);
                };
                let (x, d) = (&input[..], &d_output[..]);
                if both {
                    let (params, grad) = (&mut params[..], &mut grad[..]);
                    compute.dense_backward_ready(
                        &shape,
                        x,
                        d,
                        place,
                        params,
                        grad,
                        &mut d_input,
                        x,
                        &mut ready,
                    );
                } else {
                    compute.dense_backward_input(&shape, d, &params, &mut d_input, &finish);
                    let (params, grad) = (&mut params[..], &mut grad[..]);
                    compute.dense_backward_weights_ready(
                        &shape, x, d, place, params, grad, &mut ready,
                    );
                }
                assert_eq!(seen, weights + bias, "each weight once");
                (params, d_input)
            };
            assert_eq!(run(true), run(false), "{} on {threads}", isa.name());
        }
    }

    #[test]
    fn a_large_layer_on_few_examples_gives_what_two_threads_give() {
        let shape = DenseShape { batch: 5, inputs: 2100, outputs: 503 };
        let (input, weights) = (noise(1, 5 * 2100), noise(2, shape.weights_len()));
        let bias = noise(3, 503);
        for (isa, relu) in Isa::available().into_iter().flat_map(|isa| [(isa, true), (isa, false)])
        {
            let finish = Finish { bias: Some(&bias), relu, ..Finish::default() };
            let forward = |threads| {
                let mut output = vec![f32::NAN; 5 * 503];
                let mut compute = Compute::with_isa(isa, threads);
                compute.dense_forward(&shape, &input, &weights, &mut output, &finish);
                output
            };
            for (one, two) in forward(1).iter().zip(forward(2)) {
                assert!((one - two).abs() < 1e-3, "{one} {two}");
            }
        }
    }
}
