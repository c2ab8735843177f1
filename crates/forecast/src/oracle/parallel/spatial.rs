//! Every worker has the whole network and a part of every image; borders are exchanged.

use super::{Projection, Situation, Strategy, at_most, data};

/// The registry's line.
pub(super) const ENTRY: Strategy = Strategy {
    name: "spatial",
    about: "every worker has a strip of every image and exchanges borders",
    project,
};

fn project(at: &Situation<'_>) -> Projection {
    let (network, job) = (at.network, at.job);
    // Compute, gradients and memory as for data.
    let base = data::project(at);
    // 2(D/B) Σ [2α + B(halo(x) + halo(dy))·δ·β], layers with a neighbourhood only
    let borders = network.sum(|layer| {
        if !layer.is_spatial() {
            return 0.0;
        }
        let values = job.batch * (layer.halo(layer.input) + layer.halo(layer.output));
        // To both neighbours: twice the latency, all bytes.
        2.0 * at.ring.message(values * job.value_bytes / 2.0)
    });
    let most = network
        .layers
        .iter()
        .filter(|layer| layer.is_spatial())
        .map(|layer| layer.output[0] * layer.output[1])
        .min();
    let infeasible = match most {
        None => Some("no layer looks at a neighbourhood of pixels".to_owned()),
        Some(most) => at_most(at.workers, most, "the smallest layer has no more pixels"),
    };
    Projection {
        strategy: ENTRY.name,
        communication: base.communication + 2.0 * at.steps() * borders,
        infeasible,
        ..base
    }
}
