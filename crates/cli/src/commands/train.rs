//! `paceline train`: one run, from the command line to the summary.
//!
//! Strategies of one process train right here; the others get a process for each task, started and
//! watched by `train_local`.

use super::{
    node_load::conclude,
    serve::Beside,
    staging::{Staging, without_weights},
    train_flags::Flags,
    train_local,
    train_show::{Watcher, describe, explain},
    train_spark,
};
use crate::{
    engine::EngineArgs,
    failure::{Exit, usage},
    terminal::Terminal,
};
use paceline_cluster::launch::spark::Spark;
use paceline_runs::{Status, Summary};
use paceline_strategies::find;
use paceline_trainer::{Control, Parts, RunSpec, Start, TrainError, train};
use std::{path::Path, sync::atomic::Ordering};

/// Arguments of `paceline train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Trains.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let spark = args.engine.spark()?;
    let mut staging = Staging::default();
    // Tasks of Spark run elsewhere, and each finds stand-ins of its own.
    let flags = match &spark {
        Some(_) => look_at(&args.flags, &mut staging)?,
        None => stand_in(&args.flags, &mut staging)?,
    };
    staging.tell(terminal);
    let outcome = run(args, &flags, spark, &staging, terminal);
    staging.settle(outcome, terminal)
}

/// The flags with folders of this machine in the place of folders in a store.
pub(super) fn stand_in(flags: &Flags, staging: &mut Staging) -> anyhow::Result<Flags> {
    let mut flags = flags.clone();
    (flags.out, flags.resume) = staging.run_to_go_on(&flags.out, flags.resume.as_deref())?;
    if let Some(init) = &mut flags.init {
        *init = staging.input(init, &|_| true)?;
    }
    Ok(flags)
}

/// The flags with a copy of the run to go on from in the place of one in a store: enough to see what it was.
fn look_at(flags: &Flags, staging: &mut Staging) -> anyhow::Result<Flags> {
    let mut flags = flags.clone();
    if let Some(name) = flags.resume.take() {
        let (out, name) = staging.run(&flags.out, &name, &without_weights)?;
        (flags.out, flags.resume) = (out, Some(name));
    }
    Ok(flags)
}

fn run(
    args: &Args,
    flags: &Flags,
    spark: Option<Spark>,
    staging: &Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let _page =
        flags.serve.as_deref().map(|address| Beside::start(&flags.out, address)).transpose()?;
    if spark.is_some() && super::learn::concerns(flags) {
        return Err(usage(
            "rows of sparse features are not learned by tasks of Spark",
            "leave out --engine spark; --workers and --ps start processes of this machine",
        ));
    }
    if let Some(exit) = super::learn::dispatch(flags, terminal)? {
        return Ok(exit); // rows of sparse features have a learner of their own
    }
    let (mut spec, start) = match &flags.resume {
        Some(run) => flags.resumed(run)?,
        None => (flags.fresh()?, Start::New { out: flags.out.clone() }),
    };
    let strategy = find(&spec.strategy).map_err(|error| explain(TrainError::from(error)))?;
    if !strategy.in_process {
        if flags.resume.is_none() {
            spec.workers = flags.workers.unwrap_or(2);
            spec.servers = flags.ps.unwrap_or(usize::from(strategy.needs_servers));
        }
        if let Some(spark) = spark {
            return train_spark::exec(
                flags,
                &args.engine,
                &spark,
                &spec,
                &start,
                staging,
                terminal,
            );
        }
        return train_local::exec(flags, spec, &start, staging, terminal);
    }
    if spark.is_some() {
        return Err(usage(
            format!("strategy {} trains in one process", spec.strategy),
            "Spark runs strategies of several tasks: multi-worker, ps-sync or ps-async",
        ));
    }
    let cancel = terminal.interrupt()?;
    let parts = open(&spec, terminal)?;
    let watcher = Watcher::new(terminal, Some("worker/0".to_owned()));
    let control = Control { cancel: &cancel, observer: &watcher };
    let result = train(&spec, &parts, &start, &control);
    watcher.done();
    let mut summary = result.map_err(explain)?;
    let folder = match &start {
        Start::New { out } => out.join(&summary.run),
        Start::In { run } | Start::Resume { run } => run.path().to_path_buf(),
    };
    conclude(&folder, &mut summary, terminal);
    show(&summary, &staging.there(&folder), cancel.load(Ordering::Relaxed), terminal)?;
    Ok(Exit::Done)
}

/// Finds model and data, and says what was assumed about them.
pub(super) fn open(spec: &RunSpec, terminal: &Terminal) -> anyhow::Result<Parts> {
    let parts = Parts::open(spec).map_err(explain)?;
    for remark in parts.train.remarks() {
        terminal.note(format!("{}: {remark}", spec.data));
    }
    Ok(parts)
}

/// The result, and how to go on where somebody stopped it.
pub(super) fn show(
    summary: &Summary,
    folder: &Path,
    asked: bool,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    terminal.data(describe(summary, folder))?;
    terminal.json(summary)?;
    if summary.status == Status::Cancelled && asked {
        terminal.note(format!(
            "stopped at step {}; go on with `paceline train --resume {}`",
            summary.global_steps,
            folder.display()
        ));
    }
    Ok(())
}
