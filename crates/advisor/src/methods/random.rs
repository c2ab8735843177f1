//! Random order: what every method must beat.

use super::AdvisorMethod;
use crate::search::{Advisor, Proposal, Search};
use paceline_stats::random::Random;

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "random",
    about: "tries configurations in random order; the baseline",
    needs_history: false,
    uses_history: false,
    build: |_, _| Ok(Box::new(RandomOrder)),
};

struct RandomOrder;

impl Advisor for RandomOrder {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let untried: Vec<usize> = search.untried().collect();
        if untried.is_empty() {
            return None;
        }
        let pick = Random::new(search.seed(), search.runs().len() as u64).below(untried.len());
        Some(Proposal {
            configuration: untried[pick],
            stop: None,
            outlook: None,
            reason: "drawn at random".to_owned(),
        })
    }
}
