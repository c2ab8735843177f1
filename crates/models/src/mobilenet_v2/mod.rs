//! MobileNet-v2: inverted residuals with depthwise convolutions, batch norm and relu6.
//!
//! Frameworks run this network at a tenth of the machine's arithmetic, because they pass over every
//! activation many times. Here only raw outputs of convolutions are stored; batch norm and relu6
//! are applied where a value is next read, and statistics are summed where it is written:
//!
//! | pass over an expanded activation | reads | writes |
//! | --- | --- | --- |
//! | forward, expanding convolution | – | raw output |
//! | forward, depthwise convolution | raw output | – |
//! | backward, depthwise convolution | raw output | masked gradient |
//! | backward, expanding convolution | raw output, gradient | – |

mod head;
mod passes;
mod plan;
mod pointwise;
mod shape;
mod tile;

use crate::{
    input::{self, BYTE, Pixels, Scaling},
    kernels::{Buffer, Compute, loss},
    layout::Layout,
    model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss},
    profile::{Pass, Profile},
    random::mix,
    registry::{Defaults, Entry},
    shapes::LayerShape,
    threads::{Pool, SendPtr},
};
use head::Dropout;
use paceline_batch::{Batch, Schema};
use passes::{Memory, Passes};
use plan::Plan;
use shape::{Role, Shape};
use std::ops::Range;

/// The name users type.
pub const NAME: &str = "mobilenet-v2";
/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: NAME,
    about: "MobileNet-v2 with batch normalisation, images from 32x32, --width scales it",
    settings: &["freeze", "dropout", "width"],
    defaults: Defaults { optimizer: "adam", rate: 0.003 },
    build,
};
/// Dropout rate before the classifier, unless asked otherwise.
pub const DROPOUT: f32 = 0.2;
/// Images of a batch in evaluation, when no training has planned for more.
const SCORE_IMAGES: usize = 16;

/// The model; see the module.
#[derive(Debug)]
pub struct MobileNetV2 {
    shape: Shape,
    dropout: f32,
    head_only: bool,
    scaling: Scaling,
    compute: Compute,
    plan: Plan,
    floats: Buffer,
    sums: Vec<f64>,
    profile: Profile,
    /// Name and operations for one image of each layer, the classifier last.
    costs: Vec<(String, f64)>,
}

/// Builds the model for images of at least 32 x 32 pixels.
///
/// # Errors
/// [`ModelError::Mismatch`] when the data has no such images or too few classes,
/// [`ModelError::Option`] when an option is out of range.
pub fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let (image, classes) = input::image_and_classes(NAME, schema)?;
    if image.height < 32 || image.width < 32 {
        return Err(ModelError::Mismatch {
            model: NAME,
            needs: "images of at least 32x32".to_owned(),
            has: format!("images of {image}"),
        });
    }
    let wrong =
        |option, found: String, wanted| ModelError::Option { model: NAME, option, found, wanted };
    // Below 0.3 the first block would become a residual one; the published widths start at 0.35.
    if !(0.35..=4.0).contains(&options.width) {
        return Err(wrong("width", options.width.to_string(), "between 0.35 and 4"));
    }
    let dropout = options.dropout.unwrap_or(DROPOUT);
    if !(0.0..1.0).contains(&dropout) {
        return Err(wrong("dropout", dropout.to_string(), "at least 0 and below 1"));
    }
    let compute = Compute::new(options.threads)?;
    let scaling = input::scaling(NAME, image, options)?;
    let model = MobileNetV2::new(Shape::new(image, classes, options.width), dropout, compute);
    Ok(Box::new(MobileNetV2 { head_only: options.head_only, scaling, ..model }))
}

impl MobileNetV2 {
    /// All layers trained, on pixels as they are.
    fn new(shape: Shape, dropout: f32, compute: Compute) -> Self {
        let mut model = Self {
            shape,
            dropout,
            head_only: false,
            scaling: Scaling::UNIT,
            compute,
            plan: Plan::default(),
            floats: Buffer::default(),
            sums: Vec::new(),
            profile: Profile::default(),
            costs: Vec::new(),
        };
        model.costs =
            model.shapes().into_iter().map(|shape| (shape.name, shape.flops as f64)).collect();
        model
    }

    fn reserve(&mut self, images: usize) {
        if images > self.plan.capacity {
            self.plan = Plan::new(&self.shape, images, self.compute.pool().threads());
            self.floats = Buffer::default(); // gives the old memory back before taking the new
            self.floats = Buffer::zeroed(self.plan.len);
            self.sums = vec![0.0; self.plan.sums_len];
        }
    }

    fn passes(&mut self, count: usize) -> Passes<'_> {
        Passes {
            shape: &self.shape,
            plan: &self.plan,
            compute: &self.compute,
            memory: Memory::new(&mut self.floats, &mut self.sums),
            count,
        }
    }
}

/// Copies images into the model's buffer, as floats inside a border of zeros.
fn load(passes: &Passes<'_>, pixels: Pixels<'_>, scaling: &Scaling, examples: Range<usize>) {
    let image = passes.shape.image;
    let line = image.width * image.channels;
    let stride = line + 2 * image.channels;
    let start = SendPtr(passes.memory.at(passes.plan.images));
    passes.compute.pool().run(examples.len(), &|number, _| {
        let example = examples.start + number;
        for y in 0..image.height {
            let from = (example * image.height + y) * line;
            let to = (number * (image.height + 2) + y + 1) * stride + image.channels;
            // SAFETY: the plan has room for every image with its border; tasks write different ones.
            #[allow(unsafe_code)]
            let to = unsafe { std::slice::from_raw_parts_mut(start.get().add(to), line) };
            match pixels {
                Pixels::Floats(values) => to.copy_from_slice(&values[from..from + line]),
                Pixels::Bytes(values) => {
                    for (to, &byte) in to.iter_mut().zip(&values[from..from + line]) {
                        *to = f32::from(byte) * BYTE;
                    }
                }
            }
            if *scaling != Scaling::UNIT {
                for pixel in to.as_chunks_mut::<3>().0 {
                    for (channel, value) in pixel.iter_mut().enumerate() {
                        *value = *value * scaling.scale[channel] + scaling.shift[channel];
                    }
                }
            }
        }
    });
}

impl Model for MobileNetV2 {
    fn layout(&self) -> &Layout {
        &self.shape.layout
    }

    fn batch_bytes(&self, examples: usize) -> usize {
        // Planned for one more example than for one: what does not grow with the batch counts once.
        let threads = self.compute.pool().threads();
        let floats = |images| Plan::new(&self.shape, images, threads).len;
        let each = floats(2) - floats(1);
        size_of::<f32>().saturating_mul(each).saturating_mul(examples)
    }

    fn shapes(&self) -> Vec<LayerShape> {
        let layers = self.shape.layers.iter().map(|layer| {
            let entries = self.shape.layout.entries();
            let weight = entries.iter().find(|entry| entry.range() == layer.weight);
            let name = weight.map_or("", |entry| entry.name.trim_end_matches(".weight"));
            LayerShape {
                name: name.to_owned(),
                input: [layer.in_side.0, layer.in_side.1, layer.inputs],
                output: [layer.out_side.0, layer.out_side.1, layer.outputs],
                kernel: match layer.role {
                    Role::Stem | Role::Depthwise { .. } => 3,
                    Role::Expand | Role::Project { .. } => 1,
                },
                parameters: layer.weight.len() + 2 * layer.outputs,
                flops: 2 * layer.out_area() * layer.weight.len(),
            }
        });
        let last = LayerShape::dense("classifier.1", self.shape.features(), self.shape.classes);
        layers.chain([last]).collect()
    }

    /// As torchvision: He-normal convolutions by fan-out, norms 1 and 0, a small classifier.
    fn init(&self, seed: u64, params: &mut [f32]) {
        let mut normals = Normals::new(seed);
        for layer in &self.shape.layers {
            let fan_out = match layer.role {
                Role::Stem | Role::Depthwise { .. } => 9 * layer.outputs,
                Role::Expand | Role::Project { .. } => layer.outputs,
            };
            normals.fill(&mut params[layer.weight.clone()], (2.0 / fan_out as f64).sqrt());
            params[layer.gamma.clone()].fill(1.0);
            params[layer.beta.clone()].fill(0.0);
            params[layer.mean.clone()].fill(0.0);
            params[layer.variance.clone()].fill(1.0);
        }
        normals.fill(&mut params[self.shape.classifier_weight.clone()], 0.01);
        params[self.shape.classifier_bias.clone()].fill(0.0);
    }

    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError> {
        let pixels = input::pixels(NAME, batch, self.shape.image.len(), self.shape.classes)?;
        let all = self.shape.layout.len();
        if batch.is_empty() {
            grad.fill(0.0);
            ready(0..all, params, grad);
            return Ok(StepLoss::default());
        }
        self.reserve(batch.len());
        let dropout = Dropout::of(self.dropout, context);
        let layers = self.shape.layers.len();
        let (scaling, head_only) = (self.scaling, self.head_only);
        // Taken out for the step: the passes borrow the model.
        let mut profile = std::mem::take(&mut self.profile);
        let costs = std::mem::take(&mut self.costs);
        let images = batch.len() as f64;
        let passes = self.passes(batch.len());
        profile.time("input", Pass::Forward, 0.0, || {
            load(&passes, pixels, &scaling, 0..batch.len());
        });
        // Workers' changes of the running statistics add up to their average by examples.
        let weight = batch.len() as f32 * context.scale;
        for (index, (name, flops)) in costs.iter().enumerate().take(layers) {
            profile.time(name, Pass::Forward, images * flops, || {
                // A frozen trunk is normalised as in inference, so that its features are the same in every batch.
                passes.forward(index, params, (!head_only).then_some((&mut *grad, weight)));
            });
        }
        let (name, flops) = &costs[layers];
        let logits = profile
            .time(name, Pass::Forward, images * flops, || passes.logits(params, Some(&dropout)));
        let classes = passes.shape.classes;
        let isa = passes.compute.isa();
        let loss = loss::cross_entropy(isa, logits, classes, &batch.labels, context.scale);
        profile.time(name, Pass::Backward, 2.0 * images * flops, || {
            passes.classifier_back(params, grad);
        });
        let mut hand_over = |range: Range<usize>, params: &mut [f32], grad: &mut [f32]| {
            ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        };
        hand_over(passes.shape.classifier_weight.start..all, params, grad);
        let mut parts = if head_only { 0 } else { passes.pool_back(&dropout) };
        let mut narrow = 0;
        for index in (0..layers).rev() {
            let layer = &passes.shape.layers[index];
            if head_only {
                grad[layer.all()].fill(0.0);
            } else {
                let (name, flops) = &costs[index];
                let gradients = if layer.role == Role::Stem { 1.0 } else { 2.0 };
                parts = profile.time(name, Pass::Backward, gradients * images * flops, || {
                    passes.backward(index, parts, narrow, params, grad)
                });
                if layer.role == Role::Expand {
                    narrow = 1 - narrow;
                }
            }
            hand_over(layer.all(), params, grad);
        }
        self.profile = profile;
        self.costs = costs;
        Ok(loss)
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self.compute.pool())
    }

    fn profile(&mut self) -> Option<&mut Profile> {
        Some(&mut self.profile)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        let pixels = input::pixels(NAME, batch, self.shape.image.len(), self.shape.classes)?;
        self.reserve(batch.len().min(SCORE_IMAGES));
        let capacity = self.plan.capacity.max(1);
        let scaling = self.scaling;
        for start in (0..batch.len()).step_by(capacity) {
            let examples = start..(start + capacity).min(batch.len());
            let passes = self.passes(examples.len());
            load(&passes, pixels, &scaling, examples.clone());
            for index in 0..passes.shape.layers.len() {
                passes.forward(index, params, None);
            }
            let logits = passes.logits(params, None);
            let (isa, classes) = (passes.compute.isa(), passes.shape.classes);
            loss::score(isa, logits, classes, &batch.labels[examples], score);
        }
        Ok(())
    }
}

/// Normally distributed numbers by Box and Muller.
struct Normals {
    key: u64,
    drawn: u64,
}

impl Normals {
    fn new(seed: u64) -> Self {
        Self { key: mix(seed), drawn: 0 }
    }

    fn unit(&mut self) -> f64 {
        self.drawn += 1;
        // Above 0, so that its logarithm is finite.
        ((mix(self.key ^ self.drawn) >> 11) as f64 + 0.5) / 2f64.powi(53)
    }

    fn fill(&mut self, to: &mut [f32], deviation: f64) {
        for pair in to.chunks_mut(2) {
            let radius = deviation * (-2.0 * self.unit().ln()).sqrt();
            let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
            for (value, part) in pair.iter_mut().zip([cos, sin]) {
                *value = (radius * part) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests;
