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

mod finish;
mod head;
mod passes;
mod plan;
mod pointwise;
mod shape;
mod tile;

use crate::{
    image_model::{ImageModel, Images, ModelCore, Network, Step, Training},
    input::{self, BYTE, Pixels, Scaling},
    kernels::{Buffer, Compute},
    model::{Model, ModelError, ModelOptions, PixelScale},
    profile::Pass,
    random::Normals,
    registry::{KnownInput, ModelDefaults, ModelEntry},
    shapes::LayerShape,
    threads::SendPtr,
};
use head::Dropout;
use paceline_batch::{ImageShape, Schema};
use passes::{Memory, Passes};
use plan::Plan;
use shape::{Role, Shape};

/// The registry's entry.
pub const ENTRY: ModelEntry = ModelEntry {
    name: "mobilenet-v2",
    about: "MobileNet-v2 with batch normalisation, images from 32x32, --width scales it",
    settings: &["freeze", "dropout", "width"],
    defaults: ModelDefaults { optimizer: "adam", rate: 0.003 },
    known_for: KnownInput::PHOTOGRAPHS,
    build,
};
/// Dropout rate before the classifier, unless asked otherwise.
const DROPOUT: f32 = 0.2;
/// Below this the last layers have nothing left to see.
const LEAST_SIDE: usize = 32;

#[derive(Debug)]
struct MobileNetV2 {
    dropout: f32,
    /// Images are read from their last pixel to their first.
    turned: bool,
    workspace: Workspace,
    /// Name and operations for one image of each layer, the classifier last.
    costs: Vec<(String, f64)>,
}

/// The layers, and memory for the largest batch so far.
#[derive(Debug)]
struct Workspace {
    shape: Shape,
    plan: Plan,
    floats: Buffer,
    sums: Vec<f64>,
}

impl Workspace {
    fn passes<'a>(&'a mut self, compute: &'a Compute, count: usize) -> Passes<'a> {
        let memory = Memory::new(&mut self.floats, &mut self.sums);
        Passes { shape: &self.shape, plan: &self.plan, compute, memory, count }
    }
}

/// Builds the model for images of at least 32 x 32 pixels.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let input = input::large_image_and_classes(ENTRY.name, schema, LEAST_SIDE)?;
    // Below 0.3 the first block would become a residual one; the published widths start at 0.35.
    if !(0.35..=4.0).contains(&options.width) {
        let (option, found) = ("width", options.width.to_string());
        let wanted = "between 0.35 and 4";
        return Err(ModelError::Option { model: ENTRY.name, option, found, wanted });
    }
    Ok(Box::new(model(input, options)?))
}

fn model(
    input: (ImageShape, usize),
    options: &ModelOptions,
) -> Result<ImageModel<MobileNetV2>, ModelError> {
    let mut shape = Shape::new(input.0, input.1, options.width);
    let layout = std::mem::take(&mut shape.layout);
    let (floats, sums) = (Buffer::default(), Vec::new());
    let network = MobileNetV2 {
        dropout: input::dropout(ENTRY.name, options, DROPOUT)?,
        turned: options.pixels == PixelScale::Keras,
        workspace: Workspace { shape, plan: Plan::default(), floats, sums },
        costs: Vec::new(),
    };
    let mut model = ImageModel::new(ENTRY.name, input, options, layout, network)?;
    let shapes = model.shapes().into_iter();
    model.network.costs = shapes.map(|shape| (shape.name, shape.flops as f64)).collect();
    Ok(model)
}

/// Copies images into the model's buffer, as floats inside a border of zeros; `turned` by 180 degrees where asked for.
fn load(passes: &Passes<'_>, pixels: Pixels<'_>, scaling: &Scaling, turned: bool) {
    let image = passes.shape.image;
    let line = image.width * image.channels;
    let stride = line + 2 * image.channels;
    let start = SendPtr(passes.memory.at(passes.plan.images));
    passes.compute.pool().run(passes.count, &|number, _| {
        for y in 0..image.height {
            let from = (number * image.height + y) * line;
            let line_to = if turned { image.height - y } else { y + 1 };
            let to = (number * (image.height + 2) + line_to) * stride + image.channels;
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
            if turned {
                // All values in the opposite order, and the channels of each pixel in theirs again.
                to.reverse();
                to.chunks_exact_mut(image.channels).for_each(<[f32]>::reverse);
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

impl Network for MobileNetV2 {
    const SCORE_IMAGES: usize = 16;

    fn floats(&self, core: &ModelCore) -> usize {
        // Planned for one more example than for one: what does not grow with the batch counts once.
        let (shape, threads) = (&self.workspace.shape, core.compute.pool().threads());
        Plan::new(shape, 2, threads).len - Plan::new(shape, 1, threads).len
    }

    fn shapes(&self, core: &ModelCore) -> Vec<LayerShape> {
        let shape = &self.workspace.shape;
        let layers = shape.layers.iter().map(|layer| {
            let entries = core.layout.entries();
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
        let last = LayerShape::dense("classifier.1", shape.features(), shape.classes);
        layers.chain([last]).collect()
    }

    /// As torchvision: He-normal convolutions by fan-out, norms 1 and 0, a small classifier.
    fn init(&self, _core: &ModelCore, seed: u64, params: &mut [f32]) {
        let (shape, mut normals) = (&self.workspace.shape, Normals::new(seed));
        for layer in &shape.layers {
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
        normals.fill(&mut params[shape.classifier_weight.clone()], 0.01);
        params[shape.classifier_bias.clone()].fill(0.0);
    }

    fn reserve(&mut self, core: &ModelCore, images: usize, _training: bool) -> usize {
        let Workspace { shape, plan, floats, sums } = &mut self.workspace;
        if images > plan.capacity {
            *plan = Plan::new(shape, images, core.compute.pool().threads());
            *floats = Buffer::default(); // gives the old memory back before taking the new
            *floats = Buffer::zeroed(plan.len);
            *sums = vec![0.0; plan.sums_len];
        }
        plan.capacity
    }

    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        Images { pixels, count }: Images<'_>,
        training: Option<Training<'_>>,
    ) -> &mut [f32] {
        let ModelCore { compute, profile, scaling, head_only, .. } = core;
        let turned = self.turned;
        let passes = self.workspace.passes(compute, count);
        profile.time("input", Pass::Forward, 0.0, || load(&passes, pixels, scaling, turned));
        let dropout = training.as_ref().map(|training| Dropout::of(self.dropout, training.context));
        // A frozen trunk is normalised as in inference, so that its features are the same in every batch. Workers'
        // changes of the running statistics add up to their average by examples.
        let training = training.filter(|_| !*head_only);
        let mut statistics =
            training.map(|Training { grad, context }| (grad, count as f32 * context.scale));
        let images = count as f64;
        let layers = passes.shape.layers.len();
        for (index, (name, flops)) in self.costs.iter().enumerate().take(layers) {
            profile.time(name, Pass::Forward, images * flops, || {
                let statistics = statistics.as_mut().map(|(grad, weight)| (&mut **grad, *weight));
                passes.forward(index, params, statistics);
            });
        }
        let (name, flops) = &self.costs[layers];
        profile
            .time(name, Pass::Forward, images * flops, || passes.logits(params, dropout.as_ref()))
    }

    fn backward(&mut self, core: &mut ModelCore, images: Images<'_>, step: &mut Step<'_>) {
        let ModelCore { compute, profile, head_only, .. } = &mut *core;
        let passes = self.workspace.passes(compute, images.count);
        let (images, layers) = (images.count as f64, &passes.shape.layers);
        let (name, flops) = &self.costs[layers.len()];
        profile.time(name, Pass::Backward, 2.0 * images * flops, || {
            passes.classifier_back(step.params, step.grad);
        });
        let head = passes.shape.classifier_weight.start;
        step.hand_over(head..step.params.len());
        if *head_only {
            return step.freeze_before(core, head);
        }
        let mut parts = passes.pool_back(&Dropout::of(self.dropout, step.context));
        let mut narrow = 0;
        for (index, layer) in layers.iter().enumerate().rev() {
            let (name, flops) = &self.costs[index];
            let gradients = if layer.role == Role::Stem { 1.0 } else { 2.0 };
            parts = profile.time(name, Pass::Backward, gradients * images * flops, || {
                passes.backward(index, parts, narrow, step.params, step.grad)
            });
            if layer.role == Role::Expand {
                narrow = 1 - narrow;
            }
            step.hand_over(layer.all());
        }
    }
}

#[cfg(test)]
mod tests;
