//! The registry of simulated strategies, by the names the trainer has for them: one file each.

mod multi_worker;
mod ps_async;
mod ps_sync;

use super::{Setting, SimulationOutcome};
use crate::error::ForecastError;

/// One strategy.
pub struct SimulatedStrategy {
    /// What it is called.
    pub name: &'static str,
    /// One line on what it does.
    pub about: &'static str,
    /// Whether it needs servers.
    pub servers: bool,
    /// Whether a worker's step is a share of a global batch; else every worker has batches of its own.
    pub shares_batch: bool,
    pub run: fn(&mut Setting<'_>) -> SimulationOutcome,
}

/// Every strategy that can be simulated.
pub const ALL: &[&SimulatedStrategy] = &[&multi_worker::ENTRY, &ps_sync::ENTRY, &ps_async::ENTRY];

/// Finds a strategy by name.
pub fn find(name: &str) -> Result<&'static SimulatedStrategy, ForecastError> {
    let wanted = name.replace('_', "-");
    ALL.iter().copied().find(|entry| entry.name == wanted).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|entry| entry.name).collect();
        ForecastError::UnknownStrategy { name: name.to_owned(), known: known.join(", ") }
    })
}
