//! What tells two data sets apart without reading all of either: counts, names and sizes of files, checksums that are
//! written down already, and a sample of the contents.
//!
//! Tasks of one run compare fingerprints before they train together, and a run that continues compares its data with
//! those it began on. Where a set lies, and how its files are compressed, does not matter; what it holds does.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use paceline_batch::{FeatureKind, LabelKind};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    DataError, Source,
    store::{self, durable::hex},
};

/// Examples of a split whose contents are part of its fingerprint.
const SAMPLES: u64 = 32;
/// Bytes at both ends of a file of rows that are part of its fingerprint.
const FILE_ENDS: u64 = 64 << 10;
/// Places between the ends that are, and bytes of each.
const FILE_SAMPLES: u64 = 6;
const FILE_SAMPLE: u64 = 4 << 10;
/// Digits of a checksum that are kept and shown: 64 bits tell sets apart that were not made to deceive.
const DIGITS: usize = 16;

/// What identifies examples to train on and to test on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// What one example looks like.
    pub example: String,
    pub classes: usize,
    pub train_examples: u64,
    /// Held-out examples.
    pub test_examples: u64,
    /// Checksum of the names of the classes.
    pub class_names: String,
    /// Checksum of names and sizes of the files and of a sample of the contents.
    pub contents: String,
}

impl Fingerprint {
    /// Takes the fingerprint of a set.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn of(train: &dyn Source, test: Option<&dyn Source>) -> Result<Self, DataError> {
        let schema = train.schema();
        let mut names = Sha256::new();
        if let LabelKind::Classes { names: classes } = &schema.labels {
            for class in classes {
                names.update(class.as_bytes());
                names.update([0]);
            }
        }
        let mut contents = Sha256::new();
        for source in std::iter::once(train).chain(test) {
            contents.update(source.len().to_le_bytes());
            source.identify(&mut contents)?;
        }
        Ok(Self {
            example: match schema.features {
                FeatureKind::Image(shape) => shape.to_string(),
                FeatureKind::Sparse { width } => format!("{width} sparse features"),
            },
            classes: schema.labels.classes(),
            train_examples: train.len(),
            test_examples: test.map_or(0, Source::len),
            class_names: digits(names),
            contents: digits(contents),
        })
    }

    /// How another set differs, as this one has it and as the other has it; nothing where they are the same.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<(String, String)> {
        let each = |set: &Self| {
            [
                format!("examples of {}", set.example),
                format!("{} classes", set.classes),
                format!("{} training examples", set.train_examples),
                format!("{} test examples", set.test_examples),
                format!("classes named otherwise (checksum {})", set.class_names),
                format!("contents with checksum {}", set.contents),
            ]
        };
        each(self).into_iter().zip(each(other)).find(|(ours, theirs)| ours != theirs)
    }
}

/// The examples to be sampled of so many.
pub(crate) fn sampled(examples: u64) -> impl Iterator<Item = u64> {
    let count = SAMPLES.min(examples);
    // Widened, because examples times samples may not fit 64 bits; the last example is always among them.
    (0..count).map(move |number| {
        let last = u128::from(count - 1).max(1);
        (u128::from(number) * u128::from(examples - 1) / last) as u64
    })
}

/// What identifies a file of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Its name, without the folders around it.
    pub name: String,
    pub bytes: u64,
    /// Checksum of a sample of these bytes.
    pub contents: String,
}

impl FileMark {
    /// Marks of files, in order. What is not a regular file or an object, such as a pipe, is known by its name alone.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn of_files(files: &[PathBuf]) -> Result<Vec<Self>, DataError> {
        files.iter().map(|path| Self::of(path, None)).collect()
    }

    /// The mark of a file, or of its first `bytes` bytes.
    fn of(path: &Path, bytes: Option<u64>) -> Result<Self, DataError> {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let Some(file) = Ranges::open(path)? else {
            return Ok(Self { name, bytes: 0, contents: String::new() });
        };
        let bytes = bytes.unwrap_or(u64::MAX).min(file.size());
        let mut sum = Sha256::new();
        let mut add = |from: u64, length: u64| -> Result<(), DataError> {
            let to = from.saturating_add(length).min(bytes);
            sum.update(file.read(path, from.min(to), to)?);
            Ok(())
        };
        add(0, FILE_ENDS)?;
        for place in 1..=FILE_SAMPLES {
            let from = u128::from(bytes) * u128::from(place) / u128::from(FILE_SAMPLES + 1);
            add(from as u64, FILE_SAMPLE)?;
        }
        add(bytes.saturating_sub(FILE_ENDS), FILE_ENDS)?;
        Ok(Self { name, bytes, contents: digits(sum) })
    }

    /// Number, bytes and one checksum of all of them, for comparing many at once.
    #[must_use]
    pub fn total(marks: &[Self]) -> (usize, u64, String) {
        let mut sum = Sha256::new();
        for mark in marks {
            sum.update(mark.bytes.to_le_bytes());
            sum.update(mark.contents.as_bytes());
        }
        (marks.len(), marks.iter().map(|mark| mark.bytes).sum(), digits(sum))
    }

    /// How files differ from those that `marks` were taken of, in words: as it was, as it is. A file that has `grown`
    /// at its end may count as the same.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn difference(
        marks: &[Self],
        files: &[PathBuf],
        grown: bool,
    ) -> Result<Option<(String, String)>, DataError> {
        if marks.len() != files.len() {
            let count =
                |number: usize| format!("{number} file{}", if number == 1 { "" } else { "s" });
            return Ok(Some((count(marks.len()), count(files.len()))));
        }
        for (was, path) in marks.iter().zip(files) {
            let whole = Self::of(path, None)?;
            let now = if grown && whole.bytes > was.bytes {
                Self::of(path, Some(was.bytes))?
            } else {
                whole
            };
            if (was.bytes, &was.contents) != (now.bytes, &now.contents) {
                let words = |mark: &Self| {
                    format!("`{}` of {} bytes, checksum {}", mark.name, mark.bytes, mark.contents)
                };
                return Ok(Some((words(was), words(&now))));
            }
        }
        Ok(None)
    }
}

/// A file or object that can be read at any place.
enum Ranges {
    File(File, u64),
    Object(std::sync::Arc<dyn store::Object>),
}

impl Ranges {
    /// Nothing for what has no size or cannot be read twice.
    fn open(path: &Path) -> Result<Option<Self>, DataError> {
        if store::is_remote(path) {
            let (folder, key) = store::open_file(path)?;
            return Ok(Some(Self::Object(folder.find(&key)?)));
        }
        let metadata = std::fs::metadata(path).map_err(DataError::read(path))?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let file = File::open(path).map_err(DataError::read(path))?;
        Ok(Some(Self::File(file, metadata.len())))
    }

    fn size(&self) -> u64 {
        match self {
            Self::File(_, size) => *size,
            Self::Object(object) => object.size(),
        }
    }

    fn read(&self, path: &Path, from: u64, to: u64) -> Result<Vec<u8>, DataError> {
        match self {
            Self::Object(object) => Ok(object.read(from..to)?),
            Self::File(file, _) => {
                let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)]; // a sample is small
                match file.read_exact_at(&mut bytes, from) {
                    // Cut short meanwhile; another size is another mark.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
                    Err(error) => Err(DataError::read(path)(error)),
                    Ok(()) => Ok(bytes),
                }
            }
        }
    }
}

fn digits(sum: Sha256) -> String {
    let mut text = hex(&sum.finalize());
    text.truncate(DIGITS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Split, open_split};
    use paceline_prepare::synth;

    fn of(path: &Path) -> Fingerprint {
        let options = OpenOptions { size: Some((8, 8)), ..OpenOptions::default() };
        let train = open_split(path, Split::Train, &options).unwrap();
        let test = open_split(path, Split::Test, &options).ok();
        Fingerprint::of(&*train, test.as_deref()).unwrap()
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy(&path, &target);
            } else {
                std::fs::copy(&path, target).unwrap();
            }
        }
    }

    #[test]
    fn a_copy_is_the_same_data_and_other_contents_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        for (class, shade) in [("x", 10), ("y", 200)] {
            std::fs::create_dir_all(a.join(class)).unwrap();
            for photo in 0..40 {
                let image = [shade + photo as u8; 48];
                std::fs::write(a.join(class).join(format!("{photo}.png")), image).unwrap();
            }
        }
        copy(&a, &b);
        let print = of(&a);
        assert_eq!(print, of(&b));
        std::fs::write(b.join("x/0.png"), [0; 49]).unwrap();
        let (was, now) = print.difference(&of(&b)).unwrap();
        assert!(was.contains("contents") && was != now, "{was} {now}");
        std::fs::remove_file(b.join("x/1.png")).unwrap();
        std::fs::remove_file(b.join("x/2.png")).unwrap();
        assert!(print.difference(&of(&b)).unwrap().1.contains("examples"));
        assert_eq!(print.difference(&print), None);
    }

    #[test]
    fn digits_drawn_otherwise_have_another_fingerprint() {
        let one = of(Path::new("generated:digits?examples=100&seed=1"));
        assert_eq!(one, of(Path::new("generated:digits?examples=100&seed=1")));
        let two = of(Path::new("generated:digits?examples=100&seed=2"));
        assert!(one.difference(&two).unwrap().0.contains("contents"));
        let more = of(Path::new("generated:digits?examples=101&seed=1"));
        assert_eq!(
            one.difference(&more).unwrap(),
            ("100 training examples".to_owned(), "101 training examples".to_owned())
        );
    }

    #[test]
    fn a_log_that_grew_is_the_same_and_one_that_was_changed_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.tsv");
        let clicks = synth::ClicksOptions { rows: 3000, seed: 1, vw: None, threads: 1 };
        synth::write_clicks(&log, &clicks, &|_| ()).unwrap();
        let files = [log.clone()];
        let marks = FileMark::of_files(&files).unwrap();
        let differs = |grown| FileMark::difference(&marks, &files, grown).unwrap();
        assert_eq!((differs(true), differs(false)), (None, None));
        let mut text = std::fs::read(&log).unwrap();
        text.extend_from_slice(b"1\t2\n");
        std::fs::write(&log, &text).unwrap();
        assert_eq!(differs(true), None);
        assert!(differs(false).is_some());
        text[10] ^= 1;
        std::fs::write(&log, &text).unwrap();
        assert!(differs(true).unwrap().0.contains("a.tsv"));
        text.truncate(100);
        std::fs::write(&log, &text).unwrap();
        assert!(differs(true).unwrap().1.contains("100 bytes"));
    }

    #[test]
    fn a_sample_has_both_ends_and_never_more_than_there_is() {
        assert_eq!(sampled(0).count(), 0);
        assert_eq!(sampled(1).collect::<Vec<_>>(), [0]);
        assert_eq!(sampled(3).collect::<Vec<_>>(), [0, 1, 2]);
        let many: Vec<u64> = sampled(u64::MAX).collect();
        assert_eq!((many[0], many[31], many.len()), (0, u64::MAX - 1, 32));
    }
}
