//! `paceline matmul --engine spark`: every worker is a task of a Spark barrier stage and runs `paceline matmul --node`.

use super::{Args, show};
use crate::terminal::failure::{Exit, usage};
use crate::terminal::{Terminal, spark_job};
use anyhow::Context;
use paceline_cluster::launch::spark::{Spark, Work, WorkKind};
use paceline_jobs::local_tasks;
use paceline_matmul::MatmulSettings;
use paceline_wire::ClusterKey;
use std::path::Path;

/// Multiplies by tasks of Spark.
pub(super) fn exec(
    args: &Args,
    settings: &MatmulSettings,
    spark: &Spark,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    if spark.partitions.is_some() {
        return Err(usage(
            "`--partitions` has no effect on a product",
            "leave it out: the number of tasks is that of --workers",
        ));
    }
    let cancel = terminal.interrupt()?;
    let tasks = local_tasks(settings.workers, 0, false);
    let work = Work {
        name: "paceline matmul".to_owned(),
        arguments: arguments(args, settings, spark.task_cores())?,
        settings: &[],
        kind: WorkKind::Cluster { tasks: tasks.clone(), key: ClusterKey::generate()? },
    };
    let outcome = spark_job::run(spark, &work, &cancel, terminal, &mut || {})?;
    for (name, task) in tasks.iter().zip(&outcome.tasks) {
        terminal.note(format!("{name} ran on {}, executor {}", task.host, task.executor));
    }
    spark_job::tell_outcome(&outcome, terminal);
    let document = &outcome.tasks.first().context("Spark ran no task")?.result;
    terminal.json(document)?;
    show(document, terminal)?;
    Ok(Exit::Done)
}

/// The command line of a task. Paths are absolute, because tasks start in folders of their own.
fn arguments(args: &Args, settings: &MatmulSettings, cores: usize) -> anyhow::Result<Vec<String>> {
    let mut words: Vec<String> =
        ["--json", "--quiet", "matmul", "--node"].map(str::to_owned).to_vec();
    let path = |path: &Path| -> anyhow::Result<String> {
        Ok(std::path::absolute(path)?.to_str().context("a path is not UTF-8")?.to_owned())
    };
    let paths = [
        ("--a", args.a.as_deref()),
        ("--b", args.b.as_deref()),
        ("--out", args.out.as_deref()),
        ("--record", args.record.as_deref()),
        ("--state", settings.state.as_deref()),
    ];
    for (flag, value) in paths {
        if let Some(value) = value {
            words.extend([flag.to_owned(), path(value)?]);
        }
    }
    let mut say = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    if let Some(size) = args.size {
        say("--size", size.to_string());
        say("--seed", args.seed.to_string());
    }
    if let Some(block) = args.block {
        say("--block", block.to_string());
    }
    say("--memory", format!("{}B", args.memory));
    say("--threads", args.threads.unwrap_or(cores).to_string());
    say("--placement", settings.placement.name().to_owned());
    say("--save-every", format!("{}ms", args.save_every.duration().as_millis()));
    say("--join-timeout", format!("{}ms", args.join_timeout.duration().as_millis()));
    say("--patience", format!("{}ms", args.patience.duration().as_millis()));
    let switches = [
        ("--same", args.same),
        ("--identity", args.identity),
        ("--product", args.product),
        ("--no-verify", args.no_verify),
    ];
    words.extend(switches.iter().filter(|(_, on)| *on).map(|(flag, _)| (*flag).to_owned()));
    Ok(words)
}
