//! The stop rule on jobs that were never run: times that follow from a few laws, drawn at random.

#![allow(clippy::unwrap_used)] // a test may

use paceline_advisor::evaluate::{ReplaySettings, StudyQuestion, StudySource, Summary, replay};
use paceline_advisor::{Objective, methods};
use paceline_stats::random::Random;
use std::fmt::Write;

/// Name, cores, memory in GiB, dollars an hour, speed.
const MACHINES: [(&str, f64, f64, f64, f64); 9] = [
    ("c-small", 2.0, 3.75, 0.1, 1.15),
    ("c-medium", 4.0, 7.5, 0.2, 1.15),
    ("c-large", 8.0, 15.0, 0.4, 1.15),
    ("m-small", 2.0, 8.0, 0.1, 1.0),
    ("m-medium", 4.0, 16.0, 0.2, 1.0),
    ("m-large", 8.0, 32.0, 0.4, 1.0),
    ("r-small", 2.0, 15.0, 0.133, 1.0),
    ("r-medium", 4.0, 30.0, 0.266, 1.0),
    ("r-large", 8.0, 61.0, 0.532, 1.0),
];
const COUNTS: [f64; 5] = [2.0, 4.0, 6.0, 10.0, 16.0];
const JOBS: usize = 8;

/// What else there is to a job beside work that cores share.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Surface {
    Smooth,
    /// Slower by up to six times where its data do not fit into memory.
    Cliff,
    /// Part of the work is done by the disks, of which each machine has one.
    Disks,
    /// It fails where its data do not fit.
    Failures,
}

/// Catalogue and recorded runs as the files that `advise evaluate` reads.
fn files(surface: Surface, seed: u64) -> [String; 2] {
    let mut catalogue = "machine,count,cores,memory_gib,usd_per_hour,speed\n".to_owned();
    for (name, cores, memory, usd, speed) in MACHINES {
        let counts = COUNTS.map(|count| count.to_string()).join(";");
        writeln!(catalogue, "{name},{counts},{cores},{memory},{usd},{speed}").unwrap();
    }
    let mut history = "workload,application,machine,count,seconds,completed\n".to_owned();
    let mut random = Random::new(seed, surface as u64);
    for job in 0..JOBS {
        let mut between = |low: f64, high: f64| low + (high - low) * random.uniform();
        let (work, serial) = (between(8.0, 11.0).exp(), between(0.0, 0.12));
        let (message, tree) = (between(-1.0, 2.0).exp(), between(0.0, 30.0));
        let (set, slower, disks) = (between(2.5, 5.5).exp(), between(1.0, 5.0), between(0.0, 0.1));
        for (name, cores, memory, _, speed) in MACHINES {
            for count in COUNTS {
                let missing = (set / (0.6 * memory * count) - 1.0).clamp(0.0, 1.0);
                let shared = (1.0 - serial) / (cores * count * speed) + 0.2 * serial;
                let mut seconds = 20.0 + work * shared + tree * count.ln() + message * count;
                match surface {
                    Surface::Cliff => seconds *= 1.0 + slower * missing,
                    Surface::Disks => seconds += work * disks / count,
                    Surface::Smooth | Surface::Failures => {}
                }
                // Two draws that are added and centred: no run is quite like the one before it.
                seconds *= 1.0 + 0.1 * (between(-0.5, 0.5) + between(-0.5, 0.5));
                let completed = surface != Surface::Failures || set < 1.5 * memory * count;
                let application = job / 2;
                writeln!(
                    history,
                    "job{job},app{application},{name},{count},{seconds:.1},{completed}"
                )
                .unwrap();
            }
        }
    }
    [catalogue, history]
}

fn searches(surface: Surface) -> Summary {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["catalogue.csv", "history.csv"].map(|name| folder.path().join(name));
    for (path, text) in paths.iter().zip(files(surface, 1)) {
        std::fs::write(path, text).unwrap();
    }
    let [catalogue, history] = paths;
    let question = StudyQuestion {
        source: StudySource::Files { catalogue, history },
        settings: ReplaySettings {
            seeds: 2,
            steps: 12,
            threads: 2,
            objective: Objective::Cost,
            medians: false,
            past_jobs: None,
            complete_jobs_only: false,
        },
    };
    let set = question.read().unwrap();
    let method = methods::find("paceline").unwrap();
    Summary::of("paceline", &replay(&set, method, &question.settings, &|| {}).unwrap())
}

#[test]
fn searches_stop_by_themselves_near_the_optimum_after_few_runs() {
    let surfaces = [Surface::Smooth, Surface::Cliff, Surface::Disks, Surface::Failures];
    let stops = surfaces.map(|surface| (surface, searches(surface)));
    let mean = |of: fn(&Summary) -> f64| {
        stops.iter().map(|(_, summary)| of(summary)).sum::<f64>() / stops.len() as f64
    };
    let all: Vec<_> = stops.iter().map(|(surface, found)| (surface, found.own_stop)).collect();
    assert!(mean(|found| found.own_stop[0]) <= 8.0, "{all:?}");
    assert!(mean(|found| found.own_stop[1]) <= 1.10, "{all:?}");
    assert!(stops.iter().all(|(_, found)| found.failing == 0.0), "{all:?}");
}
