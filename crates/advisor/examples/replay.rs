//! Replays one method on the Scout set and prints its regret: `replay METHOD [multi|single] [SEEDS] [STEPS] [cost|time]
//! [repeat|medians] [all|PAST JOBS] [text|json]`.

#![allow(clippy::print_stdout)] // an example prints

use paceline_advisor::evaluate::{Half, Prices, RecordedSet, ReplaySettings, Summary, replay};
use paceline_advisor::{Objective, methods};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize, default: &'static str| {
        arguments.get(at).map_or_else(|| default.to_owned(), Clone::clone)
    };
    let single = text(1, "multi") == "single";
    let half = if single { Half::SingleNode } else { Half::MultiNode };
    let folder = std::env::var("PACELINE_DATA").unwrap_or_else(|_| "../shared/data".to_owned());
    let set =
        RecordedSet::read(&std::path::Path::new(&folder).join("scout"), half, Prices::OnDemand)?;
    let objective = if text(4, "cost") == "time" { Objective::Time } else { Objective::Cost };
    let settings = ReplaySettings {
        seeds: text(2, "10").parse()?,
        steps: text(3, if single { "12" } else { "30" }).parse()?,
        threads: std::env::var("THREADS").map_or(Ok(2), |number| number.parse())?,
        objective,
        medians: text(5, "repeat") == "medians",
        past_jobs: match text(6, "all").as_str() {
            "all" => None,
            number => Some(number.parse()?),
        },
        complete_jobs_only: single,
    };
    let begin = std::time::Instant::now();
    let traces = replay(&set, methods::find(&text(0, "random"))?, &settings, &|| {})?;
    let summary = Summary::of(&text(0, "random"), &traces);
    if text(7, "text") == "json" {
        println!("{}", serde_json::to_string(&summary)?);
        return Ok(());
    }
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    println!("prediction error {:?}", summary.prediction_error);
    for (runs, spread) in &summary.regret {
        let found = summary.found.iter().find(|(at, _)| at == runs).map_or(0.0, |found| found.1);
        let jobs =
            summary.found_jobs.iter().find(|(at, _)| at == runs).map_or(0.0, |found| found.1);
        println!(
            "n={runs:2} mean {:.3} median {:.3} p90 {:.3} max {:.2} optimum {found:.2} of searches, {jobs:.2} of jobs",
            spread.mean, spread.median, spread.p90, spread.max
        );
    }
    println!("money to 1.2 and 1.1 {:?}; by money {:?}", summary.money_to, summary.by_money);
    println!("standard errors {:?}; coverage {:?}", summary.standard_error, summary.coverage);
    println!(
        "steps {:.1} {:.1} {:.1}; failing {:.3}; own stop {:.2} runs {:.3} ({:.2}); total {:?}",
        summary.steps[0],
        summary.steps[1],
        summary.steps[2],
        summary.failing,
        summary.own_stop[0],
        summary.own_stop[1],
        summary.stopped,
        summary.total
    );
    for job in &traces {
        let at = |n: usize| {
            let all = job.traces.iter().map(|t| t.regret[(n - 1).min(t.regret.len() - 1)]);
            all.sum::<f64>() / job.traces.len() as f64
        };
        if !single {
            println!("  {:32} {:.2} {:.2} {:.2} {:.2}", job.workload, at(1), at(3), at(6), at(15));
        }
    }
    Ok(())
}
