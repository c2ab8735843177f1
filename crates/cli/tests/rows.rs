//! Rows of sparse features through the real program: make, prepare, learn, stream, predict.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};
use support::{command_in, json_in, run_in};

fn clicks(folder: &Path, name: &str, rows: &str, seed: &str) -> Value {
    json_in(folder, &["data", "synth", "clicks", name, "--rows", rows, "--seed", seed, "--json"])
}

const TRAIN: &[&str] = &["train", "--model", "sparse-logistic", "--bits", "20", "--json"];

#[test]
fn a_log_is_made_learned_from_and_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let made = clicks(folder.path(), "a.tsv", "30000", "1");
    clicks(folder.path(), "b.tsv", "5000", "2");
    let words = [TRAIN, &["--data", "a.tsv", "--test", "b.tsv", "--deterministic"]].concat();
    let report = json_in(folder.path(), &words);
    let loss = report["progressive"]["loss"].as_f64().unwrap();
    assert!(loss < made["constant_loss"].as_f64().unwrap() - 0.01);
    assert!(loss > made["best_loss"].as_f64().unwrap());
    assert!(report["held_out"]["auc"].as_f64().unwrap() > 0.6);
    assert_eq!(report["examples"], 30_000);
    let run_folder = format!("runs/{}", report["run"].as_str().unwrap());
    let out = run_in(folder.path(), &["predict", &run_folder, "b.tsv"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8(out.stdout).unwrap().lines().count(), 5000);
    let words = ["predict", &run_folder, "b.tsv", "--out", "p.txt", "--json"];
    let predicted = json_in(folder.path(), &words);
    let (found, wanted) = (&predicted["metrics"]["loss"], &report["held_out"]["loss"]);
    assert!((found.as_f64().unwrap() - wanted.as_f64().unwrap()).abs() < 1e-9);
    // Other commands understand the run.
    for words in [&["runs"][..], &["report", &run_folder, "--out", "report.html"]] {
        let out = run_in(folder.path(), words);
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Weights drawn between -10 and 10 begin far from anything useful, and come closer; a support vector machine is judged by its margin.
#[test]
fn weights_begin_in_a_range_and_margins_are_learned_alone_and_on_servers() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir(here.join("rows")).unwrap();
    clicks(here, "rows/a.tsv", "10000", "1");
    clicks(here, "rows/b.tsv", "10000", "3");
    clicks(here, "b.tsv", "3000", "2");
    let number = |report: &Value, path: &str| report.pointer(path).and_then(Value::as_f64).unwrap();
    let data = ["--data", "rows", "--test", "b.tsv"];
    for strategy in ["one-device", "ps-sync --workers 2 --batch-size 64", "ps-async --workers 2"] {
        let strategy: Vec<&str> = ["--strategy"].into_iter().chain(strategy.split(' ')).collect();
        let words = [TRAIN, &data, &strategy].concat();
        let plain = json_in(here, &words);
        for optimizer in ["scaled-adagrad", "ftrl"] {
            let rest = ["--init", "uniform:-10:10", "--optimizer", optimizer];
            let far = json_in(here, &[&words[..], &rest].concat());
            let [far, near] = [&far, &plain].map(|report| number(report, "/progressive/loss"));
            assert!(far > 3.0 * near, "{strategy:?} {optimizer}: {far} {near}");
        }
        let margin = json_in(here, &[&words[..], &["--loss", "hinge"]].concat());
        assert_eq!(margin["held_out"]["hinge"], true, "{margin}");
        assert!(margin["held_out"]["normalised_entropy"].is_null(), "{margin}");
        assert!(number(&margin, "/held_out/auc") > 0.6, "{strategy:?}: {margin}");
        let run = format!("runs/{}", margin["run"].as_str().unwrap());
        // A checkpoint brings the loss back with the weights.
        let scored = json_in(here, &["evaluate", &run, "b.tsv", "--json"]);
        let (found, wanted) = (number(&scored, "/metrics/loss"), number(&margin, "/held_out/loss"));
        assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
    }
    for (init, needle) in [("w.safetensors", "uniform:A:B"), ("uniform:3:1", "the lower first")] {
        let output = run_in(here, &[TRAIN, &data, &["--init", init]].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(needle), "{said}");
    }
}

#[test]
fn prepared_rows_teach_what_the_log_teaches() {
    let folder = tempfile::tempdir().unwrap();
    clicks(folder.path(), "a.tsv", "20000", "1");
    let words = ["prepare", "a.tsv", "shards", "--shards", "1", "--bits", "20", "--json"];
    assert_eq!(json_in(folder.path(), &words)["rows"], 20_000);
    let common = ["train", "--model", "sparse-logistic", "--json", "--deterministic", "--data"];
    let from_log = json_in(folder.path(), &[&common[..], &["a.tsv", "--bits", "20"]].concat());
    let from_shards = json_in(folder.path(), &[&common[..], &["shards"]].concat());
    assert_eq!(from_log["progressive"], from_shards["progressive"]);
    let wrong = run_in(folder.path(), &[&common[..], &["shards", "--bits", "10"]].concat());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--bits 20"));
    let again = run_in(folder.path(), &["prepare", "a.tsv", "shards", "--bits", "20"]);
    assert_eq!(again.status.code(), Some(2), "a prepared folder is not overwritten by accident");
}

#[test]
fn standard_input_is_learned_from_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    clicks(folder.path(), "a.tsv", "8000", "1");
    let words = [TRAIN, &["--data", "-", "--window", "50ms"]].concat();
    let mut child = command_in(folder.path(), &[])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let text = fs::read(folder.path().join("a.tsv")).unwrap();
    let mut input = child.stdin.take().unwrap();
    for part in text.chunks(text.len() / 7 + 1) {
        input.write_all(part).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(input);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["examples"], 8000);
    assert_eq!(report["status"], "done");
}

#[test]
fn a_followed_log_ends_cleanly_on_a_signal_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    clicks(folder.path(), "a.tsv", "6000", "1");
    let text = fs::read_to_string(folder.path().join("a.tsv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let log = folder.path().join("x.log");
    fs::write(&log, lines[..4000].join("\n") + "\n").unwrap();
    let finish = |words: &[&str], expected: u64| -> Value {
        let child = command_in(folder.path(), &[])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Long enough to have read everything, even on a busy machine: the events tell.
        let patience = std::time::Instant::now() + paceline_testing::HANG;
        while rows_seen(folder.path()) < expected {
            assert!(std::time::Instant::now() < patience);
            std::thread::sleep(Duration::from_millis(50));
        }
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let words =
        ["train", "--model", "sparse-logistic", "--bits", "20", "--json", "--follow", "x.log"];
    let first = finish(&words, 4000);
    assert_eq!((first["examples"].as_u64(), &first["status"]), (Some(4000), &"cancelled".into()));
    fs::rename(&log, folder.path().join("x.log.1")).unwrap();
    fs::write(&log, lines[4000..].join("\n") + "\n").unwrap();
    let second = finish(&["train", "--resume", "--json"], 6000);
    assert_eq!((&second["examples"], &second["legs"][1]["examples"]), (&6000.into(), &2000.into()));
    assert_eq!(second["progressive"]["rows"], 6000);
    assert_eq!(second["global_steps"], 6000);
}

/// Rows that the events of the only run speak of.
fn rows_seen(folder: &Path) -> u64 {
    let Ok(runs) = fs::read_dir(folder.join("runs")) else { return 0 };
    let mut rows = 0;
    for run in runs {
        let text = fs::read_to_string(run.unwrap().path().join("events-worker-0.jsonl"));
        for line in text.unwrap_or_default().lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            if event["kind"] == "step" {
                rows += event["data"]["examples"].as_u64().unwrap_or(0);
            }
        }
    }
    rows
}

#[test]
fn wrong_calls_say_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    clicks(folder.path(), "a.tsv", "100", "1");
    let made =
        ["train", "--model", "sparse-logistic", "--data", "a.tsv", "--out", "made", "--json"];
    let made = json_in(folder.path(), &made);
    let run = format!("made/{}", made["run"].as_str().unwrap());
    for (words, code, hint) in [
        (&["train", "--model", "softmax", "--data", "x", "--bits", "20"][..], 2, "sparse-logistic"),
        (&["train", "--model", "sparse-logistic", "--data", "a.tsv", "--lrn"], 2, "--lrn"),
        (&["train", "--model", "sparse-logistic", "--data", "-", "--window", "x"], 2, "10s"),
        (
            &["train", "--model", "sparse-logistic", "--data", "a.tsv", "--epochs", "0.5"],
            2,
            "1 or more",
        ),
        (&["train", "--model", "sparse-logistic", "--data", "no.tsv"], 1, "no.tsv"),
        (
            &["train", "--model", "sparse-logistic", "--data", "a.tsv", "--format", "x"],
            1,
            "clicks, vw, libsvm",
        ),
        (&["predict", "nowhere", "a.tsv"], 1, "nowhere"),
        (&["predict", &run, "a.tsv", "--json"], 2, "--out"),
    ] {
        let output = run_in(folder.path(), words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(hint), "{words:?}: {stderr}");
    }
}

/// Prepared rows have checksums as prepared photos do, and `data verify` refused to compare them.
#[test]
fn prepared_rows_are_verified_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    clicks(here, "a.tsv", "2000", "1");
    let words = ["prepare", "a.tsv", "shards", "--shards", "3", "--bits", "12"];
    assert!(run_in(here, &words).status.success());
    let found = json_in(here, &["data", "verify", "shards", "--json"]);
    assert_eq!((&found["examples"], &found["checksums"]), (&2000.into(), &3.into()), "{found}");
    let shards = fs::read_dir(here.join("shards")).unwrap().map(|entry| entry.unwrap().path());
    let shard = shards.filter(|path| path.extension().is_some_and(|it| it == "tfrecord")).min();
    let shard = shard.unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let damaged = run_in(here, &["data", "verify", "shards"]);
    assert_eq!(damaged.status.code(), Some(1));
    let told = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert!(told.contains("SHA-256 is") && told.contains("damaged"), "{told}");
    let plain = run_in(here, &["data", "verify", "a.tsv"]);
    assert_eq!(plain.status.code(), Some(1), "text that was not prepared has no checksums");
}
