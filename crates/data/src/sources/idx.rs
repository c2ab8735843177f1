//! The layout MNIST is published in: one IDX file of images, one of labels, per split, plain or
//! gzipped.
//!
//! Held in memory as a whole: such sets are small, and a copy from memory is what lets a softmax
//! regression take twenty thousand steps a second. Nothing is allocated before the header's promise
//! has been held against the length of the file and the memory there is.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    ops::{Deref, RangeInclusive},
    path::{Path, PathBuf},
    sync::Arc,
};

use paceline_batch::{Batch, FeatureKind, Features, ImageShape, LabelKind, MemoryLimit, Schema};
use sha2::{Digest, Sha256};

use crate::{
    DataError,
    fingerprint::sampled,
    gunzip::{self, Members},
    source::{OpenOptions, Scratch, Source, Split},
    sources::SourceKind,
    store::{self, Stream},
};

/// This kind of data set.
pub const ENTRY: SourceKind = SourceKind {
    name: "idx",
    about: "MNIST's own layout: IDX files of images and labels, plain or .gz",
    looks_for: "idx: a folder with `train-images-idx3-ubyte` (also `t10k-`, `.gz`) and its labels",
    holds: "IDX files",
    recognises: |path| !find_pairs(path).is_empty(),
    opens: |path, split, options| Ok(Arc::new(Idx::open(path, split, options)?)),
};

/// Deflate cannot expand a byte to more than this.
const LARGEST_EXPANSION: u64 = 1032;

/// Packed files up to this size are unpacked in one go, which needs all of them in memory; larger ones
/// are streamed, at half the speed.
const MOST_AT_ONCE: u64 = 256 << 20;

/// Memory taken before the contents have been seen, where they are streamed, in bytes.
const MOST_ON_TRUST: usize = 64 << 20;

/// A header is the magic number and four bytes per dimension.
const MAGIC_BYTES: u64 = 4;

/// Images and labels in memory.
#[derive(Debug)]
pub struct Idx {
    schema: Schema,
    parts: Vec<IdxFiles>,
    width: usize,
    remarks: Vec<String>,
}

/// One pair of files.
#[derive(Debug)]
struct IdxFiles {
    path: PathBuf,
    pixels: Contents,
    labels: Contents,
}

/// What an IDX file holds, behind its header where that was unpacked with it.
#[derive(Debug)]
struct Contents {
    bytes: Vec<u8>,
    header: usize,
}

impl Deref for Contents {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.header..]
    }
}

/// The files of one split.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    split: Split,
    images: PathBuf,
    labels: PathBuf,
}

impl Idx {
    /// Opens a folder (one split of it, or all) or the pair that one file belongs to.
    ///
    /// # Errors
    /// Missing, truncated, mismatched or otherwise wrong files, by name.
    pub fn open(
        path: &Path,
        split: Option<Split>,
        options: &OpenOptions,
    ) -> Result<Self, DataError> {
        let pairs = find_pairs(path);
        let chosen: Vec<&Pair> =
            pairs.iter().filter(|pair| split.is_none_or(|wanted| wanted == pair.split)).collect();
        if chosen.is_empty() {
            let found: Vec<&str> = pairs.iter().map(|pair| pair.split.name()).collect();
            let wanted = split.unwrap_or(Split::Train);
            let found = found.join(", ");
            return Err(DataError::NoSplit { path: path.to_owned(), wanted, found });
        }
        // All splits must agree on the number of classes, or a model trained on one would not fit
        // the other; so the training labels decide where there are any.
        let mut remarks = Vec::new();
        let mut room = Room::new(options.memory());
        let classes = match options.classes {
            Some(classes) => classes,
            None => {
                let deciding = pairs.iter().find(|pair| pair.split == Split::Train);
                let deciding = deciding.unwrap_or(chosen[0]);
                let (_, labels) = read_idx(&deciding.labels, 1..=1, "one: labels", room)?;
                infer_classes(&labels, &deciding.labels)?
            }
        };
        let mut shape: Option<ImageShape> = None;
        let mut parts = Vec::new();
        for pair in chosen {
            let part = read_pair(pair, classes, &mut room)?;
            match shape {
                Some(wanted) if wanted != part.0 => {
                    let path = pair.images.clone();
                    return Err(DataError::Shape { path, record: 0, found: part.0, wanted });
                }
                _ => shape = Some(part.0),
            }
            parts.push(part.1);
        }
        let examples: usize = parts.iter().map(|part| part.labels.len()).sum();
        let Some(shape) = shape.filter(|_| examples > 0) else {
            let why = "its IDX files are empty".to_owned();
            return Err(DataError::NoExamples { path: path.to_owned(), why });
        };
        if classes != 10 {
            remarks.push(format!("{classes} classes, from the labels"));
        }
        let names = (0..classes).map(|class| class.to_string()).collect();
        let schema =
            Schema { features: FeatureKind::Image(shape), labels: LabelKind::Classes { names } };
        Ok(Self { schema, parts, width: shape.len(), remarks })
    }

    #[inline]
    fn find(&self, index: u64) -> (&IdxFiles, usize) {
        let mut index = usize::try_from(index).unwrap_or(usize::MAX);
        for part in &self.parts {
            if index < part.labels.len() {
                return (part, index);
            }
            index -= part.labels.len();
        }
        panic!("an example beyond the end was asked for");
    }
}

impl Source for Idx {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.labels.len() as u64).sum()
    }

    fn read(&self, index: u64, _: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        let (part, index) = self.find(index);
        pixels.copy_from_slice(&part.pixels[index * self.width..][..self.width]);
        Ok(u32::from(part.labels[index]))
    }

    fn label(&self, index: u64, _: &mut Scratch) -> Result<u32, DataError> {
        let (part, index) = self.find(index);
        Ok(u32::from(part.labels[index]))
    }

    fn identify(&self, sum: &mut Sha256) -> Result<(), DataError> {
        for part in &self.parts {
            sum.update(&part.labels[..]);
        }
        for index in sampled(self.len()) {
            let (part, index) = self.find(index);
            sum.update(&part.pixels[index * self.width..][..self.width]);
        }
        Ok(())
    }

    fn resident(&self) -> bool {
        true
    }

    fn origin(&self, index: u64) -> String {
        let (part, index) = self.find(index);
        format!("`{}`, record {index}", part.path.display())
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    fn gather(&self, indices: &[u64], _: &mut Scratch, batch: &mut Batch) -> Result<(), DataError> {
        let Features::Pixels { values, .. } = &mut batch.features else {
            unreachable!("image sources fill batches of pixels");
        };
        for &index in indices {
            let (part, index) = self.find(index);
            values.extend_from_slice(&part.pixels[index * self.width..][..self.width]);
            batch.labels.push(u32::from(part.labels[index]));
        }
        Ok(())
    }
}

/// Ten as in MNIST; more where the labels use every number up to a larger one (the letters of EMNIST
/// start at 1, so 0 may be missing). A single stray label is damage, not a class.
fn infer_classes(labels: &[u8], path: &Path) -> Result<usize, DataError> {
    let mut first = [None; 256];
    for (record, &label) in labels.iter().enumerate() {
        first[usize::from(label)].get_or_insert(record);
    }
    let classes = first.iter().rposition(Option::is_some).map_or(0, |last| last + 1).max(10);
    if classes > 10 && first[1..classes].iter().any(Option::is_none) {
        let (label, record) = (10..classes)
            .filter_map(|label| first[label].map(|record| (label, record)))
            .min_by_key(|&(_, record)| record)
            .expect("the largest label is at least 10");
        return Err(DataError::LabelRange {
            path: path.to_owned(),
            record: record as u64,
            label: label as i64,
            classes: 10,
        });
    }
    Ok(classes)
}

fn read_pair(
    pair: &Pair,
    classes: usize,
    room: &mut Room,
) -> Result<(ImageShape, IdxFiles), DataError> {
    let wanted = "three (count, rows, columns) or four (and 1 or 3 channels), none of them 0";
    let (sizes, pixels) = read_idx(&pair.images, 3..=4, wanted, *room)?;
    room.left = room.left.saturating_sub(pixels.bytes.len() as u64);
    let (_, labels) = read_idx(&pair.labels, 1..=1, "one: labels", *room)?;
    room.left = room.left.saturating_sub(labels.bytes.len() as u64);
    let channels = sizes.get(3).copied().unwrap_or(1);
    if sizes[1..].contains(&0) || !matches!(channels, 1 | 3) {
        return Err(DataError::IdxDimensions { path: pair.images.clone(), found: sizes, wanted });
    }
    let images = u64::from(sizes[0]);
    if images != labels.len() as u64 {
        return Err(DataError::CountMismatch {
            image_path: pair.images.clone(),
            images,
            label_path: pair.labels.clone(),
            labels: labels.len() as u64,
        });
    }
    if let Some(record) = labels.iter().position(|&label| usize::from(label) >= classes) {
        return Err(DataError::LabelRange {
            path: pair.labels.clone(),
            record: record as u64,
            label: i64::from(labels[record]),
            classes,
        });
    }
    let shape = ImageShape {
        height: sizes[1] as usize,
        width: sizes[2] as usize,
        channels: channels as usize,
    };
    Ok((shape, IdxFiles { path: pair.images.clone(), pixels, labels }))
}

/// Reads a whole IDX file of bytes: its dimensions and its contents.
fn read_idx(
    path: &Path,
    dimensions: RangeInclusive<usize>,
    wanted: &'static str,
    room: Room,
) -> Result<(Vec<u32>, Contents), DataError> {
    let shape = Shape { path, dimensions, wanted, room };
    if store::is_remote(path) {
        return read_remote(&shape);
    }
    let mut file = File::open(path).map_err(DataError::read(path))?;
    let stored = file.metadata().map_err(DataError::read(path))?.len();
    let mut start = [0; 2];
    let gzipped = stored >= 2 && {
        file.read_exact(&mut start).map_err(DataError::read(path))?;
        io::Seek::rewind(&mut file).map_err(DataError::read(path))?;
        start == [0x1f, 0x8b]
    };
    if !gzipped {
        return shape.read_plain(file, stored);
    }
    let most = stored.saturating_mul(LARGEST_EXPANSION);
    if stored > MOST_AT_ONCE {
        return shape.read(Members::new(io::BufReader::new(file)), most);
    }
    let mut packed = Vec::new();
    file.read_to_end(&mut packed).map_err(DataError::read(path))?;
    let (sizes, header, promised) = shape.header(&mut Members::new(&packed[..]), most)?;
    if let Some(mut bytes) = gunzip::zeroed(header + promised)
        && gunzip::gunzip(&packed, &mut bytes)
    {
        return Ok((sizes, Contents { bytes, header }));
    }
    // Damaged, or not of the size it promises: the slow way finds out.
    shape.read(Members::new(&packed[..]), most)
}

/// As [`read_idx`], from a store.
fn read_remote(shape: &Shape<'_>) -> Result<(Vec<u32>, Contents), DataError> {
    let (folder, key) = store::open_file(shape.path)?;
    let object = folder.find(&key)?;
    let stored = object.size();
    let mut stream = io::BufReader::new(Stream::new(object, 0));
    let start = io::BufRead::fill_buf(&mut stream).map_err(DataError::read(shape.path))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        shape.read(Members::new(stream), stored.saturating_mul(LARGEST_EXPANSION))
    } else {
        shape.read(stream, stored)
    }
}

/// What a file is expected to hold.
struct Shape<'a> {
    path: &'a Path,
    /// How many dimensions it may have.
    dimensions: RangeInclusive<usize>,
    /// The same in words.
    wanted: &'static str,
    /// Memory for its contents.
    room: Room,
}

/// Memory for the contents of several files.
#[derive(Debug, Clone, Copy)]
struct Room {
    limit: MemoryLimit,
    /// Bytes that the files before have left.
    left: u64,
}

impl Room {
    fn new(limit: MemoryLimit) -> Self {
        Self { limit, left: limit.bytes }
    }
}

impl Shape<'_> {
    /// Reads a file of that many bytes, onto huge pages: a shuffled epoch reads all over it.
    fn read_plain(&self, mut file: File, stored: u64) -> Result<(Vec<u32>, Contents), DataError> {
        let (sizes, header, promised) = self.header(&mut file, stored)?;
        if stored != (header + promised) as u64 {
            return Err(self.length(stored - header as u64, promised as u64));
        }
        let mut bytes = gunzip::zeroed(promised)
            .ok_or(io::ErrorKind::OutOfMemory.into())
            .map_err(DataError::read(self.path))?;
        file.read_exact(&mut bytes).map_err(DataError::read(self.path))?;
        Ok((sizes, Contents { bytes, header: 0 }))
    }

    /// Reads header and contents, which cannot be more than `most` bytes.
    fn read(&self, mut reader: impl Read, most: u64) -> Result<(Vec<u32>, Contents), DataError> {
        let (sizes, _, promised) = self.header(&mut reader, most)?;
        // The header may be wrong: no more memory than this is allocated before the data arrive.
        let mut bytes = Vec::with_capacity(promised.min(MOST_ON_TRUST));
        // One byte more than promised tells a file that is too long from one that is right.
        reader
            .take((promised as u64).saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(DataError::read(self.path))?;
        if bytes.len() != promised {
            return Err(self.length(bytes.len() as u64, promised as u64));
        }
        Ok((sizes, Contents { bytes, header: 0 }))
    }

    /// The dimensions, the header's own length and the length of what it promises, in bytes.
    fn header(
        &self,
        reader: &mut impl Read,
        most: u64,
    ) -> Result<(Vec<u32>, usize, usize), DataError> {
        let path = || self.path.to_owned();
        let mut word = || -> Result<u32, DataError> {
            let mut bytes = [0; 4];
            reader.read_exact(&mut bytes).map_err(DataError::read(self.path))?;
            Ok(u32::from_be_bytes(bytes))
        };
        let magic = word()?;
        let [zero, zero_too, code, count] = magic.to_be_bytes();
        if zero != 0 || zero_too != 0 {
            return Err(DataError::NotIdx { path: path(), found: magic });
        }
        if code != 0x08 {
            return Err(DataError::IdxType { path: path(), code });
        }
        let sizes = (0..count).map(|_| word()).collect::<Result<Vec<u32>, _>>()?;
        if !self.dimensions.contains(&sizes.len()) {
            let wanted = self.wanted;
            return Err(DataError::IdxDimensions { path: path(), found: sizes, wanted });
        }
        let header = MAGIC_BYTES * (1 + sizes.len() as u64);
        let product = sizes.iter().try_fold(1_u64, |all, &size| all.checked_mul(u64::from(size)));
        let promised = product.unwrap_or(u64::MAX);
        let available = most.saturating_sub(header);
        let Some(bytes) = usize::try_from(promised).ok().filter(|_| promised <= available) else {
            return Err(self.length(available, promised));
        };
        // A header may tell the truth and still promise a thousand times the file.
        let Room { limit, left } = self.room;
        if promised.saturating_add(header) > left {
            let MemoryLimit { bytes: limit, decided_by } = limit;
            return Err(DataError::Memory {
                path: path(),
                needs: promised,
                left,
                limit,
                decided_by,
            });
        }
        Ok((sizes, header as usize, bytes))
    }

    fn length(&self, found: u64, wanted: u64) -> DataError {
        DataError::IdxLength { path: self.path.to_owned(), found, wanted }
    }
}

/// The pairs in a folder (training split first), or the one pair a file belongs to.
fn find_pairs(path: &Path) -> Vec<Pair> {
    if store::is_remote(path) {
        return find_remote_pairs(path);
    }
    if path.is_file() {
        return pair_of(path, &Path::is_file).into_iter().collect();
    }
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    pairs_among(files, &Path::is_file)
}

/// As [`find_pairs`], in a store: by its listing, or by name where it lists nothing.
fn find_remote_pairs(path: &Path) -> Vec<Pair> {
    if names_idx(path) {
        return pair_of(path, &store::is_file).into_iter().collect();
    }
    let listing = store::open(path).and_then(|folder| folder.list(""));
    match listing {
        Ok(listing) => {
            let files: BTreeSet<PathBuf> =
                listing.files.iter().map(|file| path.join(&file.name)).collect();
            pairs_among(files.iter().cloned(), &|file| files.contains(file))
        }
        Err(store::StoreError::Unsupported { .. }) => {
            let usual = ["train", "t10k"].into_iter().flat_map(|split| {
                ["", ".gz"].map(|end| path.join(format!("{split}-images-idx3-ubyte{end}")))
            });
            pairs_among(usual.filter(|file| store::is_file(file)), &store::is_file)
        }
        Err(_) => Vec::new(),
    }
}

fn pairs_among(files: impl Iterator<Item = PathBuf>, exists: &dyn Fn(&Path) -> bool) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = files
        .filter(|file| {
            file.file_name().is_some_and(|name| name.to_string_lossy().contains("images"))
        })
        .filter_map(|file| pair_of(&file, exists))
        .collect();
    pairs.sort_by(|a, b| {
        (a.split.name() != "train", &a.images).cmp(&(b.split.name() != "train", &b.images))
    });
    // Plain and gzipped copies of the same split are one split; the plain one is faster to read.
    pairs.dedup_by(|b, a| a.split == b.split);
    pairs
}

/// Whether a name is one of this layout's files.
fn names_idx(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    (name.contains("ubyte") || name.contains("idx"))
        && (name.contains("images") || name.contains("labels"))
}

/// The partner of a file of images or of labels; the layout names them alike.
fn pair_of(file: &Path, exists: &dyn Fn(&Path) -> bool) -> Option<Pair> {
    let name = file.file_name()?.to_str()?;
    if !names_idx(file) {
        return None;
    }
    let (images, labels) = if name.contains("images") {
        (name.to_owned(), name.replace("images", "labels").replace("idx3", "idx1"))
    } else {
        (name.replace("labels", "images").replace("idx1", "idx3"), name.to_owned())
    };
    // One of the two may have been unpacked and the other not.
    let beside = |name: &str| {
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        [name.to_owned(), plain.to_owned(), format!("{plain}.gz")]
            .into_iter()
            .map(|name| file.with_file_name(name))
            .find(|path| exists(path))
    };
    let split = Split::ALL
        .into_iter()
        .find(|split| name.split(['-', '.', '_']).any(|word| split.aliases().contains(&word)))?;
    Some(Pair { split, images: beside(&images)?, labels: beside(&labels)? })
}

#[cfg(test)]
mod tests;
