//! The result of a run on the terminal.

use crate::terminal::Table;
use paceline_runs::{LearningOutcome, PhaseTimes, Summary, format_utc};
use std::path::Path;

/// The time of a run, and how much of it went into steps where evaluations, checkpoints and the start took their part of it.
pub(super) fn time(summary: &Summary) -> String {
    let (all, steps) = (summary.seconds, summary.step_seconds);
    if steps > 0.0 && steps < 0.9 * all {
        format!("{all:.2} s ({steps:.2} s in steps)")
    } else {
        format!("{all:.2} s")
    }
}

/// How a run ended, and whether it was worth it.
pub(super) fn status(summary: &Summary) -> String {
    match summary.learning.as_ref().map(|learning| learning.outcome) {
        Some(LearningOutcome::DidNotLearn) => {
            format!("{}, but the model did not learn", summary.status)
        }
        Some(LearningOutcome::Diverged) => format!("{}: training diverged", summary.status),
        _ => summary.status.to_string(),
    }
}

/// All that is said about a run on examples.
pub(super) fn describe(summary: &Summary, folder: &Path) -> String {
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("run", folder.display().to_string());
    row("status", status(summary));
    row("steps", format!("{}", summary.global_steps));
    row(
        "time",
        format!(
            "{}, {} examples, {:.0} examples/s",
            time(summary),
            summary.examples,
            summary.examples_per_second
        ),
    );
    describe_legs(summary, "examples", &mut row);
    describe_losses(summary, &mut row);
    describe_steps(summary, &mut row);
    for lost in &summary.lost {
        row("lost", lost.clone());
    }
    row("verdict", summary.verdict.clone());
    for warning in &summary.warnings {
        row("warning", warning.clone());
    }
    table.to_string()
}

fn describe_losses(summary: &Summary, row: &mut dyn FnMut(&str, String)) {
    let last = &summary.last;
    row("train loss", format!("{:.4}", last.train_loss));
    if !last.test_loss.is_nan() {
        row(
            "test",
            format!("loss {:.4}, accuracy {:.2} %", last.test_loss, 100.0 * last.test_accuracy),
        );
    }
    if let Some(reached) = &summary.reached {
        row(
            "reached",
            format!(
                "loss {} at about step {:.0}, {:.2} s (between the checks at {} and {})",
                reached.loss, reached.step, reached.seconds, reached.between[0], reached.between[1]
            ),
        );
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The shares of a step's phases; time without steps only where a task was lost.
pub(super) fn step_time(phases: &PhaseTimes) -> String {
    let recovery = match phases.recovery {
        0.0 => String::new(),
        share => format!(", recovery {}", percent(share)),
    };
    format!(
        "input {}, compute {}, exchange {}, wait {}{recovery}",
        percent(phases.input),
        percent(phases.compute),
        percent(phases.exchange),
        percent(phases.wait),
    )
}

/// Where the time of steps went, what travelled, and how the workers compare.
fn describe_steps(summary: &Summary, row: &mut dyn FnMut(&str, String)) {
    row("step time", step_time(&summary.phases));
    let traffic = &summary.traffic;
    if traffic.sent_bytes > 0 {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        let (sent, received) = (mib(traffic.sent_bytes), mib(traffic.received_bytes));
        row("traffic", format!("{sent:.1} MiB sent, {received:.1} MiB received"));
    }
    for worker in summary.workers.iter().filter(|_| summary.workers.len() > 1) {
        let tested =
            worker.test_accuracy.map(|share| format!(", test accuracy {:.2} %", 100.0 * share));
        let tested = tested.unwrap_or_default();
        row(
            &worker.task,
            format!(
                "{} iterations, {} examples, finished after {:.2} s, accuracy {:.1} %{tested}, waited {}",
                worker.iterations,
                worker.examples,
                worker.finished,
                100.0 * worker.accuracy,
                percent(worker.phases.wait)
            ),
        );
    }
    if summary.staleness.len() > 1 {
        row("staleness", staleness(&summary.staleness));
    }
    if summary.dropped > 0 {
        row(
            "dropped",
            format!(
                "{} gradients of {} examples came too late",
                summary.dropped, summary.dropped_examples
            ),
        );
    }
}

/// A line for each stretch of a run that was resumed.
pub(super) fn describe_legs(summary: &Summary, examples: &str, row: &mut dyn FnMut(&str, String)) {
    if summary.legs.len() < 2 {
        return;
    }
    for (leg, number) in summary.legs.iter().zip(1..) {
        // Only what adds up over legs is of the whole run.
        let last = number == summary.legs.len();
        let what =
            if last { "; step time, traffic, workers and verdict are of this leg" } else { "" };
        row(
            &format!("leg {number}"),
            format!(
                "{} UTC, {:.2} s, {} steps, {} {examples}, {}{what}",
                format_utc(leg.started),
                leg.seconds,
                leg.steps,
                leg.examples,
                leg.status_word()
            ),
        );
    }
}

/// A histogram in a line: mean, and the commonest values.
fn staleness(counts: &[u64]) -> String {
    let updates: u64 = counts.iter().sum();
    let sum: u64 = counts.iter().enumerate().map(|(value, count)| value as u64 * count).sum();
    let shown = counts.iter().enumerate().filter(|(_, count)| **count > 0).take(6);
    let parts: Vec<String> = shown
        .map(|(value, count)| {
            format!("{value}: {:.0} %", 100.0 * *count as f64 / updates.max(1) as f64)
        })
        .collect();
    format!("mean {:.2} ({})", sum as f64 / updates.max(1) as f64, parts.join(", "))
}
