//! No bytes, however wrong, may panic, hang or make the decoder allocate what they do not justify.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]
#![allow(unsafe_code, reason = "a counting allocator can only be written so")]

use paceline_photo::{
    Colour, DecodeOptions, Decoder, Defect, Encoder, Encoding, Fit, Limits, PhotoError, Pixels,
    probe,
};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

thread_local! {
    /// Bytes this thread holds, and the most it held since the last reset.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

impl Counting {
    fn count(bytes: isize) {
        // Absent only while the thread ends.
        let _ = HELD.try_with(|held| {
            let now = held.get().0 + bytes;
            held.set((now, held.get().1.max(now)));
        });
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size() as isize);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count(-(layout.size() as isize));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that `work` held at once, beyond what was held before.
fn peak(work: impl FnOnce()) -> usize {
    let before = HELD.with(|held| {
        let now = held.get().0;
        held.set((now, now));
        now
    });
    work();
    HELD.with(|held| (held.get().1 - before).max(0) as usize)
}

fn data(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("PACELINE_DATA").map_or_else(
        || Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")).to_path_buf(),
        PathBuf::from,
    );
    let folder = root.join(folder);
    if !folder.is_dir() {
        println!("skipped: no data");
        return None;
    }
    Some(folder)
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// A photo with detail, as each kind of file.
fn samples() -> Vec<Vec<u8>> {
    let mut state = 3u32;
    let bytes: Vec<u8> = (0..61 * 37 * 3)
        .map(|index| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (index / 9) as u8 ^ (state >> 27) as u8
        })
        .collect();
    let rgb = Pixels::from_data(61, 37, Colour::Rgb, bytes).unwrap();
    let mut samples = Vec::new();
    for encoding in [Encoding::Jpeg { quality: 80 }, Encoding::Png] {
        let mut out = Vec::new();
        Encoder::new().encode_into(&rgb, encoding, &mut out).unwrap();
        samples.push(out);
    }
    for progressive in [false, true] {
        let mut out = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut out, 80);
        encoder.set_progressive(progressive);
        encoder.set_restart_interval(3);
        encoder.encode(rgb.data(), 61, 37, jpeg_encoder::ColorType::Rgb).unwrap();
        samples.push(out);
    }
    samples
}

/// Every way in, on bytes that may be anything.
fn try_all(decoder: &mut Decoder, bytes: &[u8]) -> Result<(), PhotoError> {
    let options = DecodeOptions::default();
    let mut out = Pixels::new();
    let _ = probe(bytes);
    let _ = decoder.decode_fitted(bytes, &options, (24, 32), Fit::Crop, &mut out);
    let small = DecodeOptions { at_least: Some((16, 16)), colour: Colour::Grey, ..options.clone() };
    let _ = decoder.decode_into(bytes, &small, &mut out);
    decoder.decode_into(bytes, &options, &mut out)
}

#[test]
fn every_hostile_file_is_decoded_or_refused_quickly_and_in_little_memory() {
    let Some(folder) = data("jpeg-hostile") else { return };
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    assert!(paths.len() >= 100, "only {} files", paths.len());
    let mut decoded = 0;
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        let start = Instant::now();
        let mut result = Ok(());
        let held = peak(|| result = try_all(&mut Decoder::new(), &bytes));
        decoded += usize::from(result.is_ok());
        let pixels =
            probe(&bytes).map_or(0, |header| header.width as usize * header.height as usize);
        // What the file justifies: its pixels if they can be in it, some copies, tables.
        let allowed = pixels.min(bytes.len() * 512) * 16 + bytes.len() * 4 + (1 << 20);
        assert!(held <= allowed, "{}: {held} bytes, {allowed} allowed", path.display());
        assert!(start.elapsed() < Duration::from_secs(900), "{} hangs", path.display());
        println!("{}: {result:?}, {held} bytes", path.file_name().unwrap().display());
    }
    // Most of these files are damaged beyond use (libjpeg, which paints over damage, shows 16); those
    // that are only odd must come through.
    assert!(decoded >= 8, "only {decoded} of {} decoded", paths.len());
}

#[test]
fn a_header_of_65535_squared_is_refused_before_allocation() {
    let mut bytes = samples()[0].clone();
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bytes[frame + 5..frame + 9].fill(0xff);
    let held = peak(|| {
        let refused = try_all(&mut Decoder::new(), &bytes);
        assert!(matches!(refused, Err(PhotoError::TooLarge { width: 65535, .. })), "{refused:?}");
    });
    assert!(held < 100_000, "{held} bytes");
    // Within the limits, but impossible in so few bytes.
    bytes[frame + 5..frame + 9].copy_from_slice(&[0x10, 0, 0x10, 0]);
    let held = peak(|| {
        let refused = try_all(&mut Decoder::new(), &bytes);
        assert!(matches!(refused, Err(PhotoError::Truncated { .. })), "{refused:?}");
    });
    assert!(held < 100_000, "{held} bytes");
}

#[test]
fn a_short_png_cannot_claim_a_large_picture() {
    let mut bytes =
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x1f\x40\0\0\x1f\x40\x08\x02\0\0\0".to_vec();
    bytes.extend([0x4f, 0xc2, 0x5d, 0x05]);
    bytes.extend([0; 64]);
    let held = peak(|| assert!(try_all(&mut Decoder::new(), &bytes).is_err()));
    assert!(held < 1_200_000, "{held} bytes");
}

#[test]
fn nothing_and_other_things_are_named() {
    let mut decoder = Decoder::new();
    assert_eq!(try_all(&mut decoder, b""), Err(PhotoError::Empty));
    assert!(matches!(try_all(&mut decoder, b"GIF89a"), Err(PhotoError::UnknownFormat { .. })));
    let end = try_all(&mut decoder, &[0xff, 0xd8, 0xff, 0xd9]);
    assert!(matches!(end, Err(PhotoError::Jpeg { defect: Defect::MissingFrame, .. })), "{end:?}");
}

#[test]
fn limits_are_obeyed() {
    let options = DecodeOptions {
        limits: Limits { max_pixels: 61 * 37 - 1, max_side: 100 },
        ..DecodeOptions::default()
    };
    for sample in samples() {
        let refused = Decoder::new().decode_into(&sample, &options, &mut Pixels::new());
        assert!(matches!(refused, Err(PhotoError::TooLarge { .. })));
    }
}

/// A progressive photo without subsampling holds three samples for every pixel, and the limit speaks of pixels.
#[test]
fn a_progressive_photo_within_the_limit_of_pixels_was_refused_by_its_samples() {
    let (width, height) = (640u16, 480u16);
    let data: Vec<u8> =
        (0..usize::from(width) * usize::from(height) * 3).map(|at| (at / 7) as u8).collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
    encoder.set_progressive(true);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_1_1);
    encoder.encode(&data, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    let decode = |max_pixels| {
        let limits = Limits { max_pixels, max_side: 1000 };
        let options = DecodeOptions { limits, ..DecodeOptions::default() };
        Decoder::new().decode_into(&bytes, &options, &mut Pixels::new())
    };
    assert_eq!(decode(640 * 480), Ok(()));
    assert!(matches!(decode(640 * 480 - 1), Err(PhotoError::TooLarge { .. })));
}

/// The sample with `times` copies of its last scan.
fn with_scans(sample: &[u8], times: usize) -> Vec<u8> {
    let last = sample.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
    let end = sample.windows(2).rposition(|pair| pair == [0xff, 0xd9]).unwrap();
    let mut bytes = sample[..end].to_vec();
    for _ in 1..times {
        bytes.extend_from_slice(&sample[last..end]);
    }
    bytes.extend([0xff, 0xd9]);
    bytes
}

/// Ninety scans over a large photo took 17 seconds; over a small one they take nothing.
#[test]
fn ninety_scans_of_a_large_photo_took_as_long_as_they_liked() {
    let photo = |side: u16| {
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
        encoder.set_progressive(true);
        encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_1_1);
        let data = vec![90; usize::from(side) * usize::from(side) * 3];
        encoder.encode(&data, side, side, jpeg_encoder::ColorType::Rgb).unwrap();
        bytes
    };
    let limits = Limits { max_pixels: 1024 * 1024, max_side: 2000 };
    let options = DecodeOptions { limits, ..DecodeOptions::default() };
    let decode = |bytes: &[u8]| Decoder::new().decode_into(bytes, &options, &mut Pixels::new());
    let (small, large) = (photo(64), photo(1024));
    assert_eq!(decode(&large), Ok(()), "as an encoder writes it");
    assert_eq!(decode(&with_scans(&small, 60)), Ok(()));
    let refused = decode(&with_scans(&large, 60));
    assert_eq!(refused, Err(PhotoError::TooManyScans { max_blocks: limits.max_blocks() }));
}

#[test]
fn every_truncation_that_loses_pixels_is_refused() {
    let mut decoder = Decoder::new();
    for (index, sample) in samples().iter().enumerate() {
        assert_eq!(try_all(&mut decoder, sample), Ok(()), "sample {index}");
        // The end marker of a JPEG, and the last chunk of a PNG, hold no pixels.
        for length in 0..sample.len() - 16 {
            assert!(try_all(&mut decoder, &sample[..length]).is_err(), "sample {index}, {length}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_tolerated() {
    let mut decoder = Decoder::new();
    for mut sample in samples() {
        sample.extend(b"trailing bytes");
        assert_eq!(try_all(&mut decoder, &sample), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), start in 0..3) {
        let mut all = match start {
            0 => vec![0xff, 0xd8, 0xff],
            1 => b"\x89PNG\r\n\x1a\n".to_vec(),
            _ => Vec::new(),
        };
        all.extend(bytes);
        let _ = try_all(&mut Decoder::new(), &all);
    }

    #[test]
    fn arbitrary_changes_never_panic(
        sample in 0..4usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = samples().swap_remove(sample);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(bytes.len() - length.index(bytes.len()) / 4);
        let _ = try_all(&mut Decoder::new(), &bytes);
    }
}
