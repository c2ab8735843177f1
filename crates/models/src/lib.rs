//! Models on flat `f32` buffers, with their optimisers and schedules.
//!
//! A model owns its activations and scratch memory, planned once per batch size; parameters and
//! gradients are the caller's, one flat buffer each, described by a [`Layout`]. A model knows no
//! clock and no network, and of other workers at most that they share out its layers ([`split`]).

pub mod alexnet;
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
pub mod schedule;
pub mod shapes;
pub mod softmax;
pub mod sparse_logistic;
pub mod split;

// Buffers, pools and instruction sets are part of what models take and hand out.
pub use paceline_kernels::{self as kernels, threads};

pub use layout::{Entry, Layout};
pub use model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss};
