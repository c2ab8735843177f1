//! IDX files as they are, and the ways they go wrong.

use std::io::Write;

use proptest::prelude::*;

use super::*;

const TRAIN: &str = "train-images-idx3-ubyte";
const TRAIN_LABELS: &str = "train-labels-idx1-ubyte";

fn idx(sizes: &[u32], contents: &[u8]) -> Vec<u8> {
    let mut bytes = (0x0800 | sizes.len() as u32).to_be_bytes().to_vec();
    sizes.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(contents);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn folder(images: &[u8], labels: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(TRAIN), images).unwrap();
    fs::write(folder.path().join(TRAIN_LABELS), labels).unwrap();
    folder
}

fn opened(images: &[u8], labels: &[u8]) -> Result<Idx, DataError> {
    Idx::open(folder(images, labels).path(), None, &OpenOptions::default())
}

#[test]
fn a_plain_image_file_goes_with_gzipped_labels() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(TRAIN), idx(&[2, 1, 3], &[1, 2, 3, 4, 5, 6])).unwrap();
    let labels = folder.path().join(format!("{TRAIN_LABELS}.gz"));
    fs::write(&labels, gzip(&idx(&[2], &[7, 3]))).unwrap();
    for path in [folder.path(), &folder.path().join(TRAIN), &labels] {
        let source = Idx::open(path, Some(Split::Train), &OpenOptions::default()).unwrap();
        assert_eq!(source.len(), 2);
        assert_eq!(source.schema().labels.classes(), 10);
        let mut pixels = [0; 3];
        assert_eq!(source.read(1, &mut Scratch::default(), &mut pixels).unwrap(), 3);
        assert_eq!(pixels, [4, 5, 6]);
        let mut batch = Batch::pixels(3, 2);
        source.gather(&[1, 0], &mut Scratch::default(), &mut batch).unwrap();
        assert_eq!(batch.labels, [3, 7]);
        assert_eq!(batch.features, Features::Pixels { values: vec![4, 5, 6, 1, 2, 3], width: 3 });
    }
    let missing = Idx::open(folder.path(), Some(Split::Test), &OpenOptions::default());
    let message = missing.unwrap_err().to_string();
    assert!(message.contains("no test split; it has train"), "{message}");
}

#[test]
fn broken_files_are_told_apart() {
    let (images, labels) = (idx(&[2, 1, 3], &[0; 6]), idx(&[2], &[1, 2]));
    assert!(opened(&images, &labels).is_ok());
    let cases: [(&[u8], &[u8], &str); 10] = [
        (&images[..images.len() - 1], &labels, "promises 6"),
        (&[&images[..], &[0]].concat(), &labels, "promises 6"),
        (&images[..7], &labels, "cannot read"),
        (&[], &labels, "cannot read"),
        (b"P6 28 28 255 xxxxxxxxxx", &labels, "not an IDX file"),
        (&idx(&[2, 0, 3], &[]), &labels, "dimensions [2, 0, 3]"),
        (&idx(&[6], &[0; 6]), &labels, "dimensions [6]"),
        (&idx(&[3, 1, 2], &[0; 6]), &labels, "3 images but"),
        (&idx(&[u32::MAX, u32::MAX, u32::MAX], &[0; 6]), &labels, "promises"),
        (&images, &idx(&[2], &[1, 77]), "record 1: label 77"),
    ];
    for (images, labels, told) in cases {
        let plain = opened(images, labels).unwrap_err().to_string();
        assert!(plain.contains(told), "{told}: {plain}");
        if !images.is_empty() {
            let gzipped = opened(&gzip(images), labels).unwrap_err().to_string();
            assert!(gzipped.contains(told), "{told}, gzipped: {gzipped}");
        }
    }
    let mut doubles = images.clone();
    doubles[2] = 0x0e;
    assert!(opened(&doubles, &labels).unwrap_err().to_string().contains("type 0x0e"));
    let cut = gzip(&images);
    assert!(opened(&cut[..cut.len() - 9], &labels).is_err());
}

/// 9.8 MB that unpack to 9.8 GB, as the header says, were unpacked without a look at what memory there is.
#[test]
fn a_gzip_bomb_with_an_honest_header_is_held_against_the_memory_there_is() {
    let count = 3_000_000;
    let images = idx(&[count, 1, 1], &vec![0; count as usize]);
    let labels = gzip(&idx(&[1], &[1]));
    let open = |images: &[u8], max_memory| {
        let options = OpenOptions { classes: Some(10), max_memory, ..OpenOptions::default() };
        Idx::open(folder(images, &labels).path(), None, &options).unwrap_err()
    };
    let bomb = gzip(&images);
    assert!(bomb.len() < 100_000, "{} bytes", bomb.len());
    for images in [&bomb, &images] {
        match open(images, Some(2_000_000)) {
            DataError::Memory { path, needs, left, limit, .. } => {
                assert!(path.ends_with(TRAIN));
                assert_eq!((needs, left, limit), (3_000_000, 2_000_000, 2_000_000));
            }
            other => panic!("{other}"),
        }
        // Where it fits it is read, and found to have too few labels.
        assert!(matches!(open(images, Some(3_100_000)), DataError::CountMismatch { .. }));
        assert!(matches!(open(images, None), DataError::CountMismatch { .. }));
    }
    let said = open(&bomb, Some(2_000_000)).to_string();
    assert!(said.contains("unpacks to 3 MB") && said.contains("may use 2 MB"), "{said}");
}

#[test]
fn files_of_one_set_share_the_memory_there_is() {
    let part = gzip(&idx(&[1_000, 1, 1_000], &[0; 1_000_000]));
    let folder = folder(&part, &gzip(&idx(&[1_000], &[0; 1_000])));
    fs::write(folder.path().join("t10k-images-idx3-ubyte.gz"), &part).unwrap();
    let labels = folder.path().join("t10k-labels-idx1-ubyte");
    fs::write(labels, idx(&[1_000], &[0; 1_000])).unwrap();
    let open = |split, bytes| {
        let options = OpenOptions { max_memory: Some(bytes), ..OpenOptions::default() };
        Idx::open(folder.path(), split, &options)
    };
    open(Some(Split::Train), 1_500_000).unwrap();
    open(None, 2_100_000).unwrap();
    let DataError::Memory { path, left, .. } = open(None, 1_500_000).unwrap_err() else { panic!() };
    assert!(path.ends_with("t10k-images-idx3-ubyte.gz"));
    assert!((490_000..500_000).contains(&left), "{left}");
}

#[test]
fn more_classes_than_ten_need_every_one_of_them() {
    let labels: Vec<u8> = (1..=26).collect();
    let images = idx(&[26, 1, 1], &[0; 26]);
    let letters = opened(&images, &idx(&[26], &labels)).unwrap();
    assert_eq!(letters.schema().labels.classes(), 27);
    let folder = folder(&images, &idx(&[26], &labels));
    let options = OpenOptions { classes: Some(20), ..OpenOptions::default() };
    let message = Idx::open(folder.path(), None, &options).unwrap_err().to_string();
    assert!(message.contains("record 19: label 20"), "{message}");
}

#[test]
fn colour_images_have_a_fourth_dimension() {
    let source = opened(&idx(&[1, 2, 2, 3], &[9; 12]), &idx(&[1], &[0])).unwrap();
    let FeatureKind::Image(shape) = source.schema().features else { panic!() };
    assert_eq!(shape.channels, 3);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(images: Vec<u8>, labels: Vec<u8>, dims in 0_u8..5) {
        let headed = [&[0, 0, 8, dims][..], &images].concat();
        let _ = opened(&headed, &labels);
        let _ = opened(&gzip(&headed), &gzip(&labels));
        let _ = opened(&images, &labels);
    }
}

#[test]
fn the_real_mnist_is_read() {
    let data = std::env::var_os("PACELINE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if !data.join("mnist").is_dir() {
        println!("skipped: no data");
        return;
    }
    let mnist = data.join("mnist");
    let options = OpenOptions::default();
    let train = crate::open_split(&mnist, Split::Train, &options).unwrap();
    let test = crate::open_split(&mnist, Split::Test, &options).unwrap();
    assert_eq!((train.len(), test.len()), (60_000, 10_000));
    assert_eq!(crate::open(&mnist, &options).unwrap().len(), 70_000);
    let mut pixels = [0; 784];
    let first: Vec<u32> =
        (0..5).map(|i| train.read(i, &mut Scratch::default(), &mut pixels).unwrap()).collect();
    assert_eq!(first, [5, 0, 4, 1, 9]);
}
