//! Known figures on the Scout set, to be met to the digit before anything else is believed.

use super::scout::{Half, Prices, RecordedSet};
use super::summary::mean;
use crate::error::AdvisorError;
use crate::measurements::Measurements;
use std::collections::BTreeMap;
use std::path::Path;

/// A figure, what it should be and what it is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Check {
    /// What is counted.
    pub what: &'static str,
    pub published: f64,
    /// Ours.
    pub found: f64,
}

impl Check {
    /// Whether they agree in the six decimals that were published.
    #[must_use]
    pub fn holds(&self) -> bool {
        (self.published - self.found).abs() < 5e-7
    }
}

/// Memory that profiling on samples predicts for a job, in GB, as the authors of Ruya printed it; jobs
/// not listed showed no linear growth.
const MEMORY_NEEDS: [(&str, f64); 6] = [
    ("naive-bayes_spark1.5_bigdata", 754.0),
    ("naive-bayes_spark1.5_huge", 395.0),
    ("kmeans_spark1.5_bigdata", 503.0),
    ("kmeans_spark1.5_huge", 252.0),
    ("pagerank_spark_bigdata", 86.0),
    ("pagerank_spark_huge", 42.0),
];

/// Computes every figure.
pub fn acceptance(folder: &Path) -> Result<Vec<Check>, AdvisorError> {
    let multi = RecordedSet::read(folder, Half::MultiNode, Prices::Rounded)?;
    let costs = normalised_costs(&multi);
    let jobs: Vec<&String> = costs.keys().collect();
    let random = mean(jobs.iter().map(|job| mean(costs[*job].values().copied())));
    let others = mean(jobs.iter().filter_map(|job| best_for_others(&multi, &costs, job, 0.0)));
    let crispy = mean(jobs.iter().filter_map(|job| {
        let need = MEMORY_NEEDS.iter().find(|(name, _)| name == job).map_or(0.0, |n| n.1);
        best_for_others(&multi, &costs, job, need)
            .or_else(|| best_for_others(&multi, &costs, job, 0.0))
    }));
    let single = RecordedSet::read(folder, Half::SingleNode, Prices::OnDemand)?;
    let (fastest, cheapest, complete) = single_node_winners(&single);
    Ok(vec![
        Check { what: "random choice, mean normalised cost", published: 2.348822, found: random },
        Check { what: "best for other jobs, mean", published: 1.769217, found: others },
        Check { what: "Crispy's rule, mean", published: 1.337519, found: crispy },
        Check { what: "single-node jobs on all machines", published: 107.0, found: complete },
        Check { what: "c4.2xlarge fastest", published: 54.0, found: fastest },
        Check { what: "c4.large cheapest", published: 56.0, found: cheapest },
    ])
}

type Costs = BTreeMap<String, BTreeMap<usize, f64>>;

/// Cost over the job's own best, completed runs only, without wordcount as in the published study.
fn normalised_costs(set: &RecordedSet) -> Costs {
    let mut costs: Costs = BTreeMap::new();
    for row in set.runs.rows().iter().filter(|row| row.application != "wordcount") {
        if let Some(seconds) = row.outcome.completed() {
            let cost = set.catalogue.cost(row.configuration, seconds);
            costs.entry(row.workload.clone()).or_default().insert(row.configuration, cost);
        }
    }
    for job in costs.values_mut() {
        let best = job.values().copied().fold(f64::INFINITY, f64::min);
        job.values_mut().for_each(|cost| *cost /= best);
    }
    costs
}

fn is_hadoop(job: &str) -> bool {
    job.contains("_hadoop_")
}

/// Crispy's rule as published, leaks included: the configuration with the smallest *sum* of normalised
/// costs over jobs of other applications on the same framework, among those that completed for
/// this very job and hold `need` GB beside 2 (Hadoop) or 2.5 (Spark) GB per machine.
fn best_for_others(set: &RecordedSet, costs: &Costs, job: &str, need: f64) -> Option<f64> {
    let application = |name: &str| name.split('_').next().unwrap_or(name).to_owned();
    let overhead = if is_hadoop(job) { 2.0 } else { 2.5 };
    let others: Vec<&BTreeMap<usize, f64>> = costs
        .iter()
        .filter(|(name, _)| is_hadoop(name) == is_hadoop(job))
        .filter(|(name, _)| application(name) != application(job))
        .map(|(_, other)| other)
        .collect();
    let catalogue = &set.catalogue;
    costs[job]
        .iter()
        .filter(|&(&at, _)| {
            catalogue.memory_gib(at) > need + overhead * f64::from(catalogue.count(at))
        })
        .map(|(&at, &own)| (others.iter().filter_map(|other| other.get(&at)).sum::<f64>(), at, own))
        .min_by(|a, b| {
            let key = |at: usize| (catalogue.machine(at).name.clone(), catalogue.count(at));
            a.0.total_cmp(&b.0).then_with(|| key(a.1).cmp(&key(b.1)))
        })
        .map(|(_, _, own)| own)
}

/// How often c4.2xlarge is fastest and c4.large cheapest by medians, over the jobs that completed on
/// all machine types.
fn single_node_winners(set: &RecordedSet) -> (f64, f64, f64) {
    let medians = medians(&set.runs);
    let (mut fastest, mut cheapest, mut complete) = (0.0, 0.0, 0.0);
    for job in medians.values().filter(|job| job.len() == set.catalogue.len()) {
        complete += 1.0;
        let winner = |value: &dyn Fn(usize, f64) -> f64| {
            job.iter()
                .min_by(|a, b| value(*a.0, *a.1).total_cmp(&value(*b.0, *b.1)))
                .map_or("", |(&at, _)| set.catalogue.machine(at).name.as_str())
        };
        if winner(&|_, seconds| seconds) == "c4.2xlarge" {
            fastest += 1.0;
        }
        if winner(&|at, seconds| set.catalogue.cost(at, seconds)) == "c4.large" {
            cheapest += 1.0;
        }
    }
    (fastest, cheapest, complete)
}

/// The median time of each workload on each configuration it completed on.
pub(super) fn medians(runs: &Measurements) -> BTreeMap<&str, BTreeMap<usize, f64>> {
    let mut times: BTreeMap<&str, BTreeMap<usize, Vec<f64>>> = BTreeMap::new();
    for row in runs.rows().iter().filter(|row| !row.stands_in) {
        if let Some(seconds) = row.outcome.completed() {
            let job = times.entry(&row.workload).or_default();
            job.entry(row.configuration).or_default().push(seconds);
        }
    }
    let middle = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        let half = times.len() / 2;
        if times.len() % 2 == 1 { times[half] } else { (times[half - 1] + times[half]) / 2.0 }
    };
    times
        .into_iter()
        .map(|(job, all)| (job, all.into_iter().map(|(at, times)| (at, middle(times))).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_are_met_to_the_digit() {
        let Some(folder) = paceline_testing::real_data("scout") else { return };
        for check in acceptance(&folder).unwrap() {
            assert!(check.holds(), "{check:?}");
        }
    }
}
