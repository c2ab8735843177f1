//! Forecasts from runs that another program recorded: nothing but `run_started`, `step` and `run_ended`.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader, Read, Write as _},
    net::TcpStream,
    path::Path,
    process::Stdio,
};
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

/// The live page's answer about all runs of a folder.
fn served(folder: &Path) -> String {
    let mut command = support::command_in(folder, &["serve", "runs", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/runs HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    answer
}

/// Three kinds of event are enough for every reader, finished or not, and all of them say the same.
#[test]
fn every_reader_gives_the_same_verdict_on_a_bare_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let step = r#","examples":64,"phases":{"input":0.6,"compute":0.4}"#;
    record(here, "finished", 1, STARTED, step);
    record(here, "cut-off", 1, STARTED, step);
    let log = here.join("runs/cut-off/events-worker-0.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.lines().take(30).map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    let page = served(here);
    for (run, beginning) in [("finished", "input-bound: 60 %"), ("cut-off", "ended without")] {
        let listed = json_in(here, &["runs", run, "--json"]);
        let verdict = listed[0]["verdict"].as_str().unwrap();
        assert!(verdict.starts_with(beginning) && verdict.contains("input-bound"), "{verdict}");
        assert!(page.contains(&serde_json::to_string(verdict).unwrap()), "{verdict}: {page}");
        for format in ["markdown", "html", "csv"] {
            let path = format!("runs/{run}");
            let output = run_in(here, &["report", &path, "--format", format, "--out", "page"]);
            assert!(output.status.success(), "{}", said(&output));
            // Pages keep a number and its sign together.
            let text = fs::read_to_string(here.join("page")).unwrap().replace('\u{a0}', " ");
            assert!(text.contains(verdict), "{format} of {run}: {verdict}");
        }
        let output = run_in(here, &["runs", run]);
        assert!(
            output.status.success() && !said(&output).contains("plan.json"),
            "{}",
            said(&output)
        );
    }
}
