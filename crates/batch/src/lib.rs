//! Where data and model meet.
//!
//! A data source describes itself by a [`Schema`] and yields [`Batch`]es; a model is built from the
//! schema and consumes batches. Neither knows the other, so this crate is the whole contract
//! between them, small enough that models build without image codecs and sources without kernels.

mod batch;
mod cores;
mod schema;

pub use batch::{Batch, Features};
pub use cores::{Cores, cores};
pub use schema::{FeatureKind, ImageShape, LabelKind, Schema};
