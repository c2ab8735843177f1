//! How fast are records read, and how fast could the files be read at all?
//!
//! `read_speed FOLDER [--threads 2] [--repeats 5] [--make GB]`
//!
//! Reads all `*.tfrecord` files of a folder with every checksum verified,
//! taking turns with a plain read of the same files (the limit), and prints
//! one JSON line for each: median and all samples in GB/s (1e9 bytes). The
//! files should be in the page cache: the first round of each is not counted.
//! `--make` writes the files first: 11 KB records, the size of a 224-pixel photo.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use paceline_tfrecord::{Compression, Writer, for_each_record};

const SHARDS: usize = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut folder, mut threads, mut repeats) = (None, 2usize, 5usize);
    let mut gigabytes = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--threads" => threads = value()?.parse()?,
            "--repeats" => repeats = value()?.parse()?,
            "--make" => gigabytes = Some(value()?.parse::<f64>()?),
            _ => folder = Some(PathBuf::from(argument)),
        }
    }
    let folder =
        folder.ok_or("usage: read_speed FOLDER [--threads N] [--repeats N] [--make GB]")?;
    if let Some(gigabytes) = gigabytes {
        make(&folder, (gigabytes * 1e9) as u64)?;
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "tfrecord"));
    files.sort();
    let mut bytes = 0;
    for file in &files {
        bytes += file.metadata()?.len();
    }

    let mut samples = [vec![], vec![], vec![]];
    let mut records = 0;
    for round in 0..=repeats {
        // A full megabyte is what the peer's plain read uses; a block that stays in the cache is quicker.
        let plain = [1 << 20, 256 << 10].map(|block| {
            let start = Instant::now();
            assert_eq!(read_plain(&files, threads, block), bytes, "a file could not be read");
            start.elapsed().as_secs_f64()
        });
        let start = Instant::now();
        let totals = for_each_record(&files, threads, |_, _, payload| {
            std::hint::black_box(payload);
        })?;
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(totals.record_bytes, bytes);
        records = totals.records;
        if round > 0 {
            for (samples, seconds) in samples.iter_mut().zip([plain[0], plain[1], seconds]) {
                samples.push(bytes as f64 / 1e9 / seconds);
            }
        }
    }
    let names = ["plain read, 1 MiB blocks", "plain read, 256 KiB blocks", "records, verified"];
    for (name, samples) in names.iter().zip(&mut samples) {
        samples.sort_by(f64::total_cmp);
        let median = samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN);
        let list: Vec<String> = samples.iter().map(|sample| format!("{sample:.2}")).collect();
        println!(
            r#"{{"what":"{name}","threads":{threads},"files":{},"records":{records},"bytes":{bytes},"gb_per_s":{median:.2},"samples":[{}]}}"#,
            files.len(),
            list.join(",")
        );
    }
    Ok(())
}

/// Reads whole files into one block per thread, as fast as the system hands them out.
fn read_plain(files: &[PathBuf], threads: usize, block: usize) -> u64 {
    let (next, total) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = vec![0u8; block];
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Ok(mut file) = File::open(path) else { return };
                    while let Ok(bytes @ 1..) = file.read(&mut buffer) {
                        total.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    total.into_inner()
}

/// Writes shards of records whose lengths vary around 11 KB and whose bytes do not compress.
fn make(folder: &Path, bytes: u64) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut payload = Vec::new();
    for shard in 0..SHARDS {
        let path = folder.join(format!("part-{shard:05}-of-{SHARDS:05}.tfrecord"));
        let mut writer = Writer::create(path, Compression::Plain)?;
        while writer.bytes() < bytes / SHARDS as u64 {
            let length = 6000 + random() as usize % 10_000;
            payload.clear();
            while payload.len() < length {
                payload.extend_from_slice(&random().to_le_bytes());
            }
            writer.write(&payload)?;
        }
        writer.finish()?;
    }
    Ok(())
}
