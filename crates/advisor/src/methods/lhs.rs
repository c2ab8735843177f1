//! Latin hypercube: runs spread so that every feature is covered evenly; a baseline without a model.
//!
//! A design of as many points as a search usually makes: each feature's range is cut into that many
//! strata, and every stratum is used once. Points are taken in random order, each by the untried
//! configuration nearest to it; after the design is used up, another begins.

use super::AdvisorMethod;
use super::cherrypick::nearest;
use crate::search::{Advisor, Problem, Proposal, Search};
use paceline_stats::random::Random;

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "lhs",
    about: "spreads runs evenly over every feature (Latin hypercube); a baseline",
    needs_history: false,
    uses_history: false,
    build: |problem, _| Ok(Box::new(Hypercube::new(problem))),
};

/// Points of one design.
const POINTS: usize = 10;

struct Hypercube {
    features: Vec<Vec<f64>>,
}

impl Hypercube {
    fn new(problem: &Problem) -> Self {
        Self { features: problem.catalogue.features() }
    }

    /// The design's point for the next run: one stratum of every feature, used once each.
    fn point(&self, seed: u64, run: usize) -> Vec<f64> {
        let mut random = Random::new(seed, 0x1a71 + (run / POINTS) as u64);
        let dimensions = self.features.first().map_or(0, Vec::len);
        (0..dimensions)
            .map(|_| {
                let mut strata: Vec<usize> = (0..POINTS).collect();
                random.shuffle(&mut strata);
                let inside = random.uniform();
                (strata[run % POINTS] as f64 + inside) / POINTS as f64
            })
            .collect()
    }
}

impl Advisor for Hypercube {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let point = self.point(search.seed(), search.runs().len());
        nearest(search, &self.features, &point).map(|configuration| Proposal {
            configuration,
            stop: None,
            outlook: None,
            reason: "next point of a design that covers every feature evenly".to_owned(),
        })
    }
}
