//! `paceline data`: make, download, describe and check data.

mod fetch;
mod info;
mod synth;
mod verify;

use crate::failure::{Exit, usage};
use crate::terminal::Terminal;
use paceline_data::OpenOptions;

/// Arguments of `paceline data`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make data to try things with: digits, photos or a click log, drawn by the program
    Synth(synth::Args),
    /// Download a known data set, verified
    Fetch(fetch::Args),
    /// Describe a data set: counts, classes, sizes, a sample
    Info(info::Args),
    /// Read all of a data set, compare every checksum, list every problem
    Verify(verify::Args),
}

/// How a data set is to be opened.
#[derive(Debug, clap::Args)]
struct Opening {
    /// Size photos are resized to, such as 192 or 224x160
    #[arg(long, value_name = "N|WxH")]
    size: Option<String>,
    /// Number of classes, where the labels do not show it
    #[arg(long)]
    classes: Option<usize>,
}

impl Opening {
    fn options(&self) -> anyhow::Result<OpenOptions> {
        let size = self.size.as_deref().map(parse_size).transpose()?;
        Ok(OpenOptions { classes: self.classes, size, ..OpenOptions::default() })
    }
}

/// `192` is a square; `224x160` is width by height.
fn parse_size(text: &str) -> anyhow::Result<(u32, u32)> {
    let read = || {
        let (width, height) = text.split_once('x').unwrap_or((text, text));
        let (width, height) = (width.parse().ok()?, height.parse().ok()?);
        (width > 0 && height > 0).then_some((width, height))
    };
    read().ok_or_else(|| {
        usage(format!("--size {text} is no size"), "use a number such as 192, or 224x160")
    })
}

/// Runs the chosen action.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Synth(args) => synth::exec(args, terminal),
        Action::Fetch(args) => fetch::exec(args, terminal),
        Action::Info(args) => info::exec(args, terminal),
        Action::Verify(args) => verify::exec(args, terminal),
    }
}
