//! Orders of convolution weights: PyTorch's outside, (row, column, input, output) in products.

#![allow(unsafe_code)] // block transposes through raw pointers

use super::{Compute, conv::ConvShape, isa::Kernel, simd::Simd};
use crate::threads::SendPtr;

/// Copies a matrix with its rows and columns exchanged; row `r` of the result is written to
/// `place(r)`, as given by [`Place`].
struct Transpose {
    from: *const f32,
    from_stride: usize,
    /// Rows `first..last` of the source are done by this task.
    first: usize,
    last: usize,
    columns: usize,
    to: *mut f32,
    to_stride: usize,
    place: Place,
}

/// Where a row of the transposed matrix goes: row `outer * inner_count + inner` becomes row
/// `inner * outer_count + outer`. With `inner_count` 1 it stays.
#[derive(Clone, Copy)]
struct Place {
    inner_count: usize,
    outer_count: usize,
}

impl Place {
    #[inline(always)]
    fn of(self, row: usize) -> usize {
        (row % self.inner_count) * self.outer_count + row / self.inner_count
    }
}

impl Kernel for Transpose {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut block = [0f32; 256];
        let mut row = self.first;
        while row < self.last {
            let rows = (self.last - row).min(S::LANES);
            let mut column = 0;
            while column < self.columns {
                let columns = (self.columns - column).min(S::LANES);
                unsafe {
                    let from = self.from.add(row * self.from_stride + column);
                    if rows == S::LANES && columns == S::LANES {
                        S::transpose(from, self.from_stride, block.as_mut_ptr(), S::LANES);
                    } else {
                        for r in 0..rows {
                            for c in 0..columns {
                                block[c * S::LANES + r] = *from.add(r * self.from_stride + c);
                            }
                        }
                    }
                    for c in 0..columns {
                        let to = self.to.add(self.place.of(column + c) * self.to_stride + row);
                        let value = S::load(block.as_ptr().add(c * S::LANES));
                        S::store_partial(to, value, rows);
                    }
                }
                column += S::LANES;
            }
            row += S::LANES;
        }
    }
}

/// The way back: rows of the source are taken from `place(r)`.
struct TransposeFrom {
    from: *const f32,
    from_stride: usize,
    /// Rows `first..last` of the *result* are done by this task.
    first: usize,
    last: usize,
    rows: usize,
    to: *mut f32,
    to_stride: usize,
    place: Place,
}

impl Kernel for TransposeFrom {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (mut block, mut turned) = ([0f32; 256], [0f32; 256]);
        let mut column = self.first;
        while column < self.last {
            let columns = (self.last - column).min(S::LANES);
            let mut row = 0;
            while row < self.rows {
                let rows = (self.rows - row).min(S::LANES);
                unsafe {
                    for r in 0..rows {
                        let from =
                            self.from.add(self.place.of(row + r) * self.from_stride + column);
                        let value = S::load_partial(from, columns);
                        S::store(block.as_mut_ptr().add(r * S::LANES), value);
                    }
                    S::transpose(block.as_ptr(), S::LANES, turned.as_mut_ptr(), S::LANES);
                    for c in 0..columns {
                        let to = self.to.add((column + c) * self.to_stride + row);
                        S::store_partial(to, S::load(turned.as_ptr().add(c * S::LANES)), rows);
                    }
                }
                row += S::LANES;
            }
            column += S::LANES;
        }
    }
}

/// Outputs of one task; a multiple of every vector's lanes.
const SHARE: usize = 32;

impl Compute {
    /// From (output, input, tap) to (tap, input, output).
    pub(crate) fn order_weights(&self, shape: &ConvShape, weights: &[f32], ordered: &mut [f32]) {
        let columns = shape.inputs * shape.taps();
        assert!(weights.len().min(ordered.len()) >= shape.weights_len(), "weights");
        let (isa, to) = (self.isa, SendPtr(ordered.as_mut_ptr()));
        self.pool.run(shape.outputs.div_ceil(SHARE), &|task, _| {
            let transpose = Transpose {
                from: weights.as_ptr(),
                from_stride: columns,
                first: task * SHARE,
                last: ((task + 1) * SHARE).min(shape.outputs),
                columns,
                to: to.get(),
                to_stride: shape.outputs,
                place: Place { inner_count: shape.taps(), outer_count: shape.inputs },
            };
            // SAFETY: both buffers hold all weights; tasks write different outputs.
            unsafe { isa.run(transpose) };
        });
    }

    /// From (tap, input, output) back to (output, input, tap).
    pub(crate) fn disorder_weights(&self, shape: &ConvShape, ordered: &[f32], weights: &mut [f32]) {
        let rows = shape.inputs * shape.taps();
        assert!(weights.len().min(ordered.len()) >= shape.weights_len(), "weights");
        let (isa, to) = (self.isa, SendPtr(weights.as_mut_ptr()));
        self.pool.run(shape.outputs.div_ceil(SHARE), &|task, _| {
            let transpose = TransposeFrom {
                from: ordered.as_ptr(),
                from_stride: shape.outputs,
                first: task * SHARE,
                last: ((task + 1) * SHARE).min(shape.outputs),
                rows,
                to: to.get(),
                to_stride: rows,
                place: Place { inner_count: shape.taps(), outer_count: shape.inputs },
            };
            // SAFETY: both buffers hold all weights; tasks write different outputs.
            unsafe { isa.run(transpose) };
        });
    }

    /// From (output, input, tap) to (tap turned by 180 degrees, output, input).
    pub(crate) fn turn_weights(&self, shape: &ConvShape, weights: &[f32], turned: &mut [f32]) {
        let (taps, inputs, outputs) = (shape.taps(), shape.inputs, shape.outputs);
        assert!(weights.len().min(turned.len()) >= shape.weights_len(), "weights");
        let (isa, to) = (self.isa, SendPtr(turned.as_mut_ptr()));
        self.pool.run(outputs.div_ceil(SHARE), &|task, _| {
            for output in task * SHARE..((task + 1) * SHARE).min(outputs) {
                // One output: (input, tap) becomes (tap, input); the last tap comes first, so the
                // rows of the result go backwards from the end.
                let turn = TurnOne {
                    from: weights[output * inputs * taps..].as_ptr(),
                    taps,
                    inputs,
                    // SAFETY: within the buffer, see the assertion.
                    to: unsafe { to.get().add(output * inputs) },
                    to_stride: outputs * inputs,
                };
                // SAFETY: both buffers hold all weights; tasks write different outputs.
                unsafe { isa.run(turn) };
            }
        });
    }
}

struct TurnOne {
    from: *const f32,
    taps: usize,
    inputs: usize,
    to: *mut f32,
    to_stride: usize,
}

impl Kernel for TurnOne {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for input in 0..self.inputs {
            for tap in 0..self.taps {
                unsafe {
                    *self.to.add((self.taps - 1 - tap) * self.to_stride + input) =
                        *self.from.add(input * self.taps + tap);
                }
            }
        }
    }
}
