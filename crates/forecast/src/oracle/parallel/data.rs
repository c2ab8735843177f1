//! Every worker has the whole network and a share of the batch; gradients are added up.

use super::{Projection, Situation, Strategy, at_most};

/// The registry's line.
pub(super) const ENTRY: Strategy = Strategy {
    name: "data",
    about: "every worker has the whole network and a share of the batch",
    project,
};

pub(super) fn project(at: &Situation<'_>) -> Projection {
    let (network, job, p) = (at.network, at.job, at.workers as f64);
    // D·F/p + (D/B)·U
    let compute = job.examples * network.per_example() / p
        + at.steps() * (network.fixed() + network.update());
    // 2(D/B)(p−1)(α + w·δ·β/p)
    let exchange = at.steps() * at.all_reduce(p, network.parameters() * job.value_bytes);
    // What travels during the backward pass costs no time of its own.
    let backward = job.examples * network.sum(|layer| layer.backward) / p * at.slowdown;
    Projection {
        strategy: ENTRY.name,
        workers: at.workers,
        arrangement: None,
        compute: compute * at.slowdown,
        communication: (exchange - job.overlap * backward).max(exchange * (1.0 - job.overlap)),
        // 2δ(B·A/p + w)
        memory: 2.0
            * job.value_bytes
            * (job.batch * network.activations() / p + network.parameters()),
        infeasible: at_most(at.workers, job.batch as usize, "the batch has no more examples"),
    }
}
