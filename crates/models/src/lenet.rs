//! LeNet-5 with relu and average pooling, for 28 x 28 images.

use crate::{
    input::{self, Pixels},
    kernels::{Buffer, Compute, ConvShape, DenseShape, Finish, PoolShape, loss},
    layout::Layout,
    model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss},
    random,
    registry::Entry,
    threads::Pool,
};
use paceline_batch::{Batch, Schema};
use std::ops::Range;

/// The registry's entry.
pub const ENTRY: Entry =
    Entry { name: "lenet", about: "LeNet-5 with relu and average pooling, 28x28 images", build };

const SIDE: usize = 28;
const FLAT: usize = 16 * 5 * 5;

struct LeNet {
    channels: usize,
    classes: usize,
    layout: Layout,
    /// Where weights and bias of each layer lie, first layer first.
    at: [(Range<usize>, Range<usize>); 5],
    compute: Compute,
    memory: Memory,
}

/// Activations and gradients, planned for the largest batch so far.
#[derive(Default)]
struct Memory {
    batch: usize,
    input: Buffer,
    conv1: Buffer,
    pool1: Buffer,
    conv2: Buffer,
    pool2: Buffer,
    flat: Buffer,
    fc1: Buffer,
    fc2: Buffer,
    logits: Buffer,
    d_fc2: Buffer,
    d_fc1: Buffer,
    d_flat: Buffer,
    d_pool2: Buffer,
    d_conv2: Buffer,
    d_pool1: Buffer,
    d_conv1: Buffer,
}

impl Memory {
    fn reserve(&mut self, batch: usize, channels: usize, classes: usize) {
        if batch <= self.batch {
            return;
        }
        self.batch = batch;
        let (conv1, pool1, conv2) = (28 * 28 * 6, 14 * 14 * 6, 10 * 10 * 16);
        for (buffer, len) in [
            (&mut self.input, SIDE * SIDE * channels),
            (&mut self.conv1, conv1),
            (&mut self.pool1, pool1),
            (&mut self.conv2, conv2),
            (&mut self.pool2, FLAT),
            (&mut self.flat, FLAT),
            (&mut self.fc1, 120),
            (&mut self.fc2, 84),
            (&mut self.logits, classes),
            (&mut self.d_fc2, 84),
            (&mut self.d_fc1, 120),
            (&mut self.d_flat, FLAT),
            (&mut self.d_pool2, FLAT),
            (&mut self.d_conv2, conv2),
            (&mut self.d_pool1, pool1),
            (&mut self.d_conv1, conv1),
        ] {
            *buffer = Buffer::zeroed(0);
            *buffer = Buffer::zeroed(batch * len);
        }
    }
}

/// Builds the model for 28 x 28 images.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let (image, classes) = input::image_and_classes(ENTRY.name, schema)?;
    if (image.height, image.width) != (SIDE, SIDE) {
        return Err(ModelError::Mismatch {
            model: ENTRY.name,
            needs: format!("images of {SIDE}x{SIDE}"),
            has: format!("images of {image}"),
        });
    }
    let mut layout = Layout::default();
    let at = [
        ("conv1", vec![6, image.channels, 5, 5]),
        ("conv2", vec![16, 6, 5, 5]),
        ("fc1", vec![120, FLAT]),
        ("fc2", vec![84, 120]),
        ("fc3", vec![classes, 84]),
    ]
    .map(|(name, shape)| {
        let weight = layout.push(format!("{name}.weight"), &shape, true);
        (weight, layout.push(format!("{name}.bias"), &shape[..1], true))
    });
    let compute = Compute::new(options.threads)?;
    let channels = image.channels;
    Ok(Box::new(LeNet { channels, classes, layout, at, compute, memory: Memory::default() }))
}

/// The layers' shapes at a batch size.
struct Shapes {
    conv1: ConvShape,
    pool1: PoolShape,
    conv2: ConvShape,
    pool2: PoolShape,
    fc1: DenseShape,
    fc2: DenseShape,
    fc3: DenseShape,
}

impl LeNet {
    fn shapes(&self, batch: usize) -> Shapes {
        let conv1 = ConvShape {
            batch,
            height: SIDE,
            width: SIDE,
            inputs: self.channels,
            outputs: 6,
            kernel: 5,
            stride: 1,
            pad: 2,
        };
        let pool1 =
            PoolShape { batch, height: SIDE, width: SIDE, channels: 6, window: 2, stride: 2 };
        Shapes {
            conv1,
            pool1,
            conv2: ConvShape { height: 14, width: 14, inputs: 6, outputs: 16, pad: 0, ..conv1 },
            pool2: PoolShape { height: 10, width: 10, channels: 16, ..pool1 },
            fc1: DenseShape { batch, inputs: FLAT, outputs: 120 },
            fc2: DenseShape { batch, inputs: 120, outputs: 84 },
            fc3: DenseShape { batch, inputs: 84, outputs: self.classes },
        }
    }

    /// Leaves the logits in memory.
    fn forward(&mut self, params: &[f32], pixels: Pixels<'_>, batch: usize) {
        self.memory.reserve(batch, self.channels, self.classes);
        let shapes = self.shapes(batch);
        let Self { memory, compute, at, .. } = self;
        let weights = |layer: usize| &params[at[layer].0.clone()];
        let relu = |layer: usize| Finish {
            bias: Some(&params[at[layer].1.clone()]),
            relu: true,
            ..Finish::default()
        };
        compute.widen(pixels, &mut memory.input);
        let conv1 = &mut memory.conv1;
        compute.conv_forward(&shapes.conv1, &memory.input, weights(0), conv1, &relu(0));
        compute.average_pool(&shapes.pool1, conv1, &mut memory.pool1);
        let conv2 = &mut memory.conv2;
        compute.conv_forward(&shapes.conv2, &memory.pool1, weights(1), conv2, &relu(1));
        compute.average_pool(&shapes.pool2, conv2, &mut memory.pool2);
        compute.swap_channels(batch, 25, 16, &memory.pool2, &mut memory.flat);
        compute.dense_forward(&shapes.fc1, &memory.flat, weights(2), &mut memory.fc1, &relu(2));
        compute.dense_forward(&shapes.fc2, &memory.fc1, weights(3), &mut memory.fc2, &relu(3));
        let bias = Finish { relu: false, ..relu(4) };
        compute.dense_forward(&shapes.fc3, &memory.fc2, weights(4), &mut memory.logits, &bias);
    }

    /// From the gradient of the logits to those of the parameters.
    fn backward(
        &mut self,
        params: &mut [f32],
        batch: usize,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) {
        let shapes = self.shapes(batch);
        let Self { memory, compute, at, .. } = self;
        let masked = |mask| Finish { mask: Some(mask), ..Finish::default() };
        let mut done = |layer: usize, params: &mut [f32], grad: &mut [f32]| {
            let range = at[layer].0.start..at[layer].1.end;
            ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        };
        let parts = |layer: usize| (at[layer].0.clone(), at[layer].1.start);

        let (weight, split) = parts(4);
        let (d_w, d_b) = grad[weight.start..at[4].1.end].split_at_mut(split - weight.start);
        let (fc2, fc1) = (&memory.fc2, &memory.fc1);
        compute.dense_backward_weights(&shapes.fc3, fc2, &memory.logits, d_w, d_b);
        let d_fc2 = &mut memory.d_fc2;
        let finish = masked(fc2);
        compute.dense_backward_input(&shapes.fc3, &memory.logits, &params[weight], d_fc2, &finish);
        done(4, params, grad);

        let (weight, split) = parts(3);
        let (d_w, d_b) = grad[weight.start..at[3].1.end].split_at_mut(split - weight.start);
        compute.dense_backward_weights(&shapes.fc2, fc1, d_fc2, d_w, d_b);
        let d_fc1 = &mut memory.d_fc1;
        compute.dense_backward_input(&shapes.fc2, d_fc2, &params[weight], d_fc1, &masked(fc1));
        done(3, params, grad);

        let (weight, split) = parts(2);
        let (d_w, d_b) = grad[weight.start..at[2].1.end].split_at_mut(split - weight.start);
        compute.dense_backward_weights(&shapes.fc1, &memory.flat, d_fc1, d_w, d_b);
        let (d_flat, finish) = (&mut memory.d_flat, Finish::default());
        compute.dense_backward_input(&shapes.fc1, d_fc1, &params[weight], d_flat, &finish);
        done(2, params, grad);

        compute.swap_channels(batch, 16, 25, d_flat, &mut memory.d_pool2);
        let (conv2, d_conv2) = (&memory.conv2, &mut memory.d_conv2);
        compute.average_pool_relu_backward(&shapes.pool2, conv2, &memory.d_pool2, d_conv2);
        let (weight, split) = parts(1);
        let (d_w, d_b) = grad[weight.start..at[1].1.end].split_at_mut(split - weight.start);
        compute.conv_backward_weights(&shapes.conv2, &memory.pool1, d_conv2, d_w, d_b);
        let d_pool1 = &mut memory.d_pool1;
        compute.conv_backward_input(&shapes.conv2, d_conv2, &params[weight], d_pool1, &finish);
        done(1, params, grad);

        let (conv1, d_conv1) = (&memory.conv1, &mut memory.d_conv1);
        compute.average_pool_relu_backward(&shapes.pool1, conv1, d_pool1, d_conv1);
        let (weight, split) = parts(0);
        let (d_w, d_b) = grad[weight.start..at[0].1.end].split_at_mut(split - weight.start);
        compute.conv_backward_weights(&shapes.conv1, &memory.input, d_conv1, d_w, d_b);
        done(0, params, grad);
    }
}

impl Model for LeNet {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self.compute.pool())
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
        let width = SIDE * SIDE * self.channels;
        let pixels = input::pixels(ENTRY.name, batch, width, self.classes)?;
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
        let width = SIDE * SIDE * self.channels;
        let pixels = input::pixels(ENTRY.name, batch, width, self.classes)?;
        self.forward(params, pixels, batch.len());
        let logits = &mut self.memory.logits[..batch.len() * self.classes];
        loss::score(self.compute.isa(), logits, self.classes, &batch.labels, score);
        Ok(())
    }
}
