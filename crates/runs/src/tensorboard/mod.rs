//! TensorBoard's event files, as TensorFlow writes them.
//!
//! TensorBoard is where people look first, so a run must simply open there. The files hold TF2-style
//! summaries (tensors tagged with a plugin's name), weight histograms and the layer graph, in
//! TFRecord framing; the messages are written by hand from TensorFlow's public `.proto` field
//! numbers, only the fields we use.

mod graph;
mod histogram;
mod proto;
mod reader;
mod writer;

pub use graph::{GraphNode, layer_chain};
pub use histogram::Histogram;
pub use reader::{EntryValue, EventValue, read};
pub use writer::{EventWriter, Scalar};
