//! `paceline data`: make, download, describe and check data.

mod fetch;
mod info;
mod synth;
mod verify;

use crate::arguments::idle_flags::{Rule, Typed};
use crate::terminal::Terminal;
use crate::terminal::failure::{Exit, usage};
use paceline_data::{DataError, OpenOptions, sources};
use std::path::Path;

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
    // The first, so that it sees all flags.
    #[command(flatten)]
    typed: Typed,
    /// Size photos are resized to, such as 192 or 224x160
    #[arg(long, value_name = "N|WxH")]
    size: Option<String>,
    /// Number of classes, where the labels do not show it
    #[arg(long)]
    classes: Option<usize>,
    /// Most pixels of a photo, such as 100M [default: 64M]
    #[arg(long, value_parser = crate::arguments::limits::parse_pixels, value_name = "N")]
    max_pixels: Option<u64>,
}

/// By the kind of data set; rows of sparse features are none.
const RULES: &[Rule<Option<&str>>] = &[
    Rule {
        flags: &["size", "max-pixels"],
        is_met: |kind| matches!(kind, Some("photos" | "records")),
        otherwise: "on examples that are not resized",
        instead: "name a folder of photos or records",
    },
    Rule {
        flags: &["classes"],
        is_met: |kind| matches!(kind, Some("idx" | "records")),
        otherwise: "on a data set that names its classes",
        instead: "name a folder of IDX files or records",
    },
    Rule {
        flags: &["max-rejects"],
        is_met: |kind| matches!(kind, None | Some("photos")),
        otherwise: "on a data set in which nothing is rejected",
        instead: "name a folder of photos, or rows",
    },
];

impl Opening {
    /// Refuses flags that this data set has no use for.
    fn check(&self, path: &Path) -> anyhow::Result<()> {
        match sources::detect(path) {
            Ok(entry) => self.typed.check(&Some(entry.name), RULES),
            Err(DataError::Rows { .. }) => self.typed.check(&None, RULES),
            // What is wrong with the path is told by what opens it.
            Err(_) => Ok(()),
        }
    }

    fn options(&self) -> anyhow::Result<OpenOptions> {
        let size = self.size.as_deref().map(parse_size).transpose()?;
        let (classes, max_pixels) = (self.classes, self.max_pixels);
        Ok(OpenOptions { classes, size, max_pixels, ..OpenOptions::default() })
    }
}

/// `192` is a square; `224x160` is width by height.
pub(super) fn parse_size(text: &str) -> anyhow::Result<(u32, u32)> {
    let read = || {
        let (width, height) = text.split_once('x').unwrap_or((text, text));
        let (width, height) = (width.parse().ok()?, height.parse().ok()?);
        (width > 0 && height > 0).then_some((width, height))
    };
    read().ok_or_else(|| {
        usage(format!("--size {text} is not a size"), "use a number such as 192, or 224x160")
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
