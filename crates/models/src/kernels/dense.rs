//! Dense layers: weights as in PyTorch, a row of inputs for each output.

use super::{Compute, Finish, Matrix};

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
