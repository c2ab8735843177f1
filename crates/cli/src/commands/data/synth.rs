//! `paceline data synth`: data drawn by the program itself, so that nothing need be downloaded.

use crate::arguments::paths::local_path;
use crate::arguments::units::task_count;
use crate::terminal::failure::{Exit, usage};
use crate::terminal::{Terminal, Unit};
use paceline_data::store::Staging;
use paceline_prepare::synth::{
    ClicksOptions, DigitsOptions, PhotosOptions, write_clicks, write_digits, write_photos,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Longest side of a drawn photo: a square of it has the 64 million pixels that readers accept unless told otherwise.
const MOST_SIDE: i64 = 8000;

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
    /// A click log with a hidden truth: 13 integers, 26 categories, and the best loss anybody can reach
    Clicks(Clicks),
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
    #[arg(long, value_parser = task_count)]
    threads: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct Photos {
    /// Folder to write into
    out: PathBuf,
    /// Photos of each class
    #[arg(long, default_value_t = 100)]
    per_class: u32,
    /// Classes: five kinds of flowers that exist, then kinds that are made up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    classes: u32,
    /// Shorter side of the smallest photos, in pixels
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=MOST_SIDE))]
    least_side: u32,
    /// Longer side of the largest photos, in pixels; at most 8000, as large as a photo may be that is read
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=MOST_SIDE))]
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
    #[arg(long, value_parser = task_count)]
    threads: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct Clicks {
    /// File to write
    out: PathBuf,
    /// Rows
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Decides every row; the hidden weights are the same for all seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also write the same rows in Vowpal Wabbit's format
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    vw: Option<PathBuf>,
    /// Threads to draw on [default: all cores this process may use]
    #[arg(long, value_parser = task_count)]
    threads: Option<usize>,
}

/// Draws what was asked for.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let outcome = match &args.kind {
        Kind::Digits(args) => digits(args, &staging.output(&args.out)?, terminal),
        Kind::Photos(args) => photos(args, &staging.output(&args.out)?, terminal),
        Kind::Clicks(args) => clicks(args, &staging.output_file(&args.out)?, terminal),
    };
    terminal.settle(staging, outcome)
}

fn digits(args: &Digits, out: &Path, terminal: &Terminal) -> anyhow::Result<Exit> {
    let defaults = DigitsOptions::default();
    let options = DigitsOptions {
        train: args.train,
        test: args.test,
        seed: args.seed,
        gzip: args.gzip,
        threads: args.threads.unwrap_or(defaults.threads),
    };
    let total = u64::from(args.train) + u64::from(args.test);
    if total == 0 {
        return Err(usage("no digit is to be drawn", "say how many: `--train 2000 --test 300`"));
    }
    let start = Instant::now();
    let bar = terminal.progress("drawing", Some(total), Unit::Items("digits"));
    write_digits(out, &options, &|done| bar.set(done))?;
    drop(bar);
    done(terminal, &args.out, "digits", total, start)
}

fn photos(args: &Photos, out: &Path, terminal: &Terminal) -> anyhow::Result<Exit> {
    if args.least_side > args.most_side {
        return Err(usage(
            format!("sides from {} to {} make no photo", args.least_side, args.most_side),
            "--least-side must be at most --most-side",
        ));
    }
    if args.per_class == 0 && args.odd == 0 && args.bad == 0 {
        return Err(usage("no photo is to be drawn", "say how many: `--per-class 20`"));
    }
    let defaults = PhotosOptions::default();
    let options = PhotosOptions {
        per_class: args.per_class,
        classes: args.classes,
        least_side: args.least_side,
        most_side: args.most_side,
        seed: args.seed,
        odd: args.odd,
        bad: args.bad,
        threads: args.threads.unwrap_or(defaults.threads),
    };
    let start = Instant::now();
    let bar = terminal.progress("drawing", None, Unit::Items("photos"));
    let count = write_photos(out, &options, &|done| bar.set(done))?;
    drop(bar);
    done(terminal, &args.out, "photos", count, start)
}

fn clicks(args: &Clicks, out: &Path, terminal: &Terminal) -> anyhow::Result<Exit> {
    let options = ClicksOptions {
        rows: args.rows,
        seed: args.seed,
        vw: args.vw.clone(),
        threads: args.threads.unwrap_or_else(|| paceline_batch::cores().count),
    };
    let start = Instant::now();
    let bar = terminal.progress("drawing", Some(args.rows), Unit::Items("rows"));
    let written = write_clicks(out, &options, &|done| bar.set(done))?;
    drop(bar);
    let seconds = start.elapsed().as_secs_f64();
    let share = written.positive as f64 / written.rows.max(1) as f64;
    terminal.data(format!(
        "{} rows in `{}` ({seconds:.1} s), {:.1} % clicked\n\
         best possible log loss {:.4}; knowing nothing {:.4}",
        written.rows,
        args.out.display(),
        100.0 * share,
        written.best_loss,
        written.constant_loss
    ))?;
    terminal.json(&json!({
        "out": args.out, "kind": "clicks", "count": written.rows, "seconds": seconds,
        "positive": written.positive, "best_loss": written.best_loss,
        "constant_loss": written.constant_loss,
    }))?;
    Ok(Exit::Done)
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
