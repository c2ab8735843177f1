//! Dense layers on few examples, whose weights no cache holds: memory sets the pace.
//!
//! A general product packs the weights, puts them into another order on the way forward, and then has only a few rows to
//! spend that on. Here the weights are read once, where and as they lie, in long runs from a few rows at a time, and meet
//! all examples in registers.

#![allow(unsafe_code)] // kernels on raw memory
#![allow(clippy::needless_range_loop)] // indices of register tiles, unrolled

use super::{
    Compute, Finish,
    dense::DenseShape,
    gemm::check_result,
    isa::Kernel,
    simd::{Simd, clear},
    threads::SendPtr,
};
use std::ops::Range;

/// Examples at most.
const MOST: usize = 16;
/// Weights of a layer that no second-level cache holds.
const LARGE: usize = 1 << 20;
/// Inputs at a time on the way forward: those of eight examples are most of a first-level cache.
const INPUTS: usize = 1024;
/// Gradients of inputs at a time on the way back, over all examples: they stay in the first-level cache.
const GRADIENTS: usize = 1 << 13;
/// Floats of a row of weights that are asked for ahead of their use.
const AHEAD: usize = 256;

/// Whether these kernels are the ones for a layer.
pub(crate) fn suits(shape: &DenseShape) -> bool {
    (1..=MOST).contains(&shape.batch) && shape.weights_len() >= LARGE
}

/// Outputs `first..last` of all examples.
#[derive(Clone, Copy)]
struct Forward {
    shape: DenseShape,
    first: usize,
    last: usize,
    /// A row for each example.
    input: *const f32,
    /// A row for each output.
    weights: *const f32,
    /// One for each output, or null.
    bias: *const f32,
    relu: bool,
    /// A row for each example, of which this task alone uses these columns.
    output: *mut f32,
}

impl Kernel for Forward {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: outputs before `last`.
        unsafe {
            let mut output = self.first;
            while output + 3 <= self.last {
                S::outline(Rows::<3>(self, output));
                output += 3;
            }
            while output < self.last {
                S::outline(Rows::<1>(self, output));
                output += 1;
            }
        }
    }
}

/// As many outputs, from this one on, which are there.
struct Rows<const ROWS: usize>(Forward, usize);

impl<const ROWS: usize> Kernel for Rows<ROWS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self(layer, first) = self;
        let DenseShape { batch, inputs, outputs } = layer.shape;
        let mut sums = [[0f32; MOST]; ROWS];
        // SAFETY: examples before `batch`, which is at most `MOST`, inputs before `inputs`, outputs that are there.
        unsafe {
            for from in (0..inputs).step_by(INPUTS) {
                let to = (from + INPUTS).min(inputs);
                let mut example = 0;
                // Three outputs of eight examples where 32 registers hold them, of four where there are 16.
                while S::LANES == 16 && example + 8 <= batch {
                    layer.tile::<S, ROWS, 8>(first, example, from..to, &mut sums);
                    example += 8;
                }
                while example + 4 <= batch {
                    layer.tile::<S, ROWS, 4>(first, example, from..to, &mut sums);
                    example += 4;
                }
                while example < batch {
                    layer.tile::<S, ROWS, 1>(first, example, from..to, &mut sums);
                    example += 1;
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let bias = if layer.bias.is_null() { 0.0 } else { *layer.bias.add(first + row) };
                for (example, sum) in sums[..batch].iter().enumerate() {
                    let value = if layer.relu { (sum + bias).max(0.0) } else { sum + bias };
                    *layer.output.add(example * outputs + first + row) = value;
                }
            }
        }
    }
}

impl Forward {
    /// Adds what some inputs bring to some outputs of some examples.
    ///
    /// # Safety
    /// The CPU has `S`; these outputs, examples and inputs are there, and of examples at most `MOST`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const ROWS: usize, const EXAMPLES: usize>(
        &self,
        row: usize,
        example: usize,
        inputs: Range<usize>,
        sums: &mut [[f32; MOST]; ROWS],
    ) {
        // SAFETY: whole vectors before the end of these inputs, and lanes of the last one that are.
        unsafe {
            let width = self.shape.inputs;
            let weights = self.weights.add(row * width);
            let input = self.input.add(example * width);
            let mut acc = [[S::zero(); EXAMPLES]; ROWS];
            let mut at = inputs.start;
            while at + S::LANES <= inputs.end {
                let mut w = [S::zero(); ROWS];
                for r in 0..ROWS {
                    w[r] = S::load(weights.add(r * width + at));
                    if example == 0 {
                        S::prefetch(weights.wrapping_add(r * width + at + AHEAD));
                    }
                }
                for e in 0..EXAMPLES {
                    let x = S::load(input.add(e * width + at));
                    for r in 0..ROWS {
                        acc[r][e] = S::fma(w[r], x, acc[r][e]);
                    }
                }
                at += S::LANES;
            }
            if at < inputs.end {
                let count = inputs.end - at;
                let mut w = [S::zero(); ROWS];
                for r in 0..ROWS {
                    w[r] = S::load_partial(weights.add(r * width + at), count);
                }
                for e in 0..EXAMPLES {
                    let x = S::load_partial(input.add(e * width + at), count);
                    for r in 0..ROWS {
                        acc[r][e] = S::fma(w[r], x, acc[r][e]);
                    }
                }
            }
            for r in 0..ROWS {
                let mut lanes = [0f32; EXAMPLES];
                S::sums(&acc[r], lanes.as_mut_ptr());
                for e in 0..EXAMPLES {
                    sums[r][example + e] += lanes[e];
                }
            }
        }
    }
}

/// Gradients of the inputs `first..last` of all examples, from some outputs.
#[derive(Clone, Copy)]
struct Backward {
    shape: DenseShape,
    first: usize,
    last: usize,
    first_output: usize,
    /// Behind the last of these outputs.
    last_output: usize,
    /// Whether they are added to what is there.
    accumulate: bool,
    /// A row for each example.
    d_output: *const f32,
    /// A row for each output.
    weights: *const f32,
    /// Laid out like the gradient, or null: where it is not positive, the gradient is zero.
    mask: *const f32,
    /// A row for each example, of which this task alone uses these columns.
    d_input: *mut f32,
}

impl Kernel for Backward {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let DenseShape { batch, inputs, .. } = self.shape;
        let width = (GRADIENTS / batch).next_multiple_of(64);
        // SAFETY: columns before `last`, outputs before their end.
        unsafe {
            for first in (self.first..self.last).step_by(width) {
                let last = (first + width).min(self.last);
                if !self.accumulate {
                    for example in 0..batch {
                        clear::<S>(self.d_input.add(example * inputs + first), last - first);
                    }
                }
                let piece = Self { first, last, ..self };
                let mut output = self.first_output;
                // Rows of weights that 32 registers hold, two vectors of each, or 16.
                while S::LANES == 16 && output + 8 <= self.last_output {
                    S::outline(Outputs::<8>(piece, output));
                    output += 8;
                }
                while output + 4 <= self.last_output {
                    S::outline(Outputs::<4>(piece, output));
                    output += 4;
                }
                while output < self.last_output {
                    S::outline(Outputs::<1>(piece, output));
                    output += 1;
                }
                if !self.mask.is_null() {
                    piece.close::<S>();
                }
            }
        }
    }
}

/// As many outputs, from this one on, which are there.
struct Outputs<const ROWS: usize>(Backward, usize);

impl<const ROWS: usize> Kernel for Outputs<ROWS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self(layer, output) = self;
        let DenseShape { batch, outputs, .. } = layer.shape;
        // Side by side; where they lie they would take each other's places in the cache.
        let mut factors = [[0f32; ROWS]; MOST];
        // SAFETY: examples before `batch`, which is at most `MOST`; columns before `last`.
        unsafe {
            for example in 0..batch {
                for r in 0..ROWS {
                    factors[example][r] = *layer.d_output.add(example * outputs + output + r);
                }
            }
            let factors = &factors[..batch];
            let mut at = layer.first;
            while at + 2 * S::LANES <= layer.last {
                layer.columns::<S, ROWS, 2>(output, at, factors);
                at += 2 * S::LANES;
            }
            while at + S::LANES <= layer.last {
                layer.columns::<S, ROWS, 1>(output, at, factors);
                at += S::LANES;
            }
            for column in at..layer.last {
                for (example, factors) in factors.iter().enumerate() {
                    let to = layer.d_input.add(example * layer.shape.inputs + column);
                    for r in 0..ROWS {
                        *to += factors[r]
                            * *layer.weights.add((output + r) * layer.shape.inputs + column);
                    }
                }
            }
        }
    }
}

impl Backward {
    /// Adds what some outputs bring to `NV` vectors of inputs of all examples.
    ///
    /// # Safety
    /// The CPU has `S`; these outputs and inputs are there, and of factors one row for each example.
    #[inline(always)]
    unsafe fn columns<S: Simd, const ROWS: usize, const NV: usize>(
        &self,
        output: usize,
        at: usize,
        factors: &[[f32; ROWS]],
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            let width = self.shape.inputs;
            let weights = self.weights.add(output * width + at);
            let mut w = [[S::zero(); NV]; ROWS];
            for r in 0..ROWS {
                for j in 0..NV {
                    let from = weights.add(r * width + j * S::LANES);
                    w[r][j] = S::load(from);
                    S::prefetch(from.wrapping_add(AHEAD));
                }
            }
            for (example, factors) in factors.iter().enumerate() {
                let to = self.d_input.add(example * width + at);
                let mut acc = [S::zero(); NV];
                for j in 0..NV {
                    acc[j] = S::load(to.add(j * S::LANES));
                }
                for r in 0..ROWS {
                    let factor = S::splat(factors[r]);
                    for j in 0..NV {
                        acc[j] = S::fma(factor, w[r][j], acc[j]);
                    }
                }
                for j in 0..NV {
                    S::store(to.add(j * S::LANES), acc[j]);
                }
            }
        }
    }

    /// Zero where the mask is not positive.
    ///
    /// # Safety
    /// The CPU has `S`; the fields are as they say, and there is a mask.
    #[inline(always)]
    unsafe fn close<S: Simd>(&self) {
        // SAFETY: columns before `last`.
        unsafe {
            for example in 0..self.shape.batch {
                let row = example * self.shape.inputs;
                for at in (self.first..self.last).step_by(S::LANES) {
                    let count = self.last - at;
                    let to = self.d_input.add(row + at);
                    let mask = S::load_partial(self.mask.add(row + at), count);
                    let value = S::load_partial(to, count);
                    S::store_partial(to, S::keep_greater(mask, S::zero(), value), count);
                }
            }
        }
    }
}

impl Compute {
    /// As [`Compute::dense_forward`], for a layer that [`suits`] and a finish of bias and relu alone.
    pub(crate) fn few_forward(
        &self,
        shape: &DenseShape,
        input: &[f32],
        weights: &[f32],
        output: &mut [f32],
        finish: &Finish<'_>,
    ) {
        let DenseShape { batch, inputs, outputs } = *shape;
        assert!(suits(shape) && !finish.accumulate && finish.mask.is_none(), "bias and relu alone");
        assert!(input.len() >= batch * inputs, "inputs");
        assert!(weights.len() >= shape.weights_len(), "weights");
        check_result(batch, outputs, outputs, output.len(), finish);
        let [input, weights] = [input, weights].map(|slice| SendPtr(slice.as_ptr().cast_mut()));
        let bias = finish.bias.map_or(std::ptr::null(), <[f32]>::as_ptr);
        let bias = SendPtr(bias.cast_mut());
        let to = SendPtr(output.as_mut_ptr());
        let share = outputs.div_ceil(8 * self.pool.threads()).next_multiple_of(3);
        self.pool.run(outputs.div_ceil(share), &|task, _| {
            let first = task * share;
            let layer = Forward {
                shape: *shape,
                first,
                last: (first + share).min(outputs),
                input: input.get(),
                weights: weights.get(),
                bias: bias.get(),
                relu: finish.relu,
                output: to.get(),
            };
            // SAFETY: the slices have the shape's lengths, `output` is borrowed mutably and its columns are shared out.
            unsafe { self.isa.run(layer) }
        });
    }

    /// As [`Compute::dense_backward_input`], for a layer that [`suits`] and a finish without bias and relu: what some outputs
    /// bring.
    pub(crate) fn few_backward_input(
        &self,
        shape: &DenseShape,
        rows: Range<usize>,
        d_output: &[f32],
        weights: &[f32],
        d_input: &mut [f32],
        finish: &Finish<'_>,
    ) {
        let DenseShape { batch, inputs, outputs } = *shape;
        let plain = finish.bias.is_none() && !finish.relu;
        assert!(suits(shape) && plain && rows.end <= outputs, "neither bias nor relu");
        assert!(d_output.len() >= batch * outputs, "gradient of outputs");
        assert!(weights.len() >= shape.weights_len(), "weights");
        check_result(batch, inputs, inputs, d_input.len(), finish);
        let [d_output, weights] =
            [d_output, weights].map(|slice| SendPtr(slice.as_ptr().cast_mut()));
        let mask = SendPtr(finish.mask.map_or(std::ptr::null(), <[f32]>::as_ptr).cast_mut());
        let to = SendPtr(d_input.as_mut_ptr());
        let width = (GRADIENTS / batch).next_multiple_of(64);
        // Several tasks for each thread, lest one waits long for the other.
        let share = width.min(inputs.div_ceil(4 * self.pool.threads()).next_multiple_of(64));
        self.pool.run(inputs.div_ceil(share), &|task, _| {
            let first = task * share;
            let layer = Backward {
                shape: *shape,
                first,
                last: (first + share).min(inputs),
                first_output: rows.start,
                last_output: rows.end,
                accumulate: finish.accumulate,
                d_output: d_output.get(),
                weights: weights.get(),
                mask: mask.get(),
                d_input: to.get(),
            };
            // SAFETY: the slices have the shape's lengths, `d_input` is borrowed mutably and its columns are shared out.
            unsafe { self.isa.run(layer) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, noise};

    /// Odd shapes, against loops in double precision.
    #[test]
    fn few_examples_match_a_plain_loop() {
        for (batch, inputs, outputs) in
            [(1, 1031, 1024), (8, 2100, 503), (13, 1025, 1037), (16, 4096, 257)]
        {
            let shape = DenseShape { batch, inputs, outputs };
            assert!(suits(&shape));
            let (input, weights) = (noise(1, batch * inputs), noise(2, shape.weights_len()));
            let (bias, d_output) = (noise(3, outputs), noise(4, batch * outputs));
            let mask = noise(5, batch * inputs);
            let wanted: Vec<f64> = (0..batch * outputs)
                .map(|at| {
                    let (example, output) = (at / outputs, at % outputs);
                    let row = &weights[output * inputs..][..inputs];
                    let terms = row.iter().zip(&input[example * inputs..]);
                    terms.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum()
                })
                .collect();
            let mut d_wanted = vec![0f64; batch * inputs];
            for example in 0..batch {
                for output in 0..outputs {
                    let factor = f64::from(d_output[example * outputs + output]);
                    let row = &weights[output * inputs..][..inputs];
                    for (sum, w) in d_wanted[example * inputs..].iter_mut().zip(row) {
                        *sum += factor * f64::from(*w);
                    }
                }
            }
            for (isa, threads) in Isa::available().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)])
            {
                let compute = Compute::with_isa(isa, threads);
                for relu in [false, true] {
                    let finish =
                        Finish { bias: relu.then_some(&bias[..]), relu, ..Finish::default() };
                    let mut output = vec![f32::NAN; batch * outputs];
                    compute.few_forward(&shape, &input, &weights, &mut output, &finish);
                    for (at, (found, sum)) in output.iter().zip(&wanted).enumerate() {
                        let with_bias = (sum + f64::from(bias[at % outputs])).max(0.0);
                        let wanted = if relu { with_bias } else { *sum };
                        let off = (f64::from(*found) - wanted).abs();
                        assert!(off < 1e-3, "{} {shape:?} {at}: {found} {wanted}", isa.name());
                    }
                    let finish = Finish { mask: relu.then_some(&mask[..]), ..Finish::default() };
                    let mut d_input = vec![f32::NAN; batch * inputs];
                    let mut from = |rows: Range<usize>, finish: &Finish<'_>| {
                        let (d_output, weights) = (&d_output, &weights);
                        compute.few_backward_input(
                            &shape,
                            rows,
                            d_output,
                            weights,
                            &mut d_input,
                            finish,
                        );
                    };
                    // At once, or one part after the other.
                    if relu {
                        from(0..101, &Finish::default());
                        from(101..outputs, &Finish { accumulate: true, ..finish });
                    } else {
                        from(0..outputs, &finish);
                    }
                    for (at, (found, sum)) in d_input.iter().zip(&d_wanted).enumerate() {
                        let wanted = if relu && mask[at] <= 0.0 { 0.0 } else { *sum };
                        let off = (f64::from(*found) - wanted).abs();
                        assert!(off < 1e-3, "{} {shape:?} {at}: {found} {wanted}", isa.name());
                    }
                }
            }
        }
    }
}
