//! One file of records with access by number.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use paceline_tfrecord::{Error, IndexedFile, Place, Reader};

use crate::DataError;

/// Compressed shards cannot be read at random, so they are unpacked into memory up to this; bytes.
const MOST_UNPACKED: u64 = 1 << 30;

/// A shard, on disk or unpacked.
#[derive(Debug)]
pub(crate) struct Shard {
    path: PathBuf,
    records: Records,
}

#[derive(Debug)]
enum Records {
    Indexed(IndexedFile),
    Unpacked { bytes: Vec<u8>, ends: Vec<usize> },
}

impl Shard {
    /// Opens a file; one without an index gets one.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let records = match IndexedFile::open(path) {
            Ok(file) => Records::Indexed(file),
            Err(Error::NoRandomAccess { .. }) => unpack(path)?,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path: path.to_owned(), records })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of records.
    pub(crate) fn len(&self) -> u64 {
        match &self.records {
            Records::Indexed(file) => file.len(),
            Records::Unpacked { ends, .. } => ends.len() as u64,
        }
    }

    /// Whether the records are held in memory.
    pub(crate) fn in_memory(&self) -> bool {
        matches!(self.records, Records::Unpacked { .. })
    }

    /// Reads a record and says where in `buffer` its payload is; whatever else is there is of no use.
    pub(crate) fn read(
        &self,
        record: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, DataError> {
        match &self.records {
            Records::Indexed(file) => {
                let payload = file.read(record, buffer)?;
                let (length, start) = (payload.len(), payload.as_ptr() as usize);
                let start = start - buffer.as_ptr() as usize;
                Ok(start..start + length)
            }
            Records::Unpacked { bytes, ends } => {
                let record = record as usize; // a number of something in memory
                let start = if record == 0 { 0 } else { ends[record - 1] };
                buffer.clear();
                buffer.extend_from_slice(&bytes[start..ends[record]]);
                Ok(0..buffer.len())
            }
        }
    }

    /// Where a record is, for messages.
    pub(crate) fn place(&self, record: u64) -> Place {
        let offset = match &self.records {
            Records::Indexed(file) => file.index().get(record).map_or(0, |span| span.offset),
            // 16 bytes of frame around each record before it.
            Records::Unpacked { ends, .. } => match record {
                0 => 0,
                _ => ends.get(record as usize - 1).map_or(0, |&end| end as u64 + 16 * record),
            },
        };
        Place { file: self.path.clone(), record, offset }
    }
}

fn unpack(path: &Path) -> Result<Records, DataError> {
    let mut reader = Reader::open(path)?;
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    while let Some(payload) = reader.next_record()? {
        if (bytes.len() + payload.len()) as u64 > MOST_UNPACKED {
            return Err(DataError::TooLargeUnpacked { path: path.to_owned(), most: MOST_UNPACKED });
        }
        bytes.extend_from_slice(payload);
        ends.push(bytes.len());
    }
    Ok(Records::Unpacked { bytes, ends })
}
