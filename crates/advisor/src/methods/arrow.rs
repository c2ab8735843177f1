//! Arrow (Hsu et al., ICDCS 2018): extra-trees over pairs, with the low-level metrics of measured runs.
//!
//! Every ordered pair of measured configurations is a training row: where from, what the machine did
//! there, where to; the value there. The next run is the best prediction, without any bonus for
//! uncertainty; variety comes from the random start. Stops when nothing is predicted below 1.1 times
//! the best.

use super::AdvisorMethod;
use crate::forest::{Forest, Growth, Kind, Rows};
use crate::search::{Advisor, Prediction, Problem, Proposal, Search};
use paceline_stats::random::Random;

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "arrow",
    about: "extra-trees over pairs of runs and their CPU, memory and disk metrics, no history",
    needs_history: false,
    uses_history: false,
    build: |problem, _| Ok(Box::new(Arrow::new(problem))),
};

/// Random runs before the model is asked: as few as make a pair. The paper does not say how many.
const START: usize = 2;
/// Runs before it may stop: trees on fewer than a dozen pairs only repeat what they were shown.
const FEWEST: usize = 4;
/// Stops when no prediction is below this multiple of the best.
const TAU: f64 = 1.1;
const GROWTH: Growth = Growth { trees: 50, smallest: 2, tries: usize::MAX, kind: Kind::ExtraTrees };

struct Arrow {
    features: Vec<Vec<f64>>,
}

/// The paper's description of a machine: the kind of its processor as a number, cores, memory per core
/// and the class of its disk's bandwidth, which goes by size; here with the number of machines. Machines of
/// one family share a processor.
fn features(problem: &Problem) -> Vec<Vec<f64>> {
    let catalogue = &problem.catalogue;
    let mut families: Vec<&str> = Vec::new();
    (0..catalogue.len())
        .map(|at| {
            let machine = catalogue.machine(at);
            let family = machine.name.split('.').next().unwrap_or("");
            let known = families.iter().position(|name| *name == family);
            let kind = known.unwrap_or_else(|| {
                families.push(family);
                families.len() - 1
            });
            let count = f64::from(catalogue.count(at));
            let disk = machine.disk_mb_per_s.unwrap_or(machine.cores).log2();
            vec![kind as f64, machine.cores, machine.memory_gib / machine.cores, disk, count]
        })
        .collect()
}

impl Arrow {
    fn new(problem: &Problem) -> Self {
        Self { features: features(problem) }
    }

    /// Predicted `ln` value and spread of every configuration; `None` with fewer than two observations.
    fn model(&self, search: &Search) -> Option<Vec<(f64, f64)>> {
        let seen = search.observations();
        let width = search.runs().iter().map(|run| run.metrics.len()).max().unwrap_or(0);
        // Where from: measured configurations, with metrics if any run has them.
        let sources: Vec<Vec<f64>> = seen
            .iter()
            .filter_map(|seen| {
                let run =
                    search.runs().iter().find(|run| run.configuration == seen.configuration)?;
                let mut row = self.features[seen.configuration].clone();
                row.extend(&run.metrics);
                (run.metrics.len() == width).then_some(row)
            })
            .collect();
        let mut rows = Rows::default();
        for source in &sources {
            for target in &seen {
                let to = &self.features[target.configuration];
                if source[..to.len()] != to[..] {
                    rows.push(&[source, to.as_slice()].concat(), target.value);
                }
            }
        }
        if rows.len() < 2 {
            return None;
        }
        let forest = Forest::grow(&rows, GROWTH, search.seed());
        let predict = |to: &Vec<f64>| {
            let all: Vec<f64> = sources
                .iter()
                .flat_map(|source| {
                    let row = [source, to.as_slice()].concat();
                    forest.each(&row).collect::<Vec<f64>>()
                })
                .collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let variance = all.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / all.len() as f64;
            (mean, variance.sqrt())
        };
        Some(self.features.iter().map(predict).collect())
    }
}

impl Advisor for Arrow {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let untried: Vec<usize> = search.untried().collect();
        if untried.is_empty() {
            return None;
        }
        let started = search.runs().len() >= START;
        let Some(model) = started.then(|| self.model(search)).flatten() else {
            let pick = Random::new(search.seed(), search.runs().len() as u64).below(untried.len());
            let reason = "one of the random first runs".to_owned();
            return Some(Proposal {
                configuration: untried[pick],
                stop: None,
                outlook: None,
                reason,
            });
        };
        // Trees know no slopes: configurations beyond what was measured often look the same. Among equals
        // chance decides, not the order of the catalogue.
        let mut untried = untried;
        Random::new(search.seed(), 0xa220 + search.runs().len() as u64).shuffle(&mut untried);
        let configuration =
            untried.into_iter().min_by(|&a, &b| model[a].0.total_cmp(&model[b].0))?;
        let predicted = model[configuration].0;
        let done = search.runs().len() >= FEWEST
            && search.best().is_some_and(|(_, best)| predicted > best.ln() + TAU.ln());
        Some(Proposal {
            configuration,
            stop: done.then(|| format!("nothing untried is predicted below {TAU} times the best")),
            outlook: None,
            reason: "best prediction of the trees".to_owned(),
        })
    }

    fn predict(&self, search: &Search) -> Vec<Option<Prediction>> {
        match self.model(search) {
            Some(model) => model
                .into_iter()
                .map(|(mean, sd)| Some(Prediction { mean, sd, completes: 1.0 }))
                .collect(),
            None => vec![None; self.features.len()],
        }
    }
}
