//! `paceline compare` as a real process: rates of run folders, times, failures, Ctrl-C.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};
use support::{command_in, document, json, run_in, said};

/// A program that leaves a run of so many examples in one second.
const RECORDS: &str = r#"#!/bin/sh
mkdir -p "$PACELINE_RUN_FOLDER"
cat > "$PACELINE_RUN_FOLDER/events-worker-0.jsonl" <<END
{"v":1,"time":1000,"task":"worker/0","kind":"run_started","data":{"run":"r","model":"m","data":"d","strategy":"one-device","global_batch":10}}
{"v":1,"time":1001,"task":"worker/0","kind":"step","data":{"step":10,"steps":10,"examples":$1,"seconds":1.0,"phases":{"input":0.1,"compute":0.9}}}
{"v":1,"time":1001,"task":"worker/0","kind":"run_ended","data":{"status":"done","step":10,"seconds":1.0}}
END
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("records.sh"), RECORDS).unwrap();
    folder
}

fn rates(folder: &Path, flags: &str, a: u32, b: u32) -> (Option<i32>, Value) {
    let words = format!("compare --json {flags} -- sh records.sh {a} -- sh records.sh {b}");
    let output = run_in(folder, &words.split_whitespace().collect::<Vec<_>>());
    (output.status.code(), document(&output))
}

#[test]
fn rates_of_run_folders_are_compared_and_the_answer_may_decide_the_exit_code() {
    let folder = folder();
    let (exit, faster) = rates(folder.path(), "--pairs 9", 100, 120);
    assert_eq!((exit, &faster["answer"]), (Some(0), &"faster".into()), "{faster}");
    assert_eq!((&faster["measured_by"], &faster["stopped"]), (&"rate".into(), &"pairs".into()));
    assert!((faster["ratio"]["value"].as_f64().unwrap() - 1.2).abs() < 1e-9, "{faster}");
    assert_eq!(faster["pairs"].as_array().unwrap().len(), 9);
    assert_eq!((&faster["a"]["median"], &faster["b"]["median"]), (&100.0.into(), &120.0.into()));
    for (flags, a, b, exit) in [
        ("--pairs 9 --fail-if slower", 100, 120, 0),
        ("--pairs 9 --fail-if slower", 120, 100, 1),
        ("--pairs 9 --fail-if not-faster", 100, 100, 1),
        ("--pairs 9 --fail-if not-faster", 100, 120, 0),
    ] {
        let (found, document) = rates(folder.path(), flags, a, b);
        assert_eq!(found, Some(exit), "{flags} {a} {b}: {document}");
    }
}

#[test]
fn a_comparison_stops_when_it_is_decided_or_precise() {
    let folder = folder();
    let (_, decided) = rates(folder.path(), "--until decided --budget 1h", 100, 150);
    assert_eq!((&decided["stopped"], &decided["answer"]), (&"decided".into(), &"faster".into()));
    let (_, precise) = rates(folder.path(), "--until 5% --budget 1h", 100, 100);
    assert_eq!(precise["stopped"], "precision", "{precise}");
    assert_eq!(precise["answer"], "no_difference", "{precise}");
}

#[test]
fn times_are_compared_where_no_run_is_left_and_few_pairs_say_nothing() {
    let folder = folder();
    let output =
        run_in(folder.path(), &["compare", "--json", "--pairs", "2", "--", "true", "--", "true"]);
    let found = json(&output);
    assert_eq!((&found["measured_by"], &found["unit"]), (&"time".into(), &"s".into()));
    assert_eq!((&found["answer"], &found["ratio"]), (&"unknown".into(), &Value::Null));
    let text = run_in(folder.path(), &["compare", "--pairs", "2", "--", "true", "--", "true"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("nothing can be said yet: 2 pairs"), "{text}");
}

#[test]
fn our_own_commands_are_compared_by_their_rates() {
    let folder = folder();
    let train =
        "train --model softmax --data generated:digits?examples=100 --steps 2 --no-tensorboard";
    let words = format!("compare --json --pairs 1 --warm-up 0 -- {train} -- {train}");
    let found = json(&run_in(folder.path(), &words.split(' ').collect::<Vec<_>>()));
    assert_eq!(found["measured_by"], "rate", "{found}");
    assert!(!folder.path().join("runs").exists(), "what a comparison measures is not kept");
}

#[test]
fn a_command_that_fails_is_named_with_its_last_lines() {
    let folder = folder();
    let script = "echo loading; echo 'out of memory: 3 GiB' >&2; exit 3";
    let output = run_in(folder.path(), &["compare", "--", "true", "--", "sh", "-c", script]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("B failed (exit status: 3)"), "{said}");
    assert!(said.contains("loading") && said.contains("out of memory: 3 GiB"), "{said}");
    let slow = ["compare", "--timeout", "1ms", "--", "sleep", "1000", "--", "sleep", "1000"];
    let output = run_in(folder.path(), &slow);
    assert_eq!(output.status.code(), Some(1));
    assert!(support::said(&output).contains("was stopped after"), "{}", support::said(&output));
}

#[test]
fn a_command_without_a_rate_is_said_where_rates_were_asked_for() {
    let folder = folder();
    let words = ["compare", "--measure", "rate", "--", "sh", "records.sh", "5", "--", "true"];
    let output = run_in(folder.path(), &words);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("no rate was recorded by `true`"), "{}", said(&output));
}

#[test]
fn ctrl_c_ends_a_comparison_with_what_was_measured() {
    let folder = folder();
    let script = "sh records.sh 100; echo x >> calls; if [ $(wc -l < calls) -gt 8 ]; then exec sleep 1000; fi";
    let words = ["compare", "--pairs", "1000", "--", "sh", "-c", script, "--", "sh", "-c", script];
    let mut command = command_in(folder.path(), &words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let calls = || fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    while calls().lines().count() <= 8 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let number = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("3 pairs were measured"), "{text}");
    assert!(said(&output).contains("interrupted"), "{}", said(&output));
}

#[test]
fn one_command_three_commands_and_unknown_ones_are_wrong_usage() {
    let folder = folder();
    for (behind, needle) in [
        ("-- true", "two commands are needed"),
        ("-- true --", "two commands are needed"),
        ("-- true -- true -- true", "3 commands were given"),
        ("-- true -- trian", "unknown command `trian`"),
    ] {
        let words = format!("compare {behind}");
        let output = run_in(folder.path(), &words.split(' ').collect::<Vec<_>>());
        let said = said(&output);
        assert!(output.status.code() == Some(2) && said.contains(needle), "{behind}: {said}");
    }
}
