//! What forecasts rest on: steps of models timed on this machine, sums between its tasks, and run folders.

mod batch_steps;
mod gradient_norms;
mod layer_times;
mod links;
pub mod local_sums;
mod measured;
mod memory;
mod profile;
mod run_folders;
mod start;
pub mod stepping;

pub use batch_steps::{BatchSteps, batch_steps};
pub use gradient_norms::{GradientSample, gradient_norms};
pub use layer_times::LayerTimes;
pub use links::{ASSUMED_NETWORK, LinkOrigin, LinkSettings, Links};
pub use measured::Measured;
pub use profile::{ProfiledMessage, ProfiledSteps, StepProfile};
pub use run_folders::{are_runs, batches_of_runs, run_folders, scaling_runs, step_timings};
pub use start::RunStart;

/// Seconds of waking another process and being woken, about, where it is not measured.
pub const LOCAL_LATENCY: f64 = 10e-6;
