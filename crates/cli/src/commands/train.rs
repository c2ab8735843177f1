//! `paceline train`: one run, from the command line to the summary.
//!
//! Strategies of one process train right here; the others get a process for each task on this machine, or tasks of
//! Spark.

mod rows;
mod show;
mod spark;

pub(super) use rows::{show as show_rows, show_finished as show_finished_rows};

use super::serve::Beside;
use crate::{
    arguments::{
        engine::EngineArgs,
        train_flags::{Checked, Flags},
        train_rules::Choice,
    },
    terminal::{
        JobTerminal, Terminal,
        failure::{Exit, job, usage},
        typed_path,
    },
};
use paceline_cluster::launch::spark::Spark;
use paceline_data::store::{Staging, staging::without_weights};
use paceline_jobs::{Job, JobError, JobOutcome, JobResult, Work, run_in_process};
use paceline_runs::{RunFolder, Status, Summary};
use paceline_training::Start;
use show::describe;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

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
    terminal.call_stand_ins(&staging);
    let outcome = run(args, &flags, spark, &staging, terminal);
    terminal.settle(staging, outcome)
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
    check_engine(&choice, spark.is_some())?;
    let _page =
        args.serve.as_deref().map(|address| Beside::start(&flags.out, address)).transpose()?;
    if choice.is_sparse() {
        return rows::exec(flags, resumed, terminal);
    }
    let (mut spec, start) = match resumed {
        Some(run) => flags.resumed(run)?,
        None => (flags.fresh()?, Start::New { out: flags.out.clone() }),
    };
    if !choice.strategy.in_process && matches!(start, Start::New { .. }) {
        spec.workers = flags.workers.unwrap_or(2);
        spec.servers = flags.ps.unwrap_or(usize::from(choice.strategy.needs_servers));
    }
    if let Some(spark) = spark {
        return spark::exec(flags, &spark, spec, &start, staging, terminal);
    }
    let sizes = (!choice.strategy.in_process).then_some((spec.workers, spec.servers));
    carry_out(flags, spec.into(), &start, sizes, terminal)?.show(terminal)
}

/// What Spark cannot do is said before anything is looked at.
fn check_engine(choice: &Choice, spark: bool) -> anyhow::Result<()> {
    if spark && choice.is_sparse() {
        return Err(usage(
            format!("model `{}` is not trained by tasks of Spark", choice.model.name()),
            "leave out --engine spark; --workers and --ps start processes of this machine",
        ));
    }
    if spark && choice.strategy.in_process {
        return Err(usage(
            format!("strategy {} trains in one process", choice.strategy.name),
            "Spark runs strategies of several tasks: multi-worker, ps-sync or ps-async",
        ));
    }
    Ok(())
}

/// A job of this machine that has ended well, or had nothing left to do.
pub(super) struct Ended {
    outcome: Result<JobOutcome, (JobError, RunFolder)>,
    /// Whether the user asked it to stop.
    asked: bool,
}

/// Trains in this process, or with a process for each of so many workers and servers.
pub(super) fn carry_out(
    flags: &Flags,
    work: Work,
    start: &Start,
    sizes: Option<(usize, usize)>,
    terminal: &mut Terminal,
) -> anyhow::Result<Ended> {
    let cancel: Arc<AtomicBool> = terminal.interrupt()?;
    let shown = Arc::new(JobTerminal::of_local_job(terminal));
    let outcome = match sizes {
        Some((workers, servers)) => Job::local(workers)
            .servers(servers)
            .start(start.clone())
            .join_timeout(flags.join_timeout.duration())
            .patience(flags.patience.duration())
            .cancel(Arc::clone(&cancel))
            .observer(Arc::clone(&shown) as _)
            .run(work),
        None => run_in_process(&work, start, &cancel, &*shown),
    };
    shown.done();
    let outcome = match (outcome, start) {
        (Ok(outcome), _) => Ok(outcome),
        (Err(error), Start::Resume { run }) if error.is_finished() => Err((error, run.clone())),
        (Err(error), _) => return Err(job::explain(error, None, terminal)),
    };
    Ok(Ended { outcome, asked: cancel.load(Ordering::Relaxed) })
}

impl Ended {
    /// Shows the result.
    pub(super) fn show(self, terminal: &Terminal) -> anyhow::Result<Exit> {
        match self.outcome {
            Ok(JobOutcome { run, result: JobResult::Examples(summary) }) => {
                show(&summary, &terminal.place(run.path()), self.asked, terminal)?;
                Ok(Exit::Done)
            }
            Ok(JobOutcome { run, result: JobResult::Rows(report) }) => {
                rows::show(&report, run.path(), self.asked, terminal)
            }
            Err((JobError::Rows(_), run)) => rows::show_finished(&run, terminal),
            Err((_, run)) => show_finished(&run, terminal),
        }
    }
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

/// The result, and how to continue where the user stopped it.
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
            "stopped at step {}; continue with `paceline train --resume {}`",
            summary.global_steps,
            typed_path(folder)
        ));
    }
    Ok(())
}
