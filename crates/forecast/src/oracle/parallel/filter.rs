//! Every worker has some of each layer's filters; outputs are gathered after every layer.

use super::{Projection, Situation, Strategy, at_most};

/// The registry's line.
pub(super) const ENTRY: Strategy = Strategy {
    name: "filter",
    about: "every worker has some filters of each layer; outputs are gathered",
    project,
};

fn project(at: &Situation<'_>) -> Projection {
    let most = at.network.layers.iter().map(super::super::Layer::filters).min().unwrap_or(1);
    let infeasible = at_most(at.workers, most, "the smallest layer has no more filters");
    split(ENTRY.name, at, infeasible)
}

/// Filters and channels cost the same: one gathers outputs and adds up input gradients, the other the
/// other way round.
pub(super) fn split(
    strategy: &'static str,
    at: &Situation<'_>,
    infeasible: Option<String>,
) -> Projection {
    let (network, job, p) = (at.network, at.job, at.workers as f64);
    // D·F/p + (D/(B·p))·U; a kernel's fixed part does not shrink
    let compute = job.examples * network.per_example() / p
        + at.steps() * (network.fixed() + network.update() / p);
    // 3(D/B)(p−1) Σ_{l<G}(α + B|y|·δ·β/p)
    let gathers: f64 = network.layers[..network.layers.len() - 1]
        .iter()
        .map(|layer| at.ring.message(job.batch * layer.outputs() * job.value_bytes / p))
        .sum();
    Projection {
        strategy,
        workers: at.workers,
        arrangement: None,
        compute: compute * at.slowdown,
        communication: 3.0 * at.steps() * (p - 1.0) * gathers,
        // 2δ(B·A + w/p)
        memory: 2.0
            * job.value_bytes
            * (job.batch * network.activations() + network.parameters() / p),
        infeasible,
    }
}
