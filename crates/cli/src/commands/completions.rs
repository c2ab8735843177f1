//! `paceline completions`: completion scripts, made from the same definitions as the parser.

use crate::{Cli, terminal::Terminal, terminal::failure::Exit};
use clap::CommandFactory;

/// Arguments of `paceline completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: paceline completions bash > ~/.local/share/bash-completion/completions/paceline"
)]
pub struct Args {
    /// Which shell
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "paceline", &mut script);
    let script = String::from_utf8(script)?;
    terminal.data(&script)?;
    terminal.json(&serde_json::json!({ "shell": args.shell.to_string(), "script": script }))?;
    Ok(Exit::Done)
}
