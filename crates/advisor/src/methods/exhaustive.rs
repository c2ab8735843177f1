//! Everything, one after the other: the truth, at full price.

use super::AdvisorMethod;
use crate::search::{Advisor, Proposal, Search};

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "exhaustive",
    about: "tries every configuration, cheapest per hour first",
    needs_history: false,
    uses_history: false,
    build: |_, _| Ok(Box::new(Exhaustive)),
};

struct Exhaustive;

impl Advisor for Exhaustive {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let catalogue = &search.problem().catalogue;
        let price = |at: usize| catalogue.usd_per_hour(at);
        let configuration = search.untried().min_by(|&a, &b| price(a).total_cmp(&price(b)))?;
        Some(Proposal {
            configuration,
            stop: None,
            outlook: None,
            reason: "next in order of price per hour".to_owned(),
        })
    }
}
