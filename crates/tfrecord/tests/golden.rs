//! Files written by TensorFlow 2.21, and what TensorFlow itself finds in them.
//!
//! The expected numbers were printed by TensorFlow from the same files;
//! a record's checksum below is the CRC32C of its payload.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::PathBuf;

use paceline_tfrecord::{
    Compression, Error, Example, ExampleView, Feature, FeatureKind, Index, IndexedFile, Reader,
    SequenceExample, crc,
};

/// The file, or `None` where the shared data is absent.
fn file(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PACELINE_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join("tfrecord").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no data at {}", path.display());
    None
}

fn records(name: &str) -> Option<Vec<Vec<u8>>> {
    Some(Reader::open(file(name)?).unwrap().collect_records().unwrap())
}

/// CRC32C over all payloads joined, so that one number stands for the whole file.
fn joined_crc(records: &[Vec<u8>]) -> u32 {
    crc::crc32c(&records.concat())
}

#[test]
fn mnist_reads_alike_from_plain_gzip_and_zlib() {
    for (name, compression) in [
        ("mnist_first1000.tfrecord", Compression::Plain),
        ("mnist_first1000.gz.tfrecord", Compression::Gzip),
        ("mnist_first1000.zlib.tfrecord", Compression::Zlib),
    ] {
        let Some(path) = file(name) else { return };
        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.compression(), compression, "{name}");
        let records = reader.collect_records().unwrap();
        assert_eq!(records.len(), 1000, "{name}");
        assert!(records.iter().all(|record| record.len() == 875), "{name}");
        assert_eq!(joined_crc(&records), MNIST_CRC, "{name}");
        let labels: Vec<i64> = records[..20]
            .iter()
            .map(|record| ExampleView::new(record).feature("label").unwrap().unwrap())
            .map(|label| label.first_int().unwrap())
            .collect();
        assert_eq!(labels, [5, 0, 4, 1, 9, 2, 1, 3, 1, 4, 3, 5, 3, 6, 1, 7, 2, 8, 6, 9]);
        let [image, width, height, depth] = ExampleView::new(&records[0])
            .find(["image_raw", "width", "height", "depth"])
            .unwrap()
            .map(Option::unwrap);
        assert_eq!(image.first_bytes().unwrap().len(), 784);
        assert_eq!(width.ints().collect::<Vec<_>>(), [28]);
        assert_eq!(height.first_int(), Some(28));
        assert_eq!(depth.first_int(), Some(1));
    }
}

#[test]
fn flower_photos_have_their_standard_fields() {
    let Some(records) = records("flowers_jpeg_100.tfrecord") else { return };
    assert_eq!(records.len(), 100);
    assert_eq!(joined_crc(&records), FLOWERS_CRC);
    let example = Example::from_bytes(&records[1]).unwrap();
    let names: Vec<&str> =
        example.features.as_ref().unwrap().feature.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "image/class/label",
            "image/class/text",
            "image/encoded",
            "image/filename",
            "image/format",
            "image/height",
            "image/width"
        ]
    );
    assert_eq!(example.get("image/class/label").unwrap().as_ints(), [1]);
    assert_eq!(example.get("image/class/text").unwrap().as_bytes(), [b"dandelion"]);
    assert_eq!(
        example.get("image/filename").unwrap().as_bytes(),
        [b"10477378514_9ffbcec4cf_m.jpg"]
    );
    assert_eq!(example.get("image/height").unwrap().as_ints(), [224]);
    for record in &records {
        let [jpeg, label] = ExampleView::new(record)
            .find(["image/encoded", "image/class/label"])
            .unwrap()
            .map(Option::unwrap);
        let jpeg = jpeg.first_bytes().unwrap();
        assert!(jpeg.starts_with(&[0xff, 0xd8, 0xff]) && jpeg.ends_with(&[0xff, 0xd9]));
        assert!((0..5).contains(&label.first_int().unwrap()));
    }
}

#[test]
fn edge_cases_keep_every_odd_value() {
    let Some(records) = records("edge_cases.tfrecord") else { return };
    let lengths: Vec<usize> = records.iter().map(Vec::len).collect();
    assert_eq!(lengths, [0, 2, 388, 100, 70_000]);
    assert_eq!(joined_crc(&records), EDGE_CRC);

    // An empty payload and an example with an empty map are different bytes and the same example.
    assert_eq!(Example::from_bytes(&records[0]).unwrap(), Example { features: None });
    assert_eq!(Example::from_bytes(&records[1]).unwrap(), Example::new());

    let example = Example::from_bytes(&records[2]).unwrap();
    let bytes = example.get("b").unwrap().as_bytes();
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(bytes, [vec![], vec![0; 10], all]);
    assert_eq!(example.get("empty_i").unwrap(), &Feature::ints([]));
    assert_eq!(example.get("neg").unwrap().as_ints(), [-1, i64::MIN, i64::MAX, 0]);
    // TensorFlow's maps have no order; but for that, we write the same bytes.
    assert_eq!(example.to_bytes().len(), records[2].len());
    assert_eq!(example.get("unset").unwrap(), &Feature { kind: None });
    let floats: Vec<u32> =
        example.get("f").unwrap().as_floats().iter().map(|value| value.to_bits()).collect();
    let tiny = 1; // the smallest positive float
    let inf = f32::INFINITY.to_bits();
    assert_eq!(floats, [0x7fc0_0000, inf, 0x8000_0000, tiny, 3.4e38f32.to_bits()]);

    let view = ExampleView::new(&records[2]);
    let [b, empty, f, neg, unset, none] =
        view.find(["b", "empty_i", "f", "neg", "unset", "none"]).unwrap();
    assert_eq!(b.unwrap().bytes().map(<[u8]>::len).collect::<Vec<_>>(), [0, 10, 256]);
    assert_eq!((empty.unwrap().kind(), empty.unwrap().len()), (FeatureKind::Int64, 0));
    assert_eq!(f.unwrap().floats().map(f32::to_bits).collect::<Vec<_>>(), floats);
    assert_eq!(f.unwrap().float_block().unwrap().len(), 20);
    assert_eq!(neg.unwrap().ints().collect::<Vec<_>>(), [-1, i64::MIN, i64::MAX, 0]);
    assert_eq!(unset.unwrap().kind(), FeatureKind::Unset);
    assert!(none.is_none());

    // Not an example at all: TensorFlow calls it a corrupt wire format.
    assert!(matches!(Example::from_bytes(&records[3]), Err(Error::Decode(_))));
    assert!(ExampleView::new(&records[3]).feature("b").is_err());
}

#[test]
fn sequence_example_keeps_its_steps() {
    let Some(records) = records("sequence_example.tfrecord") else { return };
    assert_eq!(records.len(), 1);
    let example = SequenceExample::from_bytes(&records[0]).unwrap();
    assert_eq!(example.context.as_ref().unwrap().feature["id"].as_ints(), [7]);
    let steps = &example.feature_lists.as_ref().unwrap().feature_list["tok"].feature;
    let values: Vec<&[i64]> = steps.iter().map(Feature::as_ints).collect();
    assert_eq!(values, [&[1][..], &[2, 3], &[]]);
    // One name per map, so order does not matter: the bytes must be TensorFlow's own.
    assert_eq!(example.to_bytes(), records[0]);
}

#[test]
fn an_empty_file_has_no_records() {
    let Some(path) = file("empty.tfrecord") else { return };
    assert!(Reader::open(&path).unwrap().next_record().unwrap().is_none());
    assert!(Index::build(&path).unwrap().is_empty());
}

/// Records whose payloads are serialised tensors, not examples.
#[test]
fn payloads_of_another_kind_are_passed_through() {
    let Some(records) = records("mnist_keras_tensor.tfrecord") else { return };
    assert_eq!(records.len(), 10);
    assert!(records.iter().all(|record| record.len() == 799));
    assert_eq!(joined_crc(&records), KERAS_CRC);
}

#[test]
fn random_access_finds_the_same_records() {
    for name in ["mnist_first1000.tfrecord", "flowers_jpeg_100.tfrecord", "edge_cases.tfrecord"] {
        let Some(path) = file(name) else { return };
        let records = records(name).unwrap();
        let indexed = IndexedFile::with_index(&path, Index::build(&path).unwrap()).unwrap();
        assert_eq!(indexed.len(), records.len() as u64);
        let mut buffer = Vec::new();
        for i in (0..records.len()).rev() {
            assert_eq!(indexed.read(i as u64, &mut buffer).unwrap(), records[i]);
        }
        let beyond = indexed.read(indexed.len(), &mut buffer);
        assert!(matches!(beyond, Err(Error::NoSuchRecord { .. })));
    }
    let Some(path) = file("mnist_first1000.gz.tfrecord") else { return };
    let refused = Index::build(&path);
    assert!(matches!(refused, Err(Error::NoRandomAccess { compression: Compression::Gzip, .. })));
}

const MNIST_CRC: u32 = 0xfe95_c93e;
const FLOWERS_CRC: u32 = 0xb890_fd64;
const EDGE_CRC: u32 = 0xbd5d_bb43;
const KERAS_CRC: u32 = 0x6fc2_40ca;
