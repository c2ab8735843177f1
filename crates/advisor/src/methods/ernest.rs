//! Ernest (Venkataraman et al., NSDI 2016): how time scales with machines, from a few cheap runs.
//!
//! The curve is that of [`paceline_forecast::scaling`]. Which runs to make is an A-optimal experiment design under a
//! budget. One curve per machine type; shuffles and memory cliffs are outside of it.

use super::AdvisorMethod;
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};
use paceline_forecast::scaling::design::spread;
use paceline_forecast::scaling::{Scaling, ScalingRun};

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "ernest",
    about: "a scaling curve for each machine type, from runs chosen by optimal design",
    needs_history: false,
    uses_history: false,
    build: |problem, _| Ok(Box::new(Ernest::new(problem))),
};

struct Ernest {
    /// Runs to make, in order.
    plan: Vec<usize>,
}

/// Runs per machine type: as many as the curve has terms, less one that is mostly zero.
const PER_TYPE: usize = 3;

impl Ernest {
    fn new(problem: &Problem) -> Self {
        let catalogue = &problem.catalogue;
        let mut plan: Vec<usize> = Vec::new();
        for machine in 0..catalogue.machines().len() {
            let own: Vec<usize> = (0..catalogue.len())
                .filter(|&at| catalogue.configurations()[at].machine == machine)
                .collect();
            plan.extend(spread(&own, |at| f64::from(catalogue.count(at)), PER_TYPE));
        }
        plan.sort_by(|&a, &b| catalogue.usd_per_hour(a).total_cmp(&catalogue.usd_per_hour(b)));
        Self { plan }
    }

    /// A curve for each machine type with enough completed runs.
    fn curves(search: &Search) -> Vec<Option<Scaling>> {
        let catalogue = &search.problem().catalogue;
        (0..catalogue.machines().len())
            .map(|machine| {
                let runs: Vec<ScalingRun> = search
                    .completed()
                    .filter(|&(at, _)| catalogue.configurations()[at].machine == machine)
                    .map(|(at, seconds)| ScalingRun {
                        fraction: 1.0,
                        machines: f64::from(catalogue.count(at)),
                        seconds,
                    })
                    .collect();
                Scaling::fit(&runs).ok()
            })
            .collect()
    }
}

impl Advisor for Ernest {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let tried = |at: usize| search.runs().iter().any(|run| run.configuration == at);
        if let Some(&configuration) = self.plan.iter().find(|&&at| !tried(at)) {
            let reason = "part of the experiment design of its machine type".to_owned();
            return Some(Proposal { configuration, stop: None, outlook: None, reason });
        }
        let predicted = self.predict(search);
        let value = |at: usize| predicted[at].map_or(f64::INFINITY, |found| found.mean);
        let configuration = search.untried().min_by(|&a, &b| value(a).total_cmp(&value(b)))?;
        let stop = Some("every machine type has its curve".to_owned());
        Some(Proposal {
            configuration,
            stop,
            outlook: None,
            reason: "best prediction of the curves".to_owned(),
        })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        let problem = search.problem();
        let curves = Self::curves(search);
        (0..problem.catalogue.len())
            .map(|at| {
                let curve = curves[problem.catalogue.configurations()[at].machine].as_ref()?;
                let seconds = curve.predict(1.0, f64::from(problem.catalogue.count(at)));
                let mean = problem.value(at, seconds).ln();
                let sd = curve.spread.max(crate::search::REPEAT_SD);
                mean.is_finite().then_some(Prediction { mean, sd, completes: 1.0 })
            })
            .collect()
    }

    fn recommends_unmeasured(&self) -> bool {
        true
    }
}
