//! `paceline monitor` on real processes.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Output;
use support::run;

fn monitor(args: &[&str]) -> Output {
    run(&[&["monitor"], args].concat())
}

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let output = monitor(&["--every", "0.05", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(code), "{script}");
    }
}

#[test]
fn a_recording_has_a_header_and_rows_of_the_same_width() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, dstat, jsonl) = (file("a.csv"), file("b.csv"), file("c.jsonl"));
    let output = monitor(&[
        "--every", "0.05", "--csv", &csv, "--dstat", &dstat, "--jsonl", &jsonl, "--json", "--",
        "sleep", "0.4",
    ]);
    assert!(output.status.success());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["columns"]["memory_used_bytes"]["mean"].as_f64().unwrap() > 0.0);
    for path in [&csv, &dstat] {
        let text = std::fs::read_to_string(path).unwrap();
        let widths: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
        assert!(widths.len() >= 3 && widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
    for line in std::fs::read_to_string(&jsonl).unwrap().lines() {
        let reading: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(reading["detail"]["cpu0"].is_object(), "{line}");
    }
}

#[test]
fn a_missing_command_and_a_silly_interval_are_clear_errors() {
    let output = monitor(&["--", "/no/such/program"]);
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(talk.contains("/no/such/program") && talk.contains("hint:"), "{talk}");
    assert_eq!(monitor(&["--every", "0.001"]).status.code(), Some(2));
    assert_eq!(monitor(&["--every", "-1"]).status.code(), Some(2));
}

#[test]
fn a_duration_ends_a_recording_of_the_machine() {
    let output = monitor(&["--every", "0.1", "--duration", "0.5"]);
    assert_eq!(output.status.code(), Some(0));
    let rows = String::from_utf8(output.stdout).unwrap().lines().count();
    assert!(rows >= 2, "a header and a reading at least: {rows} lines");
}
