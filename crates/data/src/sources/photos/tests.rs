//! Class folders, splits and files that are not photos.

use paceline_photo::{Colour, Encoder, Encoding, Pixels};

use super::*;

fn png(width: u32, height: u32, colour: [u8; 3]) -> Vec<u8> {
    let data = colour.repeat((width * height) as usize);
    let pixels = Pixels::from_data(width, height, Colour::Rgb, data).unwrap();
    let mut bytes = Vec::new();
    Encoder::new().encode_into(&pixels, Encoding::Png, &mut bytes).unwrap();
    bytes
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

fn small() -> OpenOptions {
    OpenOptions { size: Some((4, 2)), ..OpenOptions::default() }
}

#[test]
fn labels_follow_sorted_class_folders_and_sizes_are_made_equal() {
    let (red, blue) = (png(4, 2, [200, 0, 0]), png(9, 5, [0, 0, 200]));
    let folder = folder(&[
        ("tulip/b.png", &red),
        ("daisy/z.PNG", &blue),
        ("daisy/inner/a.jpg", &red), // a PNG by content
        ("daisy/notes.txt", b"no photo"),
        ("daisy/.hidden.png", &red),
        ("docs/readme.md", b"no class"),
        ("loose.png", &red),
    ]);
    assert_eq!(crate::sources::detect(folder.path()).unwrap().name, "photos");
    let source = Photos::open(folder.path(), None, &small()).unwrap();
    let names = vec!["daisy".to_owned(), "tulip".to_owned()];
    assert_eq!(source.schema().labels, LabelKind::Classes { names });
    assert_eq!(source.len(), 3);
    let mut pixels = [0; 24];
    let mut read = |index| {
        let label = source.read(index, &mut Scratch::default(), &mut pixels).unwrap();
        (label, pixels[..3].to_vec())
    };
    assert_eq!(read(0), (0, vec![0, 0, 200]));
    assert_eq!(read(1), (0, vec![200, 0, 0]));
    assert_eq!(read(2), (1, vec![200, 0, 0]));
    assert!(source.origin(1).ends_with("daisy/inner/a.jpg`"));
}

#[test]
fn a_broken_photo_is_named() {
    let folder = folder(&[("a/fine.png", &png(4, 2, [1; 3])), ("a/text.jpg", b"GIF89a..")]);
    let source = Photos::open(folder.path(), None, &small()).unwrap();
    let error = source.read(1, &mut Scratch::default(), &mut [0; 24]).unwrap_err();
    assert!(error.to_string().contains("a/text.jpg"), "{error}");
}

#[test]
fn split_folders_share_their_classes() {
    let photo = png(4, 2, [9; 3]);
    let folder =
        folder(&[("train/b/1.png", &photo), ("train/a/1.png", &photo), ("val/b/2.png", &photo)]);
    let open = |split| Photos::open(folder.path(), split, &small());
    let validation = open(Some(Split::Validation)).unwrap();
    assert_eq!(validation.len(), 1);
    assert_eq!(validation.label(0, &mut Scratch::default()).unwrap(), 1);
    assert_eq!(validation.schema(), open(Some(Split::Train)).unwrap().schema());
    assert_eq!(open(None).unwrap().len(), 3);
    let message = open(Some(Split::Test)).unwrap_err().to_string();
    assert!(message.contains("no test split; it has train, validation"), "{message}");
}

#[test]
fn held_out_photos_are_in_no_other_split() {
    let names: Vec<String> = (0..200).map(|n| format!("class{}/{n}.png", n % 2)).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let folder = folder(&files);
    let origins = |split| {
        let options = OpenOptions { holdout: 0.2, ..small() };
        let source = Photos::open(folder.path(), split, &options).unwrap();
        (0..source.len()).map(|index| source.origin(index)).collect::<Vec<_>>()
    };
    let (train, test) = (origins(Some(Split::Train)), origins(Some(Split::Test)));
    assert!((20..60).contains(&test.len()), "{}", test.len());
    assert!(test.iter().all(|name| !train.contains(name)));
    let mut both: Vec<_> = train.into_iter().chain(test).collect();
    both.sort();
    let mut all = origins(None);
    all.sort();
    assert_eq!(both, all);
    // The same number as `prepare` uses; another would leak training photos into tests.
    assert!(held_out("daisy/1.jpg", 0.804) && !held_out("daisy/1.jpg", 0.803));
}
