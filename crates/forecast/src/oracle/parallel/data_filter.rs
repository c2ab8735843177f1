//! Groups of workers share the batch; inside a group each has some filters.

use super::{Projection, Situation, Strategy, at_most};

/// The registry's line.
pub(super) const ENTRY: Strategy = Strategy {
    name: "data+filter",
    about: "groups share the batch, workers of a group share the filters",
    project,
};

/// The split into groups is chosen among the divisors of the number of workers.
fn project(at: &Situation<'_>) -> Projection {
    let p = at.workers;
    let most = at.network.layers.iter().map(super::super::Layer::filters).min().unwrap_or(1);
    let batch = at.job.batch as usize;
    // Both ways must really be there: at least two groups of at least two.
    let splits = (2..=p / 2).filter(|inner| p.is_multiple_of(*inner));
    let allowed: Vec<usize> = splits.filter(|&inner| inner <= most && p / inner <= batch).collect();
    let infeasible = at_most(p, batch.saturating_mul(most), "batch and filters give no more parts")
        .or_else(|| allowed.is_empty().then(|| format!("{p} workers make no groups that fit")));
    allowed
        .into_iter()
        .map(|inner| with_groups(at, p / inner, inner, infeasible.clone()))
        .min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
        .unwrap_or_else(|| with_groups(at, 1, p, infeasible))
}

fn with_groups(
    at: &Situation<'_>,
    groups: usize,
    inner: usize,
    infeasible: Option<String>,
) -> Projection {
    let (network, job) = (at.network, at.job);
    let (p, p1, p2) = (at.workers as f64, groups as f64, inner as f64);
    // D·F/p + (D/(B·p2))·U
    let compute = job.examples * network.per_example() / p
        + at.steps() * (network.fixed() + network.update() / p2);
    // 3(D/B)(p2−1) Σ(α + B|y|·δ·β/p) + 2(D/B)(p1−1)(α + w·δ·β/p)
    // All groups gather at the same time, then all workers with the same filters add up: these rings share the cards of hosts.
    let (gather, sum) =
        (at.machines.groups(at.workers, inner), at.machines.strided(at.workers, inner));
    let gathers: f64 = network.layers[..network.layers.len() - 1]
        .iter()
        .map(|layer| gather.message(job.batch * layer.outputs() * job.value_bytes / p))
        .sum();
    let reduce = sum.message(network.parameters() * job.value_bytes / p);
    Projection {
        strategy: ENTRY.name,
        workers: at.workers,
        arrangement: Some(format!("{groups} groups of {inner}")),
        compute: compute * at.slowdown,
        communication: at.steps() * (3.0 * (p2 - 1.0) * gathers + 2.0 * (p1 - 1.0) * reduce),
        // 2δ(B·A/p1 + w/p2)
        memory: 2.0
            * job.value_bytes
            * (job.batch * network.activations() / p1 + network.parameters() / p2),
        infeasible,
    }
}
