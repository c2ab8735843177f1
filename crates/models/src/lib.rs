//! Models on flat `f32` buffers, and the kernels under them.
//!
//! A model owns its activations and scratch memory, planned once per batch size; parameters and
//! gradients are the caller's, one flat buffer each, described by a [`Layout`]. A model knows no
//! clock and no network, and of other workers at most that they share out its layers ([`split`]).

pub mod alexnet;
mod input;
pub mod kernels;
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
pub mod threads;

pub use layout::{Entry, Layout};
pub use model::{Model, ModelError, ModelOptions, Ready, Score, StepContext, StepLoss};
