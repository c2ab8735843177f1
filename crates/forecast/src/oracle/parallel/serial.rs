//! One worker does everything.

use super::{Projection, Situation, Strategy, at_most};

/// The registry's line.
pub(super) const ENTRY: Strategy =
    Strategy { name: "serial", about: "one worker does everything", project };

fn project(at: &Situation<'_>) -> Projection {
    let (network, job) = (at.network, at.job);
    // D·F + (D/B)·U
    let compute =
        job.examples * network.per_example() + at.steps() * (network.fixed() + network.update());
    Projection {
        strategy: ENTRY.name,
        workers: at.workers,
        arrangement: None,
        compute: compute * at.slowdown,
        communication: 0.0,
        // 2δ(B·A + w): values and their gradients
        memory: 2.0 * job.value_bytes * (job.batch * network.activations() + network.parameters()),
        infeasible: at_most(at.workers, 1, "it is serial"),
    }
}
