//! `paceline matmul` as a process: killed and continued, wrong calls, JSON.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{command_in, json};

fn matmul(folder: &Path, args: &[&str]) -> Command {
    command_in(folder, &[&["matmul", "--json"], args].concat())
}

/// Killed again and again at whatever moment, a run still ends with the bits of one that was not.
#[test]
fn a_killed_run_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--size", "3000", "--block", "100", "--save-every", "0", "--workers", "2"];
    let args = [&args[..], &["--threads", "2", "--memory", "512MiB", "--out", "c.npy"]].concat();
    let whole = json(
        &matmul(folder.path(), &[&args[..], &["--state", "whole.json"]].concat()).output().unwrap(),
    );
    let product = std::fs::read(folder.path().join("c.npy")).unwrap();
    std::fs::remove_file(folder.path().join("c.npy")).unwrap();
    let state = folder.path().join("s.json");
    let args = [&args[..], &["--state", "s.json"]].concat();
    let mut kills = 0;
    let mut length = 0;
    while kills < 3 {
        let mut child = matmul(folder.path(), &args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        // Until it has kept something new, so that every round makes progress.
        loop {
            let now = std::fs::metadata(&state).map_or(0, |metadata| metadata.len());
            if now > length || child.try_wait().unwrap().is_some() {
                length = now;
                break;
            }
            assert!(begun.elapsed() < paceline_testing::HANG, "no state was written");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(child.try_wait().unwrap().is_none(), "the run was over before it could be killed");
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    let last = json(&matmul(folder.path(), &args).output().unwrap());
    assert!(last["resumed"].as_u64().unwrap() >= 3, "{last}");
    for key in ["trace", "sum", "norm"] {
        assert_eq!(last[key], whole[key], "{key}");
    }
    assert_eq!(std::fs::read(folder.path().join("c.npy")).unwrap(), product);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let temporary =
        |name: &&std::ffi::OsString| name.to_string_lossy().starts_with(".paceline-tmp-");
    let left: Vec<_> = left.iter().filter(|name| !temporary(name)).collect();
    assert_eq!(left, ["c.npy"], "state and partial output are gone");
}

/// Workers are processes: one that is killed ends the run with its name, and the same call does the rest.
#[test]
fn a_killed_worker_is_named_and_costs_only_its_block() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--size", "5000", "--block", "125", "--save-every", "0", "--threads", "2"];
    let with = |workers: &'static str| [&args[..], &["--workers", workers]].concat();
    let alone = json(&matmul(folder.path(), &with("1")).output().unwrap());
    let mut command = matmul(folder.path(), &with("3"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Each thread of the parent has the workers that it started.
    let children = || -> Vec<String> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten();
        let lists = threads.flatten().map(|thread| thread.path().join("children"));
        let found: Vec<String> =
            lists.filter_map(|list| std::fs::read_to_string(list).ok()).collect();
        found.join(" ").split_whitespace().map(str::to_owned).collect()
    };
    let begun = Instant::now();
    let workers = loop {
        let found = children();
        let kept = std::fs::read_dir(folder.path()).unwrap().count() > 0;
        if found.len() == 3 && kept {
            break found;
        }
        assert!(begun.elapsed() < paceline_testing::HANG, "three workers: {found:?}");
        std::thread::sleep(Duration::from_millis(2));
    };
    let victim = &workers[1];
    assert!(Command::new("kill").args(["-KILL", victim]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains("worker ") && said.contains("signal 9"), "{said}");
    let rest = json(&matmul(folder.path(), &with("3")).output().unwrap());
    assert!(rest["resumed"].as_u64().unwrap() > 0, "{rest}");
    assert_eq!(rest["trace"], alone["trace"]);
}

#[test]
fn the_identity_gives_the_same_trace_for_a_fraction_of_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let trace = json(&matmul(folder.path(), &["--size", "333"]).output().unwrap());
    let identity = json(&matmul(folder.path(), &["--size", "333", "--identity"]).output().unwrap());
    let (a, b) = (trace["trace"].as_f64().unwrap(), identity["trace"].as_f64().unwrap());
    assert!((a - b).abs() < 1e-3, "{a} {b}");
    let ratio = trace["flops"].as_f64().unwrap() / identity["flops"].as_f64().unwrap();
    assert!((ratio - 333.0).abs() < 1e-9, "{ratio}");
    let same = json(&matmul(folder.path(), &["--size", "333", "--same"]).output().unwrap());
    assert_ne!(same["trace"], trace["trace"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "short runs leave nothing");
}

#[test]
fn wrong_calls_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code, needle) in [
        (&["--size", "100000", "--memory", "1MiB"][..], 2, "hint: give `--memory"),
        (&["--size", "0"], 2, "must be between"),
        (&["--size", "9", "--workers", "0"], 2, "no workers"),
        (&["--size", "9", "--block", "0"], 2, "no rows in a block"),
        (&[], 2, "--size"),
        (&["--size", "9", "--memory", "lots"], 2, "such as 16GiB or 500MB"),
        (&["--size", "9", "--memory", "4096"], 2, "4096MiB or 4096GiB"),
        (&["--size", "9", "--identity", "--out", "x.npy"], 2, "cannot be used with"),
        (&["--a", "absent.npy"], 1, "cannot read `absent.npy`"),
    ] {
        let output = matmul(folder.path(), args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(needle), "{args:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

/// Two at once wrote into one file, and the one that ended later said that it was not there.
#[test]
fn a_product_that_another_process_writes_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let there = std::fs::File::create(folder.path().join("c.npy.partial")).unwrap();
    there.lock().unwrap();
    let words = ["--size", "100", "--product", "--out", "c.npy"];
    let output = matmul(folder.path(), &words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains("another process writes `c.npy.partial`"), "{said}");
    drop(there);
    let output = matmul(folder.path(), &words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.path().join("c.npy").is_file());
}

/// Only the one that was started is told to stop, as by `kill`; its worker is in the middle of a block that takes seconds.
#[test]
fn one_block_stops_in_its_midst_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for workers in ["1", "2"] {
        let words = ["matmul", "--size", "7000", "--block", "7000", "--threads", "2"];
        let words = [&words[..], &["--workers", workers, "--out", "c.npy"]].concat();
        let mut command = command_in(folder.path(), &words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        // The output is made before the first block is begun, and signals are heard before that.
        while !folder.path().join("c.npy.partial").exists() {
            assert!(begun.elapsed() < paceline_testing::HANG, "no work was begun");
            std::thread::sleep(Duration::from_millis(2));
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{said}");
        let expected = "stopped before the first of 1 blocks was done; nothing is left of it";
        assert!(said.contains(expected), "{said}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{workers} workers");
    }
}
