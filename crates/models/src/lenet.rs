//! LeNet-5 with relu and average pooling, for grey 28 x 28 images.
//!
//! Convolutions run image by image in [`crate::kernels::lenet`], the dense layers as products over
//! the whole batch. Gradients of convolution weights are summed per task and then in task order, so
//! that equal threads give equal bits.

use crate::{
    input::{self, BYTE, Pixels},
    kernels::{
        Buffer, Compute, DenseShape, Finish,
        lenet::{self as kernel, Backward, Forward},
        loss,
    },
    layout::Layout,
    model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss},
    profile::{Pass, Profile},
    random,
    registry::{Defaults, Entry},
    shapes::LayerShape,
    threads::{Pool, SendPtr},
};
use paceline_batch::{Batch, Schema};
use std::ops::Range;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "lenet",
    about: "LeNet-5 with relu and average pooling, grey 28x28 images",
    settings: &["freeze"],
    defaults: Defaults { optimizer: "adam", rate: 0.003 },
    build,
};

const SIDE: usize = 28;
const FLAT: usize = kernel::FLAT;
const LAYERS: [&str; 5] = ["conv1", "conv2", "fc1", "fc2", "fc3"];
/// The first two layers, which run image by image.
const CONVOLUTIONS: &str = "conv1, conv2";
/// Multiplications and additions of the two convolutions, for one image.
const CONV_FLOPS: [usize; 2] = [2 * 28 * 28 * 6 * 25, 2 * 10 * 10 * 16 * 150];

struct LeNet {
    classes: usize,
    layout: Layout,
    /// Where weights and bias of each layer lie, first layer first.
    at: [(Range<usize>, Range<usize>); 5],
    head_only: bool,
    compute: Compute,
    memory: Memory,
    profile: Profile,
}

/// Activations and gradients, planned for the largest batch so far.
#[derive(Default)]
struct Memory {
    batch: usize,
    image: Buffer,
    pool1: Buffer,
    /// Which outputs of the two convolutions are positive.
    made1: Vec<u8>,
    made2: Vec<u8>,
    flat: Buffer,
    fc1: Buffer,
    fc2: Buffer,
    logits: Buffer,
    d_fc2: Buffer,
    d_fc1: Buffer,
    d_flat: Buffer,
    weights2: Buffer,
    weights2_back: Buffer,
    /// One set of sums per task, one scratch buffer per thread.
    sums: Buffer,
    scratch: Buffer,
}

impl Memory {
    fn reserve(&mut self, batch: usize, classes: usize, threads: usize) {
        if batch <= self.batch {
            return;
        }
        self.batch = batch;
        let plan = [
            (&mut self.image, batch * kernel::IMAGE),
            (&mut self.pool1, batch * kernel::POOL1),
            (&mut self.flat, batch * FLAT),
            (&mut self.fc1, batch * 120),
            (&mut self.fc2, batch * 84),
            (&mut self.logits, batch * classes),
            (&mut self.d_fc2, batch * 84),
            (&mut self.d_fc1, batch * 120),
            (&mut self.d_flat, batch * FLAT),
            (&mut self.weights2, kernel::WEIGHTS2),
            (&mut self.weights2_back, kernel::WEIGHTS2_BACK),
            (&mut self.sums, tasks(threads) * kernel::SUMS),
            (&mut self.scratch, threads * kernel::SCRATCH),
        ];
        let buffers = Buffer::together(plan.each_ref().map(|(_, len)| *len));
        for ((buffer, _), new) in plan.into_iter().zip(buffers) {
            *buffer = new;
        }
        self.made1 = vec![0; batch * kernel::MADE1];
        self.made2 = vec![0; batch * kernel::MADE2];
    }
}

/// Groups of images: enough for threads to even out, few enough to add up their sums.
fn tasks(threads: usize) -> usize {
    if threads == 1 { 1 } else { 4 * threads }
}

/// Multiplications and additions of both convolutions.
#[allow(clippy::cast_precision_loss)]
fn conv_flops(batch: usize) -> f64 {
    (batch * (CONV_FLOPS[0] + CONV_FLOPS[1])) as f64
}

/// Builds the model for grey 28 x 28 images.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let (image, classes) = input::image_and_classes(ENTRY.name, schema)?;
    if (image.height, image.width, image.channels) != (SIDE, SIDE, 1) {
        return Err(ModelError::Mismatch {
            model: ENTRY.name,
            needs: format!("images of {SIDE}x{SIDE}x1"),
            has: format!("images of {image}"),
        });
    }
    let shapes: [&[usize]; 5] =
        [&[6, 1, 5, 5], &[16, 6, 5, 5], &[120, FLAT], &[84, 120], &[classes, 84]];
    let mut layout = Layout::default();
    let mut number = 0;
    let at = LAYERS.map(|name| {
        let shape = shapes[number];
        number += 1;
        let weight = layout.push(format!("{name}.weight"), shape, true);
        (weight, layout.push(format!("{name}.bias"), &shape[..1], true))
    });
    input::unit_only(ENTRY.name, options)?;
    Ok(Box::new(LeNet {
        classes,
        layout,
        at,
        head_only: options.head_only,
        compute: Compute::new(options.threads)?,
        memory: Memory::default(),
        profile: Profile::default(),
    }))
}

impl LeNet {
    fn dense(&self, batch: usize) -> [DenseShape; 3] {
        [(FLAT, 120), (120, 84), (84, self.classes)].map(|(inputs, outputs)| DenseShape {
            batch,
            inputs,
            outputs,
        })
    }

    /// Leaves the logits in memory.
    fn forward(&mut self, params: &[f32], pixels: Pixels<'_>, batch: usize) {
        self.memory.reserve(batch, self.classes, self.compute.pool().threads());
        let dense = self.dense(batch);
        let flops = conv_flops(batch);
        let Self { memory, compute, at, profile, .. } = self;
        let weights = |layer: usize| &params[at[layer].0.clone()];
        let bias = |layer: usize| &params[at[layer].1.clone()];
        kernel::order_weights(weights(1), &mut memory.weights2, &mut memory.weights2_back);
        let isa = compute.isa();
        let weights2 = &memory.weights2;
        let [image, pool1, flat, scratch] =
            [&mut memory.image, &mut memory.pool1, &mut memory.flat, &mut memory.scratch]
                .map(|buffer| SendPtr(buffer.as_mut_ptr()));
        let [made1, made2] =
            [&mut memory.made1, &mut memory.made2].map(|bytes| SendPtr(bytes.as_mut_ptr()));
        let groups = tasks(compute.pool().threads()).min(batch);
        let convolve = |group: usize, thread: usize| {
            for number in group * batch / groups..(group + 1) * batch / groups {
                // SAFETY: every buffer has room for the batch; groups hold different images. A thread has
                // its own scratch.
                #[allow(unsafe_code)]
                unsafe {
                    let of = |start: &SendPtr<f32>, number: usize, len: usize| {
                        std::slice::from_raw_parts_mut(start.get().add(number * len), len)
                    };
                    let part = |start: &SendPtr<f32>, len: usize| of(start, number, len);
                    let bytes = |start: &SendPtr<u8>, len: usize| {
                        std::slice::from_raw_parts_mut(start.get().add(number * len), len)
                    };
                    let framed = part(&image, kernel::IMAGE);
                    let range = number * SIDE * SIDE..(number + 1) * SIDE * SIDE;
                    match pixels {
                        Pixels::Bytes(bytes) => {
                            kernel::frame(&bytes[range], framed, |byte| f32::from(byte) * BYTE);
                        }
                        Pixels::Floats(floats) => kernel::frame(&floats[range], framed, |it| it),
                    }
                    isa.run(Forward {
                        image: framed,
                        weights1: weights(0),
                        bias1: bias(0),
                        weights2,
                        bias2: bias(1),
                        scratch: of(&scratch, thread, kernel::SCRATCH),
                        made1: bytes(&made1, kernel::MADE1),
                        pool1: part(&pool1, kernel::POOL1),
                        made2: bytes(&made2, kernel::MADE2),
                        flat: part(&flat, FLAT),
                    });
                }
            }
        };
        profile.time(CONVOLUTIONS, Pass::Forward, flops, || compute.pool().run(groups, &convolve));
        let finish =
            |layer: usize| Finish { bias: Some(bias(layer)), relu: layer < 4, ..Finish::default() };
        for (layer, shape) in (2..).zip(&dense) {
            let (input, output) = match layer {
                2 => (&memory.flat, &mut memory.fc1),
                3 => (&memory.fc1, &mut memory.fc2),
                _ => (&memory.fc2, &mut memory.logits),
            };
            profile.time(LAYERS[layer], Pass::Forward, shape.flops(), || {
                compute.dense_forward(shape, input, weights(layer), output, &finish(layer));
            });
        }
    }

    /// From the gradient of the logits to those of the parameters.
    fn backward(
        &mut self,
        params: &mut [f32],
        batch: usize,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) {
        let dense = self.dense(batch);
        let Self { memory, compute, at, profile, head_only, .. } = self;
        for layer in (0..3).rev() {
            let (input, d_output, d_input) = match layer {
                2 => (&memory.fc2, &memory.logits, &mut memory.d_fc2),
                1 => (&memory.fc1, &memory.d_fc2, &mut memory.d_fc1),
                _ => (&memory.flat, &memory.d_fc1, &mut memory.d_flat),
            };
            let (weights, end) = (at[layer + 2].0.clone(), at[layer + 2].1.end);
            let shape = &dense[layer];
            let mask = (layer > 0).then_some(&input[..batch * shape.inputs]);
            let finish = Finish { mask, ..Finish::default() };
            let from = &params[weights.clone()];
            if !*head_only {
                profile.time(LAYERS[layer + 2], Pass::BackwardInput, shape.flops(), || {
                    compute.dense_backward_input(shape, d_output, from, d_input, &finish);
                });
            }
            let (d_weights, d_bias) = grad[weights.start..end].split_at_mut(weights.len());
            profile.time(LAYERS[layer + 2], Pass::BackwardWeights, shape.flops(), || {
                compute.dense_backward_weights(shape, input, d_output, d_weights, d_bias);
            });
            let range = weights.start..end;
            ready(range.clone(), &mut params[range.clone()], &mut grad[range.clone()]);
            if *head_only {
                let rest = 0..range.start;
                grad[rest.clone()].fill(0.0);
                ready(rest.clone(), &mut params[rest.clone()], &mut grad[rest]);
                return;
            }
        }
        let mut profile = std::mem::take(profile);
        // The first layer's input needs no gradient.
        #[allow(clippy::cast_precision_loss)]
        let flops = conv_flops(batch) + (batch * CONV_FLOPS[1]) as f64;
        profile.time(CONVOLUTIONS, Pass::Backward, flops, || {
            self.backward_convs(batch, grad);
        });
        self.profile = profile;
        // The second layer first, as everywhere: last layer first.
        for layer in [1, 0] {
            let range = self.at[layer].0.start..self.at[layer].1.end;
            ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        }
    }

    fn backward_convs(&mut self, batch: usize, grad: &mut [f32]) {
        let Self { memory, compute, at, .. } = self;
        let isa = compute.isa();
        let groups = tasks(compute.pool().threads()).min(batch);
        memory.sums[..groups * kernel::SUMS].fill(0.0);
        let sums = SendPtr(memory.sums.as_mut_ptr());
        let scratch = SendPtr(memory.scratch.as_mut_ptr());
        let memory = &*memory;
        compute.pool().run(groups, &|group, thread| {
            // SAFETY: a group owns its sums, a thread its scratch.
            #[allow(unsafe_code)]
            let (sums, scratch) = unsafe {
                let own = |start: &SendPtr<f32>, number: usize, len: usize| {
                    std::slice::from_raw_parts_mut(start.get().add(number * len), len)
                };
                (own(&sums, group, kernel::SUMS), own(&scratch, thread, kernel::SCRATCH))
            };
            for number in group * batch / groups..(group + 1) * batch / groups {
                let backward = Backward {
                    image: &memory.image[number * kernel::IMAGE..][..kernel::IMAGE],
                    made1: &memory.made1[number * kernel::MADE1..][..kernel::MADE1],
                    pool1: &memory.pool1[number * kernel::POOL1..][..kernel::POOL1],
                    made2: &memory.made2[number * kernel::MADE2..][..kernel::MADE2],
                    d_flat: &memory.d_flat[number * FLAT..][..FLAT],
                    weights2: &memory.weights2_back,
                    scratch: &mut *scratch,
                    sums: &mut *sums,
                };
                // SAFETY: the kernel checks the sizes of its slices.
                #[allow(unsafe_code)]
                unsafe {
                    isa.run(backward);
                }
            }
        });
        let range = at[0].0.start..at[1].1.end;
        grad[range].fill(0.0);
        let (d_weights1, d_bias1) = (at[0].0.start, at[0].1.start);
        let (d_weights2, d_bias2) = (at[1].0.start, at[1].1.start);
        for sums in memory.sums.chunks_exact(kernel::SUMS).take(groups) {
            let (second, first) = sums.split_at(kernel::WEIGHTS2 + 16);
            for (at, sums) in second.chunks_exact(16).enumerate() {
                let tap = at < kernel::WEIGHTS2 / 16;
                for (output, sum) in sums.iter().enumerate() {
                    let to = if tap { d_weights2 + output * 150 + at } else { d_bias2 + output };
                    grad[to] += sum;
                }
            }
            for (at, sum) in first.iter().enumerate() {
                let to = if at < 150 { d_weights1 + at } else { d_bias1 + at - 150 };
                grad[to] += sum;
            }
        }
    }
}

impl Model for LeNet {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn profile(&mut self) -> Option<&mut Profile> {
        Some(&mut self.profile)
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self.compute.pool())
    }

    fn shapes(&self) -> Vec<LayerShape> {
        let conv = |name: &str, input: [usize; 3], output: [usize; 3]| {
            let weights = 25 * input[2] * output[2];
            LayerShape {
                name: name.to_owned(),
                input,
                output,
                kernel: 5,
                parameters: weights + output[2],
                flops: 2 * output[0] * output[1] * weights,
            }
        };
        let convs = [
            conv(LAYERS[0], [SIDE, SIDE, 1], [SIDE, SIDE, 6]),
            conv(LAYERS[1], [14, 14, 6], [10, 10, 16]),
        ];
        let dense = self.dense(1);
        let dense = dense.iter().zip(&LAYERS[2..]);
        let dense =
            dense.map(|(dense, name)| LayerShape::dense(*name, dense.inputs, dense.outputs));
        convs.into_iter().chain(dense).collect()
    }

    fn init(&self, seed: u64, params: &mut [f32]) {
        random::init_layers(seed, &self.layout, params);
    }

    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError> {
        self.layout.check(params, grad);
        let pixels = input::pixels(ENTRY.name, batch, SIDE * SIDE, self.classes)?;
        let examples = batch.len();
        self.forward(params, pixels, examples);
        let logits = &mut self.memory.logits[..examples * self.classes];
        let isa = self.compute.isa();
        let loss = loss::cross_entropy(isa, logits, self.classes, &batch.labels, context.scale);
        self.backward(params, examples, grad, ready);
        Ok(loss)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        let pixels = input::pixels(ENTRY.name, batch, SIDE * SIDE, self.classes)?;
        self.forward(params, pixels, batch.len());
        let logits = &mut self.memory.logits[..batch.len() * self.classes];
        loss::score(self.compute.isa(), logits, self.classes, &batch.labels, score);
        Ok(())
    }
}
