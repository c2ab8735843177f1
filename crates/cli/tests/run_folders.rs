//! Run folders as real processes meet them: finished, owned by another, full, renamed, removed, never begun.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;

use cluster_support::*;
use paceline_testing::{SmallDisk, contents};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::{command_in, json_in, run_in, said};
use tempfile::TempDir;

/// Runs of every kind that has a way of its own from the command line to the run folder: in one process or in
/// several, dense or sparse. Data lie in `folder`; what is said here ends soon, and `longer` extends it.
struct Kind {
    name: &'static str,
    flags: &'static [&'static str],
    short: &'static [&'static str],
    longer: &'static [&'static str],
}

const DENSE: &[&str] = &["--model", "softmax", "--data", DIGITS, "--batch-size", "20"];
const KINDS: &[Kind] = &[
    Kind {
        name: "dense in one process",
        flags: &["--threads", "1"],
        short: &["--steps", "40"],
        longer: &["--steps", "70"],
    },
    Kind {
        name: "dense in several",
        flags: &["--strategy", "multi-worker", "--workers", "2"],
        short: &["--epochs", "2"],
        longer: &["--epochs", "3"],
    },
    Kind {
        name: "dense with servers",
        flags: &["--strategy", "ps-async", "--workers", "1", "--ps", "1"],
        short: &["--steps", "40"],
        longer: &["--steps", "70"],
    },
    Kind {
        name: "sparse in one process",
        flags: &["--data", "rows", "--threads", "1"],
        short: &["--epochs", "1"],
        longer: &["--epochs", "2"],
    },
    Kind {
        name: "sparse with servers",
        flags: &["--data", "rows", "--strategy", "ps-sync", "--workers", "2", "--ps", "1"],
        short: &["--epochs", "1"],
        longer: &["--epochs", "2"],
    },
];

impl Kind {
    fn is_sparse(&self) -> bool {
        self.flags.contains(&"rows")
    }

    /// `paceline train` for this kind of run.
    fn words(&self, more: &[&'static str]) -> Vec<&'static str> {
        let model: &[&str] =
            if self.is_sparse() { &["--model", "sparse-logistic", "--bits", "16"] } else { DENSE };
        [&["train", "--json", "--no-tensorboard"], model, self.flags, more].concat()
    }

    /// The same for a run that outlives any test.
    fn endless(&self) -> Vec<&'static str> {
        self.words(self.never())
    }

    /// A stop rule that is never met.
    fn never(&self) -> &'static [&'static str] {
        if self.is_sparse() { &["--epochs", "1000000"] } else { &["--steps", ENDLESS] }
    }
}

/// A folder with rows in it.
fn place() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("rows")).unwrap();
    for (name, seed) in [("rows/a.tsv", "1"), ("rows/b.tsv", "2")] {
        json_in(
            folder.path(),
            &["data", "synth", "clicks", name, "--rows", "3000", "--seed", seed, "--json"],
        );
    }
    folder
}

/// Makes a short run; gives its summary and its folder.
fn finished(kind: &Kind, here: &Path) -> (Value, PathBuf) {
    let summary = json_in(here, &kind.words(kind.short));
    let path = here.join("runs").join(summary["run"].as_str().unwrap());
    (summary, path)
}

/// Starts a run that outlives any test, in a folder of its own; gives them once it has come to a step.
fn endless(kind: &Kind) -> (TempDir, Run, PathBuf) {
    let folder = place();
    let mut run = spawn(command_in(folder.path(), &kind.endless()), tempfile::tempdir().unwrap());
    let path = started(&mut run, folder.path());
    (folder, run, path)
}

/// The run that is going on under `runs`, once it has come to a step.
fn started(run: &mut Run, here: &Path) -> PathBuf {
    let mut found = None;
    wait_for("the first steps", || {
        if let Some(status) = run.child.try_wait().unwrap() {
            panic!("ended early, {status}: {}", run.talk());
        }
        let folders = fs::read_dir(here.join("runs")).into_iter().flatten();
        found = folders.map(|entry| entry.unwrap().path()).find(|folder| steps(folder) > 0);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn resuming_a_finished_run_says_so_changes_nothing_and_exits_0() {
    let folder = place();
    let here = folder.path();
    for kind in KINDS {
        let what = kind.name;
        let (first, path) = finished(kind, here);
        let (name, before) = (path.to_str().unwrap(), contents(&path));
        let again = run_in(here, &["train", "--resume", name, "--json"]);
        assert_eq!(again.status.code(), Some(0), "{what}: {}", said(&again));
        assert!(said(&again).contains("is finished; nothing was changed"), "{}", said(&again));
        let shown: Value = serde_json::from_slice(&again.stdout).unwrap();
        assert_eq!(shown["global_steps"], first["global_steps"], "{what}");
        assert!(shown["final"]["train_loss"].is_f64(), "{what}: {shown}");
        assert!(contents(&path) == before, "{what}: something was changed");
        let more = json_in(here, &[&["train", "--resume", name, "--json"], kind.longer].concat());
        let legs = more["legs"].as_array().unwrap();
        assert_eq!(legs.len(), 2, "{what}: {more}");
        for field in ["examples", "steps"] {
            let sum: u64 = legs.iter().map(|leg| leg[field].as_u64().unwrap()).sum();
            let whole = if field == "steps" { "global_steps" } else { field };
            assert_eq!(more[whole], sum, "{what}: {more}");
        }
        assert_eq!(legs[0]["examples"], first["examples"], "{what}: {more}");
        let seconds: f64 = legs.iter().map(|leg| leg["seconds"].as_f64().unwrap()).sum();
        assert!((more["seconds"].as_f64().unwrap() - seconds).abs() < 1e-9, "{what}: {more}");
        if kind.is_sparse() {
            assert_eq!(more["progressive"]["rows"], more["examples"], "{what}: {more}");
        }
        let text = run_in(here, &["train", "--resume", name]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("leg 1") && text.contains("leg 2"), "{what}: {text}");
        // The shares of the last leg stood beside the time of all of them and nothing said so.
        assert!(text.contains("verdict are of this leg"), "{what}: {text}");
    }
}

/// The latest committed checkpoint.
fn committed(path: &Path) -> u64 {
    let entries = fs::read_dir(path.join("checkpoints")).into_iter().flatten();
    let steps = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    steps.max().unwrap_or(0)
}

fn recorded(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path.join("summary.json")).unwrap()).unwrap()
}

/// It ended as done without a step, and its summary had neither a test loss nor what had been done before.
#[test]
fn a_run_resumed_beyond_its_stop_rule_says_so_and_keeps_its_figures() {
    for (kind, signal_name) in KINDS.iter().flat_map(|kind| [(kind, "-INT"), (kind, "-KILL")]) {
        let what = format!("{}, {signal_name}", kind.name);
        let folder = place();
        let here = folder.path();
        // Of rows in one process only passes over the files are counted: the first must be over.
        let (passed, beyond): (&[&str], u64) = match kind.name {
            "sparse in one process" => (&["--epochs", "1"], 6_000),
            _ => (&["--steps", "1"], 1),
        };
        let test: &[&str] = if kind.is_sparse() { &["--test", "rows/a.tsv"] } else { &[] };
        let words = [&kind.endless(), test, &["--checkpoint-every", "700"]].concat();
        let mut run = spawn(command_in(here, &words), tempfile::tempdir().unwrap());
        let path = started(&mut run, here);
        wait_for("a checkpoint", || committed(&path) > beyond);
        signal(run.child.id(), signal_name);
        run.end();
        let before = (signal_name == "-INT").then(|| recorded(&path));
        let resume = ["train", "--json", "--resume", path.to_str().unwrap()];
        let mut ended = None;
        // Tasks of a killed run may take a moment to notice.
        wait_for("the run folder to be free", || {
            let output = run_in(here, &[&resume, passed].concat());
            let is_free = output.status.code() != Some(75);
            ended = is_free.then_some(output);
            is_free
        });
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(0), "{what}: {}", said(&ended));
        assert!(said(&ended).contains("the stop rule is already met"), "{what}: {}", said(&ended));
        let now = recorded(&path);
        assert_eq!(
            (&now["status"], &now["global_steps"]),
            (&"done".into(), &committed(&path).into()),
            "{what}: {now}"
        );
        // Of rows that tasks learned from before they were killed, nothing may have been written down.
        let known: &[&str] = if before.is_some() { &["train_loss"] } else { &[] };
        for field in [known, &["test_loss", "test_accuracy"]].concat() {
            assert!(now["final"][field].is_f64(), "{what}, {field}: {now}");
        }
        let steps: u64 =
            now["legs"].as_array().unwrap().iter().map(|leg| leg["steps"].as_u64().unwrap()).sum();
        assert_eq!(now["global_steps"], steps, "{what}: {now}");
        for figure in ["/examples", "/seconds", "/step_seconds"] {
            let found = now.pointer(figure).and_then(Value::as_f64).unwrap();
            assert!(found > 0.0, "{what}, {figure}: {now}");
        }
        if let Some(before) = before {
            for field in
                ["examples", "seconds", "step_seconds", "workers", "phases", "traffic", "legs"]
            {
                assert_eq!(now[field], before[field], "{what}, {field}");
            }
        }
        if passed[0] == "--steps" {
            let longer = (committed(&path) + 20).to_string();
            let more = json_in(here, &[&resume[..], &["--steps", &longer]].concat());
            assert_eq!(more["legs"].as_array().unwrap().len(), 2, "{what}: {more}");
        }
    }
}

/// Checkpoints that followed each other sooner than steps are recorded carried legs without a second of steps, and
/// that was all a killed run had left to tell.
#[test]
fn a_checkpoint_before_the_first_recorded_step_has_the_time_of_its_steps() {
    let folder = place();
    let here = folder.path();
    let kind = KINDS.iter().find(|kind| kind.name == "sparse in one process").unwrap();
    let every = ["--checkpoint-every", "100", "--keep", "1000"];
    let summary = json_in(here, &[&kind.words(kind.short)[..], &every].concat());
    let checkpoints = here.join("runs").join(summary["run"].as_str().unwrap()).join("checkpoints");
    let mut seen = 0;
    for entry in fs::read_dir(checkpoints).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read(path.join("manifest.json")) else { continue };
        let manifest: Value = serde_json::from_slice(&text).unwrap();
        let legs = manifest["checkpoint"]["legs"].as_array().unwrap();
        let seconds = legs.last().unwrap()["step_seconds"].as_f64();
        assert!(seconds.is_some_and(|seconds| seconds > 0.0), "{}: {manifest}", path.display());
        seen += 1;
    }
    assert!(seen > 1, "{seen} checkpoints");
}

#[test]
fn of_several_resumes_at_once_one_owns_the_run_and_the_others_exit_75() {
    let folder = place();
    let here = folder.path();
    for kind in KINDS {
        let what = kind.name;
        let (_, path) = finished(kind, here);
        let name = path.to_str().unwrap();
        let resume = [&["train", "--json", "--resume", name], kind.never()].concat();
        let before = steps(&path);
        let owner = spawn(command_in(here, &resume), tempfile::tempdir().unwrap());
        wait_for("its first steps", || steps(&path) > before);
        for _ in 0..2 {
            let second = run_in(here, &resume);
            assert_eq!(second.status.code(), Some(75), "{what}: {}", said(&second));
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            let named = format!("in use by process {} on {}", owner.child.id(), host.trim());
            assert!(said(&second).contains(&named), "{what}: {}", said(&second));
        }
        let listed = json_in(here, &["runs", "--json"]);
        let listed = listed.as_array().unwrap();
        assert!(listed.iter().any(|run| run["status"] == "running"), "{what}: {listed:?}");
        signal(owner.child.id(), "-INT");
        let ended = owner.end();
        assert_eq!(ended.code(), 130, "{what}: {}", ended.talk);
        assert!(!path.join("owner.json").exists(), "{what}");
        fs::remove_dir_all(here.join("runs")).unwrap();
    }
}

/// The folder that an error says the weights are in.
fn rescued(talk: &str) -> PathBuf {
    let (_, rest) = talk.split_once("they are in `").unwrap_or_else(|| panic!("{talk}"));
    let place = PathBuf::from(rest.split('`').next().unwrap());
    assert!(place.join("plan.json").is_file() && has_checkpoint(&place), "{talk}");
    place
}

#[test]
fn a_stopped_run_whose_final_weights_cannot_be_written_fails_and_says_where_they_are() {
    for kind in KINDS {
        let what = kind.name;
        let (_folder, run, path) = endless(kind);
        // A file where checkpoints would go: only the end of a run that has just begun writes some.
        fs::write(path.join("checkpoints"), "").unwrap();
        signal(run.child.id(), "-INT");
        let ended = run.end();
        // The signal's own code comes before that of the failure.
        assert_eq!(ended.code(), 130, "{what}: {}", ended.talk);
        assert!(ended.talk.contains("the final weights (step "), "{what}: {}", ended.talk);
        let place = rescued(&ended.talk);
        let hint = format!("`paceline train --resume {}`", place.display());
        assert!(ended.talk.contains(&hint), "{what}: {}", ended.talk);
        let summary = fs::read(path.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        assert_eq!(summary["status"], "failed", "{what}: {summary}");
    }
}

#[test]
fn a_run_whose_folder_is_removed_ends_at_once_with_exit_1_and_saves_its_weights_elsewhere() {
    for kind in KINDS {
        let what = kind.name;
        let (_folder, run, path) = endless(kind);
        // Something may be written between two removals.
        wait_for("the folder to be gone", || {
            let _ = fs::remove_dir_all(&path);
            !path.exists()
        });
        let ended = run.end();
        assert_eq!(ended.code(), 1, "{what}: {}", ended.talk);
        let words = "was removed while the run was writing to it";
        assert!(ended.talk.contains(words), "{what}: {}", ended.talk);
        assert!(!path.exists(), "{what}: it came back");
        rescued(&ended.talk);
    }
}

/// `timeout -s INT` signals its child and then the child's group: one request, not "at once".
#[test]
fn two_signals_at_the_same_moment_are_one_request_to_stop() {
    for kind in KINDS {
        let what = kind.name;
        let (_folder, run, path) = endless(kind);
        let twice = format!("kill -INT {0}; kill -INT {0}", run.child.id());
        assert!(Command::new("sh").args(["-c", &twice]).status().unwrap().success());
        let ended = run.end();
        assert_eq!(ended.code(), 130, "{what}: {}", ended.talk);
        assert!(has_checkpoint(&path), "{what}: {}", ended.talk);
        let summary = fs::read(path.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        assert_eq!(summary["status"], "cancelled", "{what}: {summary}");
    }
}

#[test]
fn a_run_folder_that_is_renamed_is_followed() {
    for kind in KINDS {
        let what = kind.name;
        let (_folder, run, path) = endless(kind);
        let renamed = path.with_file_name("renamed");
        fs::rename(&path, &renamed).unwrap();
        wait_for("it to be said", || run.talk().contains("the run continues there"));
        signal(run.child.id(), "-INT");
        let ended = run.end();
        assert_eq!(ended.code(), 130, "{what}: {}", ended.talk);
        assert_eq!(ended.json()["run"], "renamed", "{what}: {}", ended.talk);
        assert!(!path.exists() && has_checkpoint(&renamed), "{what}: {}", ended.talk);
        let summary: Value =
            serde_json::from_slice(&fs::read(renamed.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["status"], "cancelled", "{what}: {summary}");
    }
}

#[test]
fn a_disk_too_small_for_the_weights_is_exit_1_not_done() {
    let folder = place();
    let here = folder.path();
    let (disk, temporary) = (here.join("disk"), here.join("tmp"));
    fs::create_dir(&temporary).unwrap();
    let Some(_mount) = SmallDisk::mount(&disk, "300k") else { return };
    for kind in KINDS {
        // LeNet's weights and velocity are twice 247 kB.
        let large: &[&str] = if kind.is_sparse() {
            &["--model", "sparse-logistic", "--bits", "20"]
        } else {
            &["--model", "lenet", "--data", DIGITS, "--batch-size", "20", "--optimizer", "momentum"]
        };
        // What lies beside the folder of runs is tried first, unless it is on the same disk.
        for (out, nearest) in [("disk", here), ("disk/runs", &temporary)] {
            let records = ["train", "--no-tensorboard", "--out", out];
            let words = [&records, large, kind.flags, kind.short].concat();
            let ended = command_in(here, &words).env("TMPDIR", &temporary).output().unwrap();
            let talk = format!("{}: {}", kind.name, said(&ended));
            assert_eq!(ended.status.code(), Some(1), "{talk}");
            assert!(talk.contains("No space left") && talk.contains("the final weights"), "{talk}");
            let place = rescued(&talk);
            assert_eq!(place.parent().unwrap(), fs::canonicalize(nearest).unwrap(), "{talk}");
            for entry in fs::read_dir(&disk).unwrap() {
                fs::remove_dir_all(entry.unwrap().path()).unwrap();
            }
        }
    }
}

#[test]
fn a_missing_server_leaves_no_run_behind_and_no_hint_that_fails() {
    let folder = place();
    let here = folder.path();
    let (ports, key) = (places::ports(3), places::key(&folder, "key"));
    let cluster = format!(
        "workers = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\nps = [\"127.0.0.1:{}\"]\n",
        ports[0], ports[1], ports[2]
    );
    fs::write(here.join("cluster.toml"), cluster).unwrap();
    for model in [DENSE, &["--model", "sparse-logistic", "--bits", "16", "--data", "rows"]] {
        let task = ["node", "--cluster", "cluster.toml", "--task", "worker/0", "--key", &key];
        let more = ["--strategy", "ps-async", "--join-timeout", "1", "--out", "runs"];
        let stop: &[&str] = if model == DENSE { &["--steps", "10"] } else { &[] };
        let ended = run_in(here, &[&task[..], model, &more, stop].concat());
        let talk = said(&ended);
        assert_eq!(ended.status.code(), Some(75), "{talk}");
        assert!(talk.contains("ps/0") && !talk.contains("--resume"), "{talk}");
        assert!(!here.join("runs").exists(), "neither a run nor a folder made for it");
    }
}
