//! `paceline train --engine spark`: every task of the run is a task of a Spark barrier stage and runs `paceline node`.
//!
//! The command line goes on to the tasks as it is, without what is meant for Spark; paths become absolute, because tasks
//! start in folders of their own.

use crate::arguments::{self, train_flags::Flags};
use crate::terminal::failure::{Exit, job, usage};
use crate::terminal::{JobTerminal, Terminal, spark_job};
use anyhow::Context;
use clap::{Id, parser::ValueSource};
use paceline_cluster::launch::spark::Spark;
use paceline_data::store::Staging;
use paceline_jobs::SparkJob;
use paceline_training::{RunSpec, Start};
use std::ffi::OsString;

/// Flags that are not passed on because the job says them itself, or because they are meant for this process.
const OWN: [&str; 6] = ["data", "out", "init", "threads", "resume", "evaluator"];

/// Trains by tasks of Spark.
pub(super) fn exec(
    flags: &Flags,
    spark: &Spark,
    spec: RunSpec,
    start: &Start,
    staging: &Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    if spark.partitions.is_some() {
        return Err(usage(
            "`--partitions` has no effect on training",
            "leave it out: the number of tasks is that of --workers and --ps",
        ));
    }
    let cancel = terminal.interrupt()?;
    let resume = match start {
        Start::Resume { run } => Some(staging.there(run.path())),
        _ => None,
    };
    let job = SparkJob {
        spec,
        out: staging.there(&flags.out),
        resume,
        threads: spark.task_cores(),
        flags: passed_on(arguments::typed(std::env::args_os()).0)?,
    };
    let work = job
        .prepare(&JobTerminal::of_local_job(terminal))
        .map_err(|error| job::explain(error, None, terminal))?;
    let mut idle = || {};
    let outcome = job
        .run(spark, &work, &cancel, &mut spark_job::teller(spark, &work, terminal, &mut idle))
        .map_err(|error| job::explain(error, None, terminal))?;
    for (name, task) in outcome.tasks.iter().zip(&outcome.spark.tasks) {
        terminal.note(format!("{name} ran on {}, executor {}", task.host, task.executor));
    }
    spark_job::tell_outcome(&outcome.spark, terminal);
    super::show(&outcome.summary, outcome.run.path(), false, terminal)?;
    Ok(Exit::Done)
}

/// What was typed behind `train`, as far as `node` knows the flag too.
fn passed_on(typed: Vec<OsString>) -> anyhow::Result<Vec<String>> {
    let mut program = crate::command();
    program.build();
    let matches = program.clone().try_get_matches_from(typed)?;
    let both = program.find_subcommand("train").zip(program.find_subcommand("node"));
    let (train, node) = both.context("there are the commands train and node")?;
    let matches = matches.subcommand_matches("train").context("this is the command train")?;
    let known = |id: &Id| node.get_arguments().any(|argument| argument.get_id() == id);
    let mut kept = Vec::new();
    for argument in train.get_arguments() {
        let id = argument.get_id();
        let typed = matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let Some(name) = argument.get_long().filter(|_| typed && known(id)) else { continue };
        if argument.is_global_set() || OWN.contains(&id.as_str()) {
            continue;
        }
        if argument.get_action().takes_values() {
            for value in matches.get_raw(id.as_str()).into_iter().flatten() {
                let value = value.to_str().with_context(|| format!("--{name} is not UTF-8"))?;
                kept.push(format!("--{name}={value}"));
            }
        } else {
            kept.push(format!("--{name}"));
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(line: &str) -> String {
        passed_on(line.split_whitespace().map(OsString::from).collect()).unwrap().join(" ")
    }

    #[test]
    fn what_is_meant_for_spark_does_not_reach_the_tasks() {
        let line = "paceline --quiet train --model lenet -d digits --engine=spark --spark-conf spark.a=b \
                    --spark-conf=spark.c=d --workers 2 --json --out runs --serve --epochs 3 --init=w.safetensors \
                    --freeze -b32 --lr 0.5";
        let kept = passed(line);
        let mut words: Vec<&str> = kept.split(' ').collect();
        words.sort_unstable();
        let wanted = [
            "--batch-size=32",
            "--epochs=3",
            "--freeze",
            "--lr=0.5",
            "--model=lenet",
            "--workers=2",
        ];
        assert_eq!(words, wanted);
        assert_eq!(passed("paceline train --resume runs/x --steps=5"), "--steps=5");
    }

    #[test]
    fn what_is_passed_on_is_understood_by_a_task() {
        let kept = passed(
            "paceline train -m lenet -ddigits -s ps-async --workers 2 --ps 1 --on-loss stop",
        );
        let line = "paceline node --data digits";
        let line = line.split(' ').chain(kept.split(' '));
        crate::command().try_get_matches_from(line).unwrap();
    }
}
