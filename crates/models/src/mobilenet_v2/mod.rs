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
    kernels::{Buffer, Compute},
    layout::Layout,
    model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss},
    registry::Entry,
    threads::SendPtr,
};
use head::Dropout;
use paceline_batch::{Batch, FeatureKind, Features, Schema};
use passes::{Memory, Passes};
use plan::Plan;
use shape::{Role, Shape};
use std::ops::Range;

/// The name users type.
pub const NAME: &str = "mobilenet_v2";
/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: NAME,
    about: "MobileNet-v2 with batch normalisation, images from 32x32, --width scales it",
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
    compute: Compute,
    plan: Plan,
    floats: Buffer,
    sums: Vec<f64>,
}

/// Builds the model for images of at least 32 x 32 pixels.
///
/// # Errors
/// [`ModelError::Mismatch`] when the data has no such images or too few classes,
/// [`ModelError::Option`] when an option is out of range.
pub fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let mismatch = |needs: &str, has: String| ModelError::Mismatch {
        model: NAME,
        needs: needs.to_owned(),
        has,
    };
    let image = match schema.features {
        FeatureKind::Image(image) => image,
        FeatureKind::Sparse { width } => {
            return Err(mismatch("images", format!("sparse rows of {width} features")));
        }
    };
    if image.height < 32 || image.width < 32 || image.channels == 0 {
        return Err(mismatch("images of at least 32x32", format!("images of {image}")));
    }
    let classes = schema.labels.classes();
    if classes < 2 {
        return Err(mismatch("at least 2 classes", format!("{classes}")));
    }
    let wrong =
        |option, found: String, wanted| ModelError::Option { model: NAME, option, found, wanted };
    // Below 0.3 the first block would become a residual one; the published widths start at 0.35.
    if !(0.35..=4.0).contains(&options.width) {
        return Err(wrong("width", options.width.to_string(), "between 0.35 and 4"));
    }
    if !(0.0..1.0).contains(&options.dropout) {
        return Err(wrong("dropout", options.dropout.to_string(), "at least 0 and below 1"));
    }
    let compute = Compute::new(options.threads)?;
    Ok(Box::new(MobileNetV2 {
        shape: Shape::new(image, classes, options.width),
        dropout: options.dropout,
        compute,
        plan: Plan::default(),
        floats: Buffer::default(),
        sums: Vec::new(),
    }))
}

impl MobileNetV2 {
    fn reserve(&mut self, images: usize) {
        if images > self.plan.capacity {
            self.plan = Plan::new(&self.shape, images, self.compute.pool().threads());
            self.floats = Buffer::default(); // gives the old memory back before taking the new
            self.floats = Buffer::zeroed(self.plan.len);
            self.sums = vec![0.0; self.plan.sums_len];
        }
    }

    /// Checks labels and features of a batch before anything is computed.
    fn check(&self, batch: &Batch) -> Result<(), ModelError> {
        let wanted = self.shape.image.len();
        let mismatch = |has: String| ModelError::Mismatch {
            model: NAME,
            needs: format!("{wanted} values per example"),
            has,
        };
        let (width, values) = match &batch.features {
            Features::Dense { values, width } => (*width, values.len()),
            Features::Pixels { values, width } => (*width, values.len()),
            Features::Sparse { .. } => return Err(mismatch("sparse rows".to_owned())),
        };
        if width != wanted || values != wanted * batch.len() {
            let examples = batch.len();
            let has = format!("{values} values for {examples} examples of {width}");
            return Err(mismatch(has));
        }
        let classes = self.shape.classes;
        match batch.labels.iter().position(|&label| label as usize >= classes) {
            Some(example) => {
                Err(ModelError::Label { example, label: batch.labels[example], classes })
            }
            None => Ok(()),
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
fn load(passes: &Passes<'_>, features: &Features, examples: Range<usize>) {
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
            match features {
                Features::Dense { values, .. } => to.copy_from_slice(&values[from..from + line]),
                Features::Pixels { values, .. } => {
                    for (to, &byte) in to.iter_mut().zip(&values[from..from + line]) {
                        *to = f32::from(byte) / 255.0;
                    }
                }
                Features::Sparse { .. } => unreachable!("checked before the pass"),
            }
        }
    });
}

impl Model for MobileNetV2 {
    fn layout(&self) -> &Layout {
        &self.shape.layout
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
        self.check(batch)?;
        let all = self.shape.layout.len();
        if batch.is_empty() {
            grad.fill(0.0);
            ready(0..all, params, grad);
            return Ok(StepLoss::default());
        }
        self.reserve(batch.len());
        let dropout = Dropout::of(self.dropout, context);
        let layers = self.shape.layers.len();
        let passes = self.passes(batch.len());
        load(&passes, &batch.features, 0..batch.len());
        // Workers' changes of the running statistics add up to their average by examples.
        let weight = batch.len() as f32 * context.scale;
        for index in 0..layers {
            passes.forward(index, params, Some((&mut *grad, weight)));
        }
        let loss = passes.classify(params, &batch.labels, context.scale, Some(&dropout), None);
        passes.classifier_back(params, grad);
        let mut hand_over = |range: Range<usize>, params: &mut [f32], grad: &mut [f32]| {
            ready(range.clone(), &mut params[range.clone()], &mut grad[range]);
        };
        hand_over(passes.shape.classifier_weight.start..all, params, grad);
        let mut parts = passes.pool_back(&dropout);
        let mut narrow = 0;
        for index in (0..layers).rev() {
            parts = passes.backward(index, parts, narrow, params, grad);
            let layer = &passes.shape.layers[index];
            if layer.role == Role::Expand {
                narrow = 1 - narrow;
            }
            hand_over(layer.all(), params, grad);
        }
        Ok(loss)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        self.check(batch)?;
        self.reserve(batch.len().min(SCORE_IMAGES));
        let capacity = self.plan.capacity.max(1);
        for start in (0..batch.len()).step_by(capacity) {
            let examples = start..(start + capacity).min(batch.len());
            let passes = self.passes(examples.len());
            load(&passes, &batch.features, examples.clone());
            for index in 0..passes.shape.layers.len() {
                passes.forward(index, params, None);
            }
            let labels = &batch.labels[examples];
            let loss = passes.classify(params, labels, 0.0, None, Some(&mut *score));
            score.total.loss_sum += loss.loss_sum;
            score.total.correct += loss.correct;
            score.total.examples += loss.examples;
        }
        Ok(())
    }
}

/// Normally distributed numbers by Box and Muller, from a splitmix64 stream.
struct Normals {
    state: u64,
}

impl Normals {
    fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Above 0, so that its logarithm is finite.
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / 2f64.powi(53)
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
