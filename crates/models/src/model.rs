//! What every model can do.

use crate::{
    layout::Layout,
    names::UnknownName,
    profile::Profile,
    shapes::LayerShape,
    split::{Split, Together},
    threads::Pool,
};
use paceline_batch::{Batch, Schema};
pub use paceline_kernels::{
    Objective,
    dense::Ready,
    loss::{Score, StepLoss},
};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A model: a pure function of parameters and batch, plus the scratch memory to compute it fast.
pub trait Model: Send {
    /// Names, shapes and offsets of the parameters.
    fn layout(&self) -> &Layout;

    /// Fills `params` with initial values that follow from `seed` alone.
    fn init(&self, seed: u64, params: &mut [f32]);

    /// Forward and backward pass of one batch.
    ///
    /// Writes `context.scale * Σ ∂loss/∂params` over the batch's examples into `grad` (every
    /// element, no accumulation), so that the workers of one global batch pass the same
    /// `scale = 1 / global examples` and their gradients simply add up.
    ///
    /// Calls `ready(range, params, grad)` once for each range as it becomes final, last layer first;
    /// the ranges cover the buffer exactly once. From that call on the model reads neither
    /// `params[range]` nor `grad[range]` in this step: the callee may send the gradient away or
    /// apply the update while both are still in cache. The slices passed are those of the range.
    fn loss_and_grad(
        &mut self,
        params: &mut [f32],
        batch: &Batch,
        context: &StepContext,
        grad: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> Result<StepLoss, ModelError>;

    /// The layers that workers can share out; nothing for models that are to be copied as they are.
    fn split(&self) -> Option<Split> {
        None
    }

    /// As [`Model::loss_and_grad`], with the layers of [`Model::split`] shared out: of those, only the
    /// parameters that this worker owns are read, and only their gradients are written and reported.
    /// `batch` holds this worker's examples and may be empty, `grad` of the other layers is then zero
    /// and not reported.
    ///
    /// # Errors
    /// Also [`ModelError::Interrupted`] when another worker could not be reached.
    fn loss_and_grad_together(
        &mut self,
        _params: &mut [f32],
        _batch: &Batch,
        _context: &StepContext,
        _grad: &mut [f32],
        _together: &mut Together<'_>,
    ) -> Result<StepLoss, ModelError> {
        Err(ModelError::NoSplit)
    }

    /// Whether only the last layer is trained from the next step on, as [`ModelOptions::head_only`] says it at the start;
    /// nothing for models that always train everything.
    fn set_head_only(&mut self, _head_only: bool) {}

    /// Forward pass only (no dropout, running statistics), added to `score`.
    fn score(&mut self, params: &[f32], batch: &Batch, score: &mut Score)
    -> Result<(), ModelError>;

    /// The threads of its kernels, idle whenever the model is not computing, and in particular
    /// while it calls `ready`: the callee may use them for the update.
    fn pool(&self) -> Option<&Pool> {
        None
    }

    /// Bytes of activations that training on a batch of so many examples takes; 0 where it is little.
    fn batch_bytes(&self, _examples: usize) -> usize {
        0
    }

    /// Layer times, for models that collect them.
    fn profile(&mut self) -> Option<&mut Profile> {
        None
    }

    /// The layers with parameters, first layer first; empty for models that are not a chain of layers.
    fn shapes(&self) -> Vec<LayerShape> {
        Vec::new()
    }
}

/// What a step knows besides parameters and examples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepContext {
    /// Seed of the run; dropout derives from (`seed`, `step`, position in the global batch), so that
    /// the number of workers does not change which units drop.
    pub seed: u64,
    /// Global step, from 0.
    pub step: u64,
    /// Position of this batch's first example within the global batch.
    pub first_example: u64,
    /// Factor of the gradient sum: 1 / examples in the global batch.
    pub scale: f32,
    /// Whether the whole gradient must be there at the end. If not, the callback has used each range already, and
    /// large ones may have been stored elsewhere.
    pub keeps_gradient: bool,
}

/// What follows a layer, where a model offers a choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// Nothing below zero.
    #[default]
    Relu,
    /// The hyperbolic tangent.
    Tanh,
}

impl Activation {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Relu, Self::Tanh];

    /// What users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Tanh => "tanh",
        }
    }
}

impl FromStr for Activation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|activation| activation.name() == text);
        found.ok_or_else(|| "expected relu or tanh".to_owned())
    }
}

/// Choices that shape a model, beside the data's schema.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelOptions {
    /// Threads the kernels may use; at least 1.
    pub threads: usize,
    /// Width multiplier of MobileNet-v2.
    pub width: f32,
    /// Dropout rate of the models that have it; their own default without, 0 turns it off.
    pub dropout: Option<f32>,
    /// Local response normalisation in AlexNet.
    pub lrn: bool,
    /// What follows LeNet's layers.
    pub activation: Activation,
    /// Zeros on each side of LeNet's images, in pixels; 2 without, which makes 28 x 28 pixels 32 x 32.
    pub pad: Option<usize>,
    /// What training minimises.
    pub objective: Objective,
    /// Only the last layer will be trained: gradients of the others are zero and cost nothing, and they run as in
    /// inference.
    pub head_only: bool,
    /// How pixels are read.
    pub pixels: PixelScale,
}

/// How pixels are read, as the weights of a model expect it (see [`crate::pretrained`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PixelScale {
    /// Between 0 and 1.
    #[default]
    Unit,
    /// Less ImageNet's mean, by its deviation, channel by channel: weights of torchvision and timm.
    Imagenet,
    /// Between -1 and 1, and images turned by 180 degrees: weights of Keras's MobileNet-v2, whose kernels are turned when
    /// they are read.
    Keras,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            width: 1.0,
            dropout: None,
            lrn: false,
            activation: Activation::default(),
            pad: None,
            objective: Objective::default(),
            head_only: false,
            pixels: PixelScale::Unit,
        }
    }
}

/// Why a model cannot be built or fed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model wants other examples than the source has.
    #[error("model `{model}` needs {needs}, but the data has {has}")]
    Mismatch {
        model: &'static str,
        /// What it can take.
        needs: String,
        /// What the schema says.
        has: String,
    },
    /// A label names no class.
    #[error(
        "label {label} of example {example} in the batch is out of range: the model has {classes} classes"
    )]
    Label {
        /// Position in the batch.
        example: usize,
        label: u32,
        /// Classes of the model.
        classes: usize,
    },
    /// The instruction set asked for cannot be used.
    #[error(transparent)]
    Isa(#[from] crate::kernels::IsaError),
    /// No model of that name.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The model learns from streams of rows, and was asked for where batches of examples are.
    #[error("model `{model}` learns from rows of sparse features, not from batches of examples")]
    Sparse { model: &'static str },
    /// Another worker could not be reached in the middle of a step; see [`crate::split`].
    #[error("another worker could not be reached in the middle of a step")]
    Interrupted,
    /// A model without such layers was asked to share them out.
    #[error("the model has no layers that workers can share out")]
    NoSplit,
    /// More weights than the system has memory for.
    #[error("model `{model}`: 2^{bits} weights take {:.1} GB of memory, which the system does not give", *.bytes as f64 / 1e9)]
    Memory {
        model: &'static str,
        /// Weights without the bias, as a power of two.
        bits: u32,
        /// What they take with their optimiser's state.
        bytes: u64,
    },
    /// An option is out of range.
    #[error("model `{model}`: {option} is {found}, must be {wanted}")]
    Option {
        model: &'static str,
        option: &'static str,
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
}

impl ModelError {
    /// Whether the caller asked for something that does not exist or does not fit, rather than something going wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unknown(_)
            | Self::Sparse { .. }
            | Self::Memory { .. }
            | Self::Option { .. }
            | Self::Mismatch { .. } => true,
            Self::Label { .. } | Self::Isa(_) | Self::Interrupted | Self::NoSplit => false,
        }
    }
}

/// Builds a model for the examples a schema describes.
pub type BuildModel = fn(&Schema, &ModelOptions) -> Result<Box<dyn Model>, ModelError>;
