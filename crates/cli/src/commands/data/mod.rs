//! `paceline data`: make, download, describe and check data.

mod synth;

use crate::failure::Exit;
use crate::terminal::Terminal;

/// Arguments of `paceline data`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make data to try things with: digits or photos, drawn by the program
    Synth(synth::Args),
}

/// Runs the chosen action.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Synth(args) => synth::exec(args, terminal),
    }
}
