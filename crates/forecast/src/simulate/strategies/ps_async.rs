//! Servers hold the weights; each worker sends its gradient when it is ready and continues with the weights the
//! servers have by then.

use super::super::engine::{Engine, Mode};
use super::super::{Outcome, Setting};
use super::Entry;

/// The registry's line.
pub(super) const ENTRY: Entry = Entry {
    name: "ps-async",
    about: "workers send gradients to servers when they are ready and never wait for each other",
    servers: true,
    shares_batch: false,
    run,
};

fn run(setting: &mut Setting<'_>) -> Outcome {
    Engine::new(setting, Mode::Asynchronous).run(ENTRY.name)
}
