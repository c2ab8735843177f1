//! Every worker has some layers; segments of a batch follow each other through them.

use super::{Projection, Situation, Strategy, at_most};

/// The registry's line.
pub(super) const ENTRY: Strategy = Strategy {
    name: "pipeline",
    about: "every worker has some layers; segments of the batch follow each other",
    project,
};

/// The number of segments is chosen: more keep workers busier, fewer send fewer messages.
fn project(at: &Situation<'_>) -> Projection {
    let layers = at.network.layers.len();
    let infeasible = at_most(at.workers, layers, "the network has no more layers");
    let mut segments = 1.0;
    let mut best: Option<(f64, Projection)> = None;
    while segments <= at.job.batch {
        let found = with_segments(at, segments, infeasible.clone());
        if best.as_ref().is_none_or(|(seconds, _)| found.seconds() < *seconds) {
            best = Some((found.seconds(), found));
        }
        segments *= 2.0;
    }
    best.map_or_else(|| with_segments(at, 1.0, infeasible), |(_, found)| found)
}

fn with_segments(at: &Situation<'_>, segments: f64, infeasible: Option<String>) -> Projection {
    let (network, job) = (at.network, at.job);
    let count = at.workers.min(network.layers.len());
    let (p, s) = (count as f64, segments);
    let groups = network.groups(count);
    let sums = |of: &dyn Fn(&super::super::Layer) -> f64| -> f64 {
        groups
            .iter()
            .map(|group| network.layers[group.clone()].iter().map(of).sum::<f64>())
            .fold(0.0, f64::max)
    };
    // D(p+S−1)/S · (max FW + max BW) + (D/B) max WU; what a kernel takes whatever its batch, it takes
    // for every segment.
    let passes = sums(&|layer| layer.forward) + sums(&|layer| layer.backward);
    let compute = job.examples * (p + s - 1.0) / s * passes
        + at.steps() * ((p + s - 1.0) * sums(&|layer| layer.fixed) + sums(&|layer| layer.update));
    // 2(D/B)(p+S−2) max(α + (B/S)|y|·δ·β), over the borders between groups
    let border = groups[..groups.len() - 1]
        .iter()
        .enumerate()
        .map(|(worker, group)| {
            let values = job.batch / s * network.layers[group.end - 1].outputs();
            at.machines.onward(count, worker).message(values * job.value_bytes)
        })
        .fold(0.0, f64::max);
    // 2δ max (B·A + w)
    let memory = sums(&|layer| job.batch * (layer.inputs() + layer.outputs()) + layer.parameters);
    Projection {
        strategy: ENTRY.name,
        workers: at.workers,
        arrangement: Some(format!("{s} segments")),
        compute: compute * at.slowdown,
        communication: 2.0 * at.steps() * (p + s - 2.0) * border,
        memory: 2.0 * job.value_bytes * memory,
        infeasible,
    }
}
