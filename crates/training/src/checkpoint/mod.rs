//! Checkpoints: what they hold, when they are made, how they survive.

mod manifest;
mod policy;
mod store;
mod tensors;
#[cfg(test)]
mod tests;

pub use manifest::{Evaluated, FileSum, Manifest, Meta};
pub use policy::{Action, Kept, Moment, Policy};
pub(crate) use store::write_weights;
pub use store::{Checkpoint, Create, Refused, Sink, Store};
