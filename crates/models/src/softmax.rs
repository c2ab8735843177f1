//! Softmax regression: one linear layer and cross entropy, for images of any size.
//!
//! A step takes tens of microseconds, so what counts is not to wake, copy or allocate anything
//! needlessly: pixels are read as bytes, and a second thread joins only where it has enough to do.

use crate::{
    input::{self, BYTE, Pixels},
    kernels::{
        Buffer, Compute,
        linear::{Bytes, Floats, Logits, Source, WeightGrad},
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

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "softmax",
    about: "softmax (logistic) regression on pixels, any image size",
    settings: &[],
    defaults: Defaults { optimizer: "adam", rate: 0.005 },
    build,
};

/// Multiplications of a pass below which a second thread costs more than it brings: the other core has
/// the next batches to gather.
const ALONE: usize = 1_000_000;

struct Softmax {
    width: usize,
    classes: usize,
    layout: Layout,
    compute: Compute,
    logits: Buffer,
    profile: Profile,
}

/// Builds the model for any images.
fn build(schema: &Schema, options: &ModelOptions) -> Result<Box<dyn Model>, ModelError> {
    let (image, classes) = input::image_and_classes(ENTRY.name, schema)?;
    let width = image.len();
    let mut layout = Layout::default();
    layout.push("weight", &[classes, width], true);
    layout.push("bias", &[classes], true);
    input::unit_only(ENTRY.name, options)?;
    let compute = Compute::new(options.threads)?;
    let (logits, profile) = (Buffer::default(), Profile::default());
    Ok(Box::new(Softmax { width, classes, layout, compute, logits, profile }))
}

impl Softmax {
    fn tasks(&self, rows: usize) -> usize {
        let work = rows * self.width * self.classes;
        if work < ALONE { 1 } else { self.compute.pool().threads() }
    }

    fn forward(&mut self, params: &[f32], pixels: Pixels<'_>, rows: usize) {
        self.logits.reserve(rows * self.classes);
        match pixels {
            Pixels::Bytes(bytes) => self.logits(params, Bytes(bytes.as_ptr()), BYTE, rows),
            Pixels::Floats(floats) => self.logits(params, Floats(floats.as_ptr()), 1.0, rows),
        }
    }

    fn logits<I: Source>(&mut self, params: &[f32], input: I, unit: f32, rows: usize) {
        let (weights, bias) = params.split_at(self.width * self.classes);
        let tasks = self.tasks(rows);
        let (width, classes, isa) = (self.width, self.classes, self.compute.isa());
        let logits = SendPtr(self.logits.as_mut_ptr());
        self.compute.pool().run(tasks, &|task, _| {
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

    fn weight_grad<I: Source>(&self, input: I, unit: f32, rows: usize, grad: &mut [f32]) {
        let tasks = self.tasks(rows);
        let (width, classes, isa) = (self.width, self.classes, self.compute.isa());
        let d_weights = SendPtr(grad.as_mut_ptr());
        // Shares of whole pairs of vectors; the last task has the ragged end.
        let share = width.div_ceil(tasks).next_multiple_of(32);
        let d_logits = self.logits.as_ptr() as usize;
        self.compute.pool().run(tasks, &|task, _| {
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

impl Model for Softmax {
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
        vec![LayerShape::dense("softmax", self.width, self.classes)]
    }

    #[allow(clippy::cast_precision_loss)]
    fn init(&self, seed: u64, params: &mut [f32]) {
        random::fill_uniform(seed, 0, 1.0 / (self.width as f32).sqrt(), params);
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
        let (rows, classes) = (batch.len(), self.classes);
        #[allow(clippy::cast_precision_loss)]
        let flops = 2.0 * (rows * classes * self.width) as f64;
        let mut profile = std::mem::take(&mut self.profile);
        profile.time("softmax", Pass::Forward, flops, || self.forward(params, pixels, rows));
        let isa = self.compute.isa();
        let logits = &mut self.logits[..rows * classes];
        let loss = profile.time("loss", Pass::Forward, 0.0, || {
            loss::cross_entropy(isa, logits, classes, &batch.labels, context.scale)
        });
        let (d_weights, d_bias) = grad.split_at_mut(self.width * classes);
        profile.time("softmax", Pass::BackwardWeights, flops, || {
            match pixels {
                Pixels::Bytes(bytes) => {
                    self.weight_grad(Bytes(bytes.as_ptr()), BYTE, rows, d_weights);
                }
                Pixels::Floats(floats) => {
                    self.weight_grad(Floats(floats.as_ptr()), 1.0, rows, d_weights);
                }
            }
            self.compute.column_sums(&self.logits[..rows * classes], classes, d_bias);
        });
        self.profile = profile;
        ready(0..params.len(), params, grad);
        Ok(loss)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        let pixels = input::pixels(ENTRY.name, batch, self.width, self.classes)?;
        self.forward(params, pixels, batch.len());
        let logits = &mut self.logits[..batch.len() * self.classes];
        loss::score(self.compute.isa(), logits, self.classes, &batch.labels, score);
        Ok(())
    }
}
