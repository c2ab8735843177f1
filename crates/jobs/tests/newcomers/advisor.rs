//! The machine with the most cores first.

use paceline_advisor::{Advisor, Proposal, Search, methods::AdvisorMethod};

pub static ENTRY: AdvisorMethod = AdvisorMethod {
    name: "most-cores",
    about: "the machine with the most cores first",
    needs_history: false,
    uses_history: false,
    build: |_, _| Ok(Box::new(MostCores)),
};

struct MostCores;

impl Advisor for MostCores {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let catalogue = &search.problem().catalogue;
        let cores = |at: usize| catalogue.machine(at).cores;
        let configuration = search.untried().max_by(|&a, &b| cores(a).total_cmp(&cores(b)))?;
        let reason = "has the most cores".to_owned();
        Some(Proposal { configuration, stop: None, outlook: None, reason })
    }
}
