//! LeNet-5 with average pooling, for images of any size; with kernels of its own for grey 28 x 28 images and relu.
//!
//! Convolutions of that shape run image by image in [`crate::kernels::lenet`], the dense layers as products over
//! the whole batch. Gradients of convolution weights are summed per task and then in task order, so
//! that equal threads give equal bits.

mod dense;
mod general;

use crate::{
    image_model::{ImageModel, Images, ModelCore, Network, Step, Training},
    input::{self, BYTE, Pixels},
    kernels::{
        Buffer, Compute,
        lenet::{self as kernel, Backward, Forward},
    },
    layout::{LayerPlace, Layout},
    model::{Activation, Model, ModelError, ModelOptions},
    profile::Pass,
    registry::{KnownInput, ModelDefaults, ModelEntry},
    shapes::{self, ChainShapes, LayerShape},
    threads::SendPtr,
};
use dense::Dense;
use general::General;
use paceline_batch::{ImageShape, Schema};

/// The registry's entry.
pub const ENTRY: ModelEntry = ModelEntry {
    name: "lenet",
    about: "LeNet-5 with average pooling, relu or tanh, images from 12x12 (made for grey 28x28)",
    settings: &["freeze", "activation", "pad"],
    defaults: ModelDefaults { optimizer: "adam", rate: 0.003 },
    known_for: KnownInput::DIGITS,
    build,
};

/// Zeros on each side of an image, unless asked otherwise: with them 28 x 28 pixels are the published 32 x 32.
const PAD: usize = 2;
const SIDE: usize = 28;
/// Below this, frame included, the second pooling has nothing left to pool.
const LEAST_SIDE: usize = 16;
const FLAT: usize = kernel::FLAT;
const LAYERS: [&str; 5] = ["conv1", "conv2", "fc1", "fc2", "fc3"];
/// Layers before the dense ones, each with a pooling.
const CONVS: usize = 2;
/// The first two layers, which run image by image.
const CONVOLUTIONS: &str = "conv1, conv2";
/// Multiplications and additions of the two convolutions, for one image.
const CONV_FLOPS: [usize; 2] = [2 * 28 * 28 * 6 * 25, 2 * 10 * 10 * 16 * 150];

struct LeNet {
    shapes: Shapes,
    at: LayerPlaces,
    memory: Memory,
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
    dense: Dense,
    weights2: Buffer,
    weights2_back: Buffer,
    /// One set of sums per task, one scratch buffer per thread.
    sums: Buffer,
    scratch: Buffer,
}

impl Memory {
    fn reserve(&mut self, shapes: &Shapes, batch: usize, threads: usize) {
        if batch <= self.batch {
            return;
        }
        self.batch = batch;
        let [flat, hidden1, hidden2, logits, d_hidden2, d_hidden1, d_flat] =
            self.dense.plan(&shapes.with_batch(batch).dense);
        let plan = [
            (&mut self.image, batch * kernel::IMAGE),
            (&mut self.pool1, batch * kernel::POOL1),
            flat,
            hidden1,
            hidden2,
            logits,
            d_hidden2,
            d_hidden1,
            d_flat,
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

/// Builds the model for images that are large enough.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    input::unit_only(ENTRY.name, options)?;
    let pad = options.pad.unwrap_or(PAD);
    // The kernel sees a pixel of the image everywhere.
    if pad > 4 {
        let (option, found) = ("the frame of zeros", format!("{pad} pixels"));
        return Err(ModelError::Option { model: ENTRY.name, option, found, wanted: "0 to 4" });
    }
    let input = input::large_image_and_classes(ENTRY.name, schema, LEAST_SIDE - 2 * pad)?;
    let (image, classes) = input;
    let shapes = shapes(image, pad, classes);
    let mut layout = Layout::default();
    let at = layout.push_layers(LAYERS, |number| shapes.weights(number));
    let is_published = (image.height, image.width, image.channels) == (SIDE, SIDE, 1);
    if !is_published || pad != PAD || options.activation != Activation::Relu {
        let network = General::new(shapes, options.activation, at);
        return Ok(Box::new(ImageModel::new(ENTRY.name, input, options, layout, network)?));
    }
    let network = LeNet { shapes, at, memory: Memory::default() };
    Ok(Box::new(ImageModel::new(ENTRY.name, input, options, layout, network)?))
}

/// Where weights and biases of each layer lie.
type LayerPlaces = [LayerPlace; 5];
type Shapes = ChainShapes<CONVS, CONVS>;

/// The layers' shapes for one example.
fn shapes(image: ImageShape, pad: usize, classes: usize) -> Shapes {
    let first = shapes::conv((image.height, image.width, image.channels), 6, [5, 1, pad]);
    let pool1 = shapes::pool(&first, 2, 2);
    let second = shapes::conv((pool1.out_height(), pool1.out_width(), 6), 16, [5, 1, 0]);
    let pool2 = shapes::pool(&second, 2, 2);
    let sizes = [pool2.output_image(), 120, 84, classes];
    Shapes::new([first, second], [pool1, pool2], sizes)
}

impl LeNet {
    fn forward_convs(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        Images { pixels, count: batch }: Images<'_>,
    ) {
        let flops = conv_flops(batch);
        let Self { memory, at, .. } = self;
        let ModelCore { compute, profile, .. } = core;
        let weights = |layer: usize| &params[at[layer].0.clone()];
        let bias = |layer: usize| &params[at[layer].1.clone()];
        kernel::order_weights(weights(1), &mut memory.weights2, &mut memory.weights2_back);
        let isa = compute.isa();
        let weights2 = &memory.weights2;
        let [image, pool1, flat, scratch] =
            [&mut memory.image, &mut memory.pool1, &mut memory.dense.flat, &mut memory.scratch]
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
    }

    fn backward_convs(&mut self, compute: &Compute, batch: usize, grad: &mut [f32]) {
        let Self { memory, at, .. } = self;
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
                    d_flat: &memory.dense.d_flat[number * FLAT..][..FLAT],
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

impl Network for LeNet {
    fn shapes(&self, _core: &ModelCore) -> Vec<LayerShape> {
        self.shapes.named(&LAYERS)
    }

    fn reserve(&mut self, core: &ModelCore, images: usize, _training: bool) -> usize {
        self.memory.reserve(&self.shapes, images, core.compute.pool().threads());
        self.memory.batch
    }

    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
        _training: Option<Training<'_>>,
    ) -> &mut [f32] {
        self.forward_convs(core, params, images);
        let shapes = self.shapes.with_batch(images.count).dense;
        let dense = &mut self.memory.dense;
        dense.forward(core, params, &self.at, &shapes, Activation::Relu);
        &mut dense.logits[..images.count * core.classes]
    }

    fn backward(&mut self, core: &mut ModelCore, images: Images<'_>, step: &mut Step<'_>) {
        let (batch, shapes) = (images.count, self.shapes.with_batch(images.count).dense);
        self.memory.dense.backward(core, step, &self.at, &shapes, Activation::Relu);
        if core.head_only {
            return;
        }
        // The first layer's input needs no gradient.
        #[allow(clippy::cast_precision_loss)]
        let flops = conv_flops(batch) + (batch * CONV_FLOPS[1]) as f64;
        core.profile.time(CONVOLUTIONS, Pass::Backward, flops, || {
            self.backward_convs(&core.compute, batch, step.grad);
        });
        // The second layer first, as everywhere: last layer first.
        for layer in (0..CONVS).rev() {
            step.hand_over(self.at[layer].0.start..self.at[layer].1.end);
        }
    }
}

#[cfg(test)]
mod tests;
