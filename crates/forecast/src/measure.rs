//! What forecasts rest on: steps of models timed on this machine, sums between its tasks, and run folders.

pub mod local_sums;
mod measured;
pub mod stepping;

pub use measured::Measured;

/// Seconds of waking another process and being woken, about, where it is not measured.
pub const LOCAL_LATENCY: f64 = 10e-6;
