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

/// A run of one rank, or of several, whose steps of a batch take 0.1 s and 1 ms for every example.
fn of_batch(folder: &Path, name: &str, ranks: usize, batch: usize, says_batch: bool) {
    let run = folder.join("runs").join(name);
    fs::create_dir_all(&run).unwrap();
    let seconds = 0.1 + 0.001 * batch as f64;
    let started = match says_batch {
        true => format!(r#"{{"model":"resnet18","data":"cifar10","global_batch":{batch}}}"#),
        false => r#"{"model":"resnet18","data":"cifar10"}"#.to_owned(),
    };
    for rank in 0..ranks {
        let event = |time: f64, kind: &str, data: &str| {
            format!(
                "{{\"v\":1,\"time\":{time},\"task\":\"worker/{rank}\",\"kind\":\"{kind}\",\"data\":{data}}}\n"
            )
        };
        let mut log = event(1000.0, "run_started", &started);
        let examples = batch / ranks;
        for step in 1..=20 {
            let data = format!(r#"{{"step":{step},"examples":{examples},"seconds":{seconds}}}"#);
            log += &event(1000.0 + seconds * f64::from(step), "step", &data);
        }
        log += &event(1000.0 + seconds * 20.0, "run_ended", r#"{"status":"done","step":20}"#);
        fs::write(run.join(format!("events-worker-{rank}.jsonl")), log).unwrap();
    }
}

/// It was refused without a model of ours and its data.
#[test]
fn which_batch_is_fast_is_told_from_runs_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for batch in [16, 128, 512, 2048] {
        of_batch(here, &format!("of-{batch}"), 1, batch, batch != 128);
    }
    let found = json_in(here, &["advise", "batch", "runs", "--json"]);
    assert_eq!(found["job"], "resnet18 on cifar10 with 1 worker", "{found}");
    let sizes: Vec<f64> = found["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["batch"].as_f64().unwrap())
        .collect();
    assert_eq!(sizes, [16.0, 128.0, 512.0, 2048.0]);
    let close = |found: &serde_json::Value, wanted: f64| {
        (found.as_f64().unwrap() / wanted - 1.0).abs() < 1e-6
    };
    assert!(close(&found["curve"]["fixed"], 0.1), "{found}");
    assert!(close(&found["curve"]["per_example"], 0.001), "{found}");
    assert!(close(&found["ceiling"]["examples_per_second"], 1000.0), "{found}");
    assert!((899.0..=901.0).contains(&found["ceiling"]["batch"].as_f64().unwrap()), "{found}");
    // 512 gives 837 examples a second of the 953 of 2048, which is less than nine tenths.
    assert_eq!(found["near_best"]["batch"], 2048.0, "{found}");
    assert!(found["noise_scale"].is_null(), "{found}");
    let output = run_in(here, &["advise", "batch", "runs/of-16", "runs/of-512"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for part in [
        "the noise scale is not known: it takes gradients",
        "smallest batch near the best rate: 512, 100 % of the fastest that was run",
        "no run was as large",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn ranks_of_one_job_share_its_batch_and_runs_of_other_jobs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    of_batch(here, "a", 2, 64, false);
    of_batch(here, "b", 2, 256, true);
    let found = json_in(here, &["advise", "batch", "runs/a", "runs/b", "--json"]);
    assert_eq!(found["sizes"][0]["batch"], 64.0, "{found}");
    of_batch(here, "alone", 1, 32, true);
    let output = run_in(here, &["advise", "batch", "runs"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("with 2 workers"), "{}", said(&output));
    let output = run_in(here, &["advise", "batch", "runs/a"]);
    assert!(said(&output).contains("at least two batch sizes, there is 1"), "{}", said(&output));
    let output = run_in(here, &["advise", "batch", "runs/a", "--model", "lenet"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

/// A plan of a later version was taken for none.
#[test]
fn a_run_of_a_later_version_is_refused_by_name_and_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    of_batch(here, "known", 1, 64, true);
    of_batch(here, "later", 1, 64, true);
    fs::write(here.join("runs/later/plan.json"), r#"{"format":2,"spec":{}}"#).unwrap();
    for words in [
        &["runs", "runs/later"][..],
        &["report", "runs/later"],
        &["simulate", "runs/later", "--workers", "2"],
        &["advise", "batch", "runs/later"],
        &["train", "--resume", "runs/later"],
    ] {
        let output = run_in(here, words);
        let said = said(&output);
        assert!(!output.status.success(), "{words:?}: {said}");
        assert!(
            said.contains("plan.json` is of format 2, and this version reads"),
            "{words:?}: {said}"
        );
        assert!(said.contains("hint: the run was made by a later version"), "{words:?}: {said}");
    }
    let listed = json_in(here, &["runs", "--json"]);
    let later = listed.as_array().unwrap().iter().find(|run| run["run"] == "later").unwrap();
    assert_eq!(later["status"], "broken", "{listed}");
    assert!(later["verdict"].as_str().unwrap().contains("format 2"), "{listed}");
    let page = served(here);
    assert!(page.contains("is of format 2"), "{page}");
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
