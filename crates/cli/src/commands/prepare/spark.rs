//! `paceline prepare --engine spark`: the same plan and the same manifest, with tasks of Spark in between.

use super::{Args, report, with_hint};
use crate::terminal::failure::Exit;
use crate::terminal::recorder::recorded_task;
use crate::terminal::{Terminal, Unit, spark_job};
use paceline_cluster::launch::spark::{Spark, SparkWorkOutcome, Work, WorkKind};
use paceline_data::store;
use paceline_prepare::photos::{Begun, Event, PhotoJob, PhotoOptions, PrepareError, Summary};
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
    outcome: &'a SparkWorkOutcome,
}

/// The command line of a task; each records the machine it runs on.
fn task_arguments(args: &Args, options: &PhotoOptions, spark: &Spark) -> Vec<String> {
    let threads = options.threads.unwrap_or_else(|| spark.task_cores()).to_string();
    let mut arguments = match args.resources() {
        Some(folder) => recorded_task("prepare", &folder),
        None => ["--json", "--quiet", "task", "prepare"].map(str::to_owned).to_vec(),
    };
    arguments.extend(["--threads".to_owned(), threads]);
    arguments
}

/// Prepares by tasks of Spark.
pub(super) fn exec(
    args: &Args,
    options: &PhotoOptions,
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
    let mut job =
        match PhotoJob::begin(&*src, &*dst, options, &cancel, &mut warn).or_else(with_hint)? {
            Begun::Finished(summary) => {
                report(args, &summary, terminal)?;
                terminal.json(&summary)?;
                return Ok(Exit::Done);
            }
            Begun::Open(job) => job,
        };
    let mut lines = job.hand_out().or_else(with_hint)?.into_iter();
    let heading = lines.next().unwrap_or_default();
    let recorder = args.begin_recording("driver", terminal);
    let work = Work {
        name: "paceline prepare".into(),
        arguments: task_arguments(args, options, spark),
        settings: &[],
        kind: WorkKind::Slices { heading, slices: lines.collect() },
    };
    let bar = terminal.progress("preparing", None, Unit::Items("photos"));
    let outcome = spark_job::run(spark, &work, &cancel, terminal, &mut || {
        // Failing to read the progress does not fail the job; the next attempt may succeed.
        if let Ok(progress) = job.progress() {
            bar.set_total(progress.total);
            bar.set(progress.photos);
            bar.message(super::behind_the_bar(&progress));
        }
    });
    drop((bar, recorder));
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
    let summary = finished.or_else(with_hint)?;
    report(args, &summary, terminal)?;
    spark_job::tell_outcome(&outcome, terminal);
    let photos_per_second = summary.converted as f64 / outcome.work_seconds;
    let engine = Engine { name: "spark", photos_per_second, outcome: &outcome };
    terminal.json(&Document { summary: &summary, engine })?;
    Ok(Exit::Done)
}
