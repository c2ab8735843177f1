//! Decoded flowers equal those of Pillow 13 (libjpeg-turbo), bit for bit.
//!
//! The numbers are FNV-1a hashes (64 bits) of `Image.open(path).convert("RGB").tobytes()`, of the first
//! five photos of each folder in order of their paths.

#![allow(clippy::unwrap_used, reason = "a test")]

use paceline_photo::{DecodeOptions, Decoder, Pixels, Simd};
use std::path::{Path, PathBuf};

const REFERENCE: [(&str, [u64; 5]); 2] = [
    (
        "flowers-originals",
        [
            0x472b_01ef_5f36_6d0f,
            0x1ef6_b854_357c_7ee5,
            0x1d8c_7bd1_e60e_a773,
            0xd889_6fbf_e37c_2935,
            0x9019_0479_2a70_6b94,
        ],
    ),
    (
        "flowers-sample",
        [
            0xc39b_2d2f_a28a_973b,
            0xba8a_a9cb_e520_02d6,
            0x39c4_973f_8453_2a8d,
            0xc5f2_bb1c_9e87_0682,
            0x77fb_8b4e_b9a7_caa2,
        ],
    ),
];

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn flowers_decode_as_by_libjpeg() {
    let root = std::env::var_os("PACELINE_DATA").map_or_else(
        || Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")).to_path_buf(),
        PathBuf::from,
    );
    for (folder, hashes) in REFERENCE {
        let folder = root.join(folder).join("daisy");
        if !folder.is_dir() {
            println!("skipped: no data");
            return;
        }
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for (path, wanted) in paths.iter().zip(hashes) {
            let bytes = std::fs::read(path).unwrap();
            for simd in [Simd::Portable, Simd::best()] {
                let mut out = Pixels::new();
                let mut decoder = Decoder::with_simd(simd);
                decoder.decode_into(&bytes, &DecodeOptions::default(), &mut out).unwrap();
                assert_eq!(hash(out.data()), wanted, "{} by {simd:?}", path.display());
            }
        }
    }
}
