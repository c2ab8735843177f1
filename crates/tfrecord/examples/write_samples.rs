//! Writes files with everything the format allows, for TensorFlow to read.
//!
//! `write_samples FOLDER` writes `plain.tfrecord`, `gzip.tfrecord` and
//! `zlib.tfrecord`, all with the same records, and `empty.tfrecord`.
//! `xtask/peers/check_tfrecord.py` knows what must be in them.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use paceline_tfrecord::{
    Compression, Example, Feature, FeatureList, FeatureLists, Features, SequenceExample, Writer,
};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: write_samples FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let records = records();
    for compression in Compression::ALL {
        let path = folder.join(format!("{compression}.tfrecord"));
        let mut writer = Writer::create(path, compression)?;
        for record in &records {
            writer.write(record)?;
        }
        writer.finish()?;
    }
    Writer::create(folder.join("empty.tfrecord"), Compression::Plain)?.finish()?;
    Ok(())
}

fn records() -> Vec<Vec<u8>> {
    let every_kind = Example::new()
        .with("bytes", Feature::bytes([&b""[..], b"\0\xff", b"text"]))
        .with("bytes/none", Feature::bytes::<Vec<u8>>([]))
        .with(
            "floats",
            Feature::floats([0.0, -0.0, 1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45]),
        )
        .with("floats/none", Feature::floats([]))
        .with("ints", Feature::ints([0, 1, -1, 300, i64::MIN, i64::MAX]))
        .with("ints/none", Feature::ints([]))
        .with("unset", Feature { kind: None })
        .with("größe/数/🌼", Feature::ints([42]))
        .with("", Feature::ints([7]));
    let large = Example::new().with(
        "large",
        // Several megabytes, with a pattern that is easy to name in the check.
        Feature::bytes([(0..5_000_000u32).map(|i| (i % 251) as u8).collect::<Vec<u8>>()]),
    );
    let many = Example::new()
        .with("ramp", Feature::floats((0..60_000u16).map(|i| f32::from(i) * 0.5)))
        .with("squares", Feature::ints((0..50_000i64).map(|i| i * i - 1000)));
    let steps = [&[1i64][..], &[2, 3], &[]].map(|step| Feature::ints(step.iter().copied()));
    let sequence = SequenceExample {
        context: Some(Features {
            feature: BTreeMap::from([("id".to_owned(), Feature::ints([7]))]),
        }),
        feature_lists: Some(FeatureLists {
            feature_list: BTreeMap::from([
                ("none".to_owned(), FeatureList { feature: vec![] }),
                ("tok".to_owned(), FeatureList { feature: steps.to_vec() }),
            ]),
        }),
    };
    let mut records = vec![
        every_kind.to_bytes(),
        vec![],
        large.to_bytes(),
        many.to_bytes(),
        sequence.to_bytes(),
        b"not an example".to_vec(),
    ];
    // Enough small ones that compressed blocks and buffers have seams among them.
    records.extend((0..1000i64).map(|i| Example::new().with("i", Feature::ints([i])).to_bytes()));
    records
}
