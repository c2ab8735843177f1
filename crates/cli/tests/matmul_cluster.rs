//! `paceline matmul` on several tasks, as processes that a cluster file or `TF_CONFIG` describes.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;

use places::{key, ports, workers};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use support::{command_in, json, run_in, said};
use tempfile::TempDir;

/// A folder with a cluster file of so many tasks on loopback, and a key.
fn site(tasks: usize) -> (TempDir, Vec<u16>) {
    let (folder, ports) = (tempfile::tempdir().unwrap(), ports(tasks));
    key(&folder, "cluster.key");
    let addresses: Vec<String> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let file = format!("workers = [{}]\n", addresses.join(", "));
    fs::write(folder.path().join("cluster.toml"), file).unwrap();
    (folder, ports)
}

fn task(folder: &TempDir, number: usize, words: &[&str]) -> Command {
    let task = format!("worker/{number}");
    let own =
        ["--cluster", "cluster.toml", "--task", &task, "--key", "cluster.key", "--threads", "1"];
    command_in(folder.path(), &[&["matmul", "--json"], words, &own].concat())
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn together(folder: &TempDir, tasks: usize, words: &[&str]) -> Vec<Output> {
    let children: Vec<Child> =
        (0..tasks).map(|number| spawn(task(folder, number, words))).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn sum(document: &Value, key: &str) -> u64 {
    document["nodes"].as_array().unwrap().iter().map(|node| node[key].as_u64().unwrap()).sum()
}

#[test]
fn three_tasks_have_the_trace_of_one_and_report_what_each_moved() {
    let (folder, _) = site(3);
    // Long enough for readings of the machine, of which a report needs some.
    let words = ["--size", "9000", "--block", "1500"];
    let alone = support::json_in(
        folder.path(),
        &[&["matmul", "--json", "--workers", "1"], &words[..]].concat(),
    );
    for (placement, moves) in [("diagonal", false), ("rows", true)] {
        let words = [&words[..], &["--placement", placement, "--record", "recorded"]].concat();
        let outputs = together(&folder, 3, &words);
        let found = json(&outputs[0]);
        assert_eq!(found["trace"], alone["trace"], "{placement}");
        assert_eq!(found["placement"], placement);
        assert_eq!(found["moved_bytes"], found["moved_bytes_by_placement"][placement], "{found}");
        assert_eq!(found["moved_bytes"].as_u64().unwrap() > 0, moves, "{found}");
        assert_eq!(
            (sum(&found, "jobs"), sum(&found, "bytes_sent")),
            (36, found["moved_bytes"].as_u64().unwrap())
        );
        for node in found["nodes"].as_array().unwrap() {
            let peak = node["resources"]["process_peak_rss_bytes"].as_f64();
            assert!(peak.is_some_and(|bytes| bytes > 1e6), "{node}");
        }
        assert_eq!(json(&outputs[2])["task"], "worker/2");
    }
    // Every task recorded its machine; a report draws them as nodes.
    let recorded = fs::read_dir(folder.path().join("recorded")).unwrap().count();
    assert_eq!(recorded, 3);
    let report = run_in(folder.path(), &["report", "recorded", "--out", "report.html"]);
    assert!(report.status.success(), "{}", said(&report));
}

#[test]
fn blocks_of_a_killed_worker_are_done_by_the_others() {
    let (folder, _) = site(3);
    let words = ["--size", "4000", "--block", "125", "--save-every", "0s", "--state", "state.json"];
    let chief = spawn(task(&folder, 0, &words));
    let other = spawn(task(&folder, 1, &words));
    let mut victim = spawn(task(&folder, 2, &words));
    let state = folder.path().join("state.json");
    cluster_support::wait_for("some blocks", || state.exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let chief = chief.wait_with_output().unwrap();
    let found = json(&chief);
    assert!(other.wait_with_output().unwrap().status.success());
    assert!(said(&chief).contains("lost worker/2"), "{}", said(&chief));
    let nodes = found["nodes"].as_array().unwrap();
    assert_eq!(nodes[2]["lost"], true, "{found}");
    assert_eq!(sum(&found, "jobs"), 32 * 32);
    assert!(sum(&found, "taken_over") > 0, "{found}");
    assert!(!state.exists());
    let alone = [&["matmul", "--json", "--workers", "2"], &words[..4]].concat();
    assert_eq!(support::json_in(folder.path(), &alone)["trace"], found["trace"]);
}

#[test]
fn the_launchers_variables_describe_the_tasks_and_the_chief_writes_the_product() {
    let (folder, ports) = site(2);
    let words = ["matmul", "--size", "300", "--block", "70", "--out", "product.npy", "--node"];
    let words = [&words[..], &["--key", "cluster.key", "--placement", "grid"]].concat();
    let child = |number: usize| {
        let mut command = command_in(folder.path(), &words);
        spawn_with(command.env("TF_CONFIG", workers(&ports, "worker", number)))
    };
    let (chief, other) = (child(0), child(1));
    let chief = chief.wait_with_output().unwrap();
    assert!(other.wait_with_output().unwrap().status.success());
    let shown = String::from_utf8_lossy(&chief.stdout).into_owned();
    assert!(chief.status.success(), "{}", said(&chief));
    for words in
        ["worker/0", "worker/1", "moved between tasks: ", "(grid); factors alone, by placement: "]
    {
        assert!(shown.contains(words), "{shown}");
    }
    let alone =
        ["matmul", "--size", "300", "--block", "70", "--out", "alone.npy", "--workers", "1"];
    assert!(run_in(folder.path(), &alone).status.success());
    let bytes = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(bytes("product.npy") == bytes("alone.npy"));
}

fn spawn_with(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn tasks_that_do_not_fit_are_told_so() {
    let (folder, _) = site(2);
    let one = spawn(task(&folder, 0, &["--size", "100", "--join-timeout", cluster_support::JOINS]));
    let two = task(&folder, 1, &["--size", "200", "--join-timeout", cluster_support::JOINS])
        .output()
        .unwrap();
    assert!(!two.status.success() && said(&two).contains("size is 100 and 200"), "{}", said(&two));
    let mut one = one;
    one.kill().unwrap();
    one.wait().unwrap();
    let alone = task(&folder, 0, &["--size", "100", "--join-timeout", "1s"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(75), "{}", said(&alone));
    assert!(said(&alone).contains("worker/1"), "{}", said(&alone));
}
