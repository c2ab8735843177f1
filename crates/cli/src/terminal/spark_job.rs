//! What is said while tasks of Spark work, and when they are done: the same for every command that leaves its work to them.

use super::{Terminal, failure};
use paceline_cluster::launch::spark::{Spark, SparkEvent, SparkWorkOutcome, Work, WorkKind};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::AtomicBool},
};

/// Runs work on Spark and says what is going on; `tick` is called a few times a second.
pub fn run(
    spark: &Spark,
    work: &Work,
    cancel: &Arc<AtomicBool>,
    terminal: &Terminal,
    tick: &mut dyn FnMut(),
) -> anyhow::Result<SparkWorkOutcome> {
    spark
        .run(work, cancel, &mut teller(spark, work, terminal, tick))
        .map_err(failure::spark::explain)
}

/// Says that Spark is started, and then what each of its events means; `tick` is called a few times a second.
pub fn teller<'a>(
    spark: &'a Spark,
    work: &'a Work,
    terminal: &'a Terminal,
    tick: &'a mut dyn FnMut(),
) -> impl FnMut(Option<&SparkEvent>) + 'a {
    let pieces = match &work.kind {
        WorkKind::Slices { slices, .. } => format!("{} pieces of work in", slices.len()),
        WorkKind::Cluster { .. } => "one cluster of".to_owned(),
    };
    terminal.note(format!("starting Spark by `{}`", spark.submit.display()));
    move |event| match event {
        Some(SparkEvent::Session { version, application }) => {
            terminal.note(format!("Spark {version} runs application {application}"));
        }
        Some(SparkEvent::Waiting { seconds }) => {
            terminal.note(format!("no executor yet after {seconds:.0} s"));
        }
        Some(SparkEvent::Stage { executors, cores, partitions }) => {
            let chosen = match (spark.partitions, &work.kind) {
                (Some(_), _) | (_, WorkKind::Cluster { .. }) => "",
                _ => " (chosen from the cores; --partitions sets it)",
            };
            terminal.note(format!(
                "{pieces} {partitions} tasks{chosen} on {executors} executors with {cores} cores"
            ));
        }
        Some(_) => {}
        None => tick(),
    }
}

/// Says where the time went, and whether part of the cluster had nothing to do.
pub fn tell_outcome(outcome: &SparkWorkOutcome, terminal: &Terminal) {
    let used: BTreeSet<_> = outcome.tasks.iter().map(|task| (&task.host, &task.executor)).collect();
    terminal.note(format!(
        "Spark needed {:.1} s to start, its tasks {:.1} s on {} of {} executors, which were busy for {:.0} % of that time",
        outcome.startup_seconds,
        outcome.work_seconds,
        used.len(),
        outcome.executors,
        outcome.busy_percent
    ));
    if outcome.partitions < outcome.cores {
        terminal.warn(format!(
            "{} tasks for {} cores: the other cores had nothing to do; more pieces of work and --partitions help",
            outcome.partitions, outcome.cores
        ));
    }
    let again = outcome.tasks.iter().filter(|task| task.attempt > 0).count();
    if again > 0 {
        terminal.warn(format!("{again} tasks needed more than one attempt"));
    }
}
