//! Dense layers: weights as in PyTorch, a row of inputs for each output.

use super::{Compute, Finish, Matrix};
use crate::model::Ready;

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
        let input = Matrix::new(input, shape.batch, shape.inputs);
        let weights = Matrix::new(weights, shape.outputs, shape.inputs);
        self.gemm(input, weights.t(), output, shape.outputs, finish);
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

/// Floats of a piece of gradient that is reported while it is still in the second-level caches.
const PIECE: usize = 1 << 20;

impl Compute {
    /// Like [`Compute::dense_backward_weights`], for a layer whose weights and biases start at these
    /// places of the flat buffers; reports the gradient piece by piece, so that the callee can use it
    /// while it is hot.
    ///
    /// # Panics
    /// If a slice does not fit the shape.
    #[allow(clippy::too_many_arguments)]
    pub fn dense_backward_weights_ready(
        &mut self,
        shape: &DenseShape,
        input: &[f32],
        d_output: &[f32],
        (start, bias): (usize, usize),
        params: &mut [f32],
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) {
        let DenseShape { batch, inputs, outputs } = *shape;
        let range = bias..bias + outputs;
        self.column_sums(&d_output[..batch * outputs], outputs, &mut grad[range.clone()]);
        ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        let rows = (PIECE / inputs.max(1)).clamp(1, outputs);
        let input = Matrix::new(input, batch, inputs);
        for first in (0..outputs).step_by(rows) {
            let last = (first + rows).min(outputs);
            let d_output = Matrix::strided(&d_output[first..], batch, last - first, outputs).t();
            let range = start + first * inputs..start + last * inputs;
            self.gemm(d_output, input, &mut grad[range.clone()], inputs, &Finish::default());
            ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        }
    }
}
