//! Forward and backward over the convolutions.
//!
//! Every layer is one parallel pass over memory, then a few numbers per channel. Tasks follow from
//! shape and thread count alone and their sums are added in order, so the same threads give the
//! same bits.

#![allow(unsafe_code)] // kernels on the planned buffer: the plan keeps the pieces apart

use super::{
    plan::{Norm, Plan, depthwise},
    pointwise::{Above, Backward, Behind, Forward, Source, Sums},
    shape::{Layer, Role, Shape},
    tile::{Packed, pack_panel, packed_len, padded, panels},
};
use crate::{
    kernels::{
        Compute, Kernel,
        activation::{Affine, NormGradient},
        batch_norm::Values,
        depthwise::{DepthwiseForward, DepthwiseShape},
        depthwise_backward::DepthwiseBackward,
        simd::Simd,
    },
    threads::SendPtr,
};
use std::ops::Range;

/// Rows of a task are a multiple of every instruction set's strip.
const ROW_STEP: usize = 84;

/// Tasks of a forward pass over rows: a few per thread, so that one delayed thread costs little.
pub(super) const fn tasks(threads: usize) -> usize {
    if threads == 1 { 1 } else { 4 * threads }
}

/// Floats of a layer that no last-level cache holds together with what else passes through it meanwhile: 32 MB.
const TOO_LARGE: usize = 8 << 20;

/// Whether so many floats are written past the caches: when the last of them are written, the first have left any cache.
fn too_large(floats: usize) -> bool {
    floats >= TOO_LARGE
}

/// A depthwise layer cut into tasks of one image and some channels each: enough of them also for few images.
struct DepthwiseTasks {
    shape: DepthwiseShape,
    /// Floats of an input and of an output image.
    in_size: usize,
    out_size: usize,
    count: usize,
    /// Tasks of an image, and channels of each.
    groups: usize,
    each: usize,
}

impl DepthwiseTasks {
    fn new(passes: &Passes<'_>, layer: &Layer, stride: usize) -> Self {
        let channels = layer.outputs;
        let wanted = 4 * passes.compute.pool().threads();
        let groups = wanted.div_ceil(passes.count).min(channels.div_ceil(64));
        let each = channels.div_ceil(groups).next_multiple_of(16);
        let groups = channels.div_ceil(each);
        Self {
            shape: depthwise(layer, stride),
            in_size: layer.in_side.0 * layer.in_side.1 * channels,
            out_size: layer.out_area() * channels,
            count: passes.count * groups,
            groups,
            each,
        }
    }

    /// The image and the channels of a task.
    fn get(&self, task: usize) -> (usize, Range<usize>) {
        let (image, group) = (task / self.groups, task % self.groups);
        (image, group * self.each..((group + 1) * self.each).min(self.shape.channels))
    }
}

/// The rows of one of `tasks` tasks.
fn share(rows: usize, tasks: usize, task: usize) -> Range<usize> {
    let each = rows.div_ceil(tasks).next_multiple_of(ROW_STEP);
    (task * each).min(rows)..((task + 1) * each).min(rows)
}

/// The buffers of a step, as kernels on several threads use them.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    floats: SendPtr<f32>,
    sums: SendPtr<f64>,
}

impl Memory {
    pub(super) fn new(floats: &mut [f32], sums: &mut [f64]) -> Self {
        Self { floats: SendPtr(floats.as_mut_ptr()), sums: SendPtr(sums.as_mut_ptr()) }
    }

    /// The float at a planned position.
    pub(super) fn at(&self, offset: usize) -> *mut f32 {
        self.floats.get().wrapping_add(offset)
    }

    /// The sums of task `task` when each has `stride`.
    pub(super) fn sums(&self, task: usize, stride: usize) -> *mut f64 {
        self.sums.get().wrapping_add(task * stride)
    }
}

/// Everything a pass over the layers needs.
pub(super) struct Passes<'a> {
    pub(super) shape: &'a Shape,
    pub(super) plan: &'a Plan,
    pub(super) compute: &'a Compute,
    pub(super) memory: Memory,
    /// Images in this batch.
    pub(super) count: usize,
}

/// A matrix to pack: element (k, j) lies at `k * by_row + j * by_column`.
struct Pack {
    from: *const f32,
    strides: (usize, usize),
    size: (usize, usize),
    panel: usize,
    to: *mut f32,
}

impl Kernel for Pack {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // `panel` counts in the widest panels; narrower instruction sets have several in each.
        let each = 32 / (2 * S::LANES);
        let last = panels(self.size.1, S::LANES);
        for panel in (self.panel * each..(self.panel + 1) * each).take_while(|&at| at < last) {
            // SAFETY: as the caller promises for the whole matrix.
            unsafe { pack_panel::<S>(self.from, self.strides, self.size, panel, self.to) };
        }
    }
}

impl Passes<'_> {
    pub(super) fn norm(&self, layer: usize) -> Norm {
        Norm::new(self.memory.at(self.plan.norms[layer]), self.shape.layers[layer].outputs)
    }

    fn affine(&self, layer: usize) -> Affine {
        let norm = self.norm(layer);
        Affine { scale: norm.array(0), shift: norm.array(1) }
    }

    pub(super) fn raw(&self, layer: usize) -> *mut f32 {
        self.memory.at(self.plan.raws[layer])
    }

    /// Values a channel of a layer has in this batch.
    fn values(&self, layer: &Layer) -> usize {
        self.count * layer.out_area()
    }

    /// Packs a matrix for the kernels.
    pub(super) fn pack(
        &self,
        from: &[f32],
        strides: (usize, usize),
        (depth, columns): (usize, usize),
    ) -> Packed {
        assert!(from.len() >= depth * columns, "the matrix is within its slice");
        let to = SendPtr(self.memory.at(self.plan.packed));
        self.compute.pool().run(columns.div_ceil(32), &|panel, _| {
            let (from, to) = (from.as_ptr(), to.get());
            let pack = Pack { from, strides, size: (depth, columns), panel, to };
            // SAFETY: the slice holds the matrix, the plan has room for it packed, and panels of
            // different tasks do not overlap.
            unsafe { self.compute.isa().run(pack) };
        });
        debug_assert!(self.plan.packed + packed_len(depth, columns) <= self.plan.len);
        Packed { start: to.get(), depth, columns }
    }

    fn scratch(&self, thread: usize) -> *mut f32 {
        self.memory.at(self.plan.scratch + thread * self.plan.scratch_stride)
    }

    fn near(&self, thread: usize) -> *mut f32 {
        self.memory.at(self.plan.near + thread * self.plan.near_stride)
    }

    /// One pass `out = source * weights` over `rows` rows. Answers the number of partial sums.
    pub(super) fn multiply(
        &self,
        rows: usize,
        source: &(dyn Fn() -> Source + Sync),
        weights: Packed,
        out: usize,
    ) -> usize {
        let tasks = tasks(self.compute.pool().threads());
        let start = SendPtr(weights.start.cast_mut());
        let (depth, columns) = (weights.depth, weights.columns);
        self.compute.pool().run(tasks, &|task, thread| {
            let forward = Forward {
                rows: share(rows, tasks, task),
                source: source(),
                weights: Packed { start: start.get(), depth, columns },
                out: self.memory.at(out),
                stream: too_large(rows * columns),
                sums: Sums {
                    near: self.near(thread),
                    far: self.memory.sums(task, 2 * columns),
                    channels: columns,
                },
                scratch: self.scratch(thread),
            };
            // SAFETY: tasks write disjoint rows and their own sums; scratch is the thread's own.
            unsafe { self.compute.isa().run(forward) };
        });
        tasks
    }

    /// The input of a layer's product in the forward pass.
    fn source(&self, index: usize) -> Source {
        let layer = &self.shape.layers[index];
        match layer.role {
            Role::Stem => {
                let image = self.shape.image;
                Source::Patches {
                    images: self.memory.at(self.plan.images),
                    channels: image.channels,
                    side: layer.out_side,
                    padded_side: (image.height + 2, image.width + 2),
                }
            }
            Role::Expand => {
                let residual = match self.shape.layers[index - 1].role {
                    Role::Project { residual: true } => {
                        self.memory.at(self.plan.carried[index - 3]).cast_const()
                    }
                    _ => std::ptr::null(),
                };
                Source::Carried {
                    raw: self.raw(index - 1),
                    affine: self.affine(index - 1),
                    residual,
                    to: self.memory.at(self.plan.carried[index]),
                }
            }
            Role::Project { .. } | Role::Depthwise { .. } => {
                Source::Activated { raw: self.raw(index - 1), affine: self.affine(index - 1) }
            }
        }
    }

    /// The first convolution's weights in the order of patches: row, column, channel; by outputs.
    fn stem_weights(&self, layer: &Layer, params: &[f32]) -> &[f32] {
        let (inputs, outputs) = (layer.inputs, layer.outputs);
        let len = 9 * inputs * outputs;
        // SAFETY: the weights' sums are idle in the forward pass and large enough for any layer.
        let ordered =
            unsafe { std::slice::from_raw_parts_mut(self.memory.at(self.plan.weight_sums), len) };
        for (at, &weight) in params[layer.weight.clone()].iter().enumerate() {
            let (output, input, tap) = (at / (9 * inputs), at / 9 % inputs, at % 9);
            ordered[(tap * inputs + input) * outputs + output] = weight;
        }
        ordered
    }

    /// Depthwise weights as nine rows of all channels.
    fn depthwise_weights(&self, layer: &Layer, params: &[f32]) -> SendPtr<f32> {
        let to = self.memory.at(self.plan.packed);
        for (at, &weight) in params[layer.weight.clone()].iter().enumerate() {
            // SAFETY: the plan has room for nine rows.
            unsafe { *to.add(at % 9 * layer.outputs + at / 9) = weight };
        }
        SendPtr(to)
    }

    /// One layer forward; its batch norm's coefficients follow from the batch (`changes`: gradient
    /// buffer and weight of the batch) or from the running statistics.
    pub(super) fn forward(&self, index: usize, params: &[f32], changes: Option<(&mut [f32], f32)>) {
        let layer = &self.shape.layers[index];
        let rows = self.values(layer);
        let parts = match layer.role {
            Role::Depthwise { stride } => self.forward_depthwise(index, stride, params),
            role => {
                let (inputs, outputs) = (layer.inputs, layer.outputs);
                let weights = if role == Role::Stem {
                    self.pack(self.stem_weights(layer, params), (outputs, 1), (9 * inputs, outputs))
                } else {
                    self.pack(&params[layer.weight.clone()], (1, inputs), (inputs, outputs))
                };
                self.multiply(rows, &|| self.source(index), weights, self.plan.raws[index])
            }
        };
        let values = Values {
            gamma: &params[layer.gamma.clone()],
            beta: &params[layer.beta.clone()],
            mean: &params[layer.mean.clone()],
            variance: &params[layer.variance.clone()],
        };
        // SAFETY: no kernel runs now, and nothing else holds these arrays.
        let mut norm = unsafe { self.norm(index).slices() };
        match changes {
            Some((grad, weight)) => {
                let (mean, variance) =
                    grad[layer.mean.start..layer.variance.end].split_at_mut(layer.outputs);
                // SAFETY: the kernels have written that many sums.
                let sums = unsafe { self.partial_sums(parts, layer.outputs) };
                norm.set_from_batch(sums, rows, values, weight, (mean, variance));
            }
            None => norm.set_from_running(values),
        }
    }

    /// The sums that `parts` tasks or images have left.
    ///
    /// # Safety
    /// So many were written, two for each channel, and no kernel runs that writes others.
    unsafe fn partial_sums(&self, parts: usize, channels: usize) -> &[f64] {
        // SAFETY: as the caller promises; the plan has room for those of all tasks and images.
        unsafe { std::slice::from_raw_parts(self.memory.sums(0, 0), parts * 2 * channels) }
    }

    fn forward_depthwise(&self, index: usize, stride: usize, params: &[f32]) -> usize {
        let layer = &self.shape.layers[index];
        let weights = self.depthwise_weights(layer, params);
        let tasks = DepthwiseTasks::new(self, layer, stride);
        let DepthwiseTasks { shape, in_size, out_size, .. } = tasks;
        self.compute.pool().run(tasks.count, &|task, thread| {
            let (image, channels) = tasks.get(task);
            // SAFETY: tasks write disjoint images or channels; scratch is the thread's own.
            unsafe {
                self.compute.isa().run(DepthwiseForward {
                    shape,
                    channels,
                    raw: self.raw(index - 1).add(image * in_size),
                    affine: self.affine(index - 1),
                    weights: weights.get(),
                    out: self.raw(index).add(image * out_size),
                    stream: too_large(self.count * out_size),
                    sums: self.memory.sums(image, 2 * shape.channels),
                    scratch: self.scratch(thread),
                });
            }
        });
        self.count
    }

    /// Where the gradient of a layer's output lies.
    fn gradient(&self, index: usize, narrow: usize) -> *mut f32 {
        self.memory.at(match self.shape.layers[index].role {
            Role::Stem | Role::Expand => self.plan.wide[0],
            Role::Depthwise { .. } => self.plan.wide[1],
            Role::Project { .. } => self.plan.narrow[narrow],
        })
    }

    fn norm_gradient(&self, index: usize, narrow: usize) -> NormGradient {
        let norm = self.norm(index);
        NormGradient {
            gradient: self.gradient(index, narrow),
            raw: self.raw(index),
            by_gradient: norm.array(4),
            by_raw: norm.array(5),
            constant: norm.array(6),
        }
    }

    /// One layer backward, from `parts` partial sums of its output's masked gradient. `narrow` says
    /// which of the two block gradients is the current one. Answers the number of partial sums of
    /// the layer below.
    pub(super) fn backward(
        &self,
        index: usize,
        parts: usize,
        narrow: usize,
        params: &[f32],
        grad: &mut [f32],
    ) -> usize {
        let layer = &self.shape.layers[index];
        {
            let (gamma, beta) = grad[layer.gamma.start..layer.beta.end].split_at_mut(layer.outputs);
            // SAFETY: no kernel runs now, and nothing else holds arrays or sums.
            unsafe {
                let sums = self.partial_sums(parts, layer.outputs);
                let gammas = &params[layer.gamma.clone()];
                self.norm(index).slices().set_backward(
                    sums,
                    self.values(layer),
                    gammas,
                    (gamma, beta),
                );
            }
        }
        let (inputs, outputs) = (layer.inputs, layer.outputs);
        let weight = &params[layer.weight.clone()];
        let weight_grad = &mut grad[layer.weight.clone()];
        match layer.role {
            Role::Depthwise { stride } => {
                self.backward_depthwise(index, stride, params);
                // Eight channels at a time: rows of nine taps alone would be all overhead.
                self.reduce(self.count, 9 * outputs, weight_grad, 9 * 8, |eight, at| {
                    at % 9 * outputs + 8 * eight + at / 9
                });
                self.count
            }
            Role::Stem => {
                let taps = 9 * inputs;
                let weights = Packed {
                    start: self.memory.at(self.plan.packed),
                    depth: outputs,
                    columns: taps,
                };
                let tasks = self.backward_rows(index, narrow, weights, true);
                let stride = padded(outputs);
                self.reduce(
                    tasks,
                    self.plan.weight_sums_stride,
                    weight_grad,
                    taps,
                    |output, at| {
                        let (input, tap) = (at / 9, at % 9);
                        (tap * inputs + input) * stride + output
                    },
                );
                0
            }
            Role::Expand => {
                let weights = self.pack(weight, (inputs, 1), (outputs, inputs));
                let tasks = self.backward_rows(index, narrow, weights, true);
                let stride = padded(outputs);
                let sums = self.plan.weight_sums_stride;
                self.reduce(tasks, sums, weight_grad, inputs, |output, input| {
                    input * stride + output
                });
                tasks
            }
            Role::Project { .. } => {
                let weights = self.pack(weight, (inputs, 1), (outputs, inputs));
                let tasks = self.backward_rows(index, narrow, weights, false);
                let stride = padded(inputs);
                let sums = self.plan.weight_sums_stride;
                self.reduce(tasks, sums, weight_grad, inputs, |output, input| {
                    output * stride + input
                });
                tasks
            }
        }
    }

    fn backward_rows(
        &self,
        index: usize,
        narrow: usize,
        weights: Packed,
        narrow_input: bool,
    ) -> usize {
        let layer = &self.shape.layers[index];
        let source = || match layer.role {
            Role::Expand => Source::Plain { rows: self.memory.at(self.plan.carried[index]) },
            _ => self.source(index),
        };
        let behind = || match layer.role {
            Role::Stem | Role::Depthwise { .. } => Behind::Nothing,
            Role::Project { .. } => Behind::Relu6 {
                raw: self.raw(index - 1),
                affine: self.affine(index - 1),
                mean: self.norm(index - 1).array(2),
                out: self.memory.at(self.plan.wide[1]),
                stream: too_large(self.values(layer) * layer.inputs),
            },
            Role::Expand => Behind::Linear {
                raw: self.raw(index - 1),
                mean: self.norm(index - 1).array(2),
                residual: match self.shape.layers.get(index + 2).map(|above| above.role) {
                    Some(Role::Project { residual: true }) => {
                        self.memory.at(self.plan.narrow[narrow]).cast_const()
                    }
                    _ => std::ptr::null(),
                },
                out: self.memory.at(self.plan.narrow[1 - narrow]),
            },
        };
        let above = || Above::Norm(self.norm_gradient(index, narrow));
        self.multiply_back(self.values(layer), &source, &above, weights, &behind, narrow_input)
    }

    /// One backward pass over `rows` rows. Answers the number of tasks, whose sums remain.
    pub(super) fn multiply_back(
        &self,
        rows: usize,
        source: &(dyn Fn() -> Source + Sync),
        above: &(dyn Fn() -> Above + Sync),
        weights: Packed,
        behind: &(dyn Fn() -> Behind + Sync),
        narrow_input: bool,
    ) -> usize {
        let tasks = self.compute.pool().threads();
        let start = SendPtr(weights.start.cast_mut());
        let (depth, columns) = (weights.depth, weights.columns);
        self.compute.pool().run(tasks, &|task, thread| {
            let backward = Backward {
                rows: share(rows, tasks, task),
                source: source(),
                above: above(),
                weights: Packed { start: start.get(), depth, columns },
                behind: behind(),
                sums: Sums {
                    near: self.near(thread),
                    far: self.memory.sums(task, 2 * columns),
                    channels: columns,
                },
                weight_sums: self
                    .memory
                    .at(self.plan.weight_sums + task * self.plan.weight_sums_stride),
                narrow_input,
                scratch: self.scratch(thread),
            };
            // SAFETY: tasks write disjoint rows and their own sums; scratch is the thread's own.
            unsafe { self.compute.isa().run(backward) };
        });
        tasks
    }

    fn backward_depthwise(&self, index: usize, stride: usize, params: &[f32]) {
        let layer = &self.shape.layers[index];
        let weights = self.depthwise_weights(layer, params);
        let tasks = DepthwiseTasks::new(self, layer, stride);
        let DepthwiseTasks { shape, in_size, out_size, .. } = tasks;
        self.compute.pool().run(tasks.count, &|task, thread| {
            let (image, channels) = tasks.get(task);
            // SAFETY: tasks write disjoint images or channels; scratch is the thread's own.
            unsafe {
                let mut above = self.norm_gradient(index, 0);
                above.gradient = above.gradient.add(image * out_size);
                above.raw = above.raw.add(image * out_size);
                self.compute.isa().run(DepthwiseBackward {
                    shape,
                    channels,
                    above,
                    raw: self.raw(index - 1).add(image * in_size),
                    affine: self.affine(index - 1),
                    mean: self.norm(index - 1).array(2),
                    weights: weights.get(),
                    out: self.memory.at(self.plan.wide[0]).add(image * in_size),
                    stream: too_large(self.count * in_size),
                    sums: self.memory.sums(image, 2 * shape.channels),
                    weight_sums: self.memory.at(self.plan.weight_sums + image * 9 * shape.channels),
                    scratch: self.scratch(thread),
                });
            }
        });
    }

    /// Adds the weights' gradients of all tasks, in order; `from` says where an element of a row lies, of which each has `width`.
    pub(super) fn reduce(
        &self,
        tasks: usize,
        stride: usize,
        grad: &mut [f32],
        width: usize,
        from: impl Fn(usize, usize) -> usize + Sync,
    ) {
        let chunk = grad.len().div_ceil(self.compute.pool().threads()).max(4096);
        let rows = chunk.div_ceil(width);
        self.compute.pool().for_chunks(grad, rows * width, |number, piece| {
            for (row, values) in piece.chunks_mut(width).enumerate() {
                for (at, value) in values.iter_mut().enumerate() {
                    let from = from(number * rows + row, at);
                    let from = self.memory.at(self.plan.weight_sums + from);
                    let mut sum = 0.0;
                    for task in 0..tasks {
                        // SAFETY: the kernels have written that many sums there.
                        sum += unsafe { *from.add(task * stride) };
                    }
                    *value = sum;
                }
            }
        });
    }
}
