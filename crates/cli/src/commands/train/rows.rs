//! `paceline train --model sparse-logistic`: one run on a stream of rows, and its result on the terminal.

use super::show::{describe_legs, status, time};
use crate::arguments::{rows_flags, rows_tasks, train_flags::Flags};
use crate::terminal::{
    Table, Terminal,
    failure::{Exit, job},
    metrics_words, typed_path,
};
use paceline_jobs::recorded_report;
use paceline_runs::{RunFolder, Status, Summary};
use paceline_training::{
    Start,
    rows::{Exchanged, RowsReport},
};
use std::path::Path;

/// Learns from rows: a new run, or one that goes on.
pub(super) fn exec(
    args: &Flags,
    resumed: Option<RunFolder>,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let (spec, start) = match resumed {
        Some(run) => (rows_flags::resumed(&run, args)?, Start::Resume { run }),
        None => (rows_tasks::fresh(args)?, Start::New { out: args.out.clone() }),
    };
    // In this process, or with a process for each task.
    let sizes = spec.tasks.as_ref().map(|tasks| (tasks.workers, tasks.servers));
    super::carry_out(args, spec.into(), &start, sizes, terminal)?.show(terminal)
}

/// A run that has nothing left to do: says so, and shows its result as it was recorded.
pub(in crate::commands) fn show_finished(
    run: &RunFolder,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let report = recorded_report(run).map_err(|error| job::explain(error, None, terminal))?;
    let folder = terminal.place(run.path());
    super::note_finished(&folder, terminal);
    terminal.data(describe(&report, &folder.display().to_string()))?;
    terminal.json(&report)?;
    Ok(Exit::Done)
}

/// Prints the result, and how to resume a run that the user stopped.
pub(in crate::commands) fn show(
    report: &RowsReport,
    folder: &Path,
    asked: bool,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let folder = terminal.place(folder);
    terminal.data(describe(report, &folder.display().to_string()))?;
    terminal.json(report)?;
    if report.summary.status == Status::Cancelled && asked {
        terminal.note(format!(
            "stopped after {} rows; continue with `paceline train --resume {}`",
            report.summary.examples,
            typed_path(&folder)
        ));
    }
    Ok(Exit::Done)
}

fn describe(report: &RowsReport, folder: &str) -> String {
    let summary = &report.summary;
    let mut table = Table::new(["", ""]);
    let mut row = |name: &str, value: String| table.row([name.to_string(), value]);
    row("run", folder.to_owned());
    row("status", status(summary));
    row(
        "time",
        format!(
            "{}, {} rows, {:.0} rows/s, {:.0} MB/s",
            time(summary),
            summary.examples,
            summary.examples_per_second,
            report.bytes_per_second / 1e6
        ),
    );
    describe_legs(summary, "rows", &mut row);
    // Of rows that a process learned from before it was killed, nothing may be known.
    if report.progressive.rows > 0 {
        row("progressive", metrics_words(&report.progressive));
    }
    if let Some(held_out) = &report.held_out {
        row("held out", metrics_words(held_out));
    }
    if let Some(reached) = &summary.reached {
        row("reached", format!("loss {} after {:.2} s", reached.loss, reached.seconds));
    }
    row("weights", format!("{} not zero", report.nonzero));
    if let Some(exchange) = &report.exchange {
        describe_exchange(summary, exchange, &mut row);
    } else {
        row("delay", delay(report));
    }
    if report.rejected > 0 {
        row(
            "rejected",
            format!("{} malformed lines; a sample is in rejects.jsonl", report.rejected),
        );
    }
    row("verdict", summary.verdict.clone());
    for warning in &summary.warnings {
        row("warning", warning.clone());
    }
    table.to_string()
}

fn delay(report: &RowsReport) -> String {
    let behind = report.most_behind.map_or_else(String::new, |bytes| {
        format!("; at most {:.1} MB behind the log", bytes as f64 / 1e6)
    });
    format!(
        "{:.3} s from arrival to learning on average, {:.3} s at most{behind}",
        report.delay[0], report.delay[1]
    )
}

/// Adds lines about what went between tasks.
fn describe_exchange(summary: &Summary, exchange: &Exchanged, row: &mut dyn FnMut(&str, String)) {
    row("step time", super::show::step_time(&summary.phases));
    let kilo = |bytes: f64| format!("{:.1} kB", bytes / 1e3);
    row(
        "traffic",
        format!(
            "{} an iteration ({} transfer); sparse takes {}, dense {}",
            kilo(exchange.bytes_per_iteration),
            exchange.transfer,
            kilo(exchange.sparse_bytes_per_iteration),
            kilo(exchange.dense_bytes_per_iteration)
        ),
    );
    for (worker, pace) in summary.workers.iter().zip(&exchange.tasks) {
        row(
            &worker.task,
            format!(
                "{} iterations of {:.3} ms, {} rows, finished after {:.2} s, waited {}",
                worker.iterations,
                1e3 * pace.seconds_per_iteration,
                worker.examples,
                worker.finished,
                super::show::percent(worker.phases.wait)
            ),
        );
    }
    let updates: u64 = summary.staleness.iter().sum();
    if summary.staleness.len() > 1 {
        let staleness = summary.staleness.iter().zip(0_u64..).map(|(count, at)| count * at);
        let mean = staleness.sum::<u64>() as f64 / updates.max(1) as f64;
        row("staleness", format!("{mean:.2} updates by others on average"));
    }
    for lost in &summary.lost {
        row("lost", lost.clone());
    }
}
