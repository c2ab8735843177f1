//! What `info` and `verify` say about whole and damaged sets.

use std::fs;

use paceline_tfrecord::{Compression, Example, Feature, Writer};

use super::*;
use crate::{
    manifest::{Manifest, RecordSettings, Shard, SourceSummary, Split as ManifestSplit},
    store::LocalStore,
};
use paceline_prepare::synth::{DigitsOptions, PhotosOptions, write_digits, write_photos};

fn quiet() -> impl Fn(u64, u64) + Sync {
    |_, _| {}
}

fn record(value: u8, label: i64) -> Vec<u8> {
    Example::new()
        .with("image/encoded", Feature::bytes([vec![value; 12].as_slice()]))
        .with("image/format", Feature::bytes([b"raw".as_slice()]))
        .with("image/height", Feature::ints([2]))
        .with("image/width", Feature::ints([2]))
        .with("image/class/label", Feature::ints([label]))
        .to_bytes()
}

fn shard(path: &Path, records: &[Vec<u8>]) {
    let mut writer = Writer::create(path, Compression::Plain).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn digits_are_described_and_damage_to_them_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let options = DigitsOptions { train: 300, test: 50, ..DigitsOptions::default() };
    write_digits(folder.path(), &options, &|_| {}).unwrap();
    let info = info(folder.path(), &OpenOptions::default(), None, &quiet()).unwrap();
    assert_eq!((info.kind, info.examples, info.counted), ("idx", 350, 350));
    assert_eq!(info.splits.len(), 2);
    assert_eq!(info.classes.iter().map(|class| class.examples).sum::<u64>(), 350);
    assert_eq!(info.stored_bytes, 350 * 785 + 2 * 16 + 2 * 8);
    assert_eq!(info.sample.len(), 5);
    let whole = verify(folder.path(), &OpenOptions::default(), &quiet()).unwrap();
    assert!(whole.is_whole() && whole.examples == 350, "{whole:?}");
    let images = folder.path().join("t10k-images-idx3-ubyte");
    fs::write(&images, &fs::read(&images).unwrap()[..1000]).unwrap();
    let damaged = verify(folder.path(), &OpenOptions::default(), &quiet()).unwrap();
    assert_eq!((damaged.examples, damaged.problems.len()), (300, 1), "{damaged:?}");
    assert!(damaged.problems[0].problem.contains("t10k-images"), "{damaged:?}");
}

/// Of 100 photos 89 were for training, and nothing said what became of the others.
#[test]
fn photos_held_out_are_counted_and_splits_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let options = PhotosOptions { per_class: 12, ..PhotosOptions::default() };
    write_photos(folder.path(), &options, &|_| {}).unwrap();
    let info = info(folder.path(), &OpenOptions::default(), None, &quiet()).unwrap();
    let names: Vec<Split> = info.splits.iter().map(|split| split.name).collect();
    assert_eq!(names, [Split::Train, Split::Test], "{info:?}");
    assert_eq!(info.splits.iter().map(|split| split.examples).sum::<u64>(), info.examples);
    assert!(info.remarks.iter().any(|remark| remark.contains("are held out")), "{info:?}");
}

#[test]
fn every_bad_photo_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let options = PhotosOptions {
        per_class: 2,
        least_side: 16,
        most_side: 40,
        bad: 3,
        ..PhotosOptions::default()
    };
    write_photos(folder.path(), &options, &|_| {}).unwrap();
    let result = verify(folder.path(), &OpenOptions::default(), &quiet()).unwrap();
    assert_eq!((result.kind, result.examples, result.problems.len()), ("photos", 13, 3));
    assert!(result.problems.iter().all(|problem| problem.file.contains("bad_")), "{result:?}");
}

#[test]
fn every_damaged_record_is_listed_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) =
        (folder.path().join("train-0.tfrecord"), folder.path().join("train-1.tfrecord"));
    shard(&good, &[record(1, 0), record(2, 1)]);
    shard(&bad, &[record(3, 0), record(4, 1), record(5, 1)]);
    let info = info(folder.path(), &OpenOptions::default(), None, &quiet()).unwrap();
    assert_eq!((info.kind, info.examples, info.shape.len()), ("records", 5, 12));
    assert_eq!(info.classes[1].examples, 3);
    // The first and the last payload of one shard, found though another record lies between.
    let mut bytes = fs::read(&bad).unwrap();
    let (first, last) = (20, bytes.len() - 10);
    bytes[first] ^= 4;
    bytes[last] ^= 4;
    fs::write(&bad, bytes).unwrap();
    let options = OpenOptions { classes: Some(2), ..OpenOptions::default() };
    let result = verify(folder.path(), &options, &quiet()).unwrap();
    let places: Vec<_> = result.problems.iter().map(|p| (p.record, p.offset.is_some())).collect();
    assert_eq!(places, [(Some(0), true), (Some(2), true)], "{result:?}");
    assert!(result.problems.iter().all(|problem| problem.file.ends_with("train-1.tfrecord")));
}

#[test]
fn a_manifest_is_held_against_its_shards() {
    let folder = tempfile::tempdir().unwrap();
    let name = "train-00000-of-00001.tfrecord";
    shard(&folder.path().join(name), &[record(1, 0), record(2, 1)]);
    let bytes = fs::metadata(folder.path().join(name)).unwrap().len();
    let write = |sha256: &str, records, bytes| {
        let shards =
            vec![Shard { name: name.into(), records, bytes, sha256: sha256.into(), rejects: 0 }];
        let manifest = Manifest {
            version: Manifest::VERSION,
            program: "test".into(),
            kind: "photos".into(),
            settings: RecordSettings {
                width: 2,
                height: 2,
                fit: "crop".into(),
                encode: "raw".into(),
                quality: None,
                max_pixels: None,
            },
            seed: 0,
            classes: vec!["a".into(), "b".into()],
            first_label: 0,
            source: SourceSummary {
                photos: 2,
                bytes: 9,
                fingerprint: String::new(),
                path_fingerprint: String::new(),
            },
            rejects: 0,
            splits: vec![ManifestSplit {
                name: "train".into(),
                share: 1.0,
                records,
                bytes,
                shards,
            }],
        };
        manifest.write(&LocalStore::new(folder.path())).unwrap();
        verify(folder.path(), &OpenOptions::default(), &quiet()).unwrap()
    };
    let wrong = write("00", 2, bytes);
    assert_eq!(wrong.problems.len(), 1, "{wrong:?}");
    let told = &wrong.problems[0].problem;
    let right = told.split(['s', ',', ' ']).find(|word| word.len() == 64).unwrap().to_owned();
    let whole = write(&right, 2, bytes);
    assert!(whole.is_whole() && whole.checksums == 1 && whole.examples == 2, "{whole:?}");
    let miscounted = write(&right, 3, bytes);
    for told in ["the file has 2 records", "2 photos became 3 records and rejects"] {
        let listed = miscounted.problems.iter().any(|problem| problem.problem.contains(told));
        assert!(listed, "{told}: {miscounted:?}");
    }
    assert!(write(&right, 2, bytes + 1).problems[0].problem.contains("the manifest says"));
    let copied = folder.path().join("train-00007-of-00008.tfrecord");
    fs::copy(folder.path().join(name), &copied).unwrap();
    let unnamed = write(&right, 2, bytes);
    assert!(unnamed.problems[0].problem.contains("does not name this file"), "{unnamed:?}");
    fs::remove_file(copied).unwrap();
    fs::remove_file(folder.path().join(name)).unwrap();
    assert!(!write(&right, 2, bytes).is_whole());
}

#[test]
fn generated_sets_need_no_files() {
    let path = Path::new("generated:digits?examples=60");
    let info = info(path, &OpenOptions::default(), None, &quiet()).unwrap();
    assert_eq!((info.examples, info.stored_bytes, info.splits.len()), (60, 0, 3));
    assert!(verify(path, &OpenOptions::default(), &quiet()).unwrap().is_whole());
    assert!(verify(Path::new("generated:nonsense"), &OpenOptions::default(), &quiet()).is_err());
}
