//! An alternative is one file and one line: here are a model, a strategy, a source, an advisor, a probe and a launcher that
//! the crates have never heard of, each in a file of its own and added by one line. They are listed like the others, and
//! take part in runs under the names users would type.

#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "newcomers/advisor.rs"]
mod advisor;
#[path = "newcomers/launcher.rs"]
mod launcher;
#[path = "newcomers/model.rs"]
mod model;
#[path = "newcomers/probe.rs"]
mod probe;
#[path = "newcomers/source.rs"]
mod source;
#[path = "newcomers/strategy.rs"]
mod strategy;

use paceline_advisor::{
    Catalogue, Machine, Measurements, Objective, Outcome, Problem, Run, Search,
};
use paceline_jobs::{ClusterOptions, ClusterTask, Unobserved, Work, run_in_process};
use paceline_runs::Status;
use paceline_training::{RunSpec, Start, Stop};
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// The one line of each.
fn add_all() {
    paceline_models::registry::ALL.add(&model::ENTRY).unwrap();
    paceline_strategies::ALL.add(&strategy::ENTRY).unwrap();
    paceline_data::sources::ALL.add(&source::ENTRY).unwrap();
    paceline_advisor::methods::ALL.add(&advisor::ENTRY).unwrap();
    paceline_probes::ALL.add(&probe::ENTRY).unwrap();
    paceline_cluster::spec::ALL.add(&launcher::ENTRY).unwrap();
}

/// One test: what is added stays for the whole process.
#[test]
fn a_newcomer_of_each_kind_is_one_file_and_one_line() {
    let unknown = paceline_models::registry::find("frequencies").unwrap_err().to_string();
    assert!(unknown.contains("unknown model"), "{unknown}");
    add_all();
    they_are_listed();
    let folder = tempfile::tempdir().unwrap();
    model_source_strategy_and_probe_make_a_run(folder.path());
    launcher_describes_the_cluster_of_a_run(folder.path());
    advisor_finds_the_best();
}

fn they_are_listed() {
    assert!(paceline_models::registry::names().any(|name| name == "frequencies"));
    let unknown = paceline_models::registry::find("frequencies-2").unwrap_err().to_string();
    assert!(unknown.contains("did you mean `frequencies`"), "{unknown}");
    let unknown = paceline_strategies::find("telepathy").unwrap_err().to_string();
    assert!(unknown.contains("whole-gradient"), "{unknown}");
    let unknown = paceline_data::sources::detect(Path::new(env!("CARGO_MANIFEST_DIR")));
    let unknown = unknown.unwrap_err().to_string();
    assert!(unknown.contains("stripes: `stripes:COUNT`"), "{unknown}");
    let Err(unknown) = paceline_advisor::methods::find("oracle") else { unreachable!() };
    assert!(unknown.to_string().contains("most-cores"), "{unknown}");
    assert!(paceline_probes::columns().any(|column| column.name == "entropy_bits"));
    assert!(paceline_cluster::spec::ALL.iter().any(|entry| entry.name == "test bench"));
}

fn spec(model: &str, strategy: &str) -> RunSpec {
    RunSpec {
        strategy: strategy.to_owned(),
        batch_size: 8,
        learning_rate: Some(0.5),
        threads: Some(1),
        stop: Stop { steps: Some(20), ..Stop::default() },
        ..RunSpec::new(model, "stripes:40")
    }
}

fn model_source_strategy_and_probe_make_a_run(folder: &Path) {
    let work = Work::from(spec("frequencies", "whole_gradient"));
    let start = Start::New { out: folder.to_path_buf() };
    let outcome = run_in_process(&work, &start, &AtomicBool::new(false), &Unobserved).unwrap();
    let summary = outcome.result.summary();
    assert_eq!((summary.status, summary.global_steps), (Status::Done, 20));
    let plan = std::fs::read_to_string(outcome.run.path().join("plan.json")).unwrap();
    for name in ["frequencies", "whole-gradient", "stripes:40"] {
        assert!(plan.contains(name), "{name} in {plan}");
    }
    let resources = std::fs::read_to_string(outcome.run.resources_path("worker/0")).unwrap();
    assert!(resources.lines().next().unwrap().contains("entropy_bits"), "{resources}");
}

/// One task, which is all that the launcher's cluster has.
fn launcher_describes_the_cluster_of_a_run(folder: &Path) {
    let options = ClusterOptions { insecure: true, ..ClusterOptions::default() };
    let mut task = ClusterTask {
        placement: options.place().unwrap(),
        work: Work::from(spec("softmax", "multi-worker")),
        start: Start::New { out: folder.to_path_buf() },
        join_timeout: Duration::from_secs(900),
        patience: Duration::from_secs(900),
        cancel: Arc::default(),
        observer: Arc::new(Unobserved),
    };
    assert_eq!(task.placement.origin, "test bench");
    let outcome = task.open().unwrap().run().unwrap();
    assert!(outcome.is_chief);
    assert_eq!(outcome.result.unwrap().summary().global_steps, 20);
}

fn advisor_finds_the_best() {
    let machine = |name: &str, cores| Machine {
        name: name.to_owned(),
        cores,
        memory_gib: 8.0,
        usd_per_hour: cores,
        speed: None,
        disk_mb_per_s: None,
        network_gbit: None,
    };
    let problem = Problem {
        catalogue: Arc::new(Catalogue::from_parts([
            (machine("small", 2.0), vec![1]),
            (machine("large", 64.0), vec![1]),
            (machine("medium", 8.0), vec![1]),
        ])),
        history: Arc::new(Measurements::default()),
        objective: Objective::Time,
    };
    let advisor =
        (paceline_advisor::methods::find("most-cores").unwrap().build)(&problem, 1).unwrap();
    let mut search = Search::new(problem, 1);
    let first = advisor.propose(&search).unwrap().configuration;
    assert_eq!(first, 1, "the one with the most cores");
    let outcome = Outcome::Completed { seconds: 60.0 };
    search.tell(Run { configuration: first, outcome, metrics: Vec::new() }).unwrap();
    assert_eq!(advisor.recommend(&search).unwrap().configuration, first);
}
