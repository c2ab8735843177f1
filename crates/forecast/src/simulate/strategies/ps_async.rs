//! Servers hold the weights; each worker sends its gradient when it is ready and continues with the weights the
//! servers have by then.

use super::super::engine::{Engine, Mode};
use super::super::{Setting, SimulationOutcome};
use super::SimulatedStrategy;

/// The registry's line.
pub(super) const ENTRY: SimulatedStrategy = SimulatedStrategy {
    name: "ps-async",
    about: "workers send gradients to servers when they are ready and never wait for each other",
    servers: true,
    shares_batch: false,
    run,
};

fn run(setting: &mut Setting<'_>) -> SimulationOutcome {
    Engine::new(setting, Mode::Asynchronous).run(ENTRY.name)
}
