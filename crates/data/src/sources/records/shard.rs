//! One file of records with access by number.

use std::{
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
};

use paceline_tfrecord::{
    Compression, Error, Index, IndexedFile, ReadAt, Reader, ReaderOptions, RecordPlace,
};

use crate::{
    DataError,
    store::{self, Spool, Store, Stream},
};

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
        if store::is_remote(path) {
            return Self::open_remote(path);
        }
        let records = match IndexedFile::open(path) {
            Ok(file) => Records::Indexed(file),
            Err(Error::NoRandomAccess { .. }) => unpack(path, Reader::open(path)?)?,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { path: path.to_owned(), records })
    }

    /// Opens a shard in a store: its index comes now, its records as they are asked for.
    fn open_remote(path: &Path) -> Result<Self, DataError> {
        let (folder, key) = store::open_file(path)?;
        let object = folder.find(&key)?;
        let beside = stored_index(&*folder, &key, object.size())?;
        let records = match beside {
            Some(index) => index,
            // Without an index of its own, one pass over the shard makes one.
            None => {
                let stream = Stream::new(folder.find(&key)?, 0);
                let mut reader = ReaderOptions::default().name(path).stream(stream)?;
                if reader.compression() != Compression::Plain {
                    let records = unpack(path, reader)?;
                    return Ok(Self { path: path.to_owned(), records });
                }
                let mut index = Index::default();
                while let Some(payload) = reader.next_record()? {
                    index.push(payload.len() as u64);
                }
                index
            }
        };
        let bytes = Box::new(Spooled(Spool::new(object)?));
        let records = Records::Indexed(IndexedFile::elsewhere(path, records, bytes)?);
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

    /// Bytes of the file; not known of one that was unpacked.
    pub(crate) fn stored_bytes(&self) -> Option<u64> {
        match &self.records {
            Records::Indexed(file) => Some(file.index().file_size()),
            Records::Unpacked { .. } => None,
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
    pub(crate) fn place(&self, record: u64) -> RecordPlace {
        let offset = match &self.records {
            Records::Indexed(file) => file.index().get(record).map_or(0, |span| span.offset),
            // 16 bytes of frame around each record before it.
            Records::Unpacked { ends, .. } => match record {
                0 => 0,
                _ => ends.get(record as usize - 1).map_or(0, |&end| end as u64 + 16 * record),
            },
        };
        RecordPlace { file: self.path.clone(), record, offset }
    }
}

/// The index beside a shard, if there is one and it fits.
fn stored_index(folder: &dyn Store, key: &str, size: u64) -> Result<Option<Index>, DataError> {
    let key = format!("{key}.index");
    // Eight bytes or so for a record, which has sixteen around it: no index is longer than its shard.
    let limit = size.max(4096);
    match folder.read(&key, limit) {
        Ok(bytes) => Ok(Index::decode(&bytes).filter(|index| index.file_size() == size)),
        Err(error) if error.is_missing() => Ok(None),
        Err(store::StoreError::TooLarge { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An object's bytes, by position.
#[derive(Debug)]
struct Spooled(Spool);

impl ReadAt for Spooled {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn size(&self) -> u64 {
        self.0.size()
    }
}

fn unpack<R: Read>(path: &Path, mut reader: Reader<R>) -> Result<Records, DataError> {
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
