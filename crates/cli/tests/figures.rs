//! Figures and verdicts of one run, as every output has them: terminal, JSON, CSV, Markdown, HTML, live page.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_report::Escaped;
use paceline_runs::{Event, RunFolder};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::command_in;

fn text(folder: &Path, words: &[&str]) -> String {
    let output = command_in(folder, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &Path, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&text(folder, &words)).unwrap()
}

/// The only run folder under `runs`.
fn only_run(folder: &Path) -> PathBuf {
    let mut runs = fs::read_dir(folder.join("runs")).unwrap().map(|run| run.unwrap().path());
    let run = runs.next().unwrap();
    assert!(runs.next().is_none());
    run
}

fn steps(run: &Path) -> u64 {
    let Ok((records, _)) = RunFolder::at(run).events() else { return 0 };
    let steps = records.iter().filter_map(|record| match &record.event {
        Some(Event::Step(step)) => Some(step.steps),
        _ => None,
    });
    steps.sum()
}

struct Page {
    server: Child,
    address: String,
}

impl Page {
    fn open(folder: &Path) -> Page {
        let mut server = command_in(folder, &["serve", "runs", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.split("http://").nth(1).unwrap();
        let address = rest.split('/').next().unwrap().to_owned();
        Page { server, address }
    }

    fn get(&self, target: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A page without the characters that keep its lines together.
fn plain(html: &str) -> String {
    html.replace('\u{a0}', " ").replace('\u{2011}', "-")
}

/// Asks every output for the verdict on the only run; returns it.
fn verdict_everywhere(folder: &Path) -> String {
    let run = only_run(folder);
    let name = run.file_name().unwrap().to_str().unwrap();
    let path = run.to_str().unwrap();
    let found = json(folder, &["runs", name]);
    let verdict = found[0]["verdict"].as_str().unwrap().to_owned();
    assert!(!verdict.is_empty());
    assert_eq!(found[0]["summary"]["verdict"], *verdict, "`runs --json`");
    let said = text(folder, &["runs", name]);
    assert!(said.contains(&format!("verdict on {name}: {verdict}\n")), "`runs`: {said}");
    let report = |format: &str| text(folder, &["report", path, "--format", format, "--out", "-"]);
    let markdown = report("markdown");
    assert!(markdown.contains(&format!(": {verdict}\n")), "Markdown: {verdict}\n{markdown}");
    let csv = report("csv");
    assert!(csv.contains(&verdict), "CSV: {verdict}\n{csv}");
    let escaped = Escaped(&verdict).to_string();
    assert!(plain(&report("html")).contains(&escaped), "HTML: {verdict}");
    let file = folder.join("report.html");
    let made = json(folder, &["report", path, "--out", file.to_str().unwrap()]);
    assert_eq!(made["runs"][0]["verdict"], *verdict, "`report --json`");
    let page = Page::open(folder);
    assert_eq!(page.get("/api/runs")["runs"][0]["verdict"], *verdict, "the list of the live page");
    let details = page.get(&format!("/api/run?name={name}"));
    let html = plain(details["html"].as_str().unwrap());
    assert!(html.contains(&escaped), "the live page: {verdict}");
    verdict
}

/// The rate is what a reader gets by dividing the examples by the time beside them.
fn assert_rate(summary: &Value) {
    let number = |name: &str| summary[name].as_f64().unwrap_or_else(|| panic!("{name}: {summary}"));
    let (rate, wanted) = (number("examples_per_second"), number("examples") / number("seconds"));
    assert!((rate - wanted).abs() <= 1e-6 * wanted, "{rate} is not {wanted}: {summary}");
    assert!(number("step_seconds") <= number("seconds") * 1.01, "{summary}");
}

const SOFTMAX: &[&str] = &[
    "train",
    "--model",
    "softmax",
    "--data",
    "generated:digits?examples=2000",
    "--no-tensorboard",
];

#[test]
fn a_finished_run_has_one_verdict_in_all_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let summary = json(folder.path(), &[SOFTMAX, &["--epochs", "3"]].concat());
    assert_rate(&summary);
    assert_eq!(summary["verdict"], *verdict_everywhere(folder.path()));
}

#[test]
fn a_killed_run_has_one_verdict_in_all_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let words = [SOFTMAX, &["--epochs", "1e6"]].concat();
    let mut child = command_in(folder.path(), &words).stderr(Stdio::null()).spawn().unwrap();
    await_steps(folder.path(), 1000);
    child.kill().unwrap();
    child.wait().unwrap();
    let verdict = verdict_everywhere(folder.path());
    assert!(verdict.starts_with("ended without a summary after step "), "{verdict}");
    let name = only_run(folder.path()).file_name().unwrap().to_str().unwrap().to_owned();
    let found = json(folder.path(), &["runs", &name]);
    assert_eq!(found[0]["status"], "died");
    assert_rate(&found[0]["summary"]);
}

/// Events of several tasks added up to 599,900 examples of 300,000 served: each counted those of all.
#[test]
fn runs_of_several_processes_have_one_verdict_and_their_events_add_up() {
    for strategy in ["multi-worker", "ps-async"] {
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--strategy", strategy, "--workers", "2", "--steps", "120"];
        let summary = json(folder.path(), &[SOFTMAX, &flags].concat());
        assert_rate(&summary);
        assert_eq!(summary["verdict"], *verdict_everywhere(folder.path()), "{strategy}");
        let (records, _) = RunFolder::at(&only_run(folder.path())).events().unwrap();
        let counted: u64 = records
            .iter()
            .map(|record| match &record.event {
                Some(Event::Step(step)) => step.examples,
                _ => 0,
            })
            .sum();
        let used = summary["examples"].as_u64().unwrap();
        let late = summary["dropped_examples"].as_u64().unwrap();
        assert_eq!(counted, used + late, "{strategy}: {summary}");
    }
}

/// `time 8.43 s, 500000 rows, 1024726 rows/s`; phases 62 % and evidence 51 % in one summary.
#[test]
fn a_sparse_run_has_one_verdict_one_rate_and_one_set_of_phases() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    text(here, &["data", "synth", "clicks", "clicks.tsv", "--rows", "30000"]);
    text(here, &["data", "synth", "clicks", "test.tsv", "--rows", "5000", "--seed", "9"]);
    let words =
        ["train", "--model", "sparse-logistic", "--data", "clicks.tsv", "--test", "test.tsv"];
    let summary = json(here, &words);
    assert_rate(&summary);
    assert_eq!(summary["verdict"], *verdict_everywhere(here));
    let input = (100.0 * summary["phases"]["input"].as_f64().unwrap()).round();
    let evidence = summary["diagnosis"]["evidence"][0].as_str().unwrap();
    assert!(evidence.contains(&format!("input {input:.0} %")), "{input} %: {evidence}");
}

fn await_steps(folder: &Path, wanted: u64) {
    let begun = Instant::now();
    while !folder.join("runs").is_dir() || steps(&only_run(folder)) < wanted {
        assert!(begun.elapsed() < paceline_testing::HANG, "no {wanted} steps");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// A run that is stopped (Ctrl-Z, a frozen container) was called "compute-bound on few cores".
#[test]
fn a_run_that_was_stopped_by_a_signal_is_said_to_have_been() {
    let folder = tempfile::tempdir().unwrap();
    let words = [SOFTMAX, &["--epochs", "1e6", "--json"]].concat();
    let begun = Instant::now();
    let mut command = command_in(folder.path(), &words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    await_steps(folder.path(), 100);
    signal(&child, "-STOP");
    // For as long as it had run, and two seconds more: over half of its time.
    std::thread::sleep(begun.elapsed() + Duration::from_secs(2));
    let before = steps(&only_run(folder.path()));
    signal(&child, "-CONT");
    await_steps(folder.path(), before + 1);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["diagnosis"]["limit"], "stopped", "{summary}");
    assert!(summary["verdict"].as_str().unwrap().contains("the process was stopped"), "{summary}");
}

/// Eight threads on two cores got the advice to use fewer threads only where the machine was otherwise idle.
#[test]
fn threads_that_wait_for_a_core_are_seen() {
    let cores = paceline_batch::cores().count;
    let threads = (4 * cores).to_string();
    let folder = tempfile::tempdir().unwrap();
    let words = ["train", "--model", "lenet", "--data", "generated:digits?examples=2000"];
    let flags = ["--no-tensorboard", "--epochs", "6", "--threads", &threads];
    let summary = json(folder.path(), &[&words[..], &flags].concat());
    let waited = summary["tasks"][0]["waiting_cores"].as_f64().unwrap();
    assert!(waited > 0.0, "{summary}");
    let limit = summary["diagnosis"]["limit"].as_str().unwrap();
    // On a machine that others use, they are named first; where input is slow, threads hardly compete.
    if limit == "too-many-threads" {
        let said = format!("{threads} threads share {cores} cores");
        assert!(summary["verdict"].as_str().unwrap().contains(&said), "{summary}");
    } else {
        assert!(["taken-cores", "input"].contains(&limit), "{summary}");
    }
}

/// The log of one rank that another program recorded: the three kinds of event that are required.
fn record_elsewhere(run: &Path, rank: u32, phases: Option<&str>, ended: bool) {
    fs::create_dir_all(run).unwrap();
    let mut lines = vec![format!(
        r#"{{"v":1,"time":1000.0,"task":"worker/{rank}","kind":"run_started","data":{{"model":"resnet18","data":"cifar10","strategy":"ddp","global_batch":128,"framework":"PyTorch"}}}}"#
    )];
    for step in 1..=50 {
        let phases = phases.map(|phases| format!(r#","phases":{phases}"#)).unwrap_or_default();
        lines.push(format!(
            r#"{{"v":1,"time":{}.0,"task":"worker/{rank}","kind":"step","data":{{"step":{step},"examples":64,"seconds":1.0{phases}}}}}"#,
            1000 + step
        ));
    }
    if ended {
        lines.push(format!(
            r#"{{"v":1,"time":1050.0,"task":"worker/{rank}","kind":"run_ended","data":{{"status":"done","step":50,"seconds":50.0}}}}"#
        ));
    }
    fs::write(run.join(format!("events-worker-{rank}.jsonl")), lines.join("\n") + "\n").unwrap();
}

const INPUT_BOUND: &str = r#"{"input":0.7,"compute":0.3}"#;

/// A folder of events without `plan.json` was "not a run folder", or "died".
#[test]
fn a_run_that_another_program_recorded_has_one_verdict_in_all_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/mine");
    for rank in 0..2 {
        record_elsewhere(&run, rank, Some(INPUT_BOUND), true);
    }
    let verdict = verdict_everywhere(folder.path());
    assert!(verdict.starts_with("input-bound"), "{verdict}");
    let found = json(folder.path(), &["runs"]);
    let summary = &found[0]["summary"];
    assert_eq!((&found[0]["status"], &summary["model"]), (&"done".into(), &"resnet18".into()));
    assert_eq!((&summary["examples"], &summary["global_steps"]), (&6400.into(), &50.into()));
    assert_rate(summary);
    assert!(summary["final"]["train_loss"].is_null(), "no event has a loss: {summary}");
    let listed = text(folder.path(), &["runs"]);
    assert!(listed.contains("128"), "the batch size of the first event: {listed}");
}

#[test]
fn a_run_recorded_elsewhere_that_was_killed_is_judged_as_far_as_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/mine");
    record_elsewhere(&run, 0, Some(INPUT_BOUND), true);
    record_elsewhere(&run, 1, Some(INPUT_BOUND), false);
    let verdict = verdict_everywhere(folder.path());
    assert!(
        verdict.starts_with("ended without a summary after step 50; until then input-bound"),
        "{verdict}"
    );
    assert_eq!(json(folder.path(), &["runs"])[0]["status"], "died");
}

/// What is missing is said to be missing.
#[test]
fn steps_without_phases_are_counted_and_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    record_elsewhere(&folder.path().join("runs/mine"), 0, None, true);
    let verdict = verdict_everywhere(folder.path());
    assert!(verdict.contains("do not say how their time divides"), "{verdict}");
    let found = json(folder.path(), &["runs"]);
    assert_eq!(found[0]["summary"]["examples_per_second"].as_f64(), Some(64.0));
}

/// `docs/run-folder.md` is a promise to other readers.
#[test]
fn events_of_real_runs_are_as_the_schema_says() {
    let folder = tempfile::tempdir().unwrap();
    let shared = ["--strategy", "ps-sync", "--workers", "2", "--steps", "20"];
    text(folder.path(), &[SOFTMAX, &shared].concat());
    text(folder.path(), &["data", "synth", "clicks", "clicks.tsv", "--rows", "2000"]);
    let rows = ["train", "--model", "sparse-logistic", "--data", "clicks.tsv"];
    text(folder.path(), &rows);
    let mut logs = 0;
    for run in paceline_runs::list(&folder.path().join("runs")).unwrap() {
        for log in run.event_files().unwrap() {
            let errors = paceline_testing::schema_errors("run-folder.schema.json", &log);
            assert_eq!(errors.unwrap_or_default(), "", "{}", log.display());
            logs += 1;
        }
    }
    assert!(logs >= 3, "{logs}");
}
