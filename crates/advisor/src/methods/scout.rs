//! Scout (Hsu et al., 2018): from one run to a better one, learned from past workloads.
//!
//! A forest is trained on pairs of runs of past jobs: where from, what the machine did there, where
//! to; is the second clearly better? The search walks from the best run so far to the candidate most
//! probably better. The published class cuts and tolerance could not be verified; ours are stated below.

use super::AdvisorMethod;
use crate::error::AdvisorError;
use crate::forest::{Forest, Growth, Kind, Rows};
use crate::history::History;
use crate::search::{Advisor, Problem, Proposal, Search};
use paceline_stats::random::Random;

/// The registry's line.
pub(super) const ENTRY: AdvisorMethod = AdvisorMethod {
    name: "scout",
    about: "walks from run to run to what past jobs say is most probably better",
    needs_history: true,
    uses_history: true,
    build: |problem, seed| Ok(Box::new(Scout::new(problem, seed)?)),
};

/// A run is better than another below this share of its value.
const BETTER: f64 = 0.9;
/// Less probable than this is not worth a run.
const PROBABLE: f64 = 0.5;
/// Runs that were expected to be better and were not, before it gives up.
const MISSES: usize = 3;
/// Training pairs at most; drawn evenly from all of them.
const MOST_PAIRS: usize = 12_000;
const GROWTH: Growth = Growth { trees: 40, smallest: 8, tries: 6, kind: Kind::ExtraTrees };

struct Scout {
    features: Vec<Vec<f64>>,
    forest: Forest,
    distances: Vec<Option<f64>>,
    /// Mean metrics of past jobs per configuration: stand-in where a run has none.
    usual: Vec<Vec<f64>>,
}

impl Scout {
    fn new(problem: &Problem, seed: u64) -> Result<Self, AdvisorError> {
        let history = History::new(problem);
        if history.is_empty() {
            return Err(AdvisorError::NeedsHistory { method: ENTRY.name });
        }
        let features = problem.catalogue.features();
        let usual = usual_metrics(&history, features.len());
        let mut pairs: Vec<(usize, usize, usize)> = Vec::new();
        for (index, job) in history.jobs.iter().enumerate() {
            let known: Vec<usize> =
                (0..features.len()).filter(|&at| job.values[at].is_some()).collect();
            for &from in &known {
                let others = known.iter().filter(|&&to| to != from);
                pairs.extend(others.map(|&to| (index, from, to)));
            }
        }
        Random::new(seed, 0x5c07).shuffle(&mut pairs);
        pairs.truncate(MOST_PAIRS);
        let mut rows = Rows::default();
        for (job, from, to) in pairs {
            let job = &history.jobs[job];
            if let (Some(a), Some(b)) = (job.values[from], job.values[to]) {
                let metrics =
                    if job.metrics[from].is_empty() { &usual[from] } else { &job.metrics[from] };
                let row = [&features[from], metrics, &features[to]].map(Vec::as_slice).concat();
                rows.push(&row, f64::from(b < a + BETTER.ln()));
            }
        }
        let forest = Forest::grow(&rows, GROWTH, seed);
        Ok(Self { features, forest, distances: history.mean_distances(), usual })
    }
}

/// Mean metrics per configuration; configurations without metrics get the mean of all.
fn usual_metrics(history: &History, count: usize) -> Vec<Vec<f64>> {
    let average = |rows: Vec<&Vec<f64>>| -> Vec<f64> {
        let width = rows.first().map_or(0, |row| row.len());
        let n = rows.len().max(1) as f64;
        (0..width).map(|at| rows.iter().map(|row| row[at]).sum::<f64>() / n).collect()
    };
    let known = |at: usize| -> Vec<&Vec<f64>> {
        history.jobs.iter().map(|job| &job.metrics[at]).filter(|row| !row.is_empty()).collect()
    };
    let overall = average((0..count).flat_map(known).collect());
    (0..count)
        .map(|at| {
            let rows = known(at);
            if rows.is_empty() { overall.clone() } else { average(rows) }
        })
        .collect()
}

impl Advisor for Scout {
    fn propose(&self, search: &Search) -> Option<Proposal> {
        let Some((from, _)) = search.best() else {
            let distance = |at: usize| self.distances[at].unwrap_or(f64::INFINITY);
            let first = search.untried().min_by(|&a, &b| distance(a).total_cmp(&distance(b)))?;
            let reason = match self.distances[first] {
                Some(distance) => format!(
                    "the best start by past jobs: {:.0} % above each one's best on average",
                    distance.exp_m1() * 100.0
                ),
                None => "past jobs did not run on what is left".to_owned(),
            };
            return Some(Proposal { configuration: first, stop: None, outlook: None, reason });
        };
        let metrics = search
            .runs()
            .iter()
            .find(|run| run.configuration == from && run.outcome.completed().is_some())
            .map(|run| &run.metrics)
            .filter(|metrics| metrics.len() == self.usual[from].len())
            .unwrap_or(&self.usual[from]);
        let better = |to: usize| {
            let row = [&self.features[from], metrics, &self.features[to]].map(Vec::as_slice);
            self.forest.predict(&row.concat())
        };
        let (configuration, chance) =
            search.untried().map(|at| (at, better(at))).max_by(|a, b| a.1.total_cmp(&b.1))?;
        let misses = misses(search);
        let percent = chance * 100.0;
        let stop = if chance <= PROBABLE {
            Some(format!("no untried configuration is better with more than {percent:.0} %"))
        } else if misses >= MISSES {
            Some(format!("{misses} runs in a row were no better"))
        } else {
            None
        };
        let reason = format!("better than the best run with {percent:.0} %");
        Some(Proposal { configuration, stop, outlook: None, reason })
    }
}

/// Runs since the best one.
fn misses(search: &Search) -> usize {
    let best = search.best().map(|(at, _)| at);
    search.runs().iter().rev().take_while(|run| Some(run.configuration) != best).count()
}
