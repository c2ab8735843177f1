//! Where each record of an uncompressed file begins, for random access.
//!
//! Kept beside the shard as `NAME.tfrecord.index`. Offsets follow from the
//! lengths, so only those are stored, as variable-length integers: two bytes
//! for a record of 11 KB.
//!
//! ```text
//! u8   magic[8]  "PLTFRIDX"
//! u32  version (1)         all numbers little endian
//! u64  size of the record file
//! u64  number of records
//!      lengths, LEB128
//! u32  CRC32C of everything before
//! ```
//!
//! An index is a cache: one that is missing, damaged or stale is built again
//! from the headers, which are checksummed, without reading the payloads.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::compression::Compression;
use crate::crc;
use crate::error::{Error, RecordPlace};
use crate::frame::{self, HEADER_LEN, OVERHEAD};
use crate::wire;
use crate::writer::Span;

const MAGIC: &[u8; 8] = b"PLTFRIDX";
const VERSION: u32 = 1;
/// Magic, version, file size, count.
const PREFIX: usize = 28;

/// Bytes read around each header: one page, in which small records have neighbours.
const WINDOW: usize = 4096;

/// Offsets and lengths of all records of a plain file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// `offsets[i]` is where record `i` begins; the last entry is the file's size.
    offsets: Vec<u64>,
}

impl Default for Index {
    fn default() -> Self {
        Self { offsets: vec![0] }
    }
}

impl Index {
    /// The file that holds the index of `records`: its name with `.index` appended.
    pub fn path_of(records: impl AsRef<Path>) -> PathBuf {
        let mut name = records.as_ref().as_os_str().to_owned();
        name.push(".index");
        PathBuf::from(name)
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the record file, in bytes.
    pub fn file_size(&self) -> u64 {
        *self.offsets.last().expect("an index holds at least the offset 0")
    }

    /// Where record `i` is, if there is one.
    pub fn get(&self, record: u64) -> Option<Span> {
        let i = usize::try_from(record).ok()?;
        let (offset, end) = (*self.offsets.get(i)?, *self.offsets.get(i.checked_add(1)?)?);
        Some(Span { offset, length: end - offset - OVERHEAD })
    }

    /// All records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Span> {
        self.offsets
            .windows(2)
            .map(|pair| Span { offset: pair[0], length: pair[1] - pair[0] - OVERHEAD })
    }

    /// Notes that a record with a payload of `length` bytes comes next.
    pub fn push(&mut self, length: u64) {
        let end = self.file_size();
        self.offsets.push(end + length + OVERHEAD);
    }

    /// The index stored beside `records` if it fits, else a new one, stored there.
    ///
    /// Where the new one cannot be stored (a folder that may only be read) it is still returned.
    pub fn load_or_build(records: impl AsRef<Path>) -> Result<Self, Error> {
        let records = records.as_ref();
        match Self::load(records) {
            Ok(index) => Ok(index),
            Err(Error::StaleIndex { .. } | Error::DamagedIndex { .. } | Error::Read { .. }) => {
                let index = Self::build(records)?;
                // Reading works without a stored cache.
                let _ = index.save(records);
                Ok(index)
            }
            Err(error) => Err(error),
        }
    }

    /// Builds the index in one pass over the headers of `records`.
    ///
    /// Payload checksums are verified when records are read, not here.
    pub fn build(records: impl AsRef<Path>) -> Result<Self, Error> {
        let path = records.as_ref();
        let failed = |source| Error::Read { file: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut index = Self::default();
        let mut window = [0u8; WINDOW];
        let (mut from, mut filled) = (0u64, 0usize);
        while index.file_size() < size {
            let offset = index.file_size();
            let place = || RecordPlace { file: path.to_owned(), record: index.len(), offset };
            if offset < from || offset + HEADER_LEN as u64 > from + filled as u64 {
                (from, filled) = (offset, read_at(&file, &mut window, offset).map_err(failed)?);
            }
            // At most WINDOW, since the header begins inside the window.
            let at = (offset - from) as usize;
            let header = window[at..filled].first_chunk::<HEADER_LEN>();
            if index.is_empty() {
                let compression = Compression::recognise(&window[..filled]);
                if compression != Compression::Plain {
                    return Err(Error::NoRandomAccess { file: path.to_owned(), compression });
                }
            }
            let Some(header) = header else {
                let present = (filled - at) as u64;
                return Err(Error::TruncatedHeader { place: place(), present });
            };
            let length = match frame::decode_header(header) {
                Ok(length) => length,
                Err(_) if index.is_empty() && frame::unchecked_length(header) > size => {
                    return Err(Error::NotTfRecord { place: place() });
                }
                Err(wrong) => {
                    let (found, wanted) = (wrong.found, wrong.wanted);
                    return Err(Error::LengthChecksum { place: place(), found, wanted });
                }
            };
            let (wanted, present) = (length.saturating_add(OVERHEAD), size - offset);
            if wanted > present {
                return Err(Error::TruncatedRecord { place: place(), wanted, present });
            }
            index.push(length);
        }
        Ok(index)
    }

    /// Reads the index stored beside `records` and compares it with the file's size.
    pub fn load(records: impl AsRef<Path>) -> Result<Self, Error> {
        let records = records.as_ref();
        let file = Self::path_of(records);
        let bytes = fs::read(&file).map_err(|source| Error::Read { file: file.clone(), source })?;
        let index = Self::decode(&bytes).ok_or(Error::DamagedIndex { file })?;
        let actual = fs::metadata(records)
            .map_err(|source| Error::Read { file: records.to_owned(), source })?
            .len();
        let indexed = index.file_size();
        if indexed != actual {
            return Err(Error::StaleIndex { file: records.to_owned(), indexed, actual });
        }
        Ok(index)
    }

    /// Stores the index beside `records`: whole, or not at all.
    pub fn save(&self, records: impl AsRef<Path>) -> Result<(), Error> {
        let target = Self::path_of(records);
        // The process number keeps two writers apart; the last rename wins, and both are right.
        let mut temporary = target.clone().into_os_string();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        self.write_to(&temporary, &target).map_err(|source| {
            let _ = fs::remove_file(&temporary);
            Error::Write { file: target.clone(), source }
        })
    }

    fn write_to(&self, temporary: &Path, target: &Path) -> io::Result<()> {
        let mut file = File::create(temporary)?;
        file.write_all(&self.encode())?;
        file.sync_all()?;
        fs::rename(temporary, target)?;
        // The new name itself lives in the folder, which needs its own fsync.
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The stored form, as described in the [module](self).
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PREFIX + 3 * self.offsets.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.file_size().to_le_bytes());
        bytes.extend_from_slice(&self.len().to_le_bytes());
        for span in self.iter() {
            wire::put_varint(&mut bytes, span.length);
        }
        let checksum = crc::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the stored form; `None` if anything about it is wrong.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if crc::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (prefix, mut lengths) = body.split_first_chunk::<PREFIX>()?;
        let number =
            |at: usize| Some(u64::from_le_bytes(*prefix.get(at..at + 8)?.first_chunk::<8>()?));
        if &prefix[..8] != MAGIC || prefix[8..12] != VERSION.to_le_bytes() {
            return None;
        }
        let (size, count) = (number(12)?, number(20)?);
        // Each length takes at least a byte, so the file itself bounds the allocation.
        let room = usize::try_from(count).ok().filter(|count| *count <= lengths.len())?;
        let mut index = Self { offsets: Vec::with_capacity(room + 1) };
        index.offsets.push(0);
        let mut end = 0u64;
        while !lengths.is_empty() {
            let length = wire::take_varint(&mut lengths)?;
            end = end.checked_add(length)?.checked_add(OVERHEAD)?;
            index.offsets.push(end);
        }
        (index.len() == count && end == size).then_some(index)
    }
}

/// Reads from `offset` until `buffer` is full or the file ends.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
