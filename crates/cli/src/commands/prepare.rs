//! `paceline prepare`: photos in class folders, or rows of sparse features → shards of records.

mod rows;
mod spark;

use crate::arguments::engine::{Engine, EngineArgs};
use crate::arguments::idle_flags::Typed;
use crate::arguments::limits::{parse_limit, parse_pixels};
use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::recorder::{record, say};
use crate::terminal::{Table, Terminal, Unit, one_line, show_count};
use paceline_data::rejects::Reject;
use paceline_data::store;
use paceline_prepare::photos::{
    Encoding, Event, Fit, PhotoOptions, PrepareError, Progress, RejectLimit, SplitShare, Summary,
    prepare,
};
use paceline_probes::FolderRecorder;
use std::path::PathBuf;

/// Arguments of `paceline prepare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Interrupted, killed or out of disk: run the same command again, and it continues where it was.\n\
                  Photos that cannot be used are listed with their reasons in DST/rejects.jsonl.\n\
                  What the machines did meanwhile is in DST/resources; `paceline report DST` draws it.\n\n\
                  Example: paceline prepare flowers shards --size 192 --shards 16 --split validation=0.1"
)]
pub struct Args {
    #[command(flatten)]
    typed: Typed,
    /// Folder or URL (s3:, gs:, az:, https:) with one folder of photos (JPEG, PNG) per class; or a click log, libsvm or Vowpal Wabbit text
    src: PathBuf,
    /// Folder for the shards, here or in an object store
    dst: PathBuf,
    /// Size of every photo in pixels: a side, or WIDTHxHEIGHT
    #[arg(long, default_value = "192", value_parser = parse_size, value_name = "SIZE")]
    size: Size,
    /// How a photo of another shape is made to fit
    #[arg(long, default_value = "crop")]
    fit: FitArg,
    /// How pixels are stored
    #[arg(long, default_value = "jpeg")]
    encode: EncodeArg,
    /// JPEG quality, 1 to 100
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "Q")]
    quality: Option<u8>,
    /// Shards for training; other splits get as many in proportion
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=99_999))]
    shards: u32,
    /// Put a share of the photos apart, such as validation=0.1; may be given several times. Splits that folders name (SRC/train/CLASS, SRC/test/CLASS) stay, and the share is of the training photos
    #[arg(long = "split", id = "split", value_parser = parse_split, value_name = "NAME=SHARE")]
    splits: Vec<SplitShare>,
    /// Decides which photo goes to which shard, and where
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads that convert [default: all cores this process may use]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Most pixels of a photo, such as 100M; larger ones are rejected [default: 64M]
    #[arg(long, value_parser = parse_pixels, value_name = "N")]
    max_pixels: Option<u64>,
    /// Stop after more than so many rejected photos, a number or a percentage such as 5%
    #[arg(long, value_parser = parse_limit, value_name = "N|P%")]
    max_rejects: Option<RejectLimit>,
    /// Remove what an earlier run left in DST, and begin again
    #[arg(long, conflicts_with = "retry_failed")]
    fresh: bool,
    /// Try the photos again that an earlier run rejected
    #[arg(long)]
    retry_failed: bool,
    #[command(flatten)]
    rows: rows::RowArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Debug, Clone, Copy)]
struct Size {
    width: u32,
    height: u32,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FitArg {
    /// Fill the size, cutting both ends of the longer side
    Crop,
    /// Keep everything, with black bars
    Pad,
    /// Keep everything, distorted
    Stretch,
}

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum EncodeArg {
    /// JPEG, small
    Jpeg,
    /// PNG, without loss
    Png,
    /// Plain RGB bytes, fastest to read
    Raw,
}

/// Prepares.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let spark = args.engine.spark()?;
    let of_rows = rows::are_rows(args);
    args.typed.check(&of_rows, rows::PHOTO_RULES)?;
    if of_rows {
        if spark.is_some() {
            return Err(usage("rows are prepared by one process", "leave out --engine spark"));
        }
        return rows::exec(args, terminal);
    }
    let options = args.options()?;
    if let Some(spark) = spark {
        return spark::exec(args, &options, &spark, terminal);
    }
    let cancel = terminal.interrupt()?;
    let (src, dst) = (store::open(&args.src)?, store::open(&args.dst)?);
    let bar = terminal.progress("preparing", None, Unit::Items("photos"));
    let mut recorder = None;
    let outcome = prepare(&*src, &*dst, &options, &cancel, &mut |event| match event {
        Event::Progress(progress) => {
            // Only now the target is known to be ours, and there is something to do.
            recorder.get_or_insert_with(|| args.begin_recording("prepare", terminal));
            bar.set_total(progress.total);
            bar.set(progress.photos);
            bar.message(behind_the_bar(&progress));
        }
        Event::Warning(warning) => terminal.warn(warning),
        _ => {}
    });
    drop((bar, recorder));
    let summary = outcome.or_else(with_hint)?;
    report(args, &summary, terminal)?;
    terminal.json(&summary)?;
    Ok(Exit::Done)
}

impl Args {
    /// Where what the machines did is kept: a folder beside the shards, which no reader of the data set looks into.
    fn resources(&self) -> Option<PathBuf> {
        (!store::is_remote(&self.dst)).then(|| self.dst.join("resources"))
    }

    /// Records this machine; what an earlier preparation recorded goes with it.
    fn begin_recording(&self, task: &str, terminal: &Terminal) -> Option<FolderRecorder> {
        let folder = self.resources()?;
        if self.fresh {
            FolderRecorder::forget(&folder);
        }
        let recorder = record(&folder, task, terminal);
        say(recorder.as_ref(), "converting");
        recorder
    }

    fn options(&self) -> anyhow::Result<PhotoOptions> {
        let encoding = match (self.encode, self.quality) {
            (EncodeArg::Jpeg, quality) => Encoding::Jpeg { quality: quality.unwrap_or(90) },
            (EncodeArg::Png, None) => Encoding::Png,
            (EncodeArg::Raw, None) => Encoding::Raw,
            (_, Some(_)) => {
                return Err(usage(
                    "`--quality` has no effect on pixels stored without loss",
                    "leave it out, or use `--encode jpeg`",
                ));
            }
        };
        Ok(PhotoOptions {
            width: self.size.width,
            height: self.size.height,
            fit: match self.fit {
                FitArg::Crop => Fit::Crop,
                FitArg::Pad => Fit::Pad,
                FitArg::Stretch => Fit::Stretch,
            },
            encoding,
            shards: self.shards,
            splits: self.splits.clone(),
            seed: self.seed,
            threads: self.threads.map(|threads| threads as usize),
            max_pixels: self.max_pixels,
            max_rejects: self.max_rejects,
            fresh: self.fresh,
            retry_rejects: self.retry_failed,
        })
    }
}

/// Gives an error its hint and exit code.
pub(super) fn with_hint<T>(error: PrepareError) -> anyhow::Result<T> {
    let exit = match &error {
        PrepareError::BadSize { .. }
        | PrepareError::BadQuality { .. }
        | PrepareError::BadShards { .. }
        | PrepareError::BadSplitName { .. }
        | PrepareError::SplitGiven { .. }
        | PrepareError::BadShares { .. } => Exit::Usage,
        PrepareError::Cancelled { .. } => Exit::Interrupted,
        PrepareError::Busy { .. }
        | PrepareError::Unfinished { .. }
        | PrepareError::Conflict { .. } => Exit::Retry,
        PrepareError::Store(error) if error.is_transient() => Exit::Retry,
        _ => Exit::Failed,
    };
    let hint = error.hint();
    Err(error).exit(exit).hint_if_any(hint)
}

fn behind_the_bar(progress: &Progress) -> String {
    let Progress { shards, total_shards, rejects, .. } = progress;
    match rejects {
        0 => format!("shard {shards}/{total_shards}"),
        _ => format!("shard {shards}/{total_shards}, {rejects} rejected"),
    }
}

fn report(args: &Args, summary: &Summary, terminal: &Terminal) -> anyhow::Result<()> {
    let mut table = Table::new(["split", "shards", "records", "MB"]);
    for split in &summary.splits {
        table.row([
            split.name.clone(),
            split.shards.to_string(),
            split.records.to_string(),
            format!("{:.1}", split.bytes as f64 / 1e6),
        ]);
    }
    terminal.data(table)?;
    if summary.converted == 0 {
        terminal.note(format!("`{}` was finished already", args.dst.display()));
    } else if args.engine.engine == Engine::Local {
        terminal.note(format!(
            "{} photos in {:.1} s on {}: {:.0} photos/s",
            summary.converted,
            summary.seconds,
            show_count(summary.threads, "thread"),
            summary.photos_per_second
        ));
    }
    match summary.ignored {
        0 => {}
        1 => terminal.note("1 file skipped: its name is not that of a photo"),
        ignored => {
            terminal.note(format!("{ignored} files skipped: their names are not those of photos"));
        }
    }
    if summary.rejects > 0 {
        let list = args.dst.join("rejects.jsonl");
        terminal.warn(format!(
            "{} of {} photos were rejected; reasons in `{}`",
            summary.rejects,
            summary.photos,
            list.display()
        ));
    }
    Ok(())
}

/// Names photos that were left out, where no file lists them: the first few with reasons, all of them in the JSON document.
pub(super) fn warn_of_rejects(rejects: &[Reject], photos: u64, terminal: &Terminal) {
    const SHOWN: usize = 10;
    if rejects.is_empty() {
        return;
    }
    let mut text = format!("{} of {photos} photos were rejected:", rejects.len());
    for reject in rejects.iter().take(SHOWN) {
        text.push_str(&format!("\n  {}", one_line(&format!("{}: {}", reject.path, reject.reason))));
    }
    if rejects.len() > SHOWN {
        text.push_str(&format!("\n  and {} more; --json lists all", rejects.len() - SHOWN));
    }
    terminal.warn(text);
}

fn parse_size(text: &str) -> Result<Size, String> {
    let side = |text: &str| match text.parse::<u32>() {
        Ok(side @ 1..=4096) => Ok(side),
        _ => Err("expected pixels from 1 to 4096, such as 192 or 320x240".to_owned()),
    };
    let (width, height) = text.split_once(['x', 'X']).unwrap_or((text, text));
    Ok(Size { width: side(width)?, height: side(height)? })
}

fn parse_split(text: &str) -> Result<SplitShare, String> {
    let bad = || "expected a name and a share, such as validation=0.1".to_owned();
    let (name, share) = text.split_once('=').ok_or_else(bad)?;
    let share = match share.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map_err(|_| bad())? / 100.0,
        None => share.parse().map_err(|_| bad())?,
    };
    if !(share > 0.0 && share < 1.0) {
        return Err("the share must lie between 0 and 1".into());
    }
    Ok(SplitShare { name: name.into(), share })
}
