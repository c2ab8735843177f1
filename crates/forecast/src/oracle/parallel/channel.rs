//! Every worker has some of each layer's input channels; outputs are added up after every layer.

use super::{Projection, Situation, Strategy, at_most, filter};

/// The registry's line.
pub(super) const ENTRY: Strategy = Strategy {
    name: "channel",
    about: "every worker has some input channels of each layer; outputs are added up",
    project,
};

fn project(at: &Situation<'_>) -> Projection {
    // The first layer has three channels, or one; it is cheap enough for every worker to repeat.
    let layers = at.network.layers.iter().skip(1);
    let most = layers.map(super::super::Layer::channels).min().unwrap_or(1);
    let infeasible =
        at_most(at.workers, most, "the smallest layer after the first has no more channels");
    filter::split(ENTRY.name, at, infeasible)
}
