//! Where does the time go between a photo's bytes and a training example?
//!
//! `photo_speed FOLDER [threads] [rounds] [side]`: photos per second of each stage alone and of the
//! whole preparation, files already in memory, medians of the rounds; stages take turns within a
//! round, so that the machine's drift touches all alike.
#![allow(clippy::print_stdout, reason = "an example's table is its output")]

use paceline_photo::{DecodeOptions, Decoder, Encoder, Encoding, Fit, Pixels, Resizer};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What one thread owns.
#[derive(Default)]
struct Worker {
    decoder: Decoder,
    resizer: Resizer,
    encoder: Encoder,
    pixels: Pixels,
    jpeg: Vec<u8>,
}

/// A photo at each step of its way.
struct Photo {
    path: PathBuf,
    bytes: Vec<u8>,
    full: Pixels,
    fitted: Pixels,
}

type Stage = (&'static str, fn(&mut Worker, &Photo, u32));

const STAGES: &[Stage] = &[
    ("decode, full size", |worker, photo, _| {
        let options = DecodeOptions::default();
        worker
            .decoder
            .decode_into(&photo.bytes, &options, &mut worker.pixels)
            .expect("decoded before");
    }),
    ("resize of the full size", |worker, photo, side| {
        let target = &mut worker.pixels;
        worker
            .resizer
            .resize_into(&photo.full, side, side, Fit::Crop, target)
            .expect("resized before");
    }),
    ("decode and fit in one", |worker, photo, side| {
        let options = DecodeOptions::default();
        let target = &mut worker.pixels;
        worker
            .decoder
            .decode_fitted(&photo.bytes, &options, (side, side), Fit::Crop, target)
            .expect("decoded before");
    }),
    ("encode the result", |worker, photo, _| {
        let encoding = Encoding::Jpeg { quality: 90 };
        worker
            .encoder
            .encode_into(&photo.fitted, encoding, &mut worker.jpeg)
            .expect("encoded before");
    }),
    ("whole preparation", |worker, photo, side| prepare(worker, &photo.bytes, side)),
    ("the same, reading files", |worker, photo, side| {
        let bytes = std::fs::read(&photo.path).expect("read before");
        prepare(worker, &bytes, side);
    }),
];

fn prepare(worker: &mut Worker, bytes: &[u8], side: u32) {
    let options = DecodeOptions::default();
    let target = &mut worker.pixels;
    worker
        .decoder
        .decode_fitted(bytes, &options, (side, side), Fit::Crop, target)
        .expect("decoded before");
    let encoding = Encoding::Jpeg { quality: 90 };
    worker.encoder.encode_into(target, encoding, &mut worker.jpeg).expect("encoded before");
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(
        arguments.next().ok_or("usage: photo_speed FOLDER [threads] [rounds] [side]")?,
    );
    let mut number =
        |default: u32| arguments.next().map_or(Ok(default), |text| text.parse::<u32>());
    let (threads, rounds, side) = (number(2)? as usize, number(7)? as usize, number(192)?);

    let mut paths = Vec::new();
    collect(&folder, &mut paths)?;
    paths.sort();
    let mut photos = Vec::new();
    let mut worker = Worker::default();
    for path in paths {
        let bytes = std::fs::read(&path)?;
        let (mut full, mut fitted) = (Pixels::new(), Pixels::new());
        if worker.decoder.decode_into(&bytes, &DecodeOptions::default(), &mut full).is_err() {
            continue;
        }
        worker.resizer.resize_into(&full, side, side, Fit::Crop, &mut fitted)?;
        photos.push(Photo { path, bytes, full, fitted });
    }
    // Each round of a stage lasts long enough (tens of milliseconds at least) to be timed.
    let times = 2000usize.div_ceil(photos.len().max(1));
    let mut rates = vec![Vec::new(); STAGES.len()];
    for round in 0..=rounds {
        for (stage, rates) in STAGES.iter().zip(&mut rates) {
            let seconds = run(stage, &photos, threads, times, side);
            // The first round warms caches and buffers.
            if round > 0 {
                rates.push((photos.len() * times) as f64 / seconds);
            }
        }
    }
    println!("{} photos x {times}, {threads} threads, {rounds} rounds, side {side}", photos.len());
    for ((name, _), rates) in STAGES.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let (slowest, fastest) = (rates[0], rates[rates.len() - 1]);
        let each = threads as f64 * 1e6 / median;
        println!(
            "{name:26} {median:8.0} photos/s ({slowest:.0}..{fastest:.0})  {each:7.1} us per photo and thread"
        );
    }
    Ok(())
}

/// Seconds that `threads` need for `times` passes over the photos.
fn run(stage: &Stage, photos: &[Photo], threads: usize, times: usize, side: u32) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || {
                let mut worker = Worker::default();
                for _ in 0..times {
                    for photo in photos.iter().skip(first).step_by(threads) {
                        stage.1(&mut worker, photo, side);
                    }
                }
            });
        }
    });
    start.elapsed().as_secs_f64()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}
