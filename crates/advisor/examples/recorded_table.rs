//! Prints the multi-node half of the Scout set as JSON, for searches by other programs: candidates, and what each job took on them.

#![allow(clippy::print_stdout)] // an example prints

use paceline_advisor::evaluate::{Half, Prices, RecordedSet};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::var("PACELINE_DATA").unwrap_or_else(|_| "../shared/data".to_owned());
    let set =
        RecordedSet::read(&Path::new(&folder).join("scout"), Half::MultiNode, Prices::OnDemand)?;
    let candidates = (0..set.catalogue.len()).map(|at| {
        let machine = set.catalogue.machine(at);
        json!({
            "machine": machine.name, "count": set.catalogue.count(at), "cores": machine.cores,
            "memory_per_core": machine.memory_gib / machine.cores,
            "usd_per_hour": set.catalogue.usd_per_hour(at),
        })
    });
    let never = json!({ "completed": false, "seconds": 0.0, "usd": 0.0 });
    let mut jobs: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for row in set.runs.rows() {
        let runs =
            jobs.entry(&row.workload).or_insert_with(|| vec![never.clone(); set.catalogue.len()]);
        let seconds = row.outcome.seconds();
        runs[row.configuration] = json!({
            "completed": row.outcome.completed().is_some(), "seconds": seconds,
            "usd": set.catalogue.cost(row.configuration, seconds),
        });
    }
    let jobs = jobs.iter().map(|(workload, runs)| json!({ "workload": workload, "runs": runs }));
    let candidates: Vec<Value> = candidates.collect();
    println!("{}", json!({ "candidates": candidates, "jobs": jobs.collect::<Vec<_>>() }));
    Ok(())
}
