//! A run as a Chrome trace.

use crate::{Event, PhaseTimes, Record, Resources, RunView, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Rows of a task in the trace.
const PHASES: u32 = 0;
const EVALUATIONS: u32 = 1;

/// Readings that are drawn as counters, and what they are called there.
const COUNTERS: &[(&str, &str)] = &[
    ("process_cpu_percent", "CPU of this task (% of one core)"),
    ("process_waiting_percent", "CPU wait (% of one core)"),
    ("cpu_idle_percent", "idle CPU (% of the machine)"),
    ("process_rss_bytes", "memory of this task (bytes)"),
    ("network_received_bytes_per_second", "received (bytes/s)"),
    ("network_sent_bytes_per_second", "sent (bytes/s)"),
    ("disk_read_bytes_per_second", "read from disk (bytes/s)"),
    ("disk_written_bytes_per_second", "written to disk (bytes/s)"),
];

/// The run as a Chrome trace: `{"traceEvents": […]}`, times in microseconds since the first event. Phases of an event
/// that covers several steps follow each other inside it, because the event does not say how they alternated.
#[must_use]
pub fn export(run: &RunView) -> Value {
    let start = first_moment(run);
    let mut tasks: Vec<&str> = run.records.iter().map(|record| &*record.task).collect();
    tasks.extend(run.resources.iter().map(|(task, _)| &**task));
    tasks.sort_unstable();
    tasks.dedup();
    let numbers: BTreeMap<&str, usize> =
        tasks.iter().enumerate().map(|(at, task)| (*task, at + 1)).collect();
    let mut events = Vec::new();
    for (task, number) in &numbers {
        events.push(metadata("process_name", *number, PHASES, task));
        events.push(metadata("thread_name", *number, PHASES, "phases of steps"));
        events.push(metadata("thread_name", *number, EVALUATIONS, "evaluations"));
    }
    for record in &run.records {
        let number = numbers.get(&*record.task).copied().unwrap_or(0);
        events.extend(of_record(record, number, start));
    }
    for (task, recording) in &run.resources {
        let number = numbers.get(&**task).copied().unwrap_or(0);
        events.extend(counters(recording, number, start));
    }
    json!({
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": { "run": run.summary.run, "verdict": run.summary.verdict },
    })
}

/// When the first step began: an event is written when its steps are over.
fn first_moment(run: &RunView) -> f64 {
    let begins = run.records.iter().map(|record| match &record.event {
        Some(Event::Step(step)) => record.time - step.seconds,
        Some(Event::Evaluation(evaluation) | Event::WorkerEvaluation(evaluation)) => {
            record.time - evaluation.seconds
        }
        _ => record.time,
    });
    let recordings = run.resources.iter().filter_map(|(_, recording)| recording.begin());
    let first = begins.chain(recordings).fold(f64::INFINITY, f64::min);
    if first.is_finite() { first } else { 0.0 }
}

fn metadata(kind: &str, process: usize, thread: u32, name: &str) -> Value {
    json!({ "ph": "M", "name": kind, "pid": process, "tid": thread, "args": { "name": name } })
}

fn micros(seconds: f64) -> f64 {
    (1e6 * seconds * 1e3).round() / 1e3
}

fn of_record(record: &Record, process: usize, start: f64) -> Vec<Value> {
    let at = record.time - start;
    let mark = |name: String, details: Value| {
        json!({
            "ph": "i", "s": "p", "name": name, "cat": record.kind, "pid": process, "tid": PHASES,
            "ts": micros(at), "args": details,
        })
    };
    match &record.event {
        Some(Event::Step(step)) => slices(step, at, process),
        Some(Event::Evaluation(evaluation) | Event::WorkerEvaluation(evaluation)) => vec![json!({
            "ph": "X", "name": "evaluation", "cat": "evaluation", "pid": process, "tid": EVALUATIONS,
            "ts": micros(at - evaluation.seconds), "dur": micros(evaluation.seconds),
            "args": evaluation,
        })],
        Some(Event::Checkpoint(checkpoint)) => {
            let action = json!(checkpoint.action);
            let name = format!("checkpoint {}", action.as_str().unwrap_or_default());
            vec![mark(name, json!(checkpoint))]
        }
        Some(Event::TaskLost(lost)) => vec![mark(format!("lost {}", lost.lost), json!(lost))],
        Some(Event::TaskRecovered(back)) => {
            vec![mark(format!("{} is back", back.recovered), json!(back))]
        }
        Some(Event::RunStarted(started)) => vec![mark("run started".to_owned(), json!(started))],
        Some(Event::RunEnded(ended)) => {
            vec![mark(format!("run ended: {}", ended.status), json!(ended))]
        }
        _ => Vec::new(),
    }
}

fn slices(step: &Step, end: f64, process: usize) -> Vec<Value> {
    let PhaseTimes { input, compute, exchange, wait, recovery } = step.phases;
    let mut from = end - step.seconds;
    // A task that was lost held up the first of these steps.
    let parts = [
        ("recovery", recovery),
        ("input", input),
        ("compute", compute),
        ("exchange", exchange),
        ("wait", wait),
    ];
    let mut slices = Vec::new();
    for (name, seconds) in parts {
        if seconds > 0.0 {
            slices.push(json!({
                "ph": "X", "name": name, "cat": "phase", "pid": process, "tid": PHASES,
                "ts": micros(from), "dur": micros(seconds),
                "args": { "step": step.step, "steps": step.steps, "examples": step.examples },
            }));
            from += seconds;
        }
    }
    if step.loss.is_finite() {
        slices.push(json!({
            "ph": "C", "name": "training loss", "pid": process, "ts": micros(end),
            "args": { "loss": step.loss },
        }));
    }
    slices
}

fn counters(recording: &Resources, process: usize, start: f64) -> Vec<Value> {
    let Some(begin) = recording.begin() else { return Vec::new() };
    let mut events = Vec::new();
    for (column, name) in COUNTERS {
        for (seconds, value) in recording.series(column) {
            events.push(json!({
                "ph": "C", "name": name, "pid": process, "ts": micros(begin + seconds - start),
                "args": { "value": value },
            }));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunStarted, TaskLost};

    fn record(time: f64, kind: &str, event: Event) -> Record {
        Record { time, task: "worker/0".to_owned(), kind: kind.to_owned(), event: Some(event) }
    }

    #[test]
    fn phases_fill_their_steps_and_nothing_lies_before_zero() {
        let step = Step {
            step: 4,
            steps: 4,
            seconds: 2.0,
            loss: 0.5,
            phases: PhaseTimes { input: 0.5, compute: 1.5, ..PhaseTimes::default() },
            ..Step::default()
        };
        let lost = TaskLost { lost: "worker/1".to_owned(), ..TaskLost::default() };
        let run = RunView {
            records: vec![
                record(100.0, "run_started", Event::RunStarted(RunStarted::default())),
                record(102.0, "step", Event::Step(step)),
                record(103.0, "task_lost", Event::TaskLost(lost)),
            ],
            ..RunView::default()
        };
        let trace = export(&run);
        let events = trace["traceEvents"].as_array().unwrap();
        let named = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
        assert_eq!((&named("input")["ts"], &named("input")["dur"]), (&json!(0.0), &json!(5e5)));
        assert_eq!(
            (&named("compute")["ts"], &named("compute")["dur"]),
            (&json!(5e5), &json!(1.5e6))
        );
        assert_eq!(named("training loss")["args"]["loss"], 0.5);
        assert_eq!(named("lost worker/1")["ts"], json!(3e6));
        assert!(events.iter().all(|event| event["ts"].as_f64().unwrap_or(0.0) >= 0.0));
    }
}
