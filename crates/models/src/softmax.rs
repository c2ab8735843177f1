//! Softmax regression: one linear layer and cross entropy, for images of any size.
//!
//! A step takes tens of microseconds, so what counts is not to wake, copy or allocate anything
//! needlessly: pixels are read as bytes, and a second thread joins only where it has enough to do.

use crate::{
    image_model::{ImageModel, Images, ModelCore, Network, Step, Training},
    input::{self, BYTE, Pixels},
    kernels::{
        Buffer,
        linear::{Bytes, Floats, Logits, Source, WeightGrad},
    },
    layout::Layout,
    model::{Model, ModelError, ModelOptions},
    profile::Pass,
    random,
    registry::{KnownInput, ModelDefaults, ModelEntry},
    shapes::LayerShape,
    threads::SendPtr,
};
use paceline_batch::Schema;

/// The registry's entry.
pub const ENTRY: ModelEntry = ModelEntry {
    name: "softmax",
    about: "softmax (logistic) regression on pixels, any image size",
    settings: &["loss"],
    defaults: ModelDefaults { optimizer: "adam", rate: 0.005 },
    known_for: KnownInput::DIGITS,
    build,
};

/// Multiplications of a pass below which a second thread costs more than it brings: the other core has
/// the next batches to gather.
const ALONE: usize = 1_000_000;

#[derive(Default)]
struct Softmax {
    logits: Buffer,
}

/// Builds the model for any images.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let (image, classes) = input::image_and_classes(ENTRY.name, schema)?;
    let mut layout = Layout::default();
    layout.push("weight", &[classes, image.len()], true);
    layout.push("bias", &[classes], true);
    input::unit_only(ENTRY.name, options)?;
    let network = Softmax::default();
    Ok(Box::new(ImageModel::new(ENTRY.name, (image, classes), options, layout, network)?))
}

/// Multiplications and additions of a pass.
#[allow(clippy::cast_precision_loss)]
fn flops(core: &ModelCore, rows: usize) -> f64 {
    2.0 * (rows * core.classes * core.image.len()) as f64
}

fn tasks(core: &ModelCore, rows: usize) -> usize {
    let work = rows * core.image.len() * core.classes;
    if work < ALONE { 1 } else { core.compute.pool().threads() }
}

impl Softmax {
    fn logits<I: Source>(
        &mut self,
        core: &ModelCore,
        params: &[f32],
        input: I,
        unit: f32,
        rows: usize,
    ) {
        let (width, classes, isa) = (core.image.len(), core.classes, core.compute.isa());
        let (weights, bias) = params.split_at(width * classes);
        let tasks = tasks(core, rows);
        let logits = SendPtr(self.logits.as_mut_ptr());
        core.compute.pool().run(tasks, &|task, _| {
            // SAFETY: `input::pixels` checked that there are `rows * width` inputs, the layout gives
            // the parameters their size, the logits were reserved; tasks write different rows.
            #[allow(unsafe_code)]
            unsafe {
                isa.run(Logits {
                    input,
                    unit,
                    width,
                    first: task * rows / tasks,
                    last: (task + 1) * rows / tasks,
                    weights: weights.as_ptr(),
                    bias: bias.as_ptr(),
                    classes,
                    logits: logits.get(),
                });
            }
        });
    }

    fn weight_grad<I: Source>(
        &self,
        core: &ModelCore,
        input: I,
        unit: f32,
        rows: usize,
        grad: &mut [f32],
    ) {
        let tasks = tasks(core, rows);
        let (width, classes, isa) = (core.image.len(), core.classes, core.compute.isa());
        let d_weights = SendPtr(grad.as_mut_ptr());
        // Shares of whole pairs of vectors; the last task has the ragged end.
        let share = width.div_ceil(tasks).next_multiple_of(32);
        let d_logits = self.logits.as_ptr() as usize;
        core.compute.pool().run(tasks, &|task, _| {
            // SAFETY: as in `logits`; tasks write different columns of the weights' gradient.
            #[allow(unsafe_code)]
            unsafe {
                isa.run(WeightGrad {
                    input,
                    unit,
                    width,
                    first: (task * share).min(width),
                    last: ((task + 1) * share).min(width),
                    rows,
                    d_logits: d_logits as *const f32,
                    classes,
                    d_weights: d_weights.get(),
                });
            }
        });
    }
}

impl Network for Softmax {
    fn shapes(&self, core: &ModelCore) -> Vec<LayerShape> {
        vec![LayerShape::dense("softmax", core.image.len(), core.classes)]
    }

    #[allow(clippy::cast_precision_loss)]
    fn init(&self, core: &ModelCore, seed: u64, params: &mut [f32]) {
        random::fill_uniform(seed, 0, 1.0 / (core.image.len() as f32).sqrt(), params);
    }

    fn reserve(&mut self, core: &ModelCore, images: usize, _training: bool) -> usize {
        self.logits.reserve(images * core.classes);
        images
    }

    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        Images { pixels, count }: Images<'_>,
        _training: Option<Training<'_>>,
    ) -> &mut [f32] {
        let (flops, mut profile) = (flops(core, count), std::mem::take(&mut core.profile));
        profile.time("softmax", Pass::Forward, flops, || match pixels {
            Pixels::Bytes(bytes) => self.logits(core, params, Bytes(bytes.as_ptr()), BYTE, count),
            Pixels::Floats(floats) => {
                self.logits(core, params, Floats(floats.as_ptr()), 1.0, count);
            }
        });
        core.profile = profile;
        &mut self.logits[..count * core.classes]
    }

    fn backward(
        &mut self,
        core: &mut ModelCore,
        Images { pixels, count }: Images<'_>,
        step: &mut Step<'_>,
    ) {
        let classes = core.classes;
        let (d_weights, d_bias) = step.grad.split_at_mut(core.image.len() * classes);
        let (flops, mut profile) = (flops(core, count), std::mem::take(&mut core.profile));
        profile.time("softmax", Pass::BackwardWeights, flops, || {
            match pixels {
                Pixels::Bytes(bytes) => {
                    self.weight_grad(core, Bytes(bytes.as_ptr()), BYTE, count, d_weights);
                }
                Pixels::Floats(floats) => {
                    self.weight_grad(core, Floats(floats.as_ptr()), 1.0, count, d_weights);
                }
            }
            core.compute.column_sums(&self.logits[..count * classes], classes, d_bias);
        });
        core.profile = profile;
        step.hand_over(0..step.params.len());
    }
}
