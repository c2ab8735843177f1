//! AlexNet, one tower, as torchvision has it: five convolutions and three dense layers.
//!
//! Names, shapes and element order of the parameters are torchvision's. Activations lie in height,
//! width, channel order; only the 6 x 6 x 256 values before the dense layers are put into channel
//! order, so that their weights need no reordering.

mod passes;
mod plan;
mod together;

use crate::{
    input::{self, Scaling},
    kernels::{Compute, loss},
    layout::Layout,
    model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss},
    profile::Profile,
    random,
    registry::{Defaults, Entry},
    shapes::LayerShape,
    split::{Split, Together},
    threads::Pool,
};
use paceline_batch::{Batch, Schema};
use passes::Dropout;
use plan::{Memory, Shapes};
use std::ops::Range;
use together::Whole;

/// Share of the dense layers' units that drop in a step, unless asked otherwise.
const DROPOUT: f32 = 0.5;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "alexnet",
    about: "AlexNet, one tower, 61 million weights, images from 63x63 (made for 224x224)",
    settings: &["freeze", "dropout", "lrn", "split-dense"],
    defaults: Defaults { optimizer: "adam", rate: 0.0001 },
    build,
};

/// Below this the last pooling has nothing left to pool.
const LEAST_SIDE: usize = 63;

/// Layers with parameters, as torchvision numbers them.
const LAYERS: [&str; 8] = [
    "features.0",
    "features.3",
    "features.6",
    "features.8",
    "features.10",
    "classifier.1",
    "classifier.4",
    "classifier.6",
];

struct AlexNet {
    classes: usize,
    width: usize,
    /// Shapes for one example; passes set the batch.
    shapes: Shapes,
    layout: Layout,
    /// Where weights and bias of each layer lie.
    at: [(Range<usize>, Range<usize>); 8],
    dropout: f32,
    lrn: bool,
    head_only: bool,
    scaling: Scaling,
    compute: Compute,
    memory: Memory,
    whole: Whole,
    profile: Profile,
}

/// Builds the model for images from 63 x 63.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let (image, classes) = input::image_and_classes(ENTRY.name, schema)?;
    if image.height < LEAST_SIDE || image.width < LEAST_SIDE {
        return Err(ModelError::Mismatch {
            model: ENTRY.name,
            needs: format!("images of at least {LEAST_SIDE}x{LEAST_SIDE}"),
            has: format!("images of {image}"),
        });
    }
    let dropout = options.dropout.unwrap_or(DROPOUT);
    if !(0.0..1.0).contains(&dropout) {
        return Err(ModelError::Option {
            model: ENTRY.name,
            option: "dropout",
            found: dropout.to_string(),
            wanted: "at least 0 and below 1",
        });
    }
    let shapes = Shapes::new(image, classes);
    let mut layout = Layout::default();
    let mut number = 0;
    let at = LAYERS.map(|name| {
        let shape = shapes.weights(number);
        number += 1;
        let weight = layout.push(format!("{name}.weight"), &shape, true);
        (weight, layout.push(format!("{name}.bias"), &shape[..1], true))
    });
    Ok(Box::new(AlexNet {
        classes,
        width: image.len(),
        shapes,
        layout,
        at,
        dropout,
        lrn: options.lrn,
        head_only: options.head_only,
        scaling: input::scaling(ENTRY.name, image, options)?,
        compute: Compute::new(options.threads)?,
        memory: Memory::default(),
        whole: Whole::default(),
        profile: Profile::default(),
    }))
}

impl Model for AlexNet {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self.compute.pool())
    }

    fn profile(&mut self) -> Option<&mut Profile> {
        Some(&mut self.profile)
    }

    fn shapes(&self) -> Vec<LayerShape> {
        let convs = self.shapes.convs.iter().map(|conv| {
            let output = [conv.out_height(), conv.out_width(), conv.outputs];
            let weights = conv.outputs * conv.inputs * conv.kernel * conv.kernel;
            LayerShape {
                name: String::new(),
                input: [conv.height, conv.width, conv.inputs],
                output,
                kernel: conv.kernel,
                parameters: weights + conv.outputs,
                flops: 2 * output[0] * output[1] * weights,
            }
        });
        let dense = self.shapes.dense.iter();
        let dense = dense.map(|dense| LayerShape::dense("", dense.inputs, dense.outputs));
        let names = LAYERS.iter().map(|name| (*name).to_owned());
        convs.chain(dense).zip(names).map(|(shape, name)| LayerShape { name, ..shape }).collect()
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
        let pixels = input::pixels(ENTRY.name, batch, self.width, self.classes)?;
        let examples = batch.len();
        self.memory.reserve(&self.shapes, examples, !self.head_only);
        // Dropout lies before the first two dense layers: in the trunk, which runs as in inference where it is frozen.
        let drops = self.dropout > 0.0 && !self.head_only;
        let dropout = drops.then_some(Dropout { rate: self.dropout, context });
        self.forward(params, pixels, examples, dropout);
        let logits = &mut self.memory.logits[..examples * self.classes];
        let isa = self.compute.isa();
        let loss = loss::cross_entropy(isa, logits, self.classes, &batch.labels, context.scale);
        if self.head_only {
            self.backward_head(params, examples, grad, ready);
        } else {
            // To find the cause of a loss that is not finite, the whole gradient is needed.
            let stays = context.keeps_gradient || !loss.loss_sum.is_finite();
            self.backward(params, examples, grad, stays, ready);
        }
        Ok(loss)
    }

    fn batch_bytes(&self, examples: usize) -> usize {
        let floats = Memory::floats(&self.shapes, !self.head_only);
        size_of::<f32>().saturating_mul(floats).saturating_mul(examples)
    }

    fn split(&self) -> Option<Split> {
        // With the last layer alone to train, the others' gradients need not be exchanged anyway.
        (!self.head_only).then(|| self.dense_split())
    }

    fn loss_and_grad_together(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        together: &mut Together<'_>,
    ) -> Result<StepLoss, ModelError> {
        self.layout.check(params, grad);
        if self.head_only {
            return Err(ModelError::NoSplit);
        }
        self.step_together(params, batch, context, grad, together)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        let pixels = input::pixels(ENTRY.name, batch, self.width, self.classes)?;
        self.memory.reserve(&self.shapes, batch.len(), false);
        self.forward(params, pixels, batch.len(), None);
        let logits = &mut self.memory.logits[..batch.len() * self.classes];
        loss::score(self.compute.isa(), logits, self.classes, &batch.labels, score);
        Ok(())
    }
}
