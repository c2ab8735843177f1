//! What `advise job` asks, through a pseudo-terminal of `script`, answers typed when they are asked for.

#![allow(clippy::unwrap_used)]

mod support;
#[path = "support/transcript.rs"]
mod transcript;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{document, program, run_in, said, train_as};
use transcript::{compare, kept, masked};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

const SIZE: &str = "How much data is there now?";
const GROWTH: &str = "How much arrives in a day";
const EXAMPLE: &str = "How large is one example?";
const DELAY: &str = "How long after an example has arrived";
const RATE: &str = "From how many examples a second";

/// What a terminal showed, and the exit code: each answer is typed once its question stands there.
fn talk(folder: &Path, words: &str, answers: &[(&str, &str)]) -> (String, Option<i32>) {
    let line = format!("'{}' {words}", program());
    let mut script = Command::new("script");
    script.args([
        "--quiet",
        "--return",
        "--flush",
        "--echo",
        "always",
        "--command",
        &line,
        "/dev/null",
    ]);
    script.current_dir(folder).env("NO_COLOR", "1").env("SHELL", "/bin/sh");
    script.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.spawn().expect("`script` of util-linux");
    let shown = Arc::new(Mutex::new(Vec::new()));
    let mut output = child.stdout.take().unwrap();
    let sink = Arc::clone(&shown);
    let reader = std::thread::spawn(move || {
        let mut part = [0; 1024];
        while let Ok(length @ 1..) = output.read(&mut part) {
            sink.lock().unwrap().extend_from_slice(&part[..length]);
        }
    });
    let text = || String::from_utf8_lossy(&shown.lock().unwrap()).replace("\r\n", "\n");
    let mut input = child.stdin.take().unwrap();
    let mut from = 0;
    for (question, answer) in answers {
        let begun = Instant::now();
        // It has been asked when its default is there, behind which the answer is typed.
        while !text()[from..].split_once(question).is_some_and(|(_, rest)| rest.contains("] ")) {
            assert!(begun.elapsed() < paceline_testing::HANG, "{question}: {}", text());
            std::thread::sleep(Duration::from_millis(2));
        }
        from = text().len();
        let end = if [CTRL_C, CTRL_D].contains(answer) { "" } else { "\n" };
        write!(input, "{answer}{end}").unwrap();
    }
    let status = child.wait().unwrap();
    drop(input);
    reader.join().unwrap();
    (text(), status.code())
}

#[test]
fn every_question_is_asked_once_with_a_default_and_again_after_a_bad_answer() {
    let folder = tempfile::tempdir().unwrap();
    let answers = [
        (SIZE, "100"),
        (SIZE, "100GB"),
        (GROWTH, "10GB"),
        (EXAMPLE, "0B"),
        (EXAMPLE, "300B"),
        (DELAY, "soon"),
        (DELAY, "15min"),
        (RATE, "many"),
        (RATE, "500000"),
    ];
    let (all, code) = talk(folder.path(), "advise job", &answers);
    assert_eq!(code, Some(0), "{all}");
    let (defaults, code) = talk(
        folder.path(),
        "advise job --growth 1GB",
        &[(SIZE, ""), (EXAMPLE, ""), (DELAY, ""), (RATE, "")],
    );
    assert_eq!(code, Some(0), "{defaults}");
    let (stopped, code) = talk(folder.path(), "advise job", &[(SIZE, ""), (GROWTH, CTRL_C)]);
    assert_eq!(code, Some(130), "{stopped}");
    let (ended, code) = talk(folder.path(), "advise job", &[(SIZE, "1GB"), (GROWTH, CTRL_D)]);
    assert_eq!(code, Some(2), "{ended}");
    let conversations = [
        ("advise job", all, 0),
        ("advise job --growth 1GB", defaults, 0),
        ("advise job", stopped, 130),
        ("advise job", ended, 2),
    ];
    let found = conversations.map(|(words, text, code)| {
        format!("$ paceline {words}\n{}\n[exit {code}]\n\n", masked(text.trim_end()))
    });
    compare(&kept("asking.txt"), &found.concat());
}

#[test]
fn where_no_one_can_be_asked_the_missing_flags_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["advise", "job", "--growth", "1GB", "--delay", "1h"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let expected = "error: `--data-size SIZE`, `--example SIZE`, `--rate NUMBER` are not given, and there is no terminal to ask on";
    assert!(said(&output).contains(expected), "{}", said(&output));
    // On a terminal, too, `--json` asks nothing: one document is all that is printed.
    let (shown, code) = talk(folder.path(), "advise job --json 2>/dev/null", &[]);
    assert_eq!(code, Some(2), "{shown}");
    let error: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(error["error"].as_str().unwrap().contains("`--growth SIZE`"), "{error}");
    let json = run_in(folder.path(), &["advise", "job", "--json"]);
    assert_eq!(document(&json)["exit"], 2);
}

#[test]
fn a_run_tells_what_would_be_asked_and_the_newest_one_offers_its_rate() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert!(run_in(here, &["data", "synth", "clicks", "c", "--rows", "3000"]).status.success());
    train_as(here, "rows", "--model sparse-logistic --data c --epochs 2");
    let told = run_in(here, &["advise", "job", "--run", "runs/rows"]);
    assert_eq!(told.status.code(), Some(2), "{}", said(&told));
    let expected = "`--growth SIZE`, `--delay TIME` are not given";
    assert!(said(&told).contains(expected), "{}", said(&told));
    let (bytes, rate) = (std::fs::metadata(here.join("c")).unwrap().len(), "examples/s, ");
    let each = format!("{:.0} B an example, 2 epochs", bytes as f64 / 3000.0);
    assert!(said(&told).contains(rate) && said(&told).contains(&each), "{}", said(&told));
    let answers = [(GROWTH, "1MB"), (DELAY, "1h")];
    let (asked, code) = talk(here, "advise job --run runs/rows", &answers);
    assert_eq!(code, Some(0), "{asked}");
    assert!(!asked.contains(SIZE) && !asked.contains(RATE), "{asked}");
    let runs = support::json_in(here, &["runs", "--json"]);
    let rate = runs[0]["summary"]["examples_per_second"].as_f64().unwrap();
    let words = "advise job --data-size 1GB --growth 1MB --example 1KB --delay 1h";
    let (asked, code) = talk(here, words, &[(RATE, "")]);
    assert_eq!(code, Some(0), "{asked}");
    assert!(asked.contains(&format!("[{rate:.0}] ")), "{rate}: {asked}");
}
