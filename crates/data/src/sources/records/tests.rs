//! Our shards, TensorFlow's files, and records that do not fit.

use paceline_photo::{Encoder, Encoding, Pixels};
use paceline_tfrecord::{Compression, Example, Feature, Writer};

use super::*;

fn encoded(value: u8, encoding: Encoding) -> Vec<u8> {
    let pixels = Pixels::from_data(4, 2, Colour::Rgb, vec![value; 24]).unwrap();
    let mut bytes = Vec::new();
    Encoder::new().encode_into(&pixels, encoding, &mut bytes).unwrap();
    bytes
}

fn example(image: &[u8], format: &str, label: i64, text: &str) -> Vec<u8> {
    Example::new()
        .with("image/encoded", Feature::bytes([image]))
        .with("image/format", Feature::bytes([format.as_bytes()]))
        .with("image/height", Feature::ints([2]))
        .with("image/width", Feature::ints([4]))
        .with("image/class/label", Feature::ints([label]))
        .with("image/class/text", Feature::bytes([text.as_bytes()]))
        .to_bytes()
}

fn write(path: &Path, examples: &[Vec<u8>], compression: Compression) {
    let mut writer = Writer::create(path, compression).unwrap();
    examples.iter().for_each(|example| {
        writer.write(example).unwrap();
    });
    writer.finish().unwrap();
}

fn read(source: &Records, index: u64) -> (u32, u8) {
    let mut pixels = [0; 24];
    let label = source.read(index, &mut Scratch::default(), &mut pixels).unwrap();
    (label, pixels[7])
}

#[test]
fn shards_of_all_encodings_and_compressions_are_one_set() {
    let folder = tempfile::tempdir().unwrap();
    let png = |value| example(&encoded(value, Encoding::Png), "PNG", 1, "rose");
    let raw = |value| example(&encoded(value, Encoding::Raw), "raw", 2, "tulip");
    let jpeg = example(&encoded(77, Encoding::Jpeg { quality: 95 }), "jpeg", 3, "lily");
    let file = |name: &str| folder.path().join(name);
    write(&file("train-00000-of-00002.tfrecord"), &[png(10), raw(11)], Compression::Plain);
    write(&file("train-00001-of-00002.tfrecord"), &[raw(12), jpeg], Compression::Gzip);
    write(&file("validation-00000-of-00001.tfrecord"), &[raw(13)], Compression::Plain);
    assert_eq!(crate::sources::detect(folder.path()).unwrap().name, "records");
    let options = OpenOptions::default();
    let train = Records::open(folder.path(), Some(Split::Train), &options).unwrap();
    assert_eq!(train.len(), 4);
    // Labels started at 1 and now start at 0.
    assert_eq!((0..3).map(|i| read(&train, i)).collect::<Vec<_>>(), [(0, 10), (1, 11), (1, 12)]);
    let (label, value) = read(&train, 3);
    assert_eq!(label, 2);
    assert!(value.abs_diff(77) < 3);
    assert!(train.remarks().iter().any(|remark| remark.contains("labels start at 1")));
    assert!(train.remarks().iter().any(|remark| remark.contains("1 compressed")));
    let validation = Records::open(folder.path(), Some(Split::Validation), &options).unwrap();
    assert_eq!(validation.schema(), train.schema());
    assert_eq!(read(&validation, 0), (1, 13));
    assert!(
        validation.origin(0).contains("validation-00000-of-00001.tfrecord`, record 0 at byte 0")
    );
    assert!(Records::open(folder.path(), Some(Split::Test), &options).is_err());
    assert_eq!(Records::open(folder.path(), None, &options).unwrap().len(), 5);
}

#[test]
fn damage_is_named_by_file_record_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let raw = |value| example(&encoded(value, Encoding::Raw), "raw", 0, "");
    write(&path, &[raw(1), raw(2)], Compression::Plain);
    let options = OpenOptions { classes: Some(1), ..OpenOptions::default() };
    let offset = Shard::open(&path).unwrap().place(1).offset;
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let source = Records::open(&path, None, &options).unwrap();
    let error = source.read(1, &mut Scratch::default(), &mut [0; 24]).unwrap_err().to_string();
    assert!(error.contains(&format!("x.tfrecord`, record 1 at byte {offset}")), "{error}");
}

#[test]
fn records_without_images_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    let open = |examples: &[Vec<u8>], options: &OpenOptions| {
        write(&path, examples, Compression::Plain);
        let _ = fs::remove_file(paceline_tfrecord::Index::path_of(&path));
        Records::open(&path, None, options)
    };
    let options = OpenOptions::default();
    let other = Example::new().with("text", Feature::bytes([b"x"])).to_bytes();
    let message = open(&[other], &options).unwrap_err().to_string();
    assert!(
        message.contains("record 0 at byte 0") && message.contains("image/encoded"),
        "{message}"
    );
    let fine = example(&encoded(1, Encoding::Raw), "raw", 0, "");
    let short = example(&[1, 2, 3], "raw", 0, "");
    let source = open(&[fine.clone(), short], &options).unwrap();
    let error = source.read(1, &mut Scratch::default(), &mut [0; 24]).unwrap_err().to_string();
    assert!(error.contains("3 bytes"), "{error}");
    let negative = example(&encoded(1, Encoding::Raw), "raw", -4, "");
    assert!(open(&[fine.clone(), negative], &options).is_err());
    let beyond = example(&encoded(1, Encoding::Raw), "raw", 9, "");
    let two = OpenOptions { classes: Some(2), ..OpenOptions::default() };
    let source = open(&[fine, beyond], &two).unwrap();
    let error = source.read(1, &mut Scratch::default(), &mut [0; 24]).unwrap_err().to_string();
    assert!(error.contains("label 9"), "{error}");
    fs::write(&path, b"").unwrap();
    assert!(matches!(Records::open(&path, None, &options), Err(DataError::NoExamples { .. })));
}

/// Two shards of raw photos, which have one size, and their manifest.
fn prepared(folder: &Path) -> Vec<PathBuf> {
    use crate::manifest::{Manifest, RecordSettings, Shard, SourceSummary, Split as Part};
    let paths: Vec<PathBuf> = (0..2_u8)
        .map(|n| {
            let path = folder.join(format!("train-0000{n}-of-00002.tfrecord"));
            let raw = |value| example(&encoded(value, Encoding::Raw), "raw", 0, "daisy");
            write(&path, &[raw(2 * n), raw(2 * n + 1)], Compression::Plain);
            path
        })
        .collect();
    let shards = paths.iter().map(|path| {
        let (bytes, sha256) = digest(path, |_| true).unwrap().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        Shard { name, records: 2, bytes, sha256, rejects: 0 }
    });
    let shards: Vec<Shard> = shards.collect();
    let bytes = shards.iter().map(|shard| shard.bytes).sum();
    let manifest = Manifest {
        version: Manifest::VERSION,
        program: "a test".into(),
        kind: "photos".into(),
        settings: RecordSettings {
            width: 4,
            height: 2,
            fit: "crop".into(),
            encode: "raw".into(),
            quality: None,
            max_pixels: None,
        },
        seed: 0,
        classes: vec!["daisy".into()],
        first_label: 0,
        source: SourceSummary {
            photos: 4,
            bytes: 4,
            fingerprint: String::new(),
            path_fingerprint: String::new(),
        },
        rejects: 0,
        splits: vec![Part { name: "train".into(), share: 1.0, records: 4, bytes, shards }],
    };
    manifest.write(&*store::open(folder).unwrap()).unwrap();
    paths
}

/// Reads until something is wrong, or for ever: the comparison has a thread of its own.
fn read_until_refused(source: &Records) -> DataError {
    let mut pixels = [0; 24];
    let mut scratch = Scratch::default();
    loop {
        for index in 0..source.len() {
            if let Err(error) = source.read(index, &mut scratch, &mut pixels) {
                return error;
            }
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_swapped_shard_of_the_same_size_was_trained_on_silently() {
    let folder = tempfile::tempdir().unwrap();
    let paths = prepared(folder.path());
    let open = |checksums| {
        let options = OpenOptions { checksums, ..OpenOptions::default() };
        Records::open(folder.path(), Some(Split::Train), &options)
    };
    let whole = open(Checksums::First).unwrap();
    assert_eq!(read(&whole, 3), (0, 3));
    // One shard copied over the other: names, sizes, counts and every record's own checksum are right.
    fs::copy(&paths[0], &paths[1]).unwrap();
    let refused = open(Checksums::First).unwrap_err();
    assert!(refused.to_string().contains("train-00001-of-00002.tfrecord"), "{refused}");
    assert!(open(Checksums::Never).is_ok());
    let refused = read_until_refused(&open(Checksums::Beside).unwrap());
    assert!(
        matches!(&refused, DataError::ShardChecksum { path, .. } if *path == paths[1]),
        "{refused}"
    );
    fs::remove_file(folder.path().join(crate::manifest::MANIFEST)).unwrap();
    assert!(matches!(open(Checksums::First), Err(DataError::NoChecksums { .. })));
}

#[test]
fn files_written_by_tensorflow_are_read() {
    let data = std::env::var_os("PACELINE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if !data.join("tfrecord").is_dir() {
        println!("skipped: no data");
        return;
    }
    let open = |name: &str| {
        Records::open(&data.join("tfrecord").join(name), None, &OpenOptions::default()).unwrap()
    };
    let flowers = open("flowers_jpeg_100.tfrecord");
    assert_eq!(flowers.len(), 100);
    let FeatureKind::Image(shape) = flowers.schema().features else { panic!() };
    assert_eq!((shape.height, shape.width, shape.channels), (224, 224, 3));
    let mut pixels = vec![0; shape.len()];
    for index in 0..100 {
        flowers.read(index, &mut Scratch::default(), &mut pixels).unwrap();
    }
    let mut digits = Vec::new();
    for name in ["mnist_first1000", "mnist_first1000.gz", "mnist_first1000.zlib"] {
        let source = open(&format!("{name}.tfrecord"));
        assert_eq!(source.len(), 1000);
        let mut pixels = vec![0; 784];
        let label = source.read(4, &mut Scratch::default(), &mut pixels).unwrap();
        assert_eq!(label, 9);
        digits.push(pixels);
    }
    assert!(digits.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Shards as version 0.1 wrote them: three raw photos of 2x2 pixels in two splits, one reject.
#[test]
fn shards_of_version_0_1_are_opened_and_newer_ones_refused_by_name() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/shards-0.1");
    // Reading leaves an index beside each shard.
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(&frozen).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let frozen = folder.path();
    let options = OpenOptions { checksums: Checksums::First, ..OpenOptions::default() };
    assert_eq!(crate::sources::detect(frozen).unwrap().name, "records");
    let train = Records::open(frozen, Some(Split::Train), &options).unwrap();
    let held_out = Records::open(frozen, Some(Split::Validation), &options).unwrap();
    assert_eq!((train.len(), held_out.len()), (2, 1));
    let LabelKind::Classes { names } = &train.schema().labels else { panic!() };
    assert_eq!(names, &["daisy", "tulip"]);
    let read = |source: &Records, index| {
        let mut pixels = [0; 12];
        let label = source.read(index, &mut Scratch::default(), &mut pixels).unwrap();
        (label, pixels[..3].to_vec())
    };
    assert_eq!(
        (read(&train, 0), read(&train, 1)),
        ((0, vec![10, 11, 12]), (1, vec![200, 201, 202]))
    );
    assert_eq!(read(&held_out, 0), (1, vec![90, 91, 92]));
    let whole = crate::inspect::verify(frozen, &options, &|_, _| {}).unwrap();
    assert!(whole.is_whole() && whole.examples == 3, "{whole:?}");

    let manifest = folder.path().join(crate::manifest::MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let refused = Records::open(folder.path(), Some(Split::Train), &options).unwrap_err();
    let mut said = refused.to_string();
    if let Some(cause) = std::error::Error::source(&refused) {
        said = format!("{said}: {cause}");
    }
    assert!(said.contains("manifest.json") && said.contains("layout version 2"), "{said}");
}
