//! The `paceline` command line: parse, run, report, exit with the code of the contract.
//!
//! Three modules and no other (`cargo xtask check`): `arguments/` is what can be typed and whether it makes sense,
//! `commands/` has a file for each command, and everything that is said goes through [`terminal::Terminal`]. A command
//! stays thin: arguments in, a library call, words out. Work belongs in the library crates.
//!
//! ```
//! let command = paceline_cli::command();
//! let train = command.find_subcommand("train").expect("a command");
//! assert!(train.get_arguments().any(|argument| argument.get_id() == "strategy"));
//! ```

#![allow(unreachable_pub)] // the library exists for the binary and its tests; two functions are exported

mod arguments;
mod commands;
mod terminal;

use clap::Parser;
use std::process::ExitCode;
use terminal::Terminal;

/// Prepares training data, trains under every distribution strategy, says where the time goes
#[derive(Debug, Parser)]
#[command(name = "paceline", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 75 worth retrying, 129 terminal closed (SIGHUP), 130 interrupted (Ctrl-C), 143 ended by SIGTERM."
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
