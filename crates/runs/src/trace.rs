//! Runs as traces of other tools, and traces of other tools as runs.
//!
//! The Chrome trace format (JSON) is what Perfetto, chrome://tracing and PyTorch's profiler read and write. A run becomes
//! one process per task with its phases as slices, resources as counters and events as marks ([`write`]); the
//! profiler's traces, one file per rank, become a run folder with the phases of each step ([`read`]).

mod read;
mod write;

pub use read::{ImportedTrace, TraceError, TracedJob, import};
pub use write::export;
