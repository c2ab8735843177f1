//! `paceline task batches` and `paceline task records`: data for a process of another language, which maps the memory that it
//! names here. The Python package is one.

use super::super::data::parse_size;
use crate::terminal::data_stream;
use anyhow::Context;
use paceline_data::feed::{BatchFeed, RecordTable, tabulate_records};
use paceline_data::order::{LastBatch, Position, Shuffle};
use paceline_data::{Loader, LoaderOptions, OpenOptions, Split, open, open_split};
use std::fs::{File, OpenOptions as FileOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Arguments of `paceline task batches`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data set
    #[arg(long)]
    data: PathBuf,
    /// The file in memory that batches are written to
    #[arg(long, value_name = "FILE")]
    memory: PathBuf,
    /// Examples of a batch over all workers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: u64,
    /// Decides the order, together with the epoch
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// train, validation or test
    #[arg(long)]
    split: Option<Split>,
    /// In the order of the files
    #[arg(long)]
    in_order: bool,
    /// Leave out the examples at the end of an epoch that do not fill a batch
    #[arg(long)]
    drop_last: bool,
    /// Size photos are resized to, such as 192 or 224x160
    #[arg(long, value_name = "N|WxH")]
    size: Option<String>,
    /// Which worker this is, from 0
    #[arg(long, default_value_t = 0)]
    worker: u64,
    /// How many workers share each batch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    workers: u64,
    /// Threads that decode [default: all cores this process may use]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Where to begin: epochs completed
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Where to begin: examples of this epoch that were taken already
    #[arg(long, default_value_t = 0)]
    example: u64,
}

/// Serves batches until the other process has enough.
pub(super) fn serve(args: &Args) -> anyhow::Result<()> {
    let size = args.size.as_deref().map(parse_size).transpose()?;
    let opening = OpenOptions { size, ..OpenOptions::default() };
    let source = match args.split {
        Some(split) => open_split(&args.data, split, &opening)?,
        None => open(&args.data, &opening)?,
    };
    let usual = LoaderOptions::default();
    let options = LoaderOptions {
        batch_size: args.batch_size,
        seed: args.seed,
        shuffle: if args.in_order { Shuffle::None } else { Shuffle::Full },
        last: if args.drop_last { LastBatch::Drop } else { LastBatch::Keep },
        worker: args.worker,
        workers: args.workers,
        start: Position { epoch: args.epoch, example: args.example },
        threads: args.threads.map_or(usual.threads, |threads| threads as usize),
        ..usual
    };
    let loader = Loader::new(source, options)?;
    let memory = open_memory(&args.memory)?;
    let share = args.batch_size.div_ceil(args.workers);
    let mut feed = BatchFeed::new(loader, share, &memory, &args.memory);
    feed.serve(io::stdin().lock(), &mut data_stream())?;
    Ok(())
}

/// Tells where the records of a file are.
pub(super) fn tabulate(records: &Path, memory: &Path) -> anyhow::Result<RecordTable> {
    Ok(tabulate_records(records, &open_memory(memory)?, memory)?)
}

fn open_memory(path: &Path) -> anyhow::Result<File> {
    FileOptions::new()
        .write(true)
        .open(path)
        .with_context(|| format!("cannot write to `{}`", path.display()))
}
