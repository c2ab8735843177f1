//! Rows learned from by several real processes: workers, servers, one killed, one stopped and resumed.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::{
    ENDLESS, Run, events, processes, signal, spawn, steps, unix_seconds, wait_for,
};
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};
use support::{command_in, json_in, run_in};

fn clicks(folder: &Path, name: &str, rows: &str, seed: &str) -> Value {
    json_in(folder, &["data", "synth", "clicks", name, "--rows", rows, "--seed", seed, "--json"])
}

const TRAIN: &[&str] =
    &["train", "--model", "sparse-logistic", "--json", "--no-tensorboard", "--bits", "18"];

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {report}"))
}

#[test]
fn workers_and_servers_learn_and_leave_all_records() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir(here.join("rows")).unwrap();
    let made = clicks(here, "rows/a.tsv", "20000", "1");
    clicks(here, "rows/b.tsv", "15000", "2");
    clicks(here, "test.tsv", "4000", "3");
    for (strategy, servers, transfer) in
        [("ps-async", "1", "sparse"), ("ps-sync", "2", "sparse"), ("ps-sync", "1", "dense")]
    {
        let flags = ["--data", "rows", "--test", "test.tsv", "--strategy", strategy];
        let more = ["--workers", "2", "--ps", servers, "--batch-size", "32"];
        // All weights both ways are two megabytes an iteration: some must do.
        let rest =
            ["--transfer", transfer, "--steps", if transfer == "dense" { "20" } else { "3000" }];
        let report = json_in(here, &[TRAIN, &flags, &more, &rest].concat());
        let what = format!("{strategy} {servers} {transfer}: {report}");
        assert_eq!((&report["status"], &report["strategy"]), (&"done".into(), &strategy.into()));
        let whole = 2.0 * 4.0 * f64::from((1 << 18) + 1);
        assert_eq!(number(&report, "/exchange/dense_bytes_per_iteration"), whole, "{what}");
        let bytes = number(&report, "/exchange/bytes_per_iteration");
        assert!((bytes > 0.9 * whole) == (transfer == "dense"), "{what}");
        assert!(number(&report, "/exchange/sparse_bytes_per_iteration") < 0.1 * whole, "{what}");
        assert_eq!(report["exchange"]["tasks"].as_array().unwrap().len(), 2, "{what}");
        let shares: f64 = report["phases"]
            .as_object()
            .unwrap()
            .values()
            .map(|share| share.as_f64().unwrap())
            .sum();
        assert!((shares - 1.0).abs() < 1e-6, "{what}");
        if transfer == "dense" {
            assert_eq!(report["global_steps"], 20, "{what}");
            continue;
        }
        assert_eq!(report["examples"], 35_000, "{what}");
        let constant = made["constant_loss"].as_f64().unwrap();
        assert!(number(&report, "/progressive/loss") < constant - 0.01, "{what}");
        assert!(number(&report, "/held_out/auc") > 0.6, "{what}");
        let run_folder = here.join("runs").join(report["run"].as_str().unwrap());
        let learned: u64 = (0..2)
            .map(|worker| {
                let text =
                    fs::read_to_string(run_folder.join(format!("events-worker-{worker}.jsonl")));
                let steps = text.unwrap();
                let steps = steps.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                steps
                    .filter_map(|event| {
                        event["data"]["examples"].as_u64().filter(|_| event["kind"] == "step")
                    })
                    .sum::<u64>()
            })
            .sum();
        assert_eq!(learned, 35_000, "{what}");
        let scored = events(&run_folder, "evaluation");
        assert!(scored.last().unwrap()["data"]["normalised_entropy"].as_f64().unwrap() < 1.0);
        for task in ["worker-0", "worker-1", "ps-0"] {
            assert!(run_folder.join(format!("resources-{task}.csv")).exists(), "{task}");
        }
        let name = run_folder.to_str().unwrap();
        let predicted = json_in(here, &["predict", name, "test.tsv", "--out", "p.txt", "--json"]);
        let (found, wanted) =
            (number(&predicted, "/metrics/loss"), number(&report, "/held_out/loss"));
        assert!((found - wanted).abs() < 1e-5, "{found} {wanted}");
        let out = run_in(here, &["report", name, "--out", "report.html"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// Rows of two features, so that everything is one block of text.
fn small(rows: std::ops::Range<usize>) -> Vec<String> {
    rows.map(|row| {
        let label = usize::from((row * 7919) % 10 < 3 + 4 * (row % 2));
        format!("{label} {}:1 {}:0.5\n", row % 2, 2 + row % 37)
    })
    .collect()
}

#[test]
fn synchronous_training_equals_one_process_at_the_same_global_batch() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let (first, second) = (small(0..1000), small(1000..2000));
    fs::write(here.join("a.svm"), first.concat()).unwrap();
    fs::write(here.join("b.svm"), second.concat()).unwrap();
    let mut whole = String::new();
    for (a, b) in first.chunks(100).zip(second.chunks(100)) {
        write!(whole, "{}{}", a.concat(), b.concat()).unwrap();
    }
    fs::write(here.join("whole.svm"), whole).unwrap();
    for optimizer in ["sgd", "adagrad", "scaled-adagrad", "ftrl"] {
        let common = ["--optimizer", optimizer, "--batch-size", "200", "--format", "libsvm"];
        let alone = [TRAIN, &common, &["--data", "whole.svm", "--deterministic"]].concat();
        let alone = json_in(here, &alone);
        let tasks = ["--strategy", "ps-sync", "--workers", "2", "--ps", "2"];
        let shared = json_in(here, &[TRAIN, &common, &tasks, &["--data", "a.svm,b.svm"]].concat());
        assert_eq!(alone["global_steps"], 10);
        assert_eq!(shared["global_steps"], 10);
        let losses = [&alone, &shared].map(|report| number(report, "/progressive/loss"));
        // Beside a feature's size, a weight has room for five digits.
        let most = if optimizer == "scaled-adagrad" { 1e-5 } else { 1e-6 };
        assert!((losses[0] - losses[1]).abs() < most, "{optimizer}: {losses:?}");
        let scores = [&alone, &shared].map(|report| {
            let run_folder = format!("runs/{}", report["run"].as_str().unwrap());
            let words =
                ["predict", &run_folder, "a.svm", "--format", "libsvm", "--out", "p", "--json"];
            number(&json_in(here, &words), "/metrics/loss")
        });
        assert!((scores[0] - scores[1]).abs() < most, "{optimizer}: {scores:?}");
    }
}

#[test]
fn asynchronous_workers_continue_without_a_killed_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    clicks(here, "a.tsv", "30000", "1");
    clicks(here, "b.tsv", "30000", "2");
    let flags = ["--data", "a.tsv,b.tsv", "--strategy", "ps-async", "--epochs", "2000"];
    let more = ["--batch-size", "64", "--steps", "80000", "--out", "runs"];
    let child =
        spawn(command_in(here, &[TRAIN, &flags, &more].concat()), tempfile::tempdir().unwrap());
    let run_folder = first_run(here);
    wait_for("some steps", || events(&run_folder, "step").len() > 2);
    signal(processes(&run_folder)["worker/1"], "-KILL");
    let ended = child.end();
    assert_eq!(ended.code(), 0, "{}", ended.talk);
    let report = ended.json();
    assert!(report["lost"][0].as_str().unwrap().contains("worker/1"), "{report}");
    assert!(number(&report, "/global_steps") >= 80_000.0, "{report}");
    let workers = report["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 1, "the dead tell nothing: {report}");
    assert_eq!(events(&run_folder, "task_lost").len(), 1);
}

/// The only folder under `runs`, once it is there.
fn first_run(here: &Path) -> PathBuf {
    let mut found = None;
    wait_for("the run folder", || {
        found = fs::read_dir(here.join("runs")).ok().and_then(|mut all| all.next());
        found.is_some()
    });
    found.unwrap().unwrap().path()
}

/// Starts a run of two workers over two files that goes on until it is stopped, with records under `runs`.
fn endless(here: &Path, strategy: &str, more: &[&str]) -> (Run, PathBuf) {
    clicks(here, "a.tsv", "3000", "1");
    clicks(here, "b.tsv", "3000", "2");
    let flags = ["--data", "a.tsv,b.tsv", "--strategy", strategy];
    let long = ["--epochs", "1000000", "--steps", ENDLESS, "--out", "runs"];
    let words = [TRAIN, &flags, &long, more].concat();
    let run = spawn(command_in(here, &words), tempfile::tempdir().unwrap());
    (run, first_run(here))
}

/// Held-out rows are scored by a task of its own where there is one. While it is gone, the servers do.
#[test]
fn an_evaluator_scores_held_out_rows() {
    for (strategy, servers) in [("ps-sync", "2"), ("ps-async", "1")] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        clicks(here, "test.tsv", "500", "3");
        let flags = ["--test", "test.tsv", "--eval-every", "2000", "--evaluator", "--ps", servers];
        let (run, records) = endless(here, strategy, &flags);
        let scores = |by: &Value, after: u64| {
            let found = events(&records, "evaluation");
            let is_there = |event: &&Value| {
                event["data"]["scored_by"] == *by
                    && event["data"]["step"].as_u64().unwrap_or(0) >= after
            };
            found.iter().filter(is_there).cloned().collect::<Vec<_>>()
        };
        let evaluator = Value::from("evaluator/0");
        wait_for("the evaluator's scores", || scores(&evaluator, 0).len() > 1);
        let score = &scores(&evaluator, 0)[0]["data"];
        assert_eq!(score["examples"], 500, "{strategy}: {score}");
        assert!(number(score, "/loss") < 2.0 && number(score, "/auc") > 0.0, "{strategy}: {score}");
        wait_for("its name", || processes(&records).contains_key("evaluator/0"));
        // It is not restarted while the launcher is stopped.
        signal(run.child.id(), "-STOP");
        signal(processes(&records)["evaluator/0"], "-KILL");
        wait_for("its loss in the log", || !events(&records, "task_lost").is_empty());
        let now = steps(&records);
        wait_for("the servers' scores", || !scores(&Value::Null, now).is_empty());
        signal(run.child.id(), "-CONT");
        wait_for("it to be back", || !events(&records, "task_recovered").is_empty());
        let now = steps(&records);
        wait_for("its scores again", || !scores(&evaluator, now).is_empty());
        signal(run.child.id(), "-INT");
        let ended = run.end();
        assert_eq!(ended.code(), 130, "{strategy}: {}", ended.talk);
        assert!(ended.talk.contains("1 evaluator"), "{strategy}: {}", ended.talk);
    }
}

/// No task exits because another one was lost: the remaining tasks continue from the step they were at.
#[test]
fn a_killed_synchronous_worker_is_dealt_with_as_the_policy_says() {
    // Between two servers a worker may die in the middle of an update.
    for (policy, servers) in [("continue", "1"), ("continue", "2"), ("restart", "2"), ("stop", "1")]
    {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--on-loss", policy, "--ps", servers];
        let (run, records) = endless(folder.path(), "ps-sync", &flags);
        wait_for("some steps", || steps(&records) > 20);
        wait_for("worker/1 in the log", || processes(&records).contains_key("worker/1"));
        // The command that kills may return long after the task is dead.
        let alive = unix_seconds();
        signal(processes(&records)["worker/1"], "-KILL");
        let killed = unix_seconds();
        if policy == "stop" {
            let ended = run.end();
            assert_eq!(ended.code(), 75, "{}", ended.talk);
            assert!(ended.talk.contains("lost worker/1 at "), "{}", ended.talk);
            assert!(!ended.talk.contains("lost ps/0"), "it only stopped: {}", ended.talk);
            continue;
        }
        wait_for("the loss in the log", || !events(&records, "task_lost").is_empty());
        let named = events(&records, "task_lost")[0]["time"].as_f64().unwrap();
        let named = run.lateness.answered_for(killed, named);
        assert!(named < 5.0, "{policy}: named after {named:.1} s");
        let back = || !events(&records, "task_recovered").is_empty();
        wait_for("its return", || policy == "continue" || back());
        for returned in events(&records, "task_recovered") {
            // Starting a process takes longer than a millisecond; 0.0 s was said of every return.
            let away = returned["data"]["seconds"].as_f64().unwrap();
            assert!(away > 0.001 && away < unix_seconds() - alive, "{policy}: away for {away} s");
        }
        let now = steps(&records);
        wait_for("more steps", || steps(&records) > now + 100);
        signal(run.child.id(), "-INT");
        let ended = run.end();
        assert_eq!(ended.code(), 130, "{policy}: {}", ended.talk);
        let report = ended.json();
        assert!(report["lost"][0].as_str().unwrap().contains("worker/1"), "{policy}: {report}");
        let workers = report["workers"].as_array().unwrap();
        assert_eq!(workers.len(), if policy == "restart" { 2 } else { 1 }, "{policy}: {report}");
        let took_part = |worker: &Value| number(worker, "/iterations") > 100.0;
        assert!(workers.iter().all(took_part), "{policy}: {report}");
        // What the dead learned is in the weights, and counted.
        let told: f64 = workers.iter().map(|worker| number(worker, "/examples")).sum();
        let all = number(&report, "/examples");
        assert!(all > told, "{policy}: {report}");
        let made = number(&report, "/global_steps");
        let batch = number(&report, "/global_batch");
        assert!(all <= batch * made, "{policy}: {report}");
        // Alone it has its own half of a batch.
        assert!(policy == "continue" || all == batch * made, "{policy}: {report}");
    }
}

/// Each worker resumes its own files at the position in the checkpoint, so that no row is learned from twice.
#[test]
fn an_asynchronous_run_resumes_where_every_worker_was() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    clicks(here, "a.tsv", "40000", "1");
    clicks(here, "b.tsv", "30000", "2");
    let flags = ["--data", "a.tsv,b.tsv", "--strategy", "ps-async", "--batch-size", "100"];
    let first = json_in(here, &[TRAIN, &flags, &["--steps", "300"]].concat());
    let name = first["run"].as_str().unwrap().to_owned();
    let second = json_in(here, &["train", "--resume", &name, "--steps", "100000", "--json"]);
    assert_eq!(second["run"], name.as_str());
    assert_eq!(number(&second, "/examples"), 70_000.0, "{first}\n{second}");
    let legs = [0, 1].map(|leg| number(&second, &format!("/legs/{leg}/examples")));
    assert_eq!(legs, [number(&first, "/examples"), 70_000.0 - number(&first, "/examples")]);
    assert_eq!(number(&second, "/global_steps"), 700.0, "{second}");
}

#[test]
fn a_killed_server_comes_back_with_its_checkpoint_and_all_go_on_from_there() {
    for strategy in ["ps-async", "ps-sync"] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        clicks(here, "a.tsv", "30000", "1");
        clicks(here, "b.tsv", "30000", "2");
        let flags = ["--data", "a.tsv,b.tsv", "--strategy", strategy, "--ps", "2"];
        let more = ["--batch-size", "64", "--epochs", "2000", "--steps", "30000"];
        let kept = ["--checkpoint-every", "100", "--out", "runs"];
        let words = [TRAIN, &flags, &more, &kept].concat();
        let child = spawn(command_in(here, &words), tempfile::tempdir().unwrap());
        let run_folder = first_run(here);
        wait_for("a checkpoint", || events(&run_folder, "checkpoint").len() > 1);
        // Who has come is written down a little after the first steps.
        wait_for("the server's name", || processes(&run_folder).contains_key("ps/0"));
        signal(processes(&run_folder)["ps/0"], "-KILL");
        let ended = child.end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let report = ended.json();
        assert_eq!(report["status"], "done", "{strategy}: {report}");
        assert!(number(&report, "/global_steps") >= 30_000.0, "{strategy}: {report}");
        assert!(report["lost"][0].as_str().unwrap().contains("ps/0"), "{strategy}: {report}");
        let warned = report["warnings"].as_array().unwrap();
        let told = |warning: &Value| warning.as_str().unwrap().contains("continue from step");
        assert!(warned.iter().any(told), "{strategy}: {report}");
    }
}

#[test]
fn a_stopped_run_goes_on_where_every_worker_was() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    clicks(here, "a.tsv", "40000", "1");
    clicks(here, "b.tsv", "30000", "2");
    let flags = ["--data", "a.tsv,b.tsv", "--strategy", "ps-sync", "--batch-size", "100"];
    let first = json_in(here, &[TRAIN, &flags, &["--steps", "300"]].concat());
    assert_eq!((&first["global_steps"], &first["examples"]), (&300.into(), &30_000.into()));
    let name = first["run"].as_str().unwrap().to_owned();
    let second = json_in(here, &["train", "--resume", &name, "--steps", "100000", "--json"]);
    assert_eq!(second["run"], name.as_str());
    assert_eq!(second["examples"], 70_000, "{second}");
    assert_eq!(second["legs"][1]["examples"], 40_000, "{second}");
    let whole = json_in(here, &[TRAIN, &flags].concat());
    assert_eq!(second["global_steps"], whole["global_steps"], "{second}");
    let run_folder = format!("runs/{name}");
    let scores = [&run_folder, &format!("runs/{}", whole["run"].as_str().unwrap())].map(|run| {
        number(&json_in(here, &["predict", run, "a.tsv", "--out", "p", "--json"]), "/metrics/loss")
    });
    assert!((scores[0] - scores[1]).abs() < 1e-6, "{scores:?}");
}

/// Sessions of rows did not say so: only a unit test had seen it. One worker's file is a pipe that brings some rows and then no
/// more; all others wait for it or, without lockstep, are long done.
#[test]
fn a_worker_that_waits_for_its_own_rows_is_named() {
    let runs = ["ps-sync", "ps-async"].map(|strategy| {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        clicks(here, "a.tsv", "2000", "1");
        let rows = fs::read(here.join("a.tsv")).unwrap();
        let pipe = here.join("b.tsv");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Opened for both directions, a pipe does not wait for its other end.
        let mut writer = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let end = rows[..20_000].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
        writer.write_all(&rows[..end]).unwrap();
        let flags = ["--data", "a.tsv,b.tsv", "--format", "clicks", "--lr", "0.2"];
        let tasks = ["--strategy", strategy, "--workers", "2", "--batch-size", "20"];
        let command = command_in(here, &[TRAIN, &flags, &tasks].concat());
        (strategy, spawn(command, tempfile::tempdir().unwrap()), writer, folder)
    });
    for (strategy, mut run, writer, _folder) in runs {
        wait_for("the wait to be said", || {
            if let Some(status) = run.child.try_wait().unwrap() {
                panic!("{strategy} ended early, {status}: {}", run.talk());
            }
            run.talk().contains("worker/1 has made no step for 30 s: it waits for its own data")
        });
        // Now the pipe has an end.
        drop(writer);
        let ended = run.end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let warnings = ended.json()["warnings"].to_string();
        assert!(warnings.contains("it waits for its own data"), "{strategy}: {warnings}");
    }
}

#[test]
fn wrong_calls_name_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    clicks(folder.path(), "a.tsv", "100", "1");
    for (words, code, needle) in [
        (&["--strategy", "ps-async", "--workers", "2"][..], 1, "worker/1"),
        (&["--strategy", "mirrored"], 2, "ps-sync"),
        (&["--workers", "2"], 2, "--strategy"),
        (
            &["--strategy", "ps-sync", "--workers", "1", "--max-staleness", "3"],
            2,
            "--max-staleness",
        ),
        (&["--strategy", "ps-sync", "--workers", "1", "--window", "5"], 2, "--window"),
        (&["--strategy", "ps-sync", "--workers", "1", "--batch-size", "0"], 2, "batch size"),
        (&["--strategy", "ps-sync", "--workers", "2", "--batch-size", "1"], 2, "one row for each"),
        (&["--strategy", "no-such"], 2, "no-such"),
    ] {
        let output = run_in(folder.path(), &[TRAIN, &["--data", "a.tsv"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(needle), "{words:?}: {said}");
    }
}
