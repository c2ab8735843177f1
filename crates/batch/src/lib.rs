//! Where data and model meet.
//!
//! A data source describes itself by a [`Schema`] and yields [`Batch`]es; a model is built from the
//! schema and consumes batches. Neither knows the other, so this crate is the whole contract
//! between them, small enough that models build without image codecs and sources without kernels.
//!
//! ```
//! use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, Schema};
//!
//! // What a source says of itself, and a model is built from:
//! let shape = ImageShape { height: 28, width: 28, channels: 1 };
//! let names = vec!["cat".to_owned(), "dog".to_owned()];
//! let schema = Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } };
//! assert_eq!((shape.len(), schema.labels.classes()), (784, 2));
//!
//! // What the source fills and the model reads, in every step:
//! let mut batch = Batch::pixels(shape.len(), 2);
//! let Features::Pixels { values, .. } = &mut batch.features else { unreachable!() };
//! values.resize(2 * shape.len(), 255);
//! batch.labels.extend([0, 1]);
//! assert_eq!(batch.len(), 2);
//! ```

mod batch;
mod cores;
mod memory;
mod schema;

pub use batch::{Batch, Features};
pub use cores::{Cores, cores};
pub use memory::{MemoryLimit, memory_limit};
pub use schema::{FeatureKind, ImageShape, LabelKind, Schema};
