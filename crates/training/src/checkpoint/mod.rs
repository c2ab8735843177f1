//! Checkpoints: what they hold, when they are made, how they survive.

mod dense;
mod manifest;
mod policy;
mod store;
mod tensors;
#[cfg(test)]
mod tests;

pub use dense::Checkpoint;
pub(crate) use dense::write_weights;
pub use manifest::{Evaluated, Manifest, Meta};
pub use policy::{Action, Kept, Moment, Policy};
pub use store::{Refused, Store};
pub(crate) use store::{damaged, read_manifest, read_part};
