//! Reads record number `i` of a plain file, through its index.
//!
//! Takes `&self` and reads by position, so threads may share one file without
//! a lock. Both checksums are verified on every read, which also notices a
//! file that was replaced under its index.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, RecordPlace};
use crate::frame::{self, FOOTER_LEN, HEADER_LEN};
use crate::index::{self, Index};

/// Bytes by position, wherever they lie.
pub trait ReadAt: fmt::Debug + Send + Sync {
    /// Fills `buffer` from `offset` on; fewer bytes only where there are no more.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// How many bytes there are.
    fn size(&self) -> u64;
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Elsewhere(Box<dyn ReadAt>),
}

/// A plain record file with random access.
#[derive(Debug)]
pub struct IndexedFile {
    bytes: Bytes,
    path: PathBuf,
    index: Index,
}

impl IndexedFile {
    /// Opens a file, taking the index from beside it or building it there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let index = Index::load_or_build(&path)?;
        Self::with_index(path, index)
    }

    /// Opens a file with an index that is already known.
    pub fn with_index(path: impl AsRef<Path>, index: Index) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let failed = |source| Error::Read { file: path.clone(), source };
        let file = File::open(&path).map_err(failed)?;
        let actual = file.metadata().map_err(failed)?.len();
        let indexed = index.file_size();
        if indexed != actual {
            return Err(Error::StaleIndex { file: path, indexed, actual });
        }
        Ok(Self { bytes: Bytes::File(file), path, index })
    }

    /// Records outside the local file system; `name` is what messages call them.
    pub fn elsewhere(
        name: impl Into<PathBuf>,
        index: Index,
        bytes: Box<dyn ReadAt>,
    ) -> Result<Self, Error> {
        let (path, indexed, actual) = (name.into(), index.file_size(), bytes.size());
        if indexed != actual {
            return Err(Error::StaleIndex { file: path, indexed, actual });
        }
        Ok(Self { bytes: Bytes::Elsewhere(bytes), path, index })
    }

    /// Offsets and lengths of the records.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.index.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Reads record `record` into `buffer`, which is grown as needed and
    /// reused, and lends its payload.
    pub fn read<'b>(&self, record: u64, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], Error> {
        let span = self.index.get(record).ok_or_else(|| Error::NoSuchRecord {
            file: self.path.clone(),
            record,
            count: self.len(),
        })?;
        let place = || RecordPlace { file: self.path.clone(), record, offset: span.offset };
        // The index was compared with the file's size, so this is at most that.
        let length = usize::try_from(span.length).map_err(|_| Error::Oversized {
            place: place(),
            length: span.length,
            limit: usize::MAX as u64,
        })?;
        let total = HEADER_LEN + length + FOOTER_LEN;
        if buffer.len() < total {
            buffer.resize(total, 0);
        }
        let record_bytes = &mut buffer[..total];
        let present = match &self.bytes {
            Bytes::File(file) => index::read_at(file, record_bytes, span.offset),
            Bytes::Elsewhere(bytes) => bytes.read_at(record_bytes, span.offset),
        };
        let present = present.map_err(|source| Error::Read { file: self.path.clone(), source })?;
        let truncated = || Error::TruncatedRecord {
            place: place(),
            wanted: total as u64,
            present: present as u64,
        };
        if present < total {
            return Err(truncated());
        }
        let (header, rest) =
            record_bytes.split_first_chunk::<HEADER_LEN>().ok_or_else(truncated)?;
        let (payload, footer) = rest.split_last_chunk::<FOOTER_LEN>().ok_or_else(truncated)?;
        let found = frame::decode_header(header).map_err(|wrong| Error::LengthChecksum {
            place: place(),
            found: wrong.found,
            wanted: wrong.wanted,
        })?;
        if found != span.length {
            return Err(Error::IndexMismatch { place: place(), found, indexed: span.length });
        }
        frame::check_payload(payload, *footer).map_err(|wrong| Error::PayloadChecksum {
            place: place(),
            found: wrong.found,
            wanted: wrong.wanted,
        })?;
        Ok(payload)
    }
}
