//! The commands: one file each, arguments and a thin `exec`.

mod advise;
mod check;
mod cloud;
mod compare;
mod completions;
mod data;
mod evaluate;
mod export;
mod import;
mod key;
mod list;
mod man;
mod matmul;
mod monitor;
mod node;
mod predict;
mod prepare;
mod quickstart;
mod report;
mod run;
mod runs;
mod serve;
mod simulate;
mod speedtest;
mod sweep;
mod task;
mod train;

use crate::terminal::Terminal;
use crate::terminal::failure::Exit;

/// Every command there is. `--help`, completions, man pages and `docs/commands.md` derive from this.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// See everything in miniature: data, shards, speed test, training, a report
    Quickstart(quickstart::Args),
    /// Make, download, describe and check data
    Data(data::Args),
    /// Turn photos in class folders, or rows of sparse features, into shards of records
    Prepare(prepare::Args),
    /// Train a model and leave a run folder behind
    Train(Box<train::Args>),
    /// Be one task of a cluster, as TF_CONFIG, torchrun, MPI, Slurm or a file describes it
    Node(Box<node::Args>),
    /// Examine a cluster before a run: names, ports, key, versions, clocks, network
    Check(check::Args),
    /// Tell the classes of photos, or the probabilities of rows, with the weights of a run
    Predict(predict::Args),
    /// Score a run's model on a data set: accuracy, loss, each class, confusion, calibration
    Evaluate(evaluate::Args),
    /// List runs, or compare those named
    Runs(runs::Args),
    /// Write a run's weights as one safetensors file, or what happened in it as a trace
    Export(export::Args),
    /// Run a training script of PyTorch, Keras or JAX as it is, and say where its time went
    Run(run::Args),
    /// Turn traces of PyTorch's profiler into a run
    Import(import::Args),
    /// List models, strategies, sources, probes, advisors and recipes; or time a model layer by layer
    List(list::Args),
    /// Trace or product of matrices too large for memory, block by block
    Matmul(Box<matmul::Args>),
    /// Record CPU, memory, disk and network of this machine, or of one command
    Monitor(monitor::Args),
    /// Put runs on one page: verdict, curves, time, resources
    Report(report::Args),
    /// Show all runs on a live web page
    Serve(serve::Args),
    /// Measure how fast image files and records can be read, and what that depends on
    Speedtest(speedtest::Args),
    /// Run a grid of settings, resumable; or a published experiment, its figures beside ours
    Sweep(sweep::Args),
    /// Say whether one command is faster than another, by how much and how surely
    Compare(compare::Args),
    /// Which machines to run on: advice from a few runs, with error bars
    Advise(advise::Args),
    /// Plan the machines of a job, check the account, submit it, follow it, stop it
    Cloud(cloud::Args),
    /// Make or check the key that the tasks of a cluster prove themselves with
    Key(key::Args),
    /// Say what a bigger cluster would do with a measured run
    Simulate(Box<simulate::Args>),
    /// Work on a part that an engine such as Spark hands out; for engines, not for people
    Task(task::Args),
    /// Print a completion script for your shell
    Completions(completions::Args),
    /// Print the manual page, or write all pages into a folder
    Man(man::Args),
}

/// Runs the chosen command.
pub fn exec(command: &Command, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match command {
        Command::Quickstart(args) => quickstart::exec(args, terminal),
        Command::Data(args) => data::exec(args, terminal),
        Command::Prepare(args) => prepare::exec(args, terminal),
        Command::Train(args) => train::exec(args, terminal),
        Command::Check(args) => check::exec(args, terminal),
        Command::Node(args) => node::exec(args, terminal),
        Command::Predict(args) => predict::exec(args, terminal),
        Command::Evaluate(args) => evaluate::exec(args, terminal),
        Command::Runs(args) => runs::exec(args, terminal),
        Command::Export(args) => export::exec(args, terminal),
        Command::Run(args) => run::exec(args, terminal),
        Command::Import(args) => import::exec(args, terminal),
        Command::Matmul(args) => matmul::exec(args, terminal),
        Command::Advise(args) => advise::exec(args, terminal),
        Command::Cloud(args) => cloud::exec(args, terminal),
        Command::Key(args) => key::exec(args, terminal),
        Command::Simulate(args) => simulate::exec(args, terminal),
        Command::Compare(args) => compare::exec(args, terminal),
        Command::Completions(args) => completions::exec(args, terminal),
        Command::Monitor(args) => monitor::exec(args, terminal),
        Command::Report(args) => report::exec(args, terminal),
        Command::Speedtest(args) => speedtest::exec(args, terminal),
        Command::Sweep(args) => sweep::exec(args, terminal),
        Command::List(args) => list::exec(args, terminal),
        Command::Serve(args) => serve::exec(args, terminal),
        Command::Task(args) => task::exec(args, terminal),
        Command::Man(args) => man::exec(args, terminal),
    }
}
