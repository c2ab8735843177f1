//! Runs whose weights were on parameter servers, as programs of the past left them: they are listed, drawn and continued.
//!
//! `testdata/servers` has what `paceline train --model softmax --data 'generated:images?size=4&classes=2&examples=8' --workers 2 --ps 2
//! --batch-size 4 --epochs 2 --checkpoint-every 2 --no-tensorboard` wrote with `--strategy ps-sync` and `ps-async`: the first release's
//! (`-0.1`, made by revision f837730) and that of the time when this test was added. Left out are a second checkpoint, empty logs and most samples of
//! resources.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
};
use support::{json_in, run_in};

const RUNS: &[&str] = &["ps-sync-0.1", "ps-async-0.1", "ps-sync", "ps-async"];

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// A folder with copies of all frozen runs.
fn thawed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/servers"), &runs);
    (folder, runs)
}

#[test]
fn frozen_runs_with_servers_are_listed_and_drawn() {
    let (_folder, runs) = thawed();
    let listed = json_in(&runs, &["runs", "--runs", ".", "--json"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), RUNS.len(), "{listed:?}");
    for run in listed {
        assert_eq!(run["status"], "done", "{run}");
        assert_eq!(run["summary"]["global_steps"], 4, "{run}");
    }
    for run in RUNS {
        let page = format!("{run}.html");
        let drawn = run_in(&runs, &["report", run, "--out", &page]);
        let said = String::from_utf8_lossy(&drawn.stderr).into_owned();
        assert_eq!(drawn.status.code(), Some(0), "{run}: {said}");
        assert!(!said.contains("warning"), "{run}: {said}");
        let page = fs::read_to_string(runs.join(page)).unwrap();
        assert!(page.contains("ps/0") && page.contains("worker/1"), "{run}");
    }
}

/// Updates, examples and the optimiser's state of all servers go on from the checkpoint.
#[test]
fn frozen_runs_with_servers_continue() {
    let (_folder, runs) = thawed();
    for run in RUNS {
        let words = ["train", "--resume", run, "--epochs", "3", "--json", "--no-tensorboard"];
        let summary = json_in(&runs, &words);
        assert_eq!(summary["status"], "done", "{run}: {summary}");
        assert_eq!(summary["global_steps"], 6, "{run}: {summary}");
        assert_eq!(summary["examples"], 24, "{run}: {summary}");
        assert_eq!(summary["legs"].as_array().unwrap().len(), 2, "{run}: {summary}");
    }
}

/// A part of a frozen checkpoint that is damaged is not passed over for weights from nothing.
#[test]
fn a_damaged_checkpoint_of_frozen_servers_is_refused() {
    let (_folder, runs) = thawed();
    for run in RUNS {
        let weights = runs.join(run).join("checkpoints/0000000004/weights.safetensors");
        let mut bytes = fs::read(&weights).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&weights, bytes).unwrap();
        let output = run_in(&runs, &["train", "--resume", run, "--epochs", "3"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{run}: {said}");
        assert!(said.contains("no usable checkpoint"), "{run}: {said}");
    }
}
