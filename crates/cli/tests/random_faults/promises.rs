//! What is promised of every run, held against what its tasks wrote down.

use super::{
    cluster_support::{events, events_of},
    schedule::{Fault, Place, Schedule},
    stage::{BATCH, Outcome},
};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path};

/// A task that is gone is named within so many seconds: the longest silence, and a moment.
const NAMED_WITHIN: f64 = 10.0;

fn number(event: &Value, name: &str) -> u64 {
    event["data"][name].as_u64().unwrap()
}

fn time(event: &Value) -> f64 {
    event["time"].as_f64().unwrap()
}

/// Holds a run that has ended against everything that is promised; `late` is the longest time for which this machine kept
/// a process of ours from running.
pub fn check(schedule: &Schedule, outcome: &Outcome, over: bool, late: f64) {
    let folder = &outcome.folder;
    exits(schedule, outcome, over);
    steps_once(schedule, folder);
    losses(schedule, folder, over);
    named_in_time(schedule, outcome, late);
    checkpoints(folder);
    if over {
        return; // the last steps of a run that failed may be in no log
    }
    no_task_trains_alone(schedule, outcome);
    let summary = outcome.chief.json();
    let figure = |name: &str| summary[name].as_u64().unwrap();
    let rolled_back = schedule.losses().any(|task| task.starts_with("ps/"));
    if !rolled_back && !schedule.sparse {
        let (examples, wanted) = (figure("examples"), BATCH * figure("global_steps"));
        assert_eq!(examples, wanted, "examples do not add up to those of the steps");
    }
    let seconds = summary["seconds"].as_f64().unwrap();
    assert!(
        (0.0..outcome.seconds + 1.0).contains(&seconds),
        "{seconds} s are told of a run of {} s",
        outcome.seconds
    );
    if schedule.strategy != "ps-async" && schedule.losses().count() > 0 {
        let recovery = summary["phases"]["recovery"].as_f64().unwrap_or(0.0);
        assert!(recovery > 0.0, "the time after a loss is in no phase: {}", summary["phases"]);
    }
}

/// Every task ends with the code that says why.
fn exits(schedule: &Schedule, outcome: &Outcome, over: bool) {
    let lost: Vec<&str> = schedule.losses().collect();
    let chief_killed = schedule.has(|fault| *fault == Fault::Kill("worker/0".to_owned())) && over;
    let wanted = match (schedule.place, over) {
        (_, false) => 130,
        (Place::Hosts, true) if outcome.chief.code() == -1 && chief_killed => -1,
        (_, true) => 75,
    };
    assert_eq!(outcome.chief.code(), wanted, "{}", outcome.chief.talk);
    for (task, ended) in &outcome.others {
        let wanted: &[i32] = match (over, lost.contains(task)) {
            (false, _) => &[0],
            (true, false) => &[75],
            (true, true) => &[-1, 75],
        };
        assert!(wanted.contains(&ended.code()), "{task}, {}: {}", ended.code(), ended.talk);
    }
}

/// Every step is committed once; those that went down with a server are made again from a checkpoint.
fn steps_once(schedule: &Schedule, folder: &Path) {
    if schedule.strategy == "ps-async" {
        return; // steps of several workers are in the chief's log, in no order
    }
    let rolled_back = schedule.losses().any(|task| task.starts_with("ps/"));
    let ended = events(folder, "run_ended");
    let dropped: u64 = ended.iter().map(|event| number(event, "dropped_events")).sum();
    let full = schedule.has(|fault| *fault == Fault::FullDisk);
    assert!(dropped == 0 || full, "{dropped} events were not written, and there was room");
    let mut saved = BTreeSet::from([0]);
    let mut before = 0;
    // Others may have completed one whose end the chief did not hear of.
    let unheard = schedule.losses().count() as u64;
    for event in all(folder) {
        match event["kind"].as_str().unwrap() {
            "checkpoint" if event["data"]["action"] == "saved" => {
                saved.insert(number(&event, "step"));
            }
            "step" => {
                let (step, count) = (number(&event, "step"), number(&event, "steps"));
                let from = step.saturating_sub(count);
                let in_order = from >= before && (full || from <= before + unheard);
                // An event may have steps of before the way back, too.
                let base = saved.range(..step).next_back().copied().unwrap_or(0);
                let again = rolled_back && (from >= before || step - base <= count);
                assert!(in_order || again, "step {step} after {before}, {count} made");
                before = step;
            }
            _ => {}
        }
    }
}

/// The chief's log.
fn all(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("events-worker-0.jsonl")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// No task is lost that nothing happened to.
fn losses(schedule: &Schedule, folder: &Path, over: bool) {
    for event in events(folder, "task_lost") {
        let task = event["data"]["lost"].as_str().unwrap();
        assert!(schedule.losses().any(|lost| lost == task) || over, "{task} was lost for nothing");
    }
}

fn named_in_time(schedule: &Schedule, outcome: &Outcome, late: f64) {
    let folder = &outcome.folder;
    // A clock that is set in mid-run does not change the times of events.
    for (task, hurt) in &outcome.hurt {
        let named = if task == "worker/0" {
            // The others say it, each in a log of its own; on hosts those are elsewhere.
            let ended = events_of(folder, "worker/1", "run_ended");
            ended.last().map(time)
        } else if schedule.ends_with(task) {
            events(folder, "run_ended").last().map(time)
        } else {
            let lost = events(folder, "task_lost");
            lost.iter().filter(|event| event["data"]["lost"] == **task).map(time).next()
        };
        if let Some(named) = named {
            let after = named - hurt;
            assert!(
                after < NAMED_WITHIN + 3.0 * late,
                "{task} was named after {after:.1} s ({late:.1} s late)"
            );
        }
    }
}

/// What was saved and not deleted is there, whole.
fn checkpoints(folder: &Path) {
    let mut kept = BTreeSet::new();
    for event in events(folder, "checkpoint") {
        let step = number(&event, "step");
        match event["data"]["action"].as_str().unwrap() {
            "saved" => drop(kept.insert(step)),
            "deleted" => drop(kept.remove(&step)),
            _ => {}
        }
    }
    let Some(last) = kept.last() else { return };
    let place = folder.join("checkpoints").join(format!("{last:010}"));
    assert!(place.join("manifest.json").exists(), "checkpoint {last} is lost or not whole");
}

/// A worker in lockstep is never further than the chief, whichever side of a cut it is on.
fn no_task_trains_alone(schedule: &Schedule, outcome: &Outcome) {
    if schedule.strategy == "ps-async" || outcome.hurt.contains_key("worker/0") {
        return;
    }
    let furthest = |folder: &Path, task: &str| {
        events_of(folder, task, "step").iter().map(|event| number(event, "step")).max()
    };
    let chief = furthest(&outcome.folder, "worker/0").unwrap();
    for task in ["worker/1", "worker/2"] {
        let made = match schedule.place {
            Place::Local => furthest(&outcome.folder, task),
            Place::Hosts => outcome.others.get(task).and_then(|ended| {
                let mut folders = fs::read_dir(ended.out.path()).unwrap();
                furthest(&folders.next()?.unwrap().path(), task)
            }),
        };
        assert!(made <= Some(chief + 1), "{task} came to step {made:?}, the chief to {chief}");
    }
}
