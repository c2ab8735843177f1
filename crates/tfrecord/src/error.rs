//! Errors of record files, each with its position.
//!
//! A shard is one of thousands; an error that does not say which file, record
//! and byte does not help the person who must repair it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::compression::Compression;
use crate::wire::Malformed;

/// Where in which file a record begins.
///
/// In a compressed file the offset counts decompressed bytes: that is where
/// the record would be found after `gunzip`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPlace {
    /// The file, or the name given to a stream.
    pub file: PathBuf,
    /// Record number, counted from 0.
    pub record: u64,
    /// Byte offset of the record's first byte.
    pub offset: u64,
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, record {} at byte {}", self.file.display(), self.record, self.offset)
    }
}

/// Why records could not be read, written or indexed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to open or read the file.
    #[error("cannot read `{}`", .file.display())]
    Read { file: PathBuf, source: io::Error },
    /// The operating system refused to create or write the file.
    #[error("cannot write `{}`", .file.display())]
    Write { file: PathBuf, source: io::Error },
    /// The file ends inside a record's 12-byte header.
    #[error("{place}: file ends inside the record's header ({present} of 12 bytes)")]
    TruncatedHeader {
        place: RecordPlace,
        /// Bytes of the header that are there.
        present: u64,
    },
    /// The file ends inside a record's payload or the checksum after it.
    #[error("{place}: file ends inside the record ({present} of {wanted} bytes)")]
    TruncatedRecord {
        place: RecordPlace,
        /// Bytes the whole record takes, header and checksums included.
        wanted: u64,
        /// Bytes of it that are there.
        present: u64,
    },
    /// The length does not match its checksum: one of the two was damaged.
    #[error("{place}: length checksum {found:#010x}, expected {wanted:#010x}")]
    LengthChecksum {
        place: RecordPlace,
        /// The checksum stored in the file.
        found: u32,
        /// The checksum of the length as read.
        wanted: u32,
    },
    /// The payload does not match its checksum: one of the two was damaged.
    #[error("{place}: payload checksum {found:#010x}, expected {wanted:#010x}")]
    PayloadChecksum {
        place: RecordPlace,
        /// The checksum stored in the file.
        found: u32,
        /// The checksum of the payload as read.
        wanted: u32,
    },
    /// The first bytes are neither a record header nor gzip nor zlib.
    #[error("{place}: not a TFRecord file (the first 12 bytes are not a record header)")]
    NotTfRecord {
        /// Record 0, byte 0.
        place: RecordPlace,
    },
    /// A compressed stream ended, and something else follows it.
    #[error("{place}: bytes after the end of the compressed stream")]
    TrailingGarbage {
        /// The record that would come next.
        place: RecordPlace,
    },
    /// The record is longer than the reader was told to accept.
    #[error("{place}: record of {length} bytes, more than the limit of {limit}")]
    Oversized {
        place: RecordPlace,
        /// Payload length, in bytes, according to a header whose checksum is right.
        length: u64,
        limit: u64,
    },
    /// The compressed stream is damaged or ends too early.
    #[error("{place}: damaged {compression} stream")]
    Compression {
        /// The record being read when the damage showed.
        place: RecordPlace,
        /// How the file is compressed.
        compression: Compression,
        source: io::Error,
    },
    /// Random access was asked of a compressed file.
    #[error("`{}` is {compression}-compressed: its records can only be read in order", .file.display())]
    NoRandomAccess { file: PathBuf, compression: Compression },
    /// The index file is damaged or of an unknown version.
    #[error("index `{}` is damaged or of an unknown version", .file.display())]
    DamagedIndex { file: PathBuf },
    /// The index does not describe the file as it is now.
    #[error("index of `{}` is stale: it describes {indexed} bytes, the file has {actual}", .file.display())]
    StaleIndex { file: PathBuf, indexed: u64, actual: u64 },
    /// The file changed under its index: same size, other records.
    #[error("{place}: record of {found} bytes, but the index says {indexed}")]
    IndexMismatch {
        place: RecordPlace,
        /// Payload bytes according to the file.
        found: u64,
        /// Payload bytes according to the index.
        indexed: u64,
    },
    /// A record number beyond the last.
    #[error("`{}` has no record {record}: it holds {count}", .file.display())]
    NoSuchRecord { file: PathBuf, record: u64, count: u64 },
    /// A payload that is not a valid `tf.train.Example`, found by the borrowed view.
    #[error("malformed example")]
    Malformed(#[from] Malformed),
    /// A payload that is not a valid message, found by the full decoder.
    #[error("malformed message")]
    Decode(#[from] prost::DecodeError),
}

impl Error {
    /// The record and byte the error is about, where it is about one.
    pub fn place(&self) -> Option<&RecordPlace> {
        match self {
            Self::TruncatedHeader { place, .. }
            | Self::TruncatedRecord { place, .. }
            | Self::LengthChecksum { place, .. }
            | Self::PayloadChecksum { place, .. }
            | Self::NotTfRecord { place }
            | Self::TrailingGarbage { place }
            | Self::Oversized { place, .. }
            | Self::Compression { place, .. }
            | Self::IndexMismatch { place, .. } => Some(place),
            _ => None,
        }
    }
}
