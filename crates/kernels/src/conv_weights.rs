//! Orders of convolution weights: PyTorch's outside, (row, column, input, output) in products.

#![allow(unsafe_code)] // block transposes through raw pointers

use super::{Compute, Isa, conv::ConvShape, isa::Kernel, simd::Simd};
use crate::threads::SendPtr;
use std::ops::Range;

/// Copies a matrix with its rows and columns exchanged; row `r` of the result is written to
/// `place(r)`, as given by [`Place`].
struct Transpose {
    /// `last` rows of `columns` floats, `from_stride` apart.
    from: *const f32,
    from_stride: usize,
    /// Rows `first..last` of the source are done by this task.
    first: usize,
    last: usize,
    columns: usize,
    /// Rows of at least `last` floats, `to_stride` apart, wherever `place` puts one of `columns`; this task alone
    /// uses `first..last` of each.
    to: *mut f32,
    to_stride: usize,
    place: RowTransposition,
}

/// Where a row of the transposed matrix goes: row `outer * inner_count + inner` becomes row
/// `inner * outer_count + outer`. With `inner_count` 1 it stays.
#[derive(Clone, Copy)]
struct RowTransposition {
    inner_count: usize,
    outer_count: usize,
}

impl RowTransposition {
    /// Where rows from this one on go.
    #[inline(always)]
    fn from(self, row: usize) -> impl Iterator<Item = usize> {
        // A division for every row would take longer than moving it.
        let (mut inner, mut outer) = (row % self.inner_count, row / self.inner_count);
        std::iter::repeat_with(move || {
            let place = inner * self.outer_count + outer;
            inner += 1;
            if inner == self.inner_count {
                (inner, outer) = (0, outer + 1);
            }
            place
        })
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
                // SAFETY: whole blocks are transposed only where rows and columns have one, others float by float; the
                // block has room for `LANES * LANES`, at most 256.
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
                    for (c, place) in (0..columns).zip(self.place.from(column)) {
                        let to = self.to.add(place * self.to_stride + row);
                        let value = S::load(block.as_ptr().add(c * S::LANES));
                        store::<S>(to, value, rows);
                    }
                }
                column += S::LANES;
            }
            row += S::LANES;
        }
    }
}

/// The first `count` lanes, as a rule all.
///
/// # Safety
/// `count <= LANES` floats can be written, and no other thread uses them.
#[inline(always)]
unsafe fn store<S: Simd>(to: *mut f32, value: S::V, count: usize) {
    // SAFETY: passed on.
    unsafe {
        if count == S::LANES {
            S::store(to, value);
        } else {
            S::store_partial(to, value, count);
        }
    }
}

/// The way back: rows of the source are taken from `place(r)`.
struct TransposeFrom {
    /// Rows of at least `last` floats, `from_stride` apart, wherever `place` takes one of `rows` from.
    from: *const f32,
    from_stride: usize,
    /// Rows `first..last` of the *result* are done by this task.
    first: usize,
    last: usize,
    rows: usize,
    /// `last` rows of `rows` floats, `to_stride` apart; this task alone uses rows `first..last`.
    to: *mut f32,
    to_stride: usize,
    place: RowTransposition,
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
                // SAFETY: reads are cut to `columns`, writes to `rows`; blocks have room for `LANES * LANES`, at most 256.
                unsafe {
                    for (r, place) in (0..rows).zip(self.place.from(row)) {
                        let from = self.from.add(place * self.from_stride + column);
                        let value = S::load_partial(from, columns);
                        S::store(block.as_mut_ptr().add(r * S::LANES), value);
                    }
                    S::transpose(block.as_ptr(), S::LANES, turned.as_mut_ptr(), S::LANES);
                    for c in 0..columns {
                        let to = self.to.add((column + c) * self.to_stride + row);
                        store::<S>(to, S::load(turned.as_ptr().add(c * S::LANES)), rows);
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

/// Weights of some of a convolution's inputs, between PyTorch's order and (tap, input, output).
#[derive(Clone, Copy)]
pub(crate) struct Inputs {
    /// Weights of all inputs, in PyTorch's order.
    pub(crate) weights: SendPtr<f32>,
    /// Whether these are the weights of the convolution that this one is the way back through: (input, output, tap turned by
    /// 180 degrees).
    pub(crate) turned: bool,
    /// Taps, inputs and outputs of all weights.
    pub(crate) taps: usize,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// The inputs in question.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Inputs {
    /// Writes the ordered weights of these inputs, for some outputs: tap after tap, `stride` inputs apart.
    ///
    /// # Safety
    /// `weights` points to `taps * inputs * outputs` floats, `first + count <= inputs`, `outputs` lies within all
    /// outputs; `ordered` has `taps * stride * self.outputs` floats, `stride >= count`, and no other thread uses the
    /// columns of these outputs there or writes the weights.
    pub(crate) unsafe fn order(
        self,
        isa: Isa,
        ordered: *mut f32,
        stride: usize,
        outputs: Range<usize>,
    ) {
        let Self { weights, taps, inputs, first, count, .. } = self;
        // SAFETY: the kernels read the weights of inputs `first..first + count` and write the columns of `outputs`,
        // all of which are there, as the caller promises.
        unsafe {
            if self.turned {
                for input in 0..count {
                    let start = (first + input) * self.outputs * taps;
                    isa.run(Turn {
                        from: weights.get().add(start),
                        // Vectors may run over, except at the very end.
                        beyond: inputs * self.outputs * taps - start,
                        taps,
                        first: outputs.start,
                        last: outputs.end,
                        to: ordered.add(input * self.outputs),
                        to_stride: stride * self.outputs,
                    });
                }
            } else {
                isa.run(Transpose {
                    from: weights.get().add(first * taps),
                    from_stride: inputs * taps,
                    first: outputs.start,
                    last: outputs.end,
                    columns: count * taps,
                    to: ordered,
                    to_stride: self.outputs,
                    place: RowTransposition { inner_count: taps, outer_count: stride },
                });
            }
        }
    }

    /// The way back of [`order`](Self::order), never turned.
    ///
    /// # Safety
    /// As there, with reading and writing exchanged: no other thread uses the weights of these outputs and inputs.
    pub(crate) unsafe fn disorder(
        self,
        isa: Isa,
        ordered: *const f32,
        stride: usize,
        outputs: Range<usize>,
    ) {
        debug_assert!(!self.turned, "gradients are never turned");
        let Self { weights, taps, inputs, first, count, .. } = self;
        // SAFETY: as in `order`.
        unsafe {
            isa.run(TransposeFrom {
                from: ordered,
                from_stride: self.outputs,
                first: outputs.start,
                last: outputs.end,
                rows: count * taps,
                to: weights.get().add(first * taps),
                to_stride: inputs * taps,
                place: RowTransposition { inner_count: taps, outer_count: stride },
            });
        }
    }
}

impl Compute {
    /// From (output, input, tap) to (tap, input, output).
    pub(crate) fn order_weights(&self, shape: &ConvShape, weights: &[f32], ordered: &mut [f32]) {
        self.reorder(shape, weights, ordered, false);
    }

    /// From (output, input, tap) to (tap turned by 180 degrees, output, input).
    pub(crate) fn turn_weights(&self, shape: &ConvShape, weights: &[f32], turned: &mut [f32]) {
        let back = ConvShape { inputs: shape.outputs, outputs: shape.inputs, ..*shape };
        self.reorder(&back, weights, turned, true);
    }

    fn reorder(&self, shape: &ConvShape, weights: &[f32], ordered: &mut [f32], turned: bool) {
        assert!(weights.len().min(ordered.len()) >= shape.weights_len(), "weights");
        let all = shape.all_inputs(weights.as_ptr().cast_mut(), turned);
        let (isa, to) = (self.isa, SendPtr(ordered.as_mut_ptr()));
        self.pool.run(shape.outputs.div_ceil(SHARE), &|task, _| {
            let share = task * SHARE..((task + 1) * SHARE).min(shape.outputs);
            // SAFETY: both buffers hold all weights; tasks write different outputs.
            unsafe { all.order(isa, to.get(), shape.inputs, share) };
        });
    }

    /// From (tap, input, output) back to (output, input, tap).
    pub(crate) fn disorder_weights(&self, shape: &ConvShape, ordered: &[f32], weights: &mut [f32]) {
        assert!(weights.len().min(ordered.len()) >= shape.weights_len(), "weights");
        let all = shape.all_inputs(weights.as_mut_ptr(), false);
        let isa = self.isa;
        self.pool.run(shape.outputs.div_ceil(SHARE), &|task, _| {
            let share = task * SHARE..((task + 1) * SHARE).min(shape.outputs);
            // SAFETY: both buffers hold all weights; tasks write different outputs.
            unsafe { all.disorder(isa, ordered.as_ptr(), shape.inputs, share) };
        });
    }
}

impl ConvShape {
    /// Weights of all inputs: the own ones, or with `turned` those of the convolution that this one is the way back through.
    pub(crate) fn all_inputs(&self, weights: *mut f32, turned: bool) -> Inputs {
        let weights = SendPtr(weights);
        let (taps, inputs, outputs) = (self.taps(), self.inputs, self.outputs);
        Inputs { weights, turned, taps, inputs, outputs, first: 0, count: inputs }
    }
}

/// One input's weights, (output, tap), as (tap, output); the last tap comes first.
struct Turn {
    /// At least `last * taps` floats.
    from: *const f32,
    /// Floats that may be read from there.
    beyond: usize,
    taps: usize,
    /// Outputs `first..last` are done.
    first: usize,
    last: usize,
    /// `taps` rows of `last` floats, `to_stride` apart; this task alone uses `first..last` of each.
    to: *mut f32,
    to_stride: usize,
}

impl Kernel for Turn {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut block = [0f32; 256];
        let mut output = self.first;
        // Blocks of as many outputs and taps as a vector has lanes.
        while output + S::LANES <= self.last
            && (output + S::LANES - 1) * self.taps + S::LANES.max(self.taps) <= self.beyond
        {
            let mut done = 0;
            while done < self.taps {
                // The last block goes over some taps again rather than over the edge.
                let tap = done.min(self.taps.saturating_sub(S::LANES));
                let count = (self.taps - tap).min(S::LANES);
                // SAFETY: the loop's condition leaves room for a vector behind the last output's taps; `LANES` outputs
                // are written, all before `last`.
                unsafe {
                    let from = self.from.add(output * self.taps + tap);
                    S::transpose(from, self.taps, block.as_mut_ptr(), S::LANES);
                    for t in 0..count {
                        let to = (self.taps - 1 - tap - t) * self.to_stride + output;
                        S::store(self.to.add(to), S::load(block.as_ptr().add(t * S::LANES)));
                    }
                }
                done = tap + count;
            }
            output += S::LANES;
        }
        for output in output..self.last {
            for tap in 0..self.taps {
                // SAFETY: an output before `last` and one of its taps.
                unsafe {
                    *self.to.add((self.taps - 1 - tap) * self.to_stride + output) =
                        *self.from.add(output * self.taps + tap);
                }
            }
        }
    }
}
