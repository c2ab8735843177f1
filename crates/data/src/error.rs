//! Why data could not be read, ordered or delivered.

use std::{io, path::PathBuf};

use paceline_batch::ImageShape;
use paceline_photo::PhotoError;
use paceline_tfrecord::{Malformed, RecordPlace};

use crate::{catalogue::ListError, manifest::ManifestError, source::Split, store::StoreError};

/// What went wrong with a data set, down to the file and record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Nothing to read.
    #[error("`{}` holds no example: {why}", .path.display())]
    NoExamples {
        /// The data set.
        path: PathBuf,
        why: String,
    },
    /// Batches of nothing.
    #[error("there are no examples to make batches of")]
    NothingToBatch,
    /// More photos than can be numbered.
    #[error("more than {} photos", u32::MAX)]
    TooManyPhotos,
    /// The batch size does not go with the set.
    #[error("{examples} examples do not make a single batch of {size}")]
    NoWholeBatch {
        /// Examples in the set.
        examples: u64,
        /// The batch size asked for.
        size: u64,
    },
    /// A worker number outside of its group.
    #[error("worker {worker} does not exist among {workers}")]
    NoSuchWorker {
        /// The number asked for, from 0.
        worker: u64,
        /// Size of the group.
        workers: u64,
    },
    /// A file or folder is missing or unreadable.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// No known kind of data set.
    #[error("`{}` is not a data set that this program knows; looked for {looked_for}", .path.display())]
    Unrecognised {
        path: PathBuf,
        /// What every source looked for.
        looked_for: String,
    },
    /// The set has no such part.
    #[error("`{}` has no {wanted} split; it has {found}", .path.display())]
    NoSplit {
        /// The data set.
        path: PathBuf,
        /// What was asked for.
        wanted: Split,
        /// The splits there are.
        found: String,
    },
    /// An IDX file starts with something else.
    #[error("`{}` is not an IDX file: it starts with {found:#010x}", .path.display())]
    NotIdx {
        path: PathBuf,
        /// Its first four bytes, big-endian.
        found: u32,
    },
    /// An IDX file of another element type than bytes.
    #[error("`{}` holds IDX elements of type {code:#04x}; only unsigned bytes (0x08) are read", .path.display())]
    IdxType {
        path: PathBuf,
        /// The type code found.
        code: u8,
    },
    /// An IDX file with the wrong number of dimensions or an impossible size.
    #[error("`{}` has dimensions {found:?}, expected {wanted}", .path.display())]
    IdxDimensions {
        path: PathBuf,
        /// Sizes in the header.
        found: Vec<u32>,
        /// What would have been right.
        wanted: &'static str,
    },
    /// An IDX file shorter or longer than its header says.
    #[error("`{}` holds {found} bytes after its header, which promises {wanted}", .path.display())]
    IdxLength {
        path: PathBuf,
        /// Bytes that follow the header (at least, where it is too long).
        found: u64,
        /// The product of the dimensions.
        wanted: u64,
    },
    /// A set that is held in memory, and more of it than there is memory.
    #[error(
        "`{}` unpacks to {} MB; IDX files are held in memory, {} MB are left for it, and this process may use {} MB ({decided_by})",
        .path.display(), .needs.div_ceil(1_000_000), .left / 1_000_000, .limit / 1_000_000
    )]
    Memory {
        path: PathBuf,
        /// Bytes of its contents.
        needs: u64,
        /// Bytes that the files before it have left.
        left: u64,
        /// Bytes that this process may use.
        limit: u64,
        decided_by: &'static str,
    },
    /// Images and labels that do not belong together.
    #[error("`{}` holds {images} images but `{}` {labels} labels", .image_path.display(), .label_path.display())]
    CountMismatch {
        /// The file of images.
        image_path: PathBuf,
        images: u64,
        /// The file of labels.
        label_path: PathBuf,
        labels: u64,
    },
    /// A label that names no class.
    #[error("`{}`, record {record}: label {label} is outside of {classes} classes", .path.display())]
    LabelRange {
        path: PathBuf,
        /// Number of the record, from 0.
        record: u64,
        label: i64,
        classes: usize,
    },
    /// An unknown setting in a `generated:` specification.
    #[error("`generated:` knows no setting `{key}`; it knows {known}")]
    SpecKey {
        /// What was written.
        key: String,
        /// What may be written.
        known: &'static str,
    },
    /// A setting of a `generated:` specification out of its range.
    #[error("`{key}={value}` in a `generated:` specification: expected {wanted}")]
    SpecValue {
        key: String,
        value: String,
        /// What would have been right.
        wanted: &'static str,
    },
    /// A slot or image of another shape than the schema says.
    #[error("`{}`, record {record}: an image of {found}, expected {wanted}", .path.display())]
    Shape {
        path: PathBuf,
        /// Number of the record, from 0.
        record: u64,
        found: ImageShape,
        wanted: ImageShape,
    },
    /// A width or height of zero was asked for.
    #[error("an image needs a width and a height of at least one pixel")]
    NoSize,
    /// A photo that cannot be decoded.
    #[error("cannot decode `{}`", .path.display())]
    Photo {
        path: PathBuf,
        /// What is wrong with it.
        source: PhotoError,
    },
    /// A record's image that cannot be decoded.
    #[error("{place}: cannot decode its image")]
    RecordPhoto {
        place: RecordPlace,
        /// What is wrong with the image.
        source: PhotoError,
    },
    /// A damaged record or shard.
    #[error(transparent)]
    Record(#[from] paceline_tfrecord::Error),
    /// A record whose payload is not an example.
    #[error("{place}: not a `tf.train.Example`")]
    Example {
        place: RecordPlace,
        /// What is wrong with it.
        source: Malformed,
    },
    /// A record without something an image needs.
    #[error("{place}: no feature `{name}`")]
    MissingFeature {
        place: RecordPlace,
        /// The feature looked for.
        name: &'static str,
    },
    /// Records that are intact, and do not hold images.
    #[error("{place}: a record without an image: it has {found}; wanted are {wanted}")]
    ForeignRecords {
        place: RecordPlace,
        /// Its features.
        found: String,
        wanted: String,
    },
    /// Rows where images are wanted.
    #[error("`{}` holds rows of sparse features ({format}), not images", .path.display())]
    Rows {
        /// The data set.
        path: PathBuf,
        format: String,
    },
    /// A record's label that names no class.
    #[error("{place}: label {label} is outside of {classes} classes counted from {first}")]
    RecordLabel {
        place: RecordPlace,
        label: i64,
        /// The label of the first class.
        first: i64,
        classes: usize,
    },
    /// Raw pixels of the wrong size.
    #[error("{place}: raw image of {found} bytes, expected {wanted}")]
    RawLength {
        place: RecordPlace,
        found: usize,
        /// Bytes of the shape.
        wanted: usize,
    },
    /// A compressed shard too large to be held in memory.
    #[error("`{}` is compressed and unpacks to more than {most} bytes; only plain shards are read at random", .path.display())]
    TooLargeUnpacked { path: PathBuf, most: u64 },
    /// A shard that is not the one the manifest speaks of.
    #[error("`{}` has {found} {what}, the manifest says {wanted}", .path.display())]
    ShardChanged {
        path: PathBuf,
        what: &'static str,
        found: u64,
        /// As it should be.
        wanted: u64,
    },
    /// A shard of the right size with other contents.
    #[error("`{}` is not the shard that the manifest speaks of: its SHA-256 is {found}, the manifest says {wanted}", .path.display())]
    ShardChecksum {
        path: PathBuf,
        found: String,
        /// As it should be.
        wanted: String,
    },
    /// Checksums shall be compared where there are none.
    #[error("`{}` has no manifest with checksums to compare", .path.display())]
    NoChecksums {
        /// The data set.
        path: PathBuf,
    },
    /// The manifest of a set is unreadable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The store of a set failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// More examples were left out than allowed.
    #[error("more than {most} examples cannot be read; the last one")]
    TooManySkipped {
        most: u64,
        /// Why the last one could not be read.
        #[source]
        last: Box<DataError>,
    },
    /// More photos were rejected than allowed.
    #[error("{rejects} photos rejected, more than the {limit} allowed; first: {}", .first.join("; "))]
    TooManyRejects {
        /// Rejects so far.
        rejects: u64,
        limit: u64,
        /// The first of them with their reasons.
        first: Vec<String>,
    },
    /// Not one photo can be used.
    #[error("all {photos} photos were rejected; the last: {last}")]
    AllRejected {
        /// Photos tried.
        photos: u64,
        /// The last of them with its reason.
        last: String,
    },
    /// A source failed in a way it should not have.
    #[error("reading example {index} panicked, which is a bug in its source")]
    Panicked {
        /// Number of the example.
        index: u64,
    },
    /// No text format of that name.
    #[error("no format of rows is called `{asked}`; there are {known}")]
    RowFormat {
        /// What was asked for.
        asked: String,
        /// The formats there are.
        known: String,
    },
    /// A file whose first lines are rows of no known format.
    #[error("the first lines of `{}` are not rows in a known format ({known})", .path.display())]
    NoRows {
        path: PathBuf,
        /// The formats there are.
        known: String,
    },
    /// Too many lines are malformed.
    #[error("{count} of {lines} lines are malformed, more than {budget} %; the first is {first}; a sample is in `{}`", .path.display())]
    TooManyRejected {
        count: u64,
        /// All lines so far.
        lines: u64,
        /// The share allowed, in percent.
        budget: f64,
        /// Where a sample was written.
        path: PathBuf,
        /// RecordPlace and reason of the first.
        first: String,
    },
    /// The description of prepared rows is damaged.
    #[error("`{}` does not describe prepared rows: {reason}", .path.display())]
    RowsDescription {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Fewer files than workers.
    #[error("worker/{worker} gets no file: {files} file{} for {workers} workers", if *.files == 1 { "" } else { "s" })]
    NoFilesFor {
        /// The worker, from 0.
        worker: usize,
        /// How many there are.
        workers: usize,
        /// Files to be dealt.
        files: usize,
    },
    /// The system refused another thread.
    #[error("cannot start a loader thread")]
    Thread { source: io::Error },
}

impl From<ListError> for DataError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Store(error) => Self::Store(error),
            ListError::TooMany => Self::TooManyPhotos,
            ListError::Cancelled => unreachable!("opening a set is never cancelled"),
        }
    }
}

impl DataError {
    /// Whether what was typed is wrong, whatever lies on the disk.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::SpecKey { .. } | Self::SpecValue { .. })
    }

    /// Wraps a failure to read `path`.
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    /// Wraps a failure to write `path`.
    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }

    /// The record concerned, where there is one: file, number and offset.
    #[must_use]
    pub fn place(&self) -> Option<&RecordPlace> {
        match self {
            Self::RecordPhoto { place, .. }
            | Self::Example { place, .. }
            | Self::MissingFeature { place, .. }
            | Self::ForeignRecords { place, .. }
            | Self::RecordLabel { place, .. }
            | Self::RawLength { place, .. } => Some(place),
            Self::Record(error) => error.place(),
            _ => None,
        }
    }
}
