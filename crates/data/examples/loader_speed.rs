//! How fast does the loader deliver batches?
//!
//! `loader_speed DATA [batch size] [seconds] [threads]`: reads, decodes and batches until the time is
//! over, and prints examples and batches a second. Files should be in the page cache: run it twice.

#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    time::{Duration, Instant},
};

use paceline_data::{Loader, LoaderOptions, OpenOptions, open};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path =
        arguments.first().ok_or("usage: loader_speed DATA [batch size] [seconds] [threads]")?;
    let number = |at: usize, usual: u64| -> Result<u64, Box<dyn Error>> {
        Ok(arguments.get(at).map(|text| text.parse()).transpose()?.unwrap_or(usual))
    };
    let mut options = LoaderOptions { batch_size: number(1, 64)?, ..LoaderOptions::default() };
    let time = Duration::from_secs(number(2, 5)?);
    options.threads = usize::try_from(number(3, options.threads as u64)?)?;
    let opening = Instant::now();
    let source = open(path, &OpenOptions::default())?;
    println!("{} examples opened in {:?}", source.len(), opening.elapsed());
    for remark in source.remarks() {
        println!("{remark}");
    }
    let mut loader = Loader::new(source, options)?;
    // Warm caches and buffers before the clock starts.
    for _ in 0..4 {
        loader.next_batch()?;
    }
    let started = Instant::now();
    let (mut batches, mut examples) = (0_u64, 0_u64);
    while started.elapsed() < time {
        for _ in 0..8 {
            if let Some(batch) = loader.next_batch()? {
                examples += batch.len() as u64;
                batches += 1;
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{:.0} examples/s, {:.0} batches/s, {:.2} us a batch",
        examples as f64 / seconds,
        batches as f64 / seconds,
        seconds / batches as f64 * 1e6
    );
    Ok(())
}
