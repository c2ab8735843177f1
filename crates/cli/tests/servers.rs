//! Options of strategies with servers, through the real binary.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use serde_json::Value;
use std::time::Duration;

fn sum(of: &Value, what: &str) -> u64 {
    of.as_array().unwrap().iter().map(|one| one[what].as_u64().unwrap()).sum()
}

#[test]
fn the_header_says_how_gradients_are_combined_and_at_which_rate() {
    let loss = |combine: &str, rate: &str, said: &str| {
        let flags = ["--workers", "2", "--steps", "10", "--batch-size", "20", "--threads", "1"];
        let more = ["--combine", combine, "--lr", rate];
        let ended = train("ps-sync", &[&flags[..], &more].concat()).end();
        assert_eq!(ended.code(), 0, "{combine}: {}", ended.talk);
        assert!(ended.talk.contains(said), "{combine}: {}", ended.talk);
        ended.json()["final"]["train_loss"].as_f64().unwrap()
    };
    let mean = "at learning rate 0.05 (constant), gradients averaged over the global batch";
    let averaged = loss("mean", "0.05", mean);
    let said = "gradients of 2 workers summed: effective learning rate 0.05";
    let summed = loss("sum", "0.025", said);
    // Two workers' gradients summed at half the rate are the same updates.
    assert!((averaged - summed).abs() < 1e-4 * averaged, "{averaged} and {summed}");
}

#[test]
fn gradients_of_backup_workers_come_too_late_and_are_counted() {
    let flags = ["--workers", "3", "--backup-workers", "1", "--steps", "200"];
    let ended = train("ps-sync", &[&flags[..], &["--batch-size", "30"]].concat()).end();
    assert_eq!(ended.code(), 0, "{}", ended.talk);
    let summary = ended.json();
    assert_eq!(summary["global_steps"], 200, "one update a step, however many were dropped");
    let (dropped, late) = (&summary["dropped"], summary["dropped_examples"].as_u64().unwrap());
    assert!(dropped.as_u64().unwrap() > 0, "{summary}");
    assert!(late >= dropped.as_u64().unwrap(), "{summary}");
    let (used, served) = (&summary["examples"], sum(&summary["workers"], "examples"));
    assert_eq!(used.as_u64().unwrap() + late, served, "{summary}");
    // Every update is made of two gradients.
    let iterations = sum(&summary["workers"], "iterations");
    assert_eq!(iterations, 400 + dropped.as_u64().unwrap(), "{summary}");
}

/// Updates by staleness, in a run whose second worker is held up now and then.
fn staleness(flags: &[&str]) -> Vec<u64> {
    let base = ["--workers", "3", "--steps", ENDLESS, "--batch-size", "30"];
    let mut run = train("ps-async", &[&base[..], flags].concat());
    run.wait_for_step(50);
    let slow = run.process("worker/1");
    for _ in 0..5 {
        signal(slow, "-STOP");
        if flags.is_empty() {
            // The others do not wait for it.
            let now = steps(&run.folder());
            run.wait_for_step(now + 20);
        } else {
            std::thread::sleep(Duration::from_millis(100));
        }
        signal(slow, "-CONT");
        std::thread::sleep(Duration::from_millis(20));
    }
    histogram(&end_in_order(run).0)
}

fn histogram(summary: &Value) -> Vec<u64> {
    let counts = summary["staleness"].as_array().unwrap();
    let counts: Vec<u64> = counts.iter().map(|count| count.as_u64().unwrap()).collect();
    let updates: u64 = counts.iter().sum();
    assert_eq!(updates, sum(&summary["workers"], "iterations"), "{summary}");
    counts
}

#[test]
fn staleness_is_bounded_where_that_was_asked_for() {
    let most = |counts: &[u64]| counts.iter().rposition(|count| *count > 0).unwrap();
    let free = staleness(&[]);
    assert!(most(&free) > 4, "the test shows nothing: {free:?}");
    let bounded = staleness(&["--max-staleness", "4"]);
    assert!(most(&bounded) <= 4, "{bounded:?}");
    // Fewer than there are others: not all may have weights at a time.
    for bound in [0, 1] {
        let flags = ["--workers", "3", "--steps", "600", "--max-staleness", &bound.to_string()];
        let ended = train("ps-async", &flags).end();
        assert_eq!(ended.code(), 0, "{bound}: {}", ended.talk);
        let bounded = histogram(&ended.json());
        assert!(most(&bounded) <= bound, "at most {bound}: {bounded:?}");
    }
}
