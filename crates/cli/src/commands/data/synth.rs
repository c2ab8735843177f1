//! `paceline data synth`: data drawn by the program itself, so that nothing need be downloaded.

use crate::failure::{Exit, usage};
use crate::terminal::{Terminal, Unit};
use paceline_data::synth::{DigitsOptions, PhotosOptions, write_digits, write_photos};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `paceline data synth`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Handwritten-looking digits in MNIST's own four files
    Digits(Digits),
    /// Flowers of five kinds as JPEG photos of many sizes, in class folders
    Photos(Photos),
}

#[derive(Debug, clap::Args)]
struct Digits {
    /// Folder to write into
    out: PathBuf,
    /// Digits for training
    #[arg(long, default_value_t = 60_000)]
    train: u32,
    /// Digits for testing
    #[arg(long, default_value_t = 10_000)]
    test: u32,
    /// Decides every pixel
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compress the files, as MNIST's are
    #[arg(long)]
    gzip: bool,
    /// Threads to draw on [default: all cores this process may use]
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct Photos {
    /// Folder to write into
    out: PathBuf,
    /// Photos of each class
    #[arg(long, default_value_t = 100)]
    per_class: u32,
    /// Shorter side of the smallest photos, in pixels
    #[arg(long, default_value_t = 180)]
    least_side: u32,
    /// Longer side of the largest photos, in pixels
    #[arg(long, default_value_t = 500)]
    most_side: u32,
    /// Decides every pixel
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Extra photos of odd shapes: panoramas, strips, a few pixels
    #[arg(long, default_value_t = 0)]
    odd: u32,
    /// Extra files that only look like photos: cut short, empty, text
    #[arg(long, default_value_t = 0)]
    bad: u32,
    /// Threads to draw on [default: all cores this process may use]
    #[arg(long)]
    threads: Option<usize>,
}

/// Draws what was asked for.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    match &args.kind {
        Kind::Digits(args) => digits(args, terminal),
        Kind::Photos(args) => photos(args, terminal),
    }
}

fn digits(args: &Digits, terminal: &Terminal) -> anyhow::Result<Exit> {
    let defaults = DigitsOptions::default();
    let options = DigitsOptions {
        train: args.train,
        test: args.test,
        seed: args.seed,
        gzip: args.gzip,
        threads: args.threads.unwrap_or(defaults.threads),
    };
    let total = u64::from(args.train) + u64::from(args.test);
    let start = Instant::now();
    let bar = terminal.progress("drawing", Some(total), Unit::Items("digits"));
    write_digits(&args.out, &options, &|done| bar.set(done))?;
    drop(bar);
    done(terminal, &args.out, "digits", total, start)
}

fn photos(args: &Photos, terminal: &Terminal) -> anyhow::Result<Exit> {
    if args.least_side == 0 || args.least_side > args.most_side {
        return Err(usage(
            format!("sides from {} to {} make no photo", args.least_side, args.most_side),
            "--least-side must be at least 1 and at most --most-side",
        ));
    }
    let defaults = PhotosOptions::default();
    let options = PhotosOptions {
        per_class: args.per_class,
        least_side: args.least_side,
        most_side: args.most_side,
        seed: args.seed,
        odd: args.odd,
        bad: args.bad,
        threads: args.threads.unwrap_or(defaults.threads),
    };
    let start = Instant::now();
    let bar = terminal.progress("drawing", None, Unit::Items("photos"));
    let count = write_photos(&args.out, &options, &|done| bar.set(done))?;
    drop(bar);
    done(terminal, &args.out, "photos", count, start)
}

fn done(
    terminal: &Terminal,
    out: &Path,
    what: &str,
    count: u64,
    start: Instant,
) -> anyhow::Result<Exit> {
    let seconds = start.elapsed().as_secs_f64();
    terminal.data(format!("{count} {what} in `{}` ({seconds:.1} s)", out.display()))?;
    terminal.json(&json!({ "out": out, "kind": what, "count": count, "seconds": seconds }))?;
    Ok(Exit::Done)
}
