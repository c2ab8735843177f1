//! `paceline train --engine spark`: every task of the run is a task of a Spark barrier stage and runs `paceline node`.
//!
//! The command line goes on to the tasks as it is, without what is meant for Spark; paths become absolute, because tasks
//! start in folders of their own.

use super::{staging::Staging, train, train_flags::Flags, train_local::tasks};
use crate::arguments;
use crate::engine::{self, EngineArgs};
use crate::failure::{Exit, usage};
use crate::terminal::Terminal;
use anyhow::Context;
use clap::{Id, parser::ValueSource};
use paceline_cluster::ClusterKey;
use paceline_cluster::launch::spark::{Spark, Work, WorkKind};
use paceline_data::store;
use paceline_runs::Summary;
use paceline_training::{RunSpec, Start};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Flags that are not passed on because they are said anew below, or are meant for this process.
const OWN: [&str; 6] = ["data", "out", "init", "threads", "resume", "evaluator"];

/// Trains by tasks of Spark.
pub(super) fn exec(
    flags: &Flags,
    engine: &EngineArgs,
    spark: &Spark,
    spec: &RunSpec,
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
    // What is wrong with the settings is said here, before anything is started.
    let parts = train::open(spec, terminal)?;
    paceline_training::check(spec, &parts).map_err(super::train_show::explain)?;
    drop(parts);
    let tasks = tasks(spec.workers, spec.servers, spec.evaluator);
    let mut arguments: Vec<String> = ["--json", "--quiet", "node"].map(str::to_owned).to_vec();
    arguments.extend(passed_on(arguments::typed(std::env::args_os()).0)?);
    let mut say = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    say("--data", absolute(&spec.data)?);
    let out = everywhere(&staging.there(&flags.out))?;
    say("--out", out.display().to_string());
    say("--threads", spec.threads.unwrap_or_else(|| engine.task_cores()).to_string());
    if let Some(init) = &flags.init {
        say("--init", everywhere(init)?.display().to_string());
    }
    if let Start::Resume { run } = start {
        say("--resume", everywhere(&staging.there(run.path()))?.display().to_string());
    }
    let key = ClusterKey::generate()?;
    let work = Work {
        name: format!("paceline train {}", spec.model),
        arguments,
        settings: &[],
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

/// A folder or file as every machine of the cluster sees it.
fn everywhere(path: &Path) -> anyhow::Result<PathBuf> {
    Ok(if store::is_remote(path) { path.to_owned() } else { std::path::absolute(path)? })
}

/// A path as every machine of the cluster sees it; other names of data stay as they are.
fn absolute(data: &str) -> anyhow::Result<String> {
    if Path::new(data).exists() {
        Ok(std::path::absolute(data)?.display().to_string())
    } else {
        Ok(data.to_owned())
    }
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
