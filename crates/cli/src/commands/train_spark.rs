//! `paceline train --engine spark`: every task of the run is a task of a Spark barrier stage and runs `paceline node`.
//!
//! The command line goes on to the tasks as it is, without what is meant for Spark; paths become absolute, because tasks
//! start in folders of their own.

use super::{train, train_flags::Flags, train_local::tasks};
use crate::engine::{self, EngineArgs};
use crate::failure::{Exit, usage};
use crate::terminal::Terminal;
use anyhow::Context;
use paceline_cluster::ClusterKey;
use paceline_cluster::launch::spark::{Spark, Work, WorkKind};
use paceline_runs::Summary;
use paceline_trainer::{RunSpec, Start};
use std::path::Path;

/// Flags with a value that are not passed on: Spark's own, and those that are said anew.
const DROPPED: [&str; 13] = [
    "--engine",
    "--spark-master",
    "--spark-conf",
    "--spark-submit",
    "--spark-binary",
    "--spark-wait",
    "--partitions",
    "--data",
    "-d",
    "--out",
    "--init",
    "--threads",
    "--resume",
];
/// Flags without a value that are not passed on.
const DROPPED_SWITCHES: [&str; 4] = ["--json", "--quiet", "-q", "--evaluator"];

/// Trains by tasks of Spark.
pub(super) fn exec(
    flags: &Flags,
    engine: &EngineArgs,
    spark: &Spark,
    spec: &RunSpec,
    start: &Start,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    if spark.partitions.is_some() {
        return Err(usage(
            "--partitions has no meaning for training",
            "the number of tasks is that of --workers and --ps",
        ));
    }
    let cancel = terminal.interrupt()?;
    // What is wrong with the settings is said here, before anything is started.
    let parts = train::open(spec, terminal)?;
    paceline_trainer::check(spec, &parts).map_err(super::train_show::explain)?;
    drop(parts);
    let tasks = tasks(spec);
    let words: Vec<String> = std::env::args().skip_while(|word| word != "train").skip(1).collect();
    let mut arguments: Vec<String> = ["--json", "--quiet", "node"].map(str::to_owned).to_vec();
    arguments.extend(passed_on(&words));
    let mut say = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    say("--data", absolute(&spec.data)?);
    let out = std::path::absolute(&flags.out)?;
    say("--out", out.display().to_string());
    say("--threads", spec.threads.unwrap_or_else(|| engine.task_cores()).to_string());
    if let Some(init) = &flags.init {
        say("--init", std::path::absolute(init)?.display().to_string());
    }
    if let Start::Resume { run } = start {
        say("--resume", std::path::absolute(run.path())?.display().to_string());
    }
    let key = ClusterKey::generate()?;
    let work = Work {
        name: format!("paceline train {}", spec.model),
        arguments,
        kind: WorkKind::Cluster { tasks: tasks.clone(), key },
    };
    let outcome = engine::run(spark, &work, &cancel, terminal, &mut || {})?;
    for (name, task) in tasks.iter().zip(&outcome.tasks) {
        terminal.note(format!("{name} ran on {}, executor {}", task.host, task.executor));
    }
    engine::tell_outcome(&outcome, terminal);
    let chief = outcome.tasks.first().context("Spark reported no task")?;
    let summary: Summary = serde_json::from_value(chief.result.clone())
        .context("the first worker's answer is no summary")?;
    train::show(&summary, &out.join(&summary.run), false, terminal)?;
    Ok(Exit::Done)
}

/// A path as every machine of the cluster sees it; other names of data stay as they are.
fn absolute(data: &str) -> anyhow::Result<String> {
    if Path::new(data).exists() {
        Ok(std::path::absolute(data)?.display().to_string())
    } else {
        Ok(data.to_owned())
    }
}

/// The command line without what is dropped.
fn passed_on(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let (name, has_value) = match word.split_once('=') {
            Some((name, _)) => (name, true),
            None => (word.as_str(), false),
        };
        if DROPPED_SWITCHES.contains(&name) {
            continue;
        }
        if DROPPED.contains(&name) {
            // `--resume` may stand alone.
            if !has_value
                && words.peek().is_some_and(|next| name != "--resume" || !next.starts_with('-'))
            {
                words.next();
            }
            continue;
        }
        // A short flag with its value in the same word: `-dDIR`.
        if word.starts_with("-d") {
            continue;
        }
        kept.push(word.clone());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_for_spark_does_not_reach_the_tasks() {
        let line = "--model lenet -d digits --engine=spark --spark-conf spark.a=b --spark-conf=spark.c=d \
                    --workers 2 -q --out runs --resume --epochs 3 --init=w.safetensors -b32";
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        assert_eq!(passed_on(&words).join(" "), "--model lenet --workers 2 --epochs 3 -b32");
        let words = ["--resume", "runs/x", "--steps=5", "-ddigits"].map(str::to_owned);
        assert_eq!(passed_on(&words), ["--steps=5"]);
    }
}
