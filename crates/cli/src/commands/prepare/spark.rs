//! `paceline prepare --engine spark`: the same plan and the same manifest, with tasks of Spark in between.

use super::{Args, dress, report};
use crate::engine;
use crate::failure::Exit;
use crate::terminal::{Terminal, Unit};
use paceline_cluster::launch::spark::{Outcome, Spark, Work, WorkKind};
use paceline_data::store;
use paceline_prepare::photos::{Begun, Event, Job, Options, PrepareError, Summary};
use serde::Serialize;

/// The document of `--json`: the usual summary, and how the engine did.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    engine: Engine<'a>,
}

#[derive(Serialize)]
struct Engine<'a> {
    name: &'static str,
    /// Photos per second between the first task's beginning and the last one's end.
    photos_per_second: f64,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Prepares by tasks of Spark.
pub(super) fn exec(
    args: &Args,
    options: &Options,
    spark: &Spark,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let (src, dst) = (store::open(&args.src)?, store::open(&args.dst)?);
    let mut warn = |event: Event<'_>| {
        if let Event::Warning(warning) = event {
            terminal.warn(warning);
        }
    };
    let mut job = match Job::begin(&*src, &*dst, options, &cancel, &mut warn).or_else(dress)? {
        Begun::Finished(summary) => {
            report(args, &summary, terminal)?;
            terminal.json(&summary)?;
            return Ok(Exit::Done);
        }
        Begun::Open(job) => job,
    };
    let mut lines = job.hand_out().or_else(dress)?.into_iter();
    let heading = lines.next().unwrap_or_default();
    let threads = options.threads.unwrap_or_else(|| args.engine.task_cores()).to_string();
    let arguments = ["--json", "--quiet", "task", "prepare", "--threads", &threads];
    let work = Work {
        name: "paceline prepare".into(),
        arguments: arguments.map(str::to_owned).to_vec(),
        settings: &[],
        kind: WorkKind::Slices { heading, slices: lines.collect() },
    };
    let bar = terminal.progress("preparing", None, Unit::Items("photos"));
    let outcome = engine::run(spark, &work, &cancel, terminal, &mut || {
        // Failing to read the progress does not fail the job; the next attempt may succeed.
        if let Ok(progress) = job.progress() {
            bar.set_total(progress.total);
            bar.set(progress.photos);
            bar.message(super::behind_the_bar(&progress));
        }
    });
    drop(bar);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            // Nothing of ours may be left behind by tasks that were cut off; the error outranks this one.
            let _ = job.collect(&mut |_| {});
            return Err(error);
        }
    };
    let finished: Result<Summary, PrepareError> =
        job.collect(&mut |_| {}).and_then(|()| job.finish());
    let summary = finished.or_else(dress)?;
    report(args, &summary, terminal)?;
    engine::tell_outcome(&outcome, terminal);
    let photos_per_second = summary.converted as f64 / outcome.work_seconds;
    let engine = Engine { name: "spark", photos_per_second, outcome: &outcome };
    terminal.json(&Document { summary: &summary, engine })?;
    Ok(Exit::Done)
}
