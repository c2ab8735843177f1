//! What every model of images does around its layers: checks a batch, runs the layers, asks the objective, hands gradients out.
//!
//! A model is a [`Network`], which knows its layers and their memory, in an [`ImageModel`], which is the
//! [`Model`] that others see. The two are apart so that a pass may use both at once.

use crate::{
    input::{self, Pixels, Scaling},
    kernels::Compute,
    layout::{LayerPlace, Layout},
    model::{Model, ModelError, ModelOptions, Objective, Ready, Score, StepContext, StepLoss},
    profile::{Pass, Profile},
    random,
    shapes::LayerShape,
    split::{Split, Together},
    threads::Pool,
};
use paceline_batch::{Batch, ImageShape};
use std::ops::Range;

/// Layers between pixels and logits, and the memory they need.
pub(crate) trait Network: Send {
    /// Images that are scored at a time, unless training has made room for more.
    const SCORE_IMAGES: usize = usize::MAX;

    /// The layers with parameters, first layer first.
    fn shapes(&self, core: &ModelCore) -> Vec<LayerShape>;

    /// Initial values.
    fn init(&self, core: &ModelCore, seed: u64, params: &mut [f32]) {
        random::init_layers(seed, &core.layout, params);
    }

    /// Floats that training holds for one example; 0 where they are few.
    fn floats(&self, _core: &ModelCore) -> usize {
        0
    }

    /// Makes room for so many images, and says how many there is room for.
    fn reserve(&mut self, core: &ModelCore, images: usize, training: bool) -> usize;

    /// Logits of at least one image.
    fn forward(
        &mut self,
        core: &mut ModelCore,
        params: &[f32],
        images: Images<'_>,
        training: Option<Training<'_>>,
    ) -> &mut [f32];

    /// From the gradient of the logits, which is in their place, to those of the parameters.
    fn backward(&mut self, core: &mut ModelCore, images: Images<'_>, step: &mut Step<'_>);

    /// As [`Model::split`].
    fn split(&self, _core: &ModelCore) -> Option<Split> {
        None
    }

    /// As [`Model::loss_and_grad_together`].
    fn step_together(
        &mut self,
        _core: &mut ModelCore,
        _params: &mut [f32],
        _batch: &Batch,
        _context: &StepContext,
        _grad: &mut [f32],
        _together: &mut Together<'_>,
    ) -> Result<StepLoss, ModelError> {
        Err(ModelError::NoSplit)
    }
}

/// Some images of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Images<'a> {
    pub(crate) pixels: Pixels<'a>,
    pub(crate) count: usize,
}

/// What a forward pass needs where a backward pass follows.
pub(crate) struct Training<'a> {
    pub(crate) context: &'a StepContext,
    /// For changes of running statistics.
    pub(crate) grad: &'a mut [f32],
}

/// What a backward pass reads and writes.
pub(crate) struct Step<'a> {
    pub(crate) params: &'a mut [f32],
    pub(crate) grad: &'a mut [f32],
    pub(crate) context: &'a StepContext,
    /// Whether the whole gradient must be there at the end.
    pub(crate) stays: bool,
    pub(crate) ready: &'a mut Ready<'a>,
}

impl Step<'_> {
    /// Tells that a range is final.
    pub(crate) fn hand_over(&mut self, range: Range<usize>) {
        (self.ready)(range.clone(), &mut self.params[range.clone()], &mut self.grad[range]);
    }

    /// Weights and bias of a layer, whose gradient `make` computes.
    pub(crate) fn layer(
        &mut self,
        core: &mut ModelCore,
        (name, flops): (&str, f64),
        (weights, bias): &LayerPlace,
        make: impl FnOnce(&mut Compute, &mut [f32], &mut [f32]),
    ) {
        let range = weights.start..bias.end;
        core.profile.time(name, Pass::BackwardWeights, flops, || {
            let (d_weights, d_bias) = self.grad[range.clone()].split_at_mut(weights.len());
            make(&mut core.compute, d_weights, d_bias);
            self.hand_over(range);
        });
    }

    /// No gradient for everything before the last layer, where that alone is trained.
    pub(crate) fn freeze_before(&mut self, core: &ModelCore, start: usize) {
        let grad = &mut self.grad[..start];
        core.compute.pool().for_chunks(grad, 1 << 18, |_, piece| piece.fill(0.0));
        self.hand_over(0..start);
    }
}

/// What every model of images has beside its layers.
#[derive(Debug)]
pub(crate) struct ModelCore {
    name: &'static str,
    pub(crate) image: ImageShape,
    pub(crate) classes: usize,
    pub(crate) layout: Layout,
    pub(crate) head_only: bool,
    pub(crate) scaling: Scaling,
    pub(crate) objective: Objective,
    pub(crate) compute: Compute,
    pub(crate) profile: Profile,
}

impl ModelCore {
    /// The pixels of a batch, if it is made of what this model was built for.
    pub(crate) fn pixels<'a>(&self, batch: &'a Batch) -> Result<Pixels<'a>, ModelError> {
        input::pixels(self.name, batch, self.image.len(), self.classes)
    }
}

/// The model of a network.
#[derive(Debug)]
pub(crate) struct ImageModel<N> {
    pub(crate) core: ModelCore,
    pub(crate) network: N,
}

impl<N: Network + 'static> ImageModel<N> {
    pub(crate) fn new(
        name: &'static str,
        (image, classes): (ImageShape, usize),
        options: &ModelOptions,
        layout: Layout,
        network: N,
    ) -> Result<Self, ModelError> {
        let core = ModelCore {
            name,
            image,
            classes,
            layout,
            head_only: options.head_only,
            scaling: input::scaling(name, image, options)?,
            objective: options.objective.clone(),
            compute: Compute::new(options.threads)?,
            profile: Profile::default(),
        };
        Ok(Self { core, network })
    }
}

impl<N: Network + 'static> Model for ImageModel<N> {
    fn layout(&self) -> &Layout {
        &self.core.layout
    }

    fn set_head_only(&mut self, head_only: bool) {
        self.core.head_only = head_only;
    }

    fn init(&self, seed: u64, params: &mut [f32]) {
        self.network.init(&self.core, seed, params);
    }

    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError> {
        let Self { core, network } = self;
        core.layout.check(params, grad);
        let images = Images { pixels: core.pixels(batch)?, count: batch.len() };
        if batch.is_empty() {
            grad.fill(0.0);
            ready(0..params.len(), params, grad);
            return Ok(StepLoss::default());
        }
        network.reserve(core, images.count, !core.head_only);
        let training = Training { context, grad: &mut *grad };
        let logits = network.forward(core, params, images, Some(training));
        let ModelCore { objective, classes, compute, profile, .. } = core;
        let (isa, labels) = (compute.isa(), &batch.labels);
        let loss = profile.time("loss", Pass::Forward, 0.0, || {
            objective.gradient(isa, logits, *classes, labels, context.scale)
        });
        // To find the cause of a loss that is not finite, the whole gradient is needed.
        let stays = context.keeps_gradient || !loss.loss_sum.is_finite();
        let mut step = Step { params, grad, context, stays, ready };
        network.backward(core, images, &mut step);
        Ok(loss)
    }

    fn split(&self) -> Option<Split> {
        self.network.split(&self.core)
    }

    fn loss_and_grad_together(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        together: &mut Together<'_>,
    ) -> Result<StepLoss, ModelError> {
        self.core.layout.check(params, grad);
        self.network.step_together(&mut self.core, params, batch, context, grad, together)
    }

    fn score(
        &mut self,
        params: &[f32],
        batch: &Batch,
        score: &mut Score,
    ) -> Result<(), ModelError> {
        let Self { core, network } = self;
        let (pixels, width) = (core.pixels(batch)?, core.image.len());
        let room = network.reserve(core, batch.len().min(N::SCORE_IMAGES), false).max(1);
        for start in (0..batch.len()).step_by(room) {
            let examples = start..(start + room).min(batch.len());
            let pixels = pixels.part(examples.start * width..examples.end * width);
            let images = Images { pixels, count: examples.len() };
            let logits = network.forward(core, params, images, None);
            let (isa, labels) = (core.compute.isa(), &batch.labels[examples]);
            core.objective.score(isa, logits, core.classes, labels, score);
        }
        Ok(())
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self.core.compute.pool())
    }

    fn batch_bytes(&self, examples: usize) -> usize {
        let floats = self.network.floats(&self.core);
        size_of::<f32>().saturating_mul(floats).saturating_mul(examples)
    }

    fn profile(&mut self) -> Option<&mut Profile> {
        Some(&mut self.core.profile)
    }

    fn shapes(&self) -> Vec<LayerShape> {
        self.network.shapes(&self.core)
    }
}
