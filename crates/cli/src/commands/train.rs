//! `paceline train`: one run, from the command line to the summary.
//!
//! Strategies of one process train right here; the others get a process for each task, started and
//! watched by `train_local`.

use super::{
    node_load::conclude,
    serve::Beside,
    staging::{Staging, without_weights},
    train_flags::{Checked, Flags},
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
use paceline_runs::{RunFolder, Status, Summary};
use paceline_training::{Control, Parts, RunSpec, Start, TrainError, train};
use std::{path::Path, sync::atomic::Ordering};

/// Arguments of `paceline train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Show all runs of the output folder on a live web page while this one goes on [default address: 127.0.0.1:6060]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = super::serve::ADDRESS, help_heading = "Records")]
    serve: Option<String>,
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
        None => stand_in(&args.flags, &mut staging, true)?,
    };
    staging.tell(terminal);
    let outcome = run(args, &flags, spark, &staging, terminal);
    staging.settle(outcome, terminal)
}

/// The flags with folders of this machine in the place of folders in a store; `owns` says whether this process is
/// the one that owns a resumed run.
pub(super) fn stand_in(flags: &Flags, staging: &mut Staging, owns: bool) -> anyhow::Result<Flags> {
    let mut flags = flags.clone();
    let resume = flags.resume.as_deref();
    (flags.out, flags.resume) = staging.run_to_resume(&flags.out, resume, owns)?;
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
    let Checked { choice, resumed } = flags.check()?;
    if spark.is_some() && choice.is_sparse() {
        return Err(usage(
            format!("model `{}` is not trained by tasks of Spark", choice.model.name()),
            "leave out --engine spark; --workers and --ps start processes of this machine",
        ));
    }
    let _page =
        args.serve.as_deref().map(|address| Beside::start(&flags.out, address)).transpose()?;
    if choice.is_sparse() {
        return super::learn::exec(flags, resumed, terminal);
    }
    let is_new = resumed.is_none();
    let (mut spec, start) = match resumed {
        Some(run) => flags.resumed(run)?,
        None => (flags.fresh()?, Start::New { out: flags.out.clone() }),
    };
    let strategy = choice.strategy;
    if !strategy.in_process {
        if is_new {
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
    if let (Err(TrainError::Finished { .. }), Start::Resume { run }) = (&result, &start) {
        return show_finished(run, terminal);
    }
    let mut summary = result.map_err(explain)?;
    let folder = match (watcher.moved(), &start) {
        (Some(folder), _) => folder,
        (None, Start::New { out }) => out.join(&summary.run),
        (None, Start::In { run } | Start::Resume { run }) => run.path().to_path_buf(),
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

/// A run that has nothing left to do: says so, and shows its result as it was recorded.
pub(super) fn show_finished(run: &RunFolder, terminal: &Terminal) -> anyhow::Result<Exit> {
    let summary = run.summary()?.unwrap_or_default();
    let folder = terminal.place(run.path());
    note_finished(&folder, terminal);
    terminal.data(describe(&summary, &folder))?;
    terminal.json(&summary)?;
    Ok(Exit::Done)
}

/// Says that nothing is left to do, and what would be.
pub(super) fn note_finished(folder: &Path, terminal: &Terminal) {
    terminal.note(format!(
        "run `{}` is finished; nothing was changed. More --epochs or --steps, or a lower --until-loss, extend it",
        folder.display()
    ));
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
