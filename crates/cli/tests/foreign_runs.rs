//! Forecasts from runs that another program recorded: nothing but `run_started`, `step` and `run_ended`.

#![allow(clippy::unwrap_used)]

mod support;

use std::{fmt::Write as _, fs, path::Path};
use support::{json_in, run_in, said};

/// A run of so many ranks, each with 40 events; `started` is what its first event says, `step` what every step says beside its time.
fn record(folder: &Path, name: &str, ranks: usize, started: &str, step: &str) {
    let run = folder.join("runs").join(name);
    fs::create_dir_all(&run).unwrap();
    for rank in 0..ranks {
        let mut log = String::new();
        let mut add = |time: f64, kind: &str, data: &str| {
            writeln!(
                log,
                r#"{{"v":1,"time":{time},"task":"worker/{rank}","kind":"{kind}","data":{data}}}"#
            )
            .unwrap();
        };
        add(1000.0, "run_started", started);
        for number in 1..=40 {
            let time = 1000.0 + f64::from(number);
            add(time, "step", &format!(r#"{{"step":{number},"steps":1,"seconds":1.0{step}}}"#));
        }
        add(1040.0, "run_ended", r#"{"status":"done","step":40,"seconds":40.0}"#);
        fs::write(run.join(format!("events-worker-{rank}.jsonl")), log).unwrap();
    }
}

const STARTED: &str = r#"{"model":"resnet18","data":"cifar10","strategy":"data-parallel","global_batch":64,"parameters":11000000}"#;

#[test]
fn a_cluster_is_simulated_from_a_run_without_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let phases = r#","examples":64,"phases":{"input":0.1,"compute":0.9}"#;
    record(folder.path(), "full", 1, STARTED, phases);
    record(folder.path(), "bare", 1, "{}", r#","examples":64"#);
    let full = json_in(folder.path(), &["simulate", "runs/full", "--workers", "4", "--json"]);
    assert_eq!(full["batch_size"], 64, "{full}");
    assert!(
        (full["measured"]["examples_per_second"].as_f64().unwrap() - 64.0).abs() < 1e-6,
        "{full}"
    );
    assert_eq!(full["outcomes"].as_array().unwrap().len(), 3, "{full}");
    let says =
        |found: &serde_json::Value, what: &str| found["extrapolates"].to_string().contains(what);
    assert!(says(&full, "recorded by another program") && !says(&full, "upper bounds"), "{full}");
    // What is missing is said, without an error.
    let bare = json_in(folder.path(), &["simulate", "runs/bare", "--workers", "4", "--json"]);
    assert_eq!(bare["batch_size"], 64, "{bare}");
    for what in ["upper bounds", "does not say its batch size", "does not say its strategy"] {
        assert!(says(&bare, what), "{what}: {bare}");
    }
}

#[test]
fn a_run_that_counts_no_examples_is_refused_for_that_and_not_for_its_plan() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), "least", 1, "{}", "");
    let output = run_in(folder.path(), &["simulate", "runs/least"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("examples") && !said.contains("plan.json"), "{said}");
}

#[test]
fn a_scaling_curve_is_drawn_from_runs_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    for ranks in [1, 2, 3, 4] {
        let share = 64 / ranks;
        let step = format!(r#","examples":{share},"phases":{{"compute":1.0}}"#);
        record(folder.path(), &format!("of-{ranks}"), ranks, STARTED, &step);
    }
    let found = json_in(folder.path(), &["advise", "scale", "runs", "--json"]);
    assert_eq!(found["measured"]["most"], 4.0, "{found}");
    assert!(!found["predictions"].as_array().unwrap().is_empty(), "{found}");
}
