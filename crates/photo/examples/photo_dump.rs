//! Writes what this crate makes of photos, so that another program can compare.
//!
//! `photo_dump SOURCE TARGET [side]`: for every photo below SOURCE, numbered in order of its path,
//! TARGET receives `N.full` and `N.fit` (raw RGB at full size, and cropped to `side`), and `N.jpg`.
#![allow(clippy::print_stdout, reason = "an example's list is its output")]

use paceline_photo::{DecodeOptions, Decoder, Encoder, Encoding, Fit, Pixels};
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: photo_dump SOURCE TARGET [side]";
    let source = PathBuf::from(arguments.next().ok_or(usage)?);
    let target = PathBuf::from(arguments.next().ok_or(usage)?);
    let side = arguments.next().map_or(Ok(192), |text| text.parse::<u32>())?;
    std::fs::create_dir_all(&target)?;
    let mut paths = Vec::new();
    collect(&source, &mut paths)?;
    paths.sort();
    let (mut decoder, mut encoder) = (Decoder::new(), Encoder::new());
    let (mut pixels, mut jpeg) = (Pixels::new(), Vec::new());
    let options = DecodeOptions::default();
    for (number, path) in paths.iter().enumerate() {
        let bytes = std::fs::read(path)?;
        if let Err(error) = decoder.decode_into(&bytes, &options, &mut pixels) {
            println!("{number}\t{}\t{error}", path.display());
            continue;
        }
        println!("{number}\t{}\t{} x {}", path.display(), pixels.width(), pixels.height());
        std::fs::write(target.join(format!("{number}.full")), pixels.data())?;
        decoder.decode_fitted(&bytes, &options, (side, side), Fit::Crop, &mut pixels)?;
        std::fs::write(target.join(format!("{number}.fit")), pixels.data())?;
        encoder.encode_into(&pixels, Encoding::Jpeg { quality: 90 }, &mut jpeg)?;
        std::fs::write(target.join(format!("{number}.jpg")), &jpeg)?;
    }
    Ok(())
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
