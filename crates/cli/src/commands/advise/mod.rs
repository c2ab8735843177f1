//! `paceline advise`: which configuration should the job run on.

mod answer;
mod ask;
mod batch;
mod cloud;
mod evaluate;
mod evaluation_page;
mod job;
pub(super) mod links;
mod parallel;
mod question;
mod scale;
mod search_page;
mod subject;
mod tell;
mod tune;

use crate::terminal::Terminal;
use crate::terminal::failure::Exit;

/// Arguments of `paceline advise`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Search by itself: run the job on one configuration after the other until more is not worth it
    Cloud(cloud::Args),
    /// Say what to run next; the search is kept in a file
    Ask(ask::Args),
    /// Say how a run went, and hear the answer so far
    Tell(tell::Args),
    /// Search the settings of any command: run it at one point after the other until more is not worth it
    Tune(Box<tune::Args>),
    /// How many machines: a scaling curve from a few runs
    Scale(scale::Args),
    /// Which batch size at which rate: step times and gradient noise, measured
    Batch(Box<batch::Args>),
    /// Which way of parallelising a network: data, spatial, pipeline, filter, channel, or two at once
    Parallel(Box<parallel::Args>),
    /// Batch, online or streaming: what suits data that keep arriving
    Job(job::Args),
    /// Replay recorded runs and say how good each method's advice is
    Evaluate(evaluate::Args),
}

/// Runs the chosen action.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Cloud(args) => cloud::exec(args, terminal),
        Action::Ask(args) => ask::exec(args, terminal),
        Action::Tell(args) => tell::exec(args, terminal),
        Action::Tune(args) => tune::exec(args, terminal),
        Action::Scale(args) => scale::exec(args, terminal),
        Action::Batch(args) => batch::exec(args, terminal),
        Action::Parallel(args) => parallel::exec(args, terminal),
        Action::Job(args) => job::exec(args, terminal),
        Action::Evaluate(args) => evaluate::exec(args, terminal),
    }
}
