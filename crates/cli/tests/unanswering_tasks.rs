//! Tasks of a local run that hang, or exit before all have joined: no task waits for them silently.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use std::fs;

/// Stopped for good: only the launcher can put an end to the chief, and it must say why.
#[test]
fn a_frozen_chief_is_named_and_the_run_ends() {
    let flags = ["--workers", "2", "--steps", ENDLESS, "--batch-size", "30", "--evaluator"];
    let mut runs: Vec<Run> =
        ["multi-worker", "ps-sync", "ps-async"].map(|strategy| train(strategy, &flags)).into();
    let mut frozen = Vec::new();
    for run in &mut runs {
        run.wait_for_step(20);
        let tasks = processes(&run.folder());
        signal(tasks["worker/0"], "-STOP");
        frozen.push((unix_seconds(), tasks));
    }
    for (run, (since, tasks)) in runs.into_iter().zip(frozen) {
        let folder = run.folder();
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{}", ended.talk);
        let after = ended.ended_within(&folder, "worker/1", since);
        let silent = silence(&ended.talk, &ended.lateness);
        assert!(after < silent + 2.0, "{after:.1} s after a silence of {silent} s");
        // Said when it was found out, and again as the reason of the end.
        assert!(ended.talk.contains("lost worker/0 at 127.0.0.1:"), "{}", ended.talk);
        assert!(ended.talk.contains("worker/0: did not answer ("), "{}", ended.talk);
        assert!(!ended.talk.contains("starting it again"), "{}", ended.talk);
        let outlived = still_there(&tasks);
        assert!(outlived.is_empty(), "they outlived the run: {outlived:?}\n{}", ended.talk);
    }
}

#[test]
fn a_frozen_task_is_a_dead_one() {
    let cases = [
        ("multi-worker", "worker/2", "continue"),
        ("multi-worker", "worker/1", "restart"),
        ("ps-async", "ps/0", "continue"),
        ("ps-sync", "worker/1", "stop"),
    ];
    let mut runs = Vec::new();
    for (strategy, task, policy) in cases {
        let workers = if task == "worker/2" { "3" } else { "2" };
        let flags = ["--workers", workers, "--steps", ENDLESS, "--batch-size", "30"];
        let mut run = train(strategy, &[&flags[..], &["--on-loss", policy]].concat());
        run.wait_for_step(20);
        let process = run.process(task);
        signal(process, "-STOP");
        runs.push((run, process));
    }
    for ((strategy, task, policy), (run, process)) in cases.into_iter().zip(runs) {
        let (what, folder) = (format!("{strategy}, {policy}"), run.folder());
        wait_for("its loss to be named", || run.talk().contains(&format!("lost {task} at")));
        wait_for("its process to be ended", || !exists(process));
        let silent = silence(&run.talk(), &run.lateness);
        if policy == "stop" {
            let ended = run.end();
            assert_eq!(ended.code(), 75, "{what}: {}", ended.talk);
            let said = format!("{task}: did not answer (silent for {silent} s)");
            assert!(ended.talk.contains(&said), "{what}: {}", ended.talk);
            continue;
        }
        let back = task == "ps/0" || policy == "restart";
        if back {
            wait_for("it to be back", || !events(&folder, "task_recovered").is_empty());
            assert_ne!(run.process(task), process, "{what}");
        }
        let (summary, ended) = end_in_order(run);
        let said = format!(
            "{task} did not answer (silent for {silent} s) and was ended by force; starting"
        );
        assert_eq!(ended.talk.contains(&said), back, "{what}: {}", ended.talk);
        assert_eq!(summary["lost"].as_array().unwrap().len(), 1, "{what}: {summary}");
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{what}: {summary}");
    }
}

/// So many examples that a task takes a while to make them, in which the others wait for it.
const MANY: &str = "generated:digits?examples=60000";

/// Its number on every Unix.
const SIGTERM: u32 = 15;

/// Starts a run and waits for worker/1 to be there and take signals, but not to have joined: the chief stands still.
/// Gives the numbers of worker/1 and of the chief.
fn begin(more: &[&str]) -> (Run, u32, u32) {
    let flags = ["--model", "softmax", "--data", MANY, "--strategy", "multi-worker"];
    let flags = [&flags[..], &["--workers", "2", "--steps", "20"], more].concat();
    let run = train_in(tempfile::tempdir().unwrap(), &flags);
    let chief = child(&run, "worker/0");
    signal(chief, "-STOP");
    let process = child(&run, "worker/1");
    wait_for("worker/1 to take signals", || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & (1 << (SIGTERM - 1)) != 0)
    });
    (run, process, chief)
}

/// The others can never meet, so that they do not wait for the deadline, nor for a chief that does not answer.
#[test]
fn a_task_that_is_stopped_before_all_have_met_is_not_waited_for() {
    for policy in ["continue", "stop"] {
        let (run, process, chief) = begin(&["--on-loss", policy]);
        signal(process, "-TERM");
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{policy}: {}", ended.talk);
        let said = "worker/1: worker/1 was asked to stop while joining the run";
        assert!(ended.talk.contains(said), "{policy}: {}", ended.talk);
        assert!(!ended.talk.contains("--resume"), "nothing to resume: {}", ended.talk);
        assert!(!exists(chief), "{policy}");
    }
}

#[test]
fn a_task_that_is_killed_before_all_have_met_is_started_again() {
    let (run, process, chief) = begin(&["--on-loss", "continue", "--join-timeout", JOINS]);
    signal(process, "-KILL");
    wait_for("its end to be seen", || run.talk().contains("starting it again"));
    signal(chief, "-CONT");
    let ended = run.end();
    assert_eq!(ended.code(), 0, "{}", ended.talk);
    assert!(ended.talk.contains("worker/1 was killed"), "{}", ended.talk);
    let summary = ended.json();
    assert_eq!(summary["global_steps"], 20, "{summary}");
    assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{summary}");
}

#[test]
fn without_a_chief_no_task_waits_to_join() {
    // Longer than a test may take: a task that waited for it would never end.
    let (run, _, chief) = begin(&["--join-timeout", "3600"]);
    signal(chief, "-KILL");
    let ended = run.end();
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    assert!(ended.talk.contains("worker/0: was killed (signal 9"), "{}", ended.talk);
}

/// A chief that freezes before any task has joined is named at the deadline.
#[test]
fn a_chief_that_freezes_before_all_have_met_is_named_at_the_deadline() {
    let (run, ..) = begin(&["--join-timeout", "5"]);
    let ended = run.end();
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    assert!(ended.talk.contains("worker/0: did not answer ("), "{}", ended.talk);
    assert!(ended.talk.contains("could not be joined within 5 s"), "{}", ended.talk);
    assert!(!ended.talk.contains("starting it again"), "{}", ended.talk);
}

/// What was overcome long ago does not stand on top of the error, and the chief's name always does.
#[test]
fn a_task_that_came_back_is_not_blamed_for_the_end() {
    for policy in ["restart", "continue"] {
        let flags = ["--workers", "3", "--steps", ENDLESS, "--on-loss", policy];
        let mut run = train("multi-worker", &flags);
        kill_and_go_on(&mut run, "worker/1");
        let (folder, chief) = (run.folder(), run.process("worker/0"));
        let again = if policy == "restart" { "task_recovered" } else { "task_lost" };
        wait_for("the others to go on", || !events(&folder, again).is_empty());
        signal(chief, "-KILL");
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{policy}: {}", ended.talk);
        let error = ended.talk.split_once("\nerror: ").unwrap().1;
        assert!(error.contains("worker/0: was killed (signal 9"), "{policy}: {error}");
        assert_eq!(error.starts_with("worker/0: "), policy == "restart", "{policy}: {error}");
    }
}
