//! Where everything lies in the one buffer of a model, planned once per batch size.
//!
//! Kept from forward to backward: each convolution's raw output and each block's output. Gradients
//! live only between neighbouring layers, so a few buffers as large as the largest layer serve all.

use super::{
    pointwise::Backward,
    shape::{Layer, Role, Shape},
    tile::{MAX_STRIP, packed_len, padded},
};
use crate::kernels::{batch_norm::Coefficients, depthwise::DepthwiseShape};

/// Positions in the buffer, in floats, each on a cache line.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Most images of a batch.
    pub(super) capacity: usize,
    /// Padded images.
    pub(super) images: usize,
    /// Raw output of each layer.
    pub(super) raws: Vec<usize>,
    /// Input of each expanding layer: the output of the block below.
    pub(super) carried: Vec<usize>,
    /// Coefficients of each layer's batch norm.
    pub(super) norms: Vec<usize>,
    /// Pooled features, dropped out.
    pub(super) pooled: usize,
    /// Their gradient.
    pub(super) pooled_grad: usize,
    /// Logits, then their gradient.
    pub(super) logits: usize,
    /// Gradients of wide layers: behind an expanding and behind a depthwise convolution.
    pub(super) wide: [usize; 2],
    /// Gradients of two neighbouring blocks' outputs.
    pub(super) narrow: [usize; 2],
    /// Packed weights of the layer at work.
    pub(super) packed: usize,
    /// Weights' gradients of the layer at work, one per task.
    pub(super) weight_sums: usize,
    /// Floats from one task's to the next.
    pub(super) weight_sums_stride: usize,
    /// Scratch memory, one per thread.
    pub(super) scratch: usize,
    /// Floats from one thread's to the next.
    pub(super) scratch_stride: usize,
    /// Sums in f32, one per thread.
    pub(super) near: usize,
    /// Floats from one thread's to the next.
    pub(super) near_stride: usize,
    /// Floats in all.
    pub(super) len: usize,
    /// Sums in f64: floats from one task's to the next.
    pub(super) sums_stride: usize,
    /// Sums in f64, in all.
    pub(super) sums_len: usize,
}

/// The depthwise shape of a layer.
pub(super) fn depthwise(layer: &Layer, stride: usize) -> DepthwiseShape {
    let (height, width) = layer.in_side;
    DepthwiseShape { height, width, channels: layer.outputs, stride }
}

impl Plan {
    pub(super) fn new(shape: &Shape, capacity: usize, threads: usize) -> Self {
        let mut plan = Self { capacity, ..Self::default() };
        let image = shape.image;
        plan.images = plan.take(capacity * (image.height + 2) * (image.width + 2) * image.channels);
        let (mut wide, mut narrow) = ([0; 2], 0);
        let (mut packed, mut scratch, mut most) = (0, 0, shape.classes);
        let (mut sums, mut image_sums) = (0, 0);
        for layer in &shape.layers {
            let floats = capacity * layer.out_area() * layer.outputs;
            let raw = plan.take(floats);
            plan.raws.push(raw);
            let carried = match layer.role {
                Role::Expand => plan.take(capacity * layer.out_area() * layer.inputs),
                _ => 0,
            };
            plan.carried.push(carried);
            let norm = plan.take(Norm::ARRAYS * padded(layer.outputs));
            plan.norms.push(norm);
            most = most.max(layer.outputs).max(layer.inputs);
            match layer.role {
                Role::Stem | Role::Expand => wide[0] = floats.max(wide[0]),
                Role::Depthwise { stride } => {
                    wide[1] = floats.max(wide[1]);
                    packed = packed.max(9 * layer.outputs);
                    scratch = scratch.max(depthwise(layer, stride).scratch_len(layer.outputs));
                    image_sums = image_sums.max(capacity * 9 * layer.outputs);
                }
                Role::Project { .. } => narrow = floats.max(narrow),
            }
            let inputs = if layer.role == Role::Stem { 9 * layer.inputs } else { layer.inputs };
            if !matches!(layer.role, Role::Depthwise { .. }) {
                plan.room_for(inputs, layer.outputs, &mut packed, &mut scratch, &mut sums);
            }
        }
        let features = shape.features();
        plan.room_for(features, shape.classes, &mut packed, &mut scratch, &mut sums);
        // Where a row is not whole vectors, some floats beyond the last are read while threads write what follows.
        plan.pooled = plan.take(capacity * features + padded(1));
        plan.pooled_grad = plan.take(capacity * features);
        plan.logits = plan.take(capacity * shape.classes);
        plan.wide = wide.map(|floats| plan.take(floats));
        plan.narrow = [narrow; 2].map(|floats| plan.take(floats));
        plan.packed = plan.take(packed);
        // Pointwise layers have one sum per task, depthwise ones one per image.
        plan.weight_sums_stride = padded(sums);
        plan.weight_sums = plan.take((threads * padded(sums)).max(image_sums));
        plan.scratch_stride = padded(scratch);
        plan.scratch = plan.take(threads * plan.scratch_stride);
        plan.near_stride = 3 * padded(most);
        plan.near = plan.take(threads * plan.near_stride);
        plan.sums_stride = 2 * most;
        plan.sums_len = plan.sums_stride * capacity.max(super::passes::tasks(threads));
        // Kernels may read a vector beyond a row's end.
        plan.take(padded(1));
        plan
    }

    fn take(&mut self, floats: usize) -> usize {
        let at = self.len;
        self.len += padded(floats);
        at
    }

    fn room_for(
        &self,
        inputs: usize,
        outputs: usize,
        packed: &mut usize,
        scratch: &mut usize,
        sums: &mut usize,
    ) {
        *packed = packed_len(inputs, outputs).max(packed_len(outputs, inputs)).max(*packed);
        let strip = (MAX_STRIP + 1) * padded(inputs);
        *scratch = Backward::scratch_len(inputs, outputs).max(strip).max(*scratch);
        let both =
            Backward::weights_len(inputs, outputs).max(Backward::weights_len(outputs, inputs));
        *sums = both.max(*sums);
    }
}

/// The arrays of one layer's batch norm.
#[derive(Debug, Clone, Copy)]
pub(super) struct Norm {
    start: *mut f32,
    channels: usize,
}

impl Norm {
    /// Arrays per layer.
    pub(super) const ARRAYS: usize = 7;

    pub(super) fn new(start: *mut f32, channels: usize) -> Self {
        Self { start, channels }
    }

    pub(super) fn array(&self, number: usize) -> *mut f32 {
        debug_assert!(number < Self::ARRAYS);
        self.start.wrapping_add(number * padded(self.channels))
    }

    /// All arrays as slices.
    ///
    /// # Safety
    /// The buffer is alive and nothing else uses these arrays meanwhile.
    #[allow(unsafe_code)]
    pub(super) unsafe fn slices<'a>(&self) -> Coefficients<'a> {
        // SAFETY: arrays do not overlap; the caller promises the rest.
        let slice =
            |number| unsafe { std::slice::from_raw_parts_mut(self.array(number), self.channels) };
        Coefficients {
            scale: slice(0),
            shift: slice(1),
            mean: slice(2),
            inverse: slice(3),
            by_gradient: slice(4),
            by_raw: slice(5),
            constant: slice(6),
        }
    }
}
