//! Servers hold the weights and update them once all workers, or all but the backups, have sent.

use super::super::engine::{Engine, Mode};
use super::super::{Setting, SimulationOutcome};
use super::SimulatedStrategy;

/// The registry's line.
pub(super) const ENTRY: SimulatedStrategy = SimulatedStrategy {
    name: "ps-sync",
    about: "workers send gradients to servers and wait for the update of the whole step",
    servers: true,
    shares_batch: true,
    run,
};

fn run(setting: &mut Setting<'_>) -> SimulationOutcome {
    let needed = setting.plan.workers - setting.plan.backup;
    Engine::new(setting, Mode::Synchronous { needed }).run(ENTRY.name)
}
