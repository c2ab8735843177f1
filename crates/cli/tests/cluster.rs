//! Strategies of several processes through the real binary: results, and everything that can go
//! wrong with a task.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use serde_json::Value;
use std::{
    path::Path,
    time::{Duration, Instant},
};

fn examples(summary: &Value) -> u64 {
    let workers = summary["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker["examples"].as_u64().unwrap()).sum()
}

#[test]
fn every_strategy_trains_to_the_same_counters() {
    for (strategy, flags) in
        [("multi-worker", &[][..]), ("ps-sync", &["--ps", "1"]), ("ps-async", &["--ps", "2"])]
    {
        let base = ["--workers", "2", "--epochs", "3", "--batch-size", "20", "--lr", "0.1"];
        let ended = train(strategy, &[&base, flags].concat()).end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let summary = ended.json();
        assert_eq!(summary["strategy"], strategy);
        assert_eq!(summary["status"], "done", "{summary}");
        assert_eq!(summary["global_steps"], 90, "{strategy}");
        assert_eq!(summary["examples"], 1800, "{strategy}: all examples of three epochs");
        assert_eq!(
            examples(&summary),
            1800 + summary["dropped_examples"].as_u64().unwrap(),
            "{strategy}: examples processed are examples served"
        );
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2);
        assert!(summary["final"]["test_accuracy"].as_f64().unwrap() > 0.5, "{summary}");
        assert!(summary["traffic"]["sent_bytes"].as_u64().unwrap() > 0, "{strategy}");
        let folder = ended.out.path().join(summary["run"].as_str().unwrap());
        assert!(folder.join("events-worker-1.jsonl").exists());
        assert!(folder.join("resources-worker-1.csv").exists());
        assert!(folder.join("logs/worker-1.log").exists());
        assert!(folder.join("checkpoints/0000000090/manifest.json").exists(), "{strategy}");
        let outlived = still_there(&processes(&folder));
        assert!(outlived.is_empty(), "{strategy}: they outlived the run: {outlived:?}");
    }
}

#[test]
fn one_worker_alone_is_a_cluster_too() {
    for strategy in ["multi-worker", "ps-sync", "ps-async"] {
        let ended = train(strategy, &["--workers", "1", "--epochs", "1"]).end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        assert_eq!(ended.json()["examples"], 600, "{strategy}");
    }
}

#[test]
fn when_the_parent_is_killed_no_task_stays() {
    let mut run = train("ps-async", &["--workers", "2", "--steps", ENDLESS]);
    run.wait_for_step(50);
    let tasks = processes(&run.folder());
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    signal(run.child.id(), "-KILL");
    wait_for("all tasks to end", || tasks.values().all(|process| !exists(*process)));
    drop(run.end());
}

#[test]
fn a_killed_worker_is_named_and_the_others_go_on() {
    for strategy in ["ps-async", "multi-worker", "ps-sync"] {
        let mut run =
            train(strategy, &["--workers", "3", "--steps", ENDLESS, "--batch-size", "30"]);
        let (talk, named) = kill_and_go_on(&mut run, "worker/2");
        assert!(named < 5.0, "{strategy}: named after {named:.1} s\n{talk}");
        let (summary, _) = end_in_order(run);
        let lost = summary["lost"].as_array().unwrap();
        assert!(lost.len() == 1 && lost[0].as_str().unwrap().starts_with("worker/2"), "{summary}");
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{strategy}");
    }
}

#[test]
fn a_killed_worker_is_restarted_and_rejoins() {
    for strategy in ["multi-worker", "ps-async", "ps-sync"] {
        let flags = ["--workers", "2", "--steps", ENDLESS, "--on-loss", "restart"];
        let mut run = train(strategy, &flags);
        let (talk, named) = kill_and_go_on(&mut run, "worker/1");
        assert!(named < 5.0, "{strategy}: named after {named:.1} s\n{talk}");
        // The chief sees a closed connection, the launcher the signal; either may be first.
        wait_for("the signal to be named", || run.talk().contains("worker/1 was killed"));
        let folder = run.folder();
        wait_for("worker/1 to be back", || !events(&folder, "task_recovered").is_empty());
        let (summary, _) = end_in_order(run);
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{strategy}: {summary}");
    }
}

#[test]
fn a_killed_worker_stops_the_run_where_that_was_asked_for() {
    for (strategy, task) in [
        ("multi-worker", "worker/1"),
        ("ps-sync", "worker/1"),
        ("ps-async", "worker/1"),
        ("ps-async", "ps/0"),
    ] {
        let mut run = train(strategy, &["--workers", "2", "--steps", ENDLESS, "--on-loss", "stop"]);
        let (talk, named) = kill_and_go_on(&mut run, task);
        assert!(named < 5.0, "{strategy}: named after {named:.1} s\n{talk}");
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{strategy}: {}", ended.talk);
        let said = format!("{task}: was killed (signal 9");
        assert!(ended.talk.contains(&said), "{strategy}: {}", ended.talk);
        assert_eq!(ended.json()["exit"], 75);
    }
}

/// The smallest images that AlexNet takes: its dense layers are as large as ever.
const SMALL_IMAGES: &str = "generated:images?size=63&classes=4&examples=48";

#[test]
fn dense_layers_are_shared_out_where_that_is_sound() {
    let out = || tempfile::tempdir().unwrap();
    let base = ["--model", "alexnet", "--data", SMALL_IMAGES, "--strategy", "multi-worker"];
    let more = ["--workers", "2", "--steps", "3", "--batch-size", "7", "--optimizer", "momentum"];
    let base = [&base[..], &more].concat();
    let with = |flags: &[&str]| train_in(out(), &[&base[..], flags].concat()).end();

    let refused = with(&["--split-dense", "on"]);
    assert_ne!(refused.code(), 0);
    assert!(refused.talk.contains("--on-loss continue"), "{}", refused.talk);

    let copied = with(&["--on-loss", "stop", "--split-dense", "off"]);
    let shared = with(&["--on-loss", "stop"]);
    let (before, after) = (copied.json(), shared.json());
    assert!(!copied.talk.contains("shared out"), "{}", copied.talk);
    assert!(shared.talk.contains("shared out"), "{}", shared.talk);
    let loss = |summary: &Value| summary["final"]["train_loss"].as_f64().unwrap();
    assert!((loss(&before) - loss(&after)).abs() < 1e-3, "{before} {after}");
    assert_eq!(examples(&after), 21);
    let traffic = |summary: &Value| summary["traffic"]["sent_bytes"].as_u64().unwrap();
    assert!(traffic(&after) > 0 && traffic(&after) < traffic(&before) / 5, "{before} {after}");
    // The checkpoint is whole, and so is a run that goes on from it.
    let run = shared.out.path().join(after["run"].as_str().unwrap());
    let plan = std::fs::read_to_string(run.join("plan.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&plan).unwrap()["split_parameters"].as_u64() > Some(0));
    let folder = run.to_string_lossy().into_owned();
    let ended = train_in(shared.out, &["--resume", &folder, "--steps", "5"]).end();
    assert_eq!(ended.code(), 0, "{}", ended.talk);
    assert_eq!(ended.json()["global_steps"], 5);
}

#[test]
fn a_worker_killed_amid_layers_shared_out_is_named_and_ends_the_run() {
    let flags = ["--model", "alexnet", "--data", SMALL_IMAGES, "--strategy", "multi-worker"];
    let more = ["--workers", "2", "--steps", ENDLESS, "--on-loss", "stop", "--batch-size", "8"];
    let mut run = train_in(tempfile::tempdir().unwrap(), &[&flags[..], &more].concat());
    run.wait_for_step(3);
    assert!(run.talk().contains("shared out"), "{}", run.talk());
    signal(run.process("worker/1"), "-KILL");
    let ended = run.end();
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    assert!(ended.talk.contains("worker/1: was killed (signal 9"), "{}", ended.talk);
}

#[test]
fn a_killed_server_comes_back_with_the_last_checkpoint() {
    // The first server deals the batches, the others only hold weights.
    for (strategy, server) in
        [("ps-async", "ps/0"), ("ps-async", "ps/1"), ("ps-sync", "ps/0"), ("ps-sync", "ps/1")]
    {
        let flags =
            ["--workers", "2", "--ps", "2", "--steps", ENDLESS, "--checkpoint-every", "100"];
        let mut run = train(strategy, &flags);
        let folder = run.folder();
        wait_for("a checkpoint", || has_checkpoint(&folder));
        let (talk, named) = kill_and_go_on(&mut run, server);
        assert!(named < 5.0, "{strategy}, {server}: named after {named:.1} s\n{talk}");
        assert!(talk.contains(&format!("{server} was killed")), "{talk}");
        let word = "all tasks continue from step ";
        wait_for("all tasks to roll back", || run.talk().contains(word));
        wait_for("the log", || !events(&folder, "task_recovered").is_empty());
        let (summary, ended) = end_in_order(run);
        assert_eq!(summary["status"], "cancelled", "{strategy}, {server}: {}", ended.talk);
        let from = ended.talk.split_once(word).unwrap().1.lines().next().unwrap();
        let from: u64 = from.parse().unwrap();
        let saved =
            |event: &Value| event["data"]["action"] == "saved" && event["data"]["step"] == from;
        let checkpoints = events(&folder, "checkpoint");
        assert!(checkpoints.iter().any(saved), "{strategy}, {server}: {from}, {checkpoints:?}");
    }
}

#[test]
fn a_killed_chief_ends_the_run_with_its_name_and_resume_picks_it_up() {
    for strategy in ["multi-worker", "ps-async", "ps-sync"] {
        let flags = ["--workers", "2", "--steps", ENDLESS, "--checkpoint-every", "100"];
        let mut run = train(strategy, &[&flags[..], &["--evaluator"]].concat());
        run.wait_for_step(300);
        let (chief, folder) = (run.process("worker/0"), run.folder());
        let others: Vec<String> =
            processes(&folder).into_keys().filter(|task| task != "worker/0").collect();
        assert_eq!(others.len(), if strategy == "multi-worker" { 2 } else { 3 }, "{others:?}");
        // The others may be hundreds of steps ahead before the chief has saved for the first time.
        wait_for("a checkpoint", || has_checkpoint(&folder));
        signal(chief, "-KILL");
        let killed = unix_seconds();
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{}", ended.talk);
        let after = ended.ended_within(&folder, "worker/1", killed);
        assert!(after < 10.0, "{strategy}: {after:.1} s");
        assert!(ended.talk.contains("worker/0: was killed"), "{}", ended.talk);
        for task in others {
            let (path, text) = log(&folder, &task);
            assert!(text.contains("lost worker/0"), "{strategy}, {task}: {text}");
            // Its last word was that.
            let written = std::fs::metadata(path).unwrap().modified().unwrap();
            let written = written.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
            let after = ended.lateness.answered_for(killed, written);
            assert!(after < 10.0, "{strategy}, {task}: {after:.1} s");
        }
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let again = train_in(ended.out, &["--resume", &name, "--steps", "1000"]).end();
        assert_eq!(again.code(), 0, "{strategy}: {}", again.talk);
        let summary = again.json();
        assert!(summary["global_steps"].as_u64().unwrap() >= 1000, "{strategy}: {summary}");
        assert!(again.talk.contains("continuing at step"), "{}", again.talk);
    }
}

/// Ctrl-Z, or a machine that sleeps: longer than a task may be silent.
#[test]
fn a_run_that_is_stopped_and_continued_goes_on_as_if_nothing_had_been() {
    let flags = ["--workers", "2", "--steps", ENDLESS, "--batch-size", "30"];
    let mut runs: Vec<Run> =
        ["multi-worker", "ps-sync", "ps-async"].map(|strategy| train(strategy, &flags)).into();
    let mut all = Vec::new();
    for run in &mut runs {
        run.wait_for_step(20);
        all.push(run.child.id());
        all.extend(processes(&run.folder()).values());
    }
    all.iter().for_each(|process| signal(*process, "-STOP"));
    std::thread::sleep(Duration::from_secs(10));
    all.iter().for_each(|process| signal(*process, "-CONT"));
    for mut run in runs {
        let folder = run.folder();
        let before = steps(&folder);
        run.wait_for_step(before + 200);
        let (summary, ended) = end_in_order(run);
        assert_eq!(summary["lost"], serde_json::json!([]), "{}", ended.talk);
        assert!(!ended.talk.contains("lost"), "{}", ended.talk);
    }
}

/// Processor seconds that a process has used.
fn cpu_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0 // the kernel's clock tick on Linux
}

/// Steps that a worker has made, and how long it was busy with them.
fn steps_of(folder: &Path, task: &str) -> (u64, f64) {
    let (mut steps, mut busy) = (0, 0.0);
    for event in events_of(folder, task, "step") {
        steps += event["data"]["steps"].as_u64().unwrap();
        let phases = &event["data"]["phases"];
        busy += phases["input"].as_f64().unwrap() + phases["compute"].as_f64().unwrap();
    }
    (steps, busy)
}

/// How long worker/1 must be stopped for every 10 ms that it may run, so that its steps take fifteen times as long as
/// worker/0's do on this machine at this moment: beside other load those are longer than their processor time.
fn stop_for(run: &Run, folder: &Path) -> Duration {
    let slow = run.process("worker/1");
    let (cpu, own, other) =
        (cpu_seconds(slow), steps_of(folder, "worker/1"), steps_of(folder, "worker/0"));
    let mut measured = (0.0, 0.0);
    wait_for("ten more steps of each", || {
        let (own_steps, other_now) = (steps_of(folder, "worker/1").0, steps_of(folder, "worker/0"));
        let (own_made, other_made) = (own_steps - own.0, other_now.0 - other.0);
        if own_made < 10 || other_made < 10 {
            return false;
        }
        let cpu_per_step = (cpu_seconds(slow) - cpu) / own_made as f64;
        measured = (cpu_per_step, (other_now.1 - other.1) / other_made as f64);
        true
    });
    let (cpu_per_step, other_per_step) = measured;
    let turns = (cpu_per_step / 0.01).max(1.0);
    Duration::from_secs_f64((15.0 * other_per_step / turns).max(0.09))
}

#[test]
fn a_worker_ten_times_slower_is_named_within_twenty_of_its_steps() {
    for strategy in ["multi-worker", "ps-sync", "ps-async"] {
        let flags =
            ["--workers", "2", "--steps", ENDLESS, "--batch-size", "1024", "--model", "lenet"];
        let data = "generated:digits?examples=6000";
        let base = ["--data", data, "--strategy", strategy];
        let mut run = train_in(tempfile::tempdir().unwrap(), &[&base[..], &flags].concat());
        run.wait_for_step(20);
        let (slow, folder) = (run.process("worker/1"), run.folder());
        let stopped = stop_for(&run, &folder);
        let (begun, from) = (Instant::now(), unix_seconds());
        let mut made = 0;
        while !run.talk().contains("worker/1 is slow") {
            signal(slow, "-STOP");
            std::thread::sleep(stopped);
            signal(slow, "-CONT");
            std::thread::sleep(Duration::from_millis(10));
            made = events_of(&folder, "worker/1", "step")
                .iter()
                .filter(|event| event["time"].as_f64().unwrap() >= from)
                .map(|event| event["data"]["steps"].as_u64().unwrap())
                .sum();
            assert!(made <= 20, "{strategy}: it had made {made} steps: {}", run.talk());
            assert!(begun.elapsed() < 5 * PATIENCE, "{strategy}: it hangs: {}", run.talk());
        }
        let talk = run.talk();
        let (_, waits) = talk.split_once("they wait ").unwrap();
        let (waits, _) = waits.split_once(" % of their time").unwrap();
        let waits: u32 = waits.parse().unwrap();
        // A share of the observed time, in whose latter part the worker was slow. With ps-async no task waits for it.
        assert_eq!(waits > 25, strategy != "ps-async", "{strategy}, {made} steps: {talk}");
        signal(run.child.id(), "-INT");
        let ended = run.end();
        assert_eq!(ended.code(), 130, "{strategy}: {}", ended.talk);
        let warnings = ended.json()["warnings"].to_string();
        assert!(warnings.contains("worker/1 is slow"), "{strategy}: {warnings}");
    }
}

#[test]
fn an_evaluator_scores_beside_the_training() {
    for strategy in ["multi-worker", "ps-async"] {
        let flags = [
            "--workers",
            "2",
            "--evaluator",
            "--until-loss",
            "0.9",
            "--lr",
            "0.1",
            "--eval-every",
            "5",
        ];
        let ended = train(strategy, &[&flags[..], &["--epochs", "2000"]].concat()).end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let summary = ended.json();
        assert!(summary["reached"]["step"].as_f64().unwrap() > 0.0, "{strategy}: {summary}");
        // 40,000 steps were allowed: the evaluator's word must have ended the run long before.
        assert!(summary["global_steps"].as_u64().unwrap() < 20_000, "{strategy}: {summary}");
        assert_eq!(summary["status"], "done", "{strategy}: {summary}");
    }
}

/// Training continues while the evaluator works: the best weights must be kept all the same.
#[test]
fn the_best_weights_are_kept_where_an_evaluator_finds_them() {
    for strategy in ["multi-worker", "ps-sync", "ps-async"] {
        // A rate at which the loss goes up and down: the last step is not the best one.
        let flags = ["--workers", "2", "--evaluator", "--lr", "30", "--eval-every", "3"];
        let more = ["--steps", "120", "--keep", "1", "--batch-size", "20"];
        let ended = train(strategy, &[&flags[..], &more].concat()).end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let summary = ended.json();
        let folder = ended.out.path().join(summary["run"].as_str().unwrap());
        let best = events(&folder, "evaluation")
            .iter()
            .filter(|event| event["data"]["step"].as_u64() > Some(0))
            .map(|event| {
                let data = &event["data"];
                (data["loss"].as_f64().unwrap(), data["step"].as_u64().unwrap())
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap();
        let manifest = folder.join(format!("checkpoints/{:010}/manifest.json", best.1));
        let text = std::fs::read_to_string(&manifest)
            .unwrap_or_else(|error| panic!("{strategy}, {best:?}: {error}: {summary}"));
        let manifest: Value = serde_json::from_str(&text).unwrap();
        let kept = manifest["meta"]["evaluation"]["loss"].as_f64();
        assert_eq!(kept, Some(best.0), "{strategy}: {manifest}");
    }
}
