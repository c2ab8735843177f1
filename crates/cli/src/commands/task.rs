//! `paceline task`: a part of another command, handed out by an engine.
//!
//! Engines such as Spark start it on their executors with the work on standard input. It answers with one JSON
//! document, like every command with `--json`. The Python package gets batches and records from it.

mod batches;

use crate::terminal::Terminal;
use crate::terminal::failure::Exit;
use crate::terminal::recorder::record_task;
use anyhow::Context;
use paceline_data::store;
use paceline_prepare::photos::{self, Slice};
use paceline_prepare::speedtest::{self, PageCache};
use std::{io, path::PathBuf};

/// Arguments of `paceline task`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose work it is
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// Make the shards of a slice of `paceline prepare`, read from standard input
    Prepare {
        /// Threads that convert [default: all cores this process may use]
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
        threads: Option<u32>,
        /// Record this machine meanwhile into this folder
        #[arg(long, value_name = "DIR")]
        record: Option<PathBuf>,
    },
    /// Measure cells of `paceline speedtest`, read from standard input
    Speedtest {
        /// Record this machine meanwhile into this folder
        #[arg(long, value_name = "DIR")]
        record: Option<PathBuf>,
    },
    /// Run cells of `paceline sweep`, read from standard input
    Sweep,
    /// Write batches of a data set into memory that another process maps
    Batches(Box<batches::Args>),
    /// Tell another process where the records of a TFRecord file are
    Records {
        /// The file
        file: PathBuf,
        /// The file in memory that the table is written to, and the records of a compressed file
        #[arg(long, value_name = "FILE")]
        memory: PathBuf,
    },
}

/// Works.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    match &args.kind {
        Kind::Prepare { threads, record } => {
            let _recorder = record_task(record.as_deref(), terminal);
            let slice = Slice::read(&mut io::stdin().lock()).or_else(super::prepare::with_hint)?;
            let (src, dst) = (store::open(slice.src())?, store::open(slice.dst())?);
            let threads = threads.map(|threads| threads as usize);
            let worked = photos::work(&*src, &*dst, &slice, threads, &cancel);
            terminal.json(&worked.or_else(super::prepare::with_hint)?)?;
        }
        Kind::Speedtest { record } => {
            let _recorder = record_task(record.as_deref(), terminal);
            let cache = PageCache::default();
            let done = speedtest::measure_cells(&mut io::stdin().lock(), &cache, &cancel);
            terminal.json(&done.or_else(super::speedtest::with_hint)?)?;
        }
        Kind::Sweep => {
            let program = std::env::current_exe().context("cannot find the program itself")?;
            let done = paceline_sweep::run_cells(&mut io::stdin().lock(), &program, &cancel);
            terminal.json(&done.map_err(super::sweep::explain)?)?;
        }
        Kind::Batches(args) => batches::serve(args)?,
        Kind::Records { file, memory } => terminal.json(&batches::tabulate(file, memory)?)?,
    }
    Ok(Exit::Done)
}
