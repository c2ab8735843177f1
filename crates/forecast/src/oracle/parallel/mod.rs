//! The registry of ways to parallelise: one file each.
//!
//! Symbols in their comments: D examples of an epoch, B batch, p workers, F and U seconds of the passes
//! per example and of what a step takes whatever its batch, w parameters, A activations per example,
//! δ bytes of a value, α and β latency and seconds per byte.

mod channel;
mod data;
mod data_filter;
mod filter;
mod pipeline;
mod serial;
mod spatial;

use super::{Projection, Situation};

/// One way to parallelise.
pub struct Strategy {
    /// What it is called.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    pub project: fn(&Situation<'_>) -> Projection,
}

/// Every way there is, the simplest first.
pub const ALL: &[&Strategy] = &[
    &serial::ENTRY,
    &data::ENTRY,
    &spatial::ENTRY,
    &pipeline::ENTRY,
    &filter::ENTRY,
    &channel::ENTRY,
    &data_filter::ENTRY,
];

/// The one that nearly all training uses, and that measured steps are of.
pub(super) fn data() -> &'static Strategy {
    &data::ENTRY
}

/// Says why a number of workers is too many.
fn at_most(workers: usize, most: usize, why: &str) -> Option<String> {
    (workers > most).then(|| format!("at most {most} workers: {why}"))
}
