//! A loss to reach, looked at by the chief or by a task of its own, which may die.

#![allow(clippy::unwrap_used)]

mod cluster_support;
mod support;

use cluster_support::*;
use serde_json::Value;
use std::path::Path;

/// Two workers and an evaluator on the way to a loss. Whole epochs in a step, so that all strategies go the same way, at a rate
/// at which that takes some seconds: time enough to kill a task.
fn toward_a_loss(strategy: &str, on_loss: &str, rate: &str) -> Run {
    let flags = ["--workers", "2", "--evaluator", "--until-loss", "0.8", "--batch-size", "600"];
    let more = ["--lr", rate, "--eval-every", "100", "--on-loss", on_loss];
    train(strategy, &[&flags[..], &more].concat())
}

/// Evaluations of weights after a step.
fn evaluations_after(folder: &Path, step: u64) -> usize {
    let of = |event: &Value| event["data"]["step"].as_u64().unwrap();
    events(folder, "evaluation").iter().filter(|event| of(event) > step).count()
}

fn is_about_the_evaluator(event: &Value, field: &str) -> bool {
    event["data"][field] == "evaluator/0"
}

fn lost(folder: &Path) -> bool {
    events(folder, "task_lost").iter().any(|event| is_about_the_evaluator(event, "lost"))
}

fn back(folder: &Path) -> bool {
    events(folder, "task_recovered").iter().any(|event| is_about_the_evaluator(event, "recovered"))
}

/// The run must end by itself, with the loss reached.
fn ends_with_the_loss_reached(run: Run, strategy: &str) {
    let ended = run.end();
    assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
    let summary = ended.json();
    assert_eq!(summary["status"], "done", "{strategy}: {summary}");
    assert_eq!(summary["reached"]["loss"], 0.8, "{strategy}: {summary}");
    assert!(summary["reached"]["step"].as_f64().unwrap() > 0.0, "{strategy}: {summary}");
    assert!(summary["lost"].to_string().contains("evaluator/0"), "{strategy}: {summary}");
    let folder = ended.out.path().join(summary["run"].as_str().unwrap());
    let outlived = still_there(&processes(&folder));
    assert!(outlived.is_empty(), "{strategy}: they outlived the run: {outlived:?}");
}

#[test]
fn while_the_evaluator_is_gone_the_chief_scores() {
    for (strategy, on_loss) in
        [("multi-worker", "continue"), ("ps-async", "restart"), ("ps-sync", "continue")]
    {
        let mut run = toward_a_loss(strategy, on_loss, "0.002");
        run.wait_for_step(10);
        let folder = run.folder();
        wait_for("the first score", || !events(&folder, "evaluation").is_empty());
        let evaluator = run.process("evaluator/0");
        // It is not restarted while the launcher is stopped.
        signal(run.child.id(), "-STOP");
        signal(evaluator, "-KILL");
        wait_for("the loss in the log", || lost(&folder));
        let step = steps(&folder);
        wait_for("the chief to score", || evaluations_after(&folder, step) >= 2);
        signal(run.child.id(), "-CONT");
        ends_with_the_loss_reached(run, strategy);
    }
}

#[test]
fn an_evaluator_killed_over_its_work_is_not_waited_for() {
    for (strategy, on_loss) in
        [("multi-worker", "restart"), ("ps-async", "continue"), ("ps-sync", "restart")]
    {
        let mut run = toward_a_loss(strategy, on_loss, "0.005");
        run.wait_for_step(10);
        let (folder, evaluator) = (run.folder(), run.process("evaluator/0"));
        signal(evaluator, "-STOP");
        // What it is given from now on, it does not score.
        let step = steps(&folder);
        run.wait_for_step(step + 250);
        signal(evaluator, "-KILL");
        // On a slow machine the chief may come to the loss alone before.
        wait_for("the evaluator to be back", || {
            back(&folder) || run.child.try_wait().unwrap().is_some()
        });
        ends_with_the_loss_reached(run, strategy);
    }
}

/// The chief evaluates, together with the other workers where training is synchronous.
#[test]
fn a_loss_is_reached_where_the_chief_looks() {
    let flags = ["--until-loss", "0.9", "--lr", "0.1", "--eval-every", "5", "--batch-size", "20"];
    let alone = train("one-device", &flags).end();
    assert_eq!(alone.code(), 0, "{}", alone.talk);
    let crossing = alone.json()["reached"]["step"].as_f64().unwrap();
    for strategy in ["multi-worker", "ps-sync", "ps-async"] {
        let ended = train(strategy, &[&flags[..], &["--workers", "2"]].concat()).end();
        assert_eq!(ended.code(), 0, "{strategy}: {}", ended.talk);
        let summary = ended.json();
        assert_eq!(summary["status"], "done", "{strategy}: {summary}");
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{strategy}: {summary}");
        let reached = &summary["reached"];
        assert_eq!(reached["loss"], 0.9, "{strategy}: {summary}");
        let step = reached["step"].as_f64().unwrap();
        let between = [0, 1].map(|end| reached["between"][end].as_u64().unwrap());
        assert!(between[0] as f64 <= step && step <= between[1] as f64, "{strategy}: {reached}");
        let steps = summary["global_steps"].as_u64().unwrap();
        if strategy == "ps-async" {
            // While the chief looks, the other worker goes on, on a busy machine for hundreds of
            // steps: the loss is not reached long before, and not missed long after.
            assert!(step > crossing / 3.0, "{step} for {crossing}");
            assert!((between[0] as f64) < crossing * 3.0, "{reached} for {crossing}");
            assert!(steps >= between[1], "{strategy}: {summary}");
        } else {
            assert!((step - crossing).abs() < 0.02 * crossing, "{step} for {crossing}");
            assert_eq!(steps, between[1], "{strategy}: it ends where it sees that");
            assert!(summary["final"]["test_loss"].as_f64().unwrap() <= 0.9, "{summary}");
        }
        let seconds = reached["seconds"].as_f64().unwrap();
        assert!(seconds > 0.0 && seconds <= summary["seconds"].as_f64().unwrap(), "{summary}");
        let folder = ended.out.path().join(summary["run"].as_str().unwrap());
        let outlived = still_there(&processes(&folder));
        assert!(outlived.is_empty(), "{strategy}: they outlived the run: {outlived:?}");
    }
}
