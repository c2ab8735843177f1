//! `paceline sweep` as a real process: grids, failures as rows, kills and resumes, recipes without a run.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const DATA: &str = "generated:digits?examples=300";

fn paceline(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.args(args).stdin(Stdio::null());
    command
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn rows(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("sweep.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_grid_is_run_once_and_failures_stay_as_rows() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s");
    let out_text = out.to_str().unwrap();
    let call = [
        "sweep",
        "--json",
        "--out",
        out_text,
        "--repeats",
        "2",
        "--vary",
        "batch-size=10,50",
        "--vary",
        "strategy=one-device,nonsense",
        "--",
        "train",
        "--model",
        "softmax",
        "--data",
        DATA,
        "--steps",
        "3",
    ];
    let first = paceline(&call).output().unwrap();
    assert_eq!(first.status.code(), Some(1), "{}", String::from_utf8_lossy(&first.stderr));
    let document = json(&first);
    assert_eq!(document["complete"], true);
    let found = &document["findings"];
    assert_eq!((&found["cells"], &found["done"]), (&Value::from(8), &Value::from(8)));
    let failures = found["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 4);
    assert!(failures[0][1]["reason"].as_str().unwrap().contains("nonsense"), "{failures:?}");
    let good = found["groups"].as_array().unwrap().iter();
    let good: Vec<_> = good.filter(|group| group["failed"] == 0).collect();
    assert_eq!(good.len(), 2);
    assert!(good.iter().all(|group| group["values"][2].as_array().unwrap().len() == 2));
    for ending in ["html", "md", "csv", "json"] {
        assert!(out.join(format!("sweep.{ending}")).is_file(), "{ending}");
    }
    // Nothing is run twice, and weights are not kept.
    let before = rows(&out).len();
    let again = paceline(&call).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("8 of 8 cells were there already"));
    assert_eq!(rows(&out).len(), before);
    let cells = std::fs::read_dir(out.join("cells")).unwrap();
    for run in cells.flat_map(|cell| paceline_runs::list(&cell.unwrap().path()).unwrap()) {
        assert!(!run.checkpoints_path().exists());
    }
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s");
    let call = [
        "sweep",
        "--json",
        "--out",
        out.to_str().unwrap(),
        "--vary",
        "batch-size=10,20,30,40,50",
        "--",
        "train",
        "--model",
        "softmax",
        "--data",
        DATA,
        "--steps",
        "40",
    ];
    let mut child = paceline(&call).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while rows(&out).is_empty() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = rows(&out).len();
    assert!(done >= 1, "no cell within a minute");
    let rest = paceline(&call).output().unwrap();
    assert!(rest.status.success(), "{}", String::from_utf8_lossy(&rest.stderr));
    assert_eq!(json(&rest)["findings"]["done"], 5);
    assert_eq!(rows(&out).len(), 5, "finished cells are not run again");
}

/// Processes whose command line names a path.
fn processes_with(path: &str) -> usize {
    let folders = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = folders.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(path)).count()
}

#[test]
fn a_sweep_that_was_killed_leaves_no_cell_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s").to_str().unwrap().to_owned();
    let call = ["sweep", "--out", &out, "--vary", "strategy=multi-worker", "--", "train"];
    let cell = ["--model", "softmax", "--data", DATA, "--steps", "1000000000", "--no-tensorboard"];
    let mut command = paceline(&call);
    command.args(cell).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    // The sweep itself and its cell name the folder.
    while processes_with(&out) < 2 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(processes_with(&out) >= 2, "no cell within a minute");
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while processes_with(&out) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "a cell goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_recipe_says_what_it_would_run() {
    let listed = paceline(&["list", "recipes", "--json"]).output().unwrap();
    let recipes = json(&listed)["recipes"].as_array().unwrap().clone();
    assert!(recipes.len() >= 14);
    for recipe in recipes {
        let name = recipe["name"].as_str().unwrap();
        let output =
            paceline(&["sweep", name, "--scale", "0.05", "--dry-run", "--json"]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!json(&output)["cells"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn wrong_calls_are_usage_errors_with_a_hint() {
    for call in [
        &["sweep"][..],
        &["sweep", "no-such-recipe"],
        &["sweep", "--vary", "lr", "--", "train"],
        &["sweep", "softmax-batch", "--scale", "7"],
    ] {
        let output = paceline(call).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{call:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("hint"), "{call:?}");
    }
}
