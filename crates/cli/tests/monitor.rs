//! `paceline monitor` on real processes.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};
use support::{paceline, run, run_in, said};

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
    // On a busy machine readings come late: the command ends when there are some.
    let wait = format!("until [ $(wc -l < '{csv}') -ge 4 ]; do sleep 0.05; done");
    let output = monitor(&[
        "--every", "0.05", "--csv", &csv, "--dstat", &dstat, "--jsonl", &jsonl, "--json", "--",
        "sh", "-c", &wait,
    ]);
    assert!(output.status.success());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["columns"]["memory_used_bytes"]["mean"].as_f64().unwrap() > 0.0);
    for path in [&csv, &dstat] {
        let text = fs::read_to_string(path).unwrap();
        let widths: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
        assert!(widths.len() >= 3 && widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
    for line in fs::read_to_string(&jsonl).unwrap().lines() {
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

/// A SIGTERM for the recorder, as of `timeout` or `docker stop`, left the command running, and the recorder waited for it.
#[test]
fn signals_reach_the_command_that_is_recorded() {
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let script = format!(
            "trap 'echo {signal} > heard; exit 3' {signal}; echo $$ > number; while :; do sleep 0.05; done"
        );
        // Under `nohup` all that is started ignores SIGHUP.
        let mut recorder = Command::new("env")
            .args(["--default-signal=HUP", support::program()])
            .args(["monitor", "--every", "50ms", "--", "sh", "-c", &script])
            .current_dir(here)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !here.join("number").exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let number = recorder.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &number]).status().unwrap();
        assert!(sent.success());
        assert_eq!(recorder.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(fs::read_to_string(here.join("heard")).unwrap().trim(), signal);
    }
}

/// A full disk ended the recorder with 1, whatever the command ended with.
#[test]
fn a_record_that_cannot_be_written_costs_the_command_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // The header fits, further rows do not.
    let script = "ulimit -f 8; trap '' XFSZ; exec \"$0\" monitor --every 50ms --csv a.csv -- sh -c 'i=0; while [ $i -lt 60 ]; do sleep 0.05; i=$((i+1)); done; exit 7'";
    let output = Command::new("sh")
        .args(["-c", script, support::program()])
        .current_dir(here)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("the job continues: cannot write `a.csv`"), "{said}");
    assert!(said.contains("verdict"), "{said}");
    assert_eq!(said.matches("the job continues").count(), 1, "{said}");
}

/// The recording goes on while its file is marked from outside; one that has ended takes no marks.
#[test]
fn a_mark_lands_in_the_recording_that_is_running() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let wait = "until [ -e done ]; do sleep 0.05; done";
    let mut recorder = paceline()
        .current_dir(here)
        .args(["monitor", "--every", "50ms", "--csv", "a.csv", "--", "sh", "-c", wait])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = || fs::read_to_string(here.join("a.csv")).unwrap_or_default().lines().count();
    while lines() < 3 && recorder.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let call = ["--json", "monitor", "--csv", "a.csv", "--mark", "job \"a\", submitted"];
    let marked = run_in(here, &call);
    let second = run_in(here, &["monitor", "--csv", "a.csv", "--duration", "0.1"]);
    let before = lines();
    while lines() < before + 2 && recorder.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fs::write(here.join("done"), "").unwrap();
    assert!(recorder.wait().unwrap().success());
    assert!(marked.status.success(), "{}", said(&marked));
    let document: serde_json::Value = serde_json::from_slice(&marked.stdout).unwrap();
    assert_eq!(document["mark"], "job \"a\", submitted");
    assert_eq!(second.status.code(), Some(1), "another would have emptied the file");
    assert!(said(&second).contains("recorded by another process"), "{}", said(&second));

    let report = run_in(here, &["report", "a.csv", "--format", "markdown", "--out", "-"]);
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(text.contains("job \"a\", submitted") && text.contains("| a "), "{text}");
    let late = run_in(here, &call);
    assert_eq!(late.status.code(), Some(1));
    assert!(said(&late).contains("no process records to `a.csv`"), "{}", said(&late));
    assert!(said(&late).contains("hint:"), "{}", said(&late));
}
