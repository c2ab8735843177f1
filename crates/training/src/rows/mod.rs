//! Learns sparse models from streams of rows: files, standard input, growing logs.
//!
//! The step loop of `paceline-training` deals batches of a set whose size is known. A stream has no
//! size and is read once; the model learns from each row as it comes and is judged on it before
//! (progressive validation). One pass over a click log is bound by parsing and by cache misses, so the
//! threads of a run ([`learn`]) share the work in two stages that overlap:
//!
//! ```text
//! Source ──read──▶ Parcel ──parse──▶ (in order) ──learn──▶ Totals ──▶ events, checkpoints, summary
//! ```
//!
//! Several tasks ([`take_part`]) share the weights through parameter servers: each worker reads the files
//! it was dealt, and only the weights that a batch touches travel.
//!
//! With one learner at a time the result does not depend on the number of threads, to the bit.

mod books;
mod checkpoint;
mod earlier;
mod engine;
mod evaluate;
mod learn;
mod memory;
mod metrics;
mod outcome;
mod plan;
mod predict;
mod report;
mod scale;
mod source;
mod spec;
mod tasks;

pub use checkpoint::{Checkpoint, Kept, checkpoints, load, load_model, resolve};
pub(crate) use earlier::Earlier;
pub use learn::{Control, Observer, Silent, check_resume, learn};
pub use metrics::{Metrics, Totals};
pub use plan::{Plan, RowsPlan};
pub use predict::{Predicted, predict};
pub use report::{Exchanged, Pace, RowsReport};
pub use source::{RowsPlace, Source};
pub use spec::{DataSpec, RowsSpec, Window};
pub use tasks::{Task, Tasks, take_part};
