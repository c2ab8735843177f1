//! `paceline node`: one task of a cluster, whatever describes it.

use super::train;
use crate::{
    arguments::{
        cluster::ClusterArgs,
        rows_tasks,
        train_flags::{Checked, Flags},
    },
    terminal::{
        JobTerminal, Terminal,
        failure::{Exit, Failure, exit_of, job, usage},
    },
};
use paceline_data::store::Staging;
use paceline_jobs::{
    ClusterTask, ExtraTasks, FailureSource, FailureWords, JobError, JobResult, LaunchedTask,
    TaskOutcome, TaskPlacement, Work,
};
use paceline_runs::RunFolder;
use paceline_strategies as strategies;
use paceline_training::Start;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Arguments of `paceline node`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    flags: Flags,
    /// One of the processes that `paceline train` starts; it is told everything through a pipe
    #[arg(long, hide = true, exclusive = true)]
    launched: bool,
}

/// Plays one task's part.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    if args.launched {
        return launched(terminal);
    }
    let mut staging = Staging::default();
    let flags = train::stand_in(&args.flags, &mut staging, false)?;
    terminal.call_stand_ins(&staging);
    let outcome = described(args, &flags, &mut staging, terminal);
    terminal.settle(staging, outcome)
}

/// A task that something outside describes.
fn described(
    args: &Args,
    flags: &Flags,
    staging: &mut Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    let checked = flags.check()?;
    let strategy = checked.choice.strategy;
    if strategy.in_process {
        let several = strategies::ALL.iter().filter(|strategy| !strategy.in_process);
        let names: Vec<&str> = several.map(|strategy| strategy.name).collect();
        return Err(usage(
            JobError::OneProcess { strategy: strategy.name },
            format!("name one of several tasks with --strategy: {}", names.join(", ")),
        ));
    }
    let known = checked.resumed.clone();
    let (placement, work) = planned(args, flags, checked, terminal)?;
    let start = match known.clone() {
        Some(run) => Start::Resume { run },
        None => Start::New { out: flags.out.clone() },
    };
    let shown = Arc::new(JobTerminal::of_cluster_task(terminal));
    let mut task = ClusterTask {
        placement,
        work,
        start,
        join_timeout: flags.join_timeout.duration(),
        patience: flags.patience.duration(),
        cancel: Arc::clone(&cancel),
        observer: Arc::clone(&shown) as _,
    };
    let ready = task.open().map_err(|error| job::explain(error, None, terminal))?;
    if let Some(run) = ready.resumed_run() {
        staging.claim(run.path())?;
    }
    let outcome = ready.run();
    shown.done();
    match (outcome, known) {
        (Err(error), Some(run)) if error.is_finished() => show_finished(&error, &run, terminal),
        (outcome, known) => {
            let outcome = outcome.map_err(|error| job::explain(error, known.as_ref(), terminal))?;
            show(outcome, &cancel, terminal)
        }
    }
}

/// Which task of which cluster this process is, said aloud, and what it shall do there.
fn planned(
    args: &Args,
    flags: &Flags,
    checked: Checked,
    terminal: &Terminal,
) -> anyhow::Result<(TaskPlacement, Work)> {
    let Checked { choice, resumed } = checked;
    if choice.is_sparse() {
        let before = resumed.as_ref().map_or(0, rows_tasks::servers_of);
        let extra = ExtraTasks { servers: flags.ps.unwrap_or(before), evaluator: flags.evaluator };
        let placement = placed(args, extra, terminal)?;
        let spec = rows_tasks::in_cluster(&placement, flags, resumed.as_ref())?;
        return Ok((placement, spec.into()));
    }
    // A run that continues has the servers it had.
    let (spec, before) = match resumed {
        Some(run) => {
            let spec = flags.resumed(run)?.0;
            let servers = spec.servers;
            (spec, servers)
        }
        None => (flags.fresh()?, 0),
    };
    let extra = ExtraTasks { servers: flags.ps.unwrap_or(before), evaluator: flags.evaluator };
    let placement = placed(args, extra, terminal)?;
    placement.sizes(flags.workers, flags.ps).map_err(job::of_placement)?;
    Ok((placement, spec.into()))
}

fn placed(args: &Args, extra: ExtraTasks, terminal: &Terminal) -> anyhow::Result<TaskPlacement> {
    let placement = args.cluster.options(extra).place().map_err(job::of_placement)?;
    terminal.tell_placement(&placement);
    terminal.warn_of_insecure(args.cluster.is_insecure());
    Ok(placement)
}

fn show_finished(error: &JobError, run: &RunFolder, terminal: &Terminal) -> anyhow::Result<Exit> {
    match error {
        JobError::Rows(_) => train::show_finished_rows(run, terminal),
        _ => train::show_finished(run, terminal),
    }
}

/// The result of the run at the chief, of this task elsewhere.
fn show(outcome: TaskOutcome, cancel: &AtomicBool, terminal: &Terminal) -> anyhow::Result<Exit> {
    let TaskOutcome { task, is_chief, run, result } = outcome;
    let asked = cancel.load(Ordering::Relaxed);
    let examples = match &result {
        Some(JobResult::Examples(summary)) if is_chief => {
            train::show(summary, &terminal.place(run.path()), asked, terminal)?;
            return Ok(Exit::Done);
        }
        Some(JobResult::Rows(report)) if is_chief => {
            return train::show_rows(report, run.path(), asked, terminal);
        }
        Some(JobResult::Rows(_)) => "rows",
        _ => "examples",
    };
    if let Some(result) = &result {
        let own = result.summary().workers.first().cloned().unwrap_or_default();
        let (iterations, count) = (own.iterations, own.examples);
        terminal.data(format!("{task}: done, {iterations} iterations, {count} {examples}"))?;
        terminal.json(&own)?;
    } else {
        terminal.data(format!("{task}: done"))?;
        terminal.json(&serde_json::json!({ "task": task, "status": "done" }))?;
    }
    Ok(Exit::Done)
}

/// A task that `paceline train` started: orders come in, reports go out.
fn launched(terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let task = LaunchedTask::receive(terminal.interrupt()?)?;
    let log = Arc::new(JobTerminal::of_launched_task(terminal));
    let Err(error) = task.run(log) else { return Ok(Exit::Done) };
    let source = FailureSource::of(&error);
    let error = job::explain(error, Some(task.run_folder()), terminal);
    let words = FailureWords {
        error: format!("{error:#}"),
        hint: error.downcast_ref::<Failure>().and_then(|failure| failure.hint.clone()),
        exit: exit_of(&error).unwrap_or(Exit::Failed).code(),
    };
    task.report_failure(source, words);
    Err(error) // for this task's own log
}
