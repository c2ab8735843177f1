//! `docs/run-folder.md` and its schemas beside what the program writes and reads: runs on examples and on rows, in one process and in several,
//! by Python, and the folder of this version that is kept in `crates/runs/testdata`.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{RunFolder, RunView, list};
use paceline_testing::{schema_errors, unlisted_fields, workspace};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{json_in, program, run_in, said, train_as};

const DIGITS: &str = "generated:digits?examples=200";

fn schema(name: &str) -> String {
    format!("run-folder.{name}.schema.json")
}

/// All that a run's files hold is described, and is as described. Names the files that it has.
fn check(run: &Path) -> Vec<&'static str> {
    let document = fs::read_to_string(workspace().join("docs/run-folder.md")).unwrap();
    let mut found = Vec::new();
    for name in ["plan", "summary", "machine"] {
        let path = run.join(format!("{name}.json"));
        let Ok(text) = fs::read(&path) else { continue };
        let written: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(unlisted_fields(&schema(name), &written), [""; 0], "{}", path.display());
        for (field, _) in written.as_object().unwrap() {
            assert!(document.contains(&format!("| `{field}` |")), "{name}: {field}");
        }
        let errors = schema_errors(&schema(name), &path).unwrap_or_default();
        assert_eq!(errors, "", "{}", path.display());
        found.push(name);
    }
    for log in RunFolder::open(run).unwrap().event_files().unwrap() {
        let errors = schema_errors("run-folder.schema.json", &log).unwrap_or_default();
        assert_eq!(errors, "", "{}", log.display());
    }
    found
}

fn format_of(run: &Path, name: &str) -> Value {
    let text = fs::read(run.join(name)).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()["format"].clone()
}

#[test]
fn what_runs_on_examples_and_on_rows_leave_is_as_the_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let clicks = run_in(here, &["data", "synth", "clicks", "clicks.tsv", "--rows", "400"]);
    assert!(clicks.status.success(), "{}", said(&clicks));
    fs::copy(here.join("clicks.tsv"), here.join("more.tsv")).unwrap();
    let dense = format!("--model softmax --data {DIGITS} --batch-size 20");
    let rows = "--model sparse-logistic --data clicks.tsv,more.tsv --bits 10";
    for (name, flags) in [
        ("dense", format!("{dense} --epochs 2 --schedule cosine --label-smoothing 0.1")),
        ("workers", format!("{dense} --epochs 2 --strategy multi-worker --workers 2")),
        ("servers", format!("{dense} --steps 20 --strategy ps-async --workers 2 --ps 1")),
        ("rows", format!("{rows} --epochs 2")),
        ("rows-servers", format!("{rows} --strategy ps-sync --workers 2 --ps 1")),
    ] {
        train_as(here, name, &flags);
        let run = here.join("runs").join(name);
        assert_eq!(check(&run), ["plan", "summary", "machine"], "{name}");
        for file in ["plan.json", "summary.json"] {
            assert_eq!(format_of(&run, file), 1, "{name}: {file}");
        }
        assert!(RunView::read(&run).unwrap().summary.examples > 0, "{name}");
    }
}

#[test]
fn what_python_leaves_is_as_the_document_says() {
    let Some(python) = paceline_testing::python("json") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "
import paceline
with paceline.Run('by hand', batch_size=8, data='numbers', settings={'optimizer': 'AdamW'}) as run:
    for number in run.batches(range(40)):
        run.step(0.5)
    run.evaluation(0.5, 0.75, examples=10, seconds=0.1)
";
    let mut command = Command::new(python);
    command.current_dir(folder.path()).args(["-c", script]).env("PACELINE", program());
    let output = command.env("PYTHONPATH", workspace().join("crates/cli/python")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let runs = list(&folder.path().join("runs")).unwrap();
    assert_eq!(check(runs[0].path()), ["machine"], "neither plan nor summary is needed");
    assert!(!runs[0].machine().unwrap().command.is_empty());
}

fn kept(name: &str) -> PathBuf {
    workspace().join("crates/runs/testdata").join(name)
}

/// Every reader still takes the folder for what it was when it was put away. Never change the folder; add one for a later format.
#[test]
fn the_kept_folder_of_format_1_is_read_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = here.join("runs/kept");
    fs::create_dir_all(&run).unwrap();
    for entry in fs::read_dir(kept("run-format-1")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, run.join(path.file_name().unwrap())).unwrap();
    }
    assert_eq!(check(&run), ["plan", "summary", "machine"]);
    let found = json_in(here, &["runs", "kept", "--json"]);
    let summary: Value =
        serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap();
    assert_eq!(found[0]["verdict"], summary["verdict"]);
    for field in ["global_steps", "examples", "phases", "final", "workers", "tasks", "seed"] {
        assert_eq!(found[0]["summary"][field], summary[field], "{field}");
    }
    assert_eq!(found[0]["plan"]["spec"]["model"], "softmax");
    // Without its summary it is judged by its events, and its steps are the same.
    fs::remove_file(run.join("summary.json")).unwrap();
    let died = json_in(here, &["runs", "kept", "--json"]);
    assert_eq!(died[0]["status"], "died", "{died}");
    assert_eq!(died[0]["summary"]["global_steps"], summary["global_steps"]);
    assert_eq!(died[0]["summary"]["examples"], summary["examples"]);
    let report = run_in(here, &["report", "runs/kept", "--format", "markdown", "--out", "page"]);
    assert!(report.status.success(), "{}", said(&report));
    let trace = run_in(here, &["export", "--trace", "runs/kept", "trace.json"]);
    assert!(trace.status.success(), "{}", said(&trace));
}
