//! How long does one suggestion take with 69 candidates and 30 observations? Prints milliseconds per method.

#![allow(clippy::print_stdout)] // an example prints

use paceline_advisor::evaluate::{Half, Prices, RecordedSet};
use paceline_advisor::{Objective, Problem, Run, Search, methods};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::var("PACELINE_DATA").unwrap_or_else(|_| "../shared/data".to_owned());
    let folder = Path::new(&folder).join("scout");
    let set = RecordedSet::read(&folder, Half::MultiNode, Prices::OnDemand)?;
    let problem = Problem {
        catalogue: Arc::clone(&set.catalogue),
        history: Arc::new(set.runs.without_application("kmeans")),
        objective: Objective::Cost,
    };
    let mut search = Search::new(problem.clone(), 1);
    let job = set.runs.rows().iter().filter(|row| row.workload == "kmeans_spark1.5_huge");
    for row in job.step_by(2).take(30) {
        search.tell(Run {
            configuration: row.configuration,
            outcome: row.outcome,
            metrics: row.metrics.clone(),
        })?;
    }
    for entry in &methods::ALL {
        let begin = Instant::now();
        let advisor = (entry.build)(&problem, 0)?;
        let built = begin.elapsed().as_secs_f64() * 1e3;
        let mut times: Vec<f64> = (0..15)
            .map(|_| {
                let begin = Instant::now();
                let proposal = advisor.propose(&search);
                assert!(proposal.is_some(), "candidates are left");
                begin.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{:12} prepare {built:8.1} ms, suggest {:7.2} ms (worst {:.2})",
            entry.name, times[7], times[14]
        );
    }
    Ok(())
}
