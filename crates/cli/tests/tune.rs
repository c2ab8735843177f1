//! `paceline advise tune` through the binary: any command's settings are searched, and a search survives an interruption.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::{signal, spawn, wait_for};
use serde_json::Value;
use std::{fs, path::Path};
use support::{command_in, json_in, run_in};

/// A program with a best place at x = 0.3 and mode b. It notes each call, and rests in the fourth until `go` exists.
const PROGRAM: &str = r#"echo "$1 $2" >> calls
[ "$(wc -l < calls)" -eq 4 ] && [ ! -e go ] && sleep 600
case "$2" in broken) echo "out of luck" >&2; exit 3;; esac
awk -v x="$1" -v m="$2" 'BEGIN {
  printf "{\"loss\": %.6f, \"size\": %.6f}\n", 1 + 10*(x-0.3)*(x-0.3) + (m == "b" ? 0 : 0.5), 1 + x }'
"#;

fn program(here: &Path) {
    fs::write(here.join("job.sh"), PROGRAM).unwrap();
}

const SEARCH: &[&str] =
    &["advise", "tune", "--search", "x=0.0..1.0", "--search", "mode=a,b,broken", "--json"];
const JOB: &[&str] = &["--", "sh", "job.sh", "{x}", "{mode}"];

fn calls(here: &Path) -> usize {
    fs::read_to_string(here.join("calls")).unwrap_or_default().lines().count()
}

fn refused(here: &Path, words: &[&str], code: i32, said: &str) {
    let ended = run_in(here, words);
    let talk = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(code), "{words:?}: {talk}");
    assert!(talk.contains(said), "{words:?}: {talk}");
}

#[test]
fn the_best_settings_of_a_program_are_found_and_a_search_continues() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here);
    let words =
        |most: &'static str| [SEARCH, &["--objective", "loss", "--max-runs", most], JOB].concat();
    // Interrupted in the fourth run, which is not counted.
    let child = spawn(command_in(here, &words("16")), tempfile::tempdir().unwrap());
    wait_for("the fourth call", || calls(here) == 4);
    signal(child.child.id(), "-INT");
    let ended = child.end();
    assert_eq!(ended.code(), 130, "{}", ended.talk);
    let first = ended.json();
    assert_eq!(
        (&first["ended"], first["runs"].as_array().unwrap().len()),
        (&"interrupted".into(), 3)
    );
    fs::write(here.join("go"), "").unwrap();
    let whole = json_in(here, &words("16"));
    let runs = whole["runs"].as_array().unwrap();
    // The run that was interrupted was called, too.
    assert!((8..=16).contains(&runs.len()) && calls(here) == runs.len() + 1, "{whole}");
    assert_eq!(runs[..3], first["runs"].as_array().unwrap()[..]);
    let best = &whole["best"];
    let x: f64 = best["settings"]["x"].as_str().unwrap().parse().unwrap();
    assert_eq!(best["settings"]["mode"], "b", "{whole}");
    assert!((x - 0.3).abs() < 0.12, "{whole}");
    let broken = |run: &&Value| run["settings"]["mode"] == "broken";
    assert!(runs.iter().filter(broken).all(|run| run["outcome"] == "failed"), "{whole}");
    // What is there is not run again.
    let again = json_in(here, &words("16"));
    assert_eq!((&again["best"], calls(here)), (best, runs.len() + 1));
    // The table for people has the same answer.
    let shown: Vec<&str> = words("16").into_iter().filter(|word| *word != "--json").collect();
    let shown = String::from_utf8(run_in(here, &shown).stdout).unwrap();
    assert!(
        shown.contains("best first:") && shown.contains(best["settings"]["x"].as_str().unwrap()),
        "{shown}"
    );
}

#[test]
fn several_goals_have_a_front_and_conditions_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here);
    fs::write(here.join("go"), "").unwrap();
    fs::write(
        here.join("space.toml"),
        "[mode]\nchoices = [\"a\", \"b\"]\n[x]\nvalues = [0.0, 0.1, 0.2, 0.3, 0.4]\nwhen = { mode = \"b\" }\n",
    )
    .unwrap();
    // Where it does not apply, its place in the command stays empty of a value.
    let job = ["--", "sh", "-c", "x={x}; case $x in *x*) x=0;; esac; sh job.sh $x {mode}"];
    let flags = ["advise", "tune", "--space", "space.toml", "--objective", "loss", "--json"];
    let words = [&flags[..], &["--objective", "size:min"], &job].concat();
    let found = json_in(here, &words);
    assert_eq!(found["ended"], "exhausted", "{found}");
    assert_eq!(found["runs"].as_array().unwrap().len(), 6, "{found}");
    let front = found["front"].as_array().unwrap();
    let sizes: Vec<&Value> = front.iter().map(|run| &run["settings"]["x"]).collect();
    assert_eq!(sizes, ["0.3", "0.2", "0.1", "0"], "{found}");
}

#[test]
fn a_command_of_our_own_is_searched_by_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let flags = ["advise", "tune", "--search", "lr=0.0001..1:log", "--search", "batch-size=10,50"];
    let rest = ["--objective", "accuracy", "--max-runs", "8", "--json", "--out", "found"];
    let job = [
        "--",
        "train",
        "--model",
        "softmax",
        "--data",
        "generated:digits?examples=600",
        "--steps",
        "30",
    ];
    let found = json_in(here, &[&flags[..], &rest, &job].concat());
    let accuracy = found["best"]["goals"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 60.0, "{found}");
    let worst = found["runs"].as_array().unwrap().iter();
    let worst = worst.filter_map(|run| run["goals"]["accuracy"].as_f64()).fold(100.0, f64::min);
    assert!(worst < accuracy, "{found}");
    // Another question in the same folder is refused, and nothing is lost.
    let other = [&flags[..], &["--objective", "test-loss", "--out", "found"], &job].concat();
    refused(here, &other, 2, "`found` holds a search with other goals");
    let again = json_in(here, &[&flags[..], &rest, &job].concat());
    assert_eq!(again["runs"], found["runs"]);
    // A damaged file used to be taken for another question, and a strange run for a folder.
    let same = [&flags[..], &rest, &job].concat();
    let journal = here.join("found/sweep.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let strange = text.replacen("\"batch-size\",\"", "\"batch-size\",\"7", 1);
    assert_ne!(strange, text);
    fs::write(&journal, strange).unwrap();
    refused(here, &same, 1, "sweep.jsonl`, run 1: ");
    fs::write(&journal, text).unwrap();
    fs::write(here.join("found/tune.json"), "{").unwrap();
    refused(here, &same, 1, "tune.json` does not say what its search is");
}

#[test]
fn what_cannot_be_searched_is_said_before_the_first_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here);
    let tune = ["advise", "tune"];
    let train = ["--", "train", "--model", "softmax", "--data", "generated:digits"];
    let with = |flags: &[&'static str], job: &[&'static str]| [&tune[..], flags, job].concat();
    refused(
        here,
        &with(&["--search", "x=1..", "--objective", "loss"], JOB),
        2,
        "is not a setting to search",
    );
    refused(
        here,
        &with(&["--search", "y=1..2", "--objective", "loss"], JOB),
        2,
        "`{y}` stands nowhere",
    );
    refused(
        here,
        &with(&["--search", "batchsize=1..2", "--objective", "accuracy"], &train),
        2,
        "no flag `--batchsize`",
    );
    refused(
        here,
        &with(&["--search", "lr=0.1..1", "--objective", "speed"], &train),
        2,
        "has no figure `speed`",
    );
    let both = ["--search", "x=0.0..1.0", "--search", "mode=a,b", "--objective", "size"];
    refused(here, &with(&both, JOB), 2, "small or large");
    assert_eq!(calls(here), 0);
    assert!(!here.join("tunes").exists());
    // A goal that no run has is said after the first.
    fs::write(here.join("go"), "").unwrap();
    let none = ["--search", "x=0.0..1.0", "--search", "mode=a,b", "--objective", "speed:max"];
    refused(
        here,
        &with(&none, JOB),
        1,
        "left no figure for the goal `speed`; it left `loss`, `size`",
    );
    assert_eq!(calls(here), 1);
}

/// With `--quiet` it only said that no run completed, not why.
#[test]
fn a_search_in_which_every_run_fails_says_why_even_when_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["advise", "tune", "--search", "x=1,2", "--objective", "duration", "--quiet"];
    let job = ["--", "sh", "-c", "echo out of luck >&2; exit 3", "{x}"];
    refused(folder.path(), &[&words[..], &job].concat(), 1, "failed: out of luck");
}
