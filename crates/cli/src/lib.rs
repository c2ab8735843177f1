//! The `paceline` command line: parse, run, report, exit with the code of the contract.
//!
//! Commands live in `commands/`, one file each, and stay thin: arguments in, a library call, words
//! out through [`terminal::Terminal`]. Work belongs in the library crates.

#![allow(unreachable_pub)] // the library exists for the binary and its tests; two functions are exported

mod arguments;
mod cluster_args;
mod commands;
mod engine;
mod failure;
mod idle_flags;
mod terminal;
mod units;

use clap::Parser;
use failure::Exit;
use std::process::ExitCode;
use terminal::Terminal;

/// Prepares training data, trains under every distribution strategy, says where the time goes
#[derive(Debug, Parser)]
#[command(name = "paceline", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 worth retrying, 130 interrupted (Ctrl-C), 143 ended by SIGTERM."
)]
struct Cli {
    #[command(flatten)]
    output: terminal::OutputArgs,
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the program with the arguments of this process.
#[must_use]
pub fn run() -> ExitCode {
    let (cli, notes) = arguments::parse();
    let mut terminal = Terminal::new(&cli.output);
    notes.iter().for_each(|note| terminal.note(note));
    let exit = match commands::exec(&cli.command, &mut terminal) {
        Ok(exit) => exit,
        Err(error) => terminal.failure(&error),
    };
    terminal.finish();
    // A signal outranks the command's own result: its sender expects to see it in the exit code.
    ExitCode::from(terminal.signalled().unwrap_or(exit).code())
}

/// The whole command tree, for generated documentation.
#[must_use]
pub fn command() -> clap::Command {
    arguments::command()
}

impl Exit {
    /// The number a shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Retry => 75,
            Self::Interrupted => 130,
            Self::Terminated => 143,
            Self::Of(code) => code,
        }
    }
}
