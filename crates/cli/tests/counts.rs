//! What a summary says of each worker, and whether the counts add up when one of them dies.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use serde_json::Value;

fn counts(summary: &Value, field: &str) -> Vec<u64> {
    let workers = summary["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker[field].as_u64().unwrap()).collect()
}

#[test]
fn every_worker_says_what_it_did_and_when_it_had_finished() {
    for (strategy, flags) in
        [("multi-worker", &[][..]), ("ps-sync", &["--ps", "2"]), ("ps-async", &["--ps", "1"])]
    {
        let base = ["--workers", "2", "--epochs", "20", "--batch-size", "20", "--lr", "0.1"];
        let ended = train(strategy, &[&base, flags].concat()).end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let printed = ended.json();
        let folder = ended.out.path().join(printed["run"].as_str().unwrap());
        let text = std::fs::read_to_string(folder.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&text).unwrap();
        let workers = summary["workers"].as_array().unwrap();
        let tasks: Vec<&str> =
            workers.iter().map(|worker| worker["task"].as_str().unwrap()).collect();
        assert_eq!(tasks, ["worker/0", "worker/1"], "{strategy}");
        let steps = summary["global_steps"].as_u64().unwrap();
        let iterations = counts(&summary, "iterations");
        if strategy == "ps-async" {
            assert_eq!(iterations.iter().sum::<u64>(), steps, "one update is one iteration");
            assert!(iterations.iter().all(|one| *one > 0), "{iterations:?}");
            let examples: Vec<u64> = iterations.iter().map(|one| 20 * one).collect();
            assert_eq!(counts(&summary, "examples"), examples, "whole batches");
        } else {
            assert_eq!(iterations, [steps, steps], "{strategy}: every worker takes part in all");
            assert_eq!(counts(&summary, "examples"), [10 * steps, 10 * steps], "{strategy}");
        }
        let seconds = summary["seconds"].as_f64().unwrap();
        for worker in workers {
            let number = |field: &str| worker[field].as_f64().unwrap();
            let finished = number("finished");
            assert!(finished > 0.0 && finished <= seconds, "{strategy}: {worker}, {seconds} s");
            assert!(number("seconds") <= finished, "{strategy}: {worker}");
            // On its last examples: over the whole run it would be what the beginning was like.
            let (accuracy, loss) = (number("accuracy"), number("loss"));
            assert!(accuracy > 0.9 && accuracy <= 1.0, "{strategy}: {worker}");
            assert!(loss > 0.0 && loss < 0.5, "{strategy}: {worker}");
        }
    }
}

/// What a killed worker had in hand is done by the others, and nothing is done twice.
#[test]
fn every_example_counts_once_though_a_worker_was_killed() {
    for strategy in ["ps-async", "multi-worker", "ps-sync"] {
        // Asynchronous steps are quick: on a fast machine 20,000 of them are over before their log is on disk.
        let steps: u64 = if strategy == "ps-async" { 400_000 } else { 20_000 };
        let (number, examples) = (steps.to_string(), 30 * steps);
        let flags = ["--workers", "3", "--steps", &number, "--batch-size", "30"];
        let mut run = train(strategy, &flags);
        run.wait_for_step(50);
        let folder = run.folder();
        signal(run.process("worker/2"), "-KILL");
        wait_for("the loss in the log", || !events(&folder, "task_lost").is_empty());
        let ended = run.end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let summary = ended.json();
        assert_eq!(summary["status"], "done", "{strategy}: {summary}");
        assert!(summary["lost"].to_string().contains("worker/2"), "{strategy}: {summary}");
        assert_eq!(summary["global_steps"], steps, "{strategy}");
        // 600 examples make 20 whole batches of 30.
        assert_eq!(summary["examples"], examples, "{strategy}: {summary}");
        let own = counts(&summary, "examples");
        assert_eq!(own.len(), 2, "{strategy}: the dead report nothing");
        let dropped = summary["dropped_examples"].as_u64().unwrap();
        let theirs: u64 = own.iter().sum();
        assert!(theirs < examples + dropped, "{strategy}: worker/2 had done its part: {summary}");
        assert!(theirs > examples * 2 / 3, "{strategy}: and then the others did it: {summary}");
    }
}
