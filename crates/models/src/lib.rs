//! Models on flat `f32` buffers, with their optimisers and schedules.
//!
//! A model owns its activations and scratch memory, planned once per batch size; parameters and
//! gradients are the caller's, one flat buffer each, described by a [`Layout`]. A model knows no
//! clock and no network, and of other workers at most that they share out its layers ([`split`]).
//!
//! ```
//! use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
//! use paceline_models::{ModelOptions, Score, StepContext, registry};
//!
//! let shape = ImageShape { height: 2, width: 2, channels: 1 };
//! let names = vec!["dark".to_owned(), "bright".to_owned()];
//! let schema = Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } };
//! let mut model = (registry::find("softmax")?.build)(&schema, &ModelOptions::default())?;
//!
//! let values = vec![0, 0, 0, 0, 255, 255, 255, 255];
//! let batch = Batch { features: Features::Pixels { values, width: 4 }, labels: vec![0, 1] };
//! let mut params = vec![0.0; model.layout().len()];
//! let mut grad = params.clone();
//! for step in 0..50 {
//!     let context = StepContext { seed: 1, step, first_example: 0, scale: 0.5, keeps_gradient: false };
//!     // A range of the gradient is used as soon as it is final: here by plain descent.
//!     let mut descend = |_, params: &mut [f32], grad: &mut [f32]| {
//!         params.iter_mut().zip(grad).for_each(|(param, grad)| *param -= *grad);
//!     };
//!     model.loss_and_grad(&mut params, &batch, &context, &mut grad, &mut descend)?;
//! }
//! let mut score = Score::default();
//! model.score(&params, &batch, &mut score)?;
//! assert_eq!(score.total.correct, 2);
//! # Ok::<(), paceline_models::ModelError>(())
//! ```

mod accumulate;
pub mod alexnet;
mod image_model;
mod input;
pub mod layout;
pub mod lenet;
pub mod mobilenet_v2;
pub mod model;
pub mod names;
pub mod optimizer;
pub mod pretrained;
pub mod profile;
pub mod random;
pub mod registry;
pub mod resnet;
pub mod schedule;
pub mod shapes;
pub mod softmax;
pub mod sparse_logistic;
pub mod split;

// Buffers, pools and instruction sets are part of what models take and hand out.
pub use paceline_kernels::{self as kernels, threads};

pub use accumulate::Accumulate;
pub use layout::{Layout, LayoutEntry};
pub use model::{
    Activation, Model, ModelError, ModelOptions, Objective, PixelScale, Ready, Score, StepContext,
    StepLoss,
};
