//! Reads records in order, verified and without copying them out.
//!
//! One reader serves files, streams and compressed data. It reads whole blocks
//! into a buffer of its own and lends out payloads from there, so a record
//! costs one copy (out of the page cache) and one checksum while the bytes are
//! still in the core's second-level cache. A memory map would save that copy,
//! but a file that is cut short while mapped kills the process with SIGBUS;
//! a read just returns less.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::compression::{Compression, Fault, Source};
use crate::error::{Error, RecordPlace};
use crate::frame::{self, FOOTER_LEN, HEADER_LEN};

/// Bytes asked of the file at once. Small enough to stay in a 1-2 MB
/// second-level cache until the checksum has seen them, large enough that the
/// system call does not count.
const BLOCK: usize = 256 << 10;

/// Room before a block for the beginning of a record that straddles two, so
/// that every block is read to the same, page-aligned place.
const SLACK: usize = 256 << 10;

const PAGE: usize = 4096;

/// Records above this payload length, in bytes, are refused unless the reader
/// is told otherwise: protobuf messages end at 2 GiB, so nothing longer can be
/// a `tf.train.Example`.
pub const DEFAULT_MAX_RECORD: u64 = 2 << 30;

/// Settings of a [`Reader`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ReaderOptions {
    compression: Option<Compression>,
    max_record: u64,
    name: Option<PathBuf>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { compression: None, max_record: DEFAULT_MAX_RECORD, name: None }
    }
}

impl ReaderOptions {
    /// Takes the compression as given instead of recognising it.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Refuses records with a payload above `bytes`.
    pub fn max_record(mut self, bytes: u64) -> Self {
        self.max_record = bytes;
        self
    }

    /// The name that errors give to a stream without a path.
    pub fn name(mut self, name: impl Into<PathBuf>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Opens a file.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Reader<File>, Error> {
        let path = path.as_ref();
        let failed = |source| Error::Read { file: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        self.name.get_or_insert_with(|| path.to_owned());
        // Devices and pipes have no length to trust.
        let size = metadata.is_file().then_some(metadata.len());
        self.start(file, size)
    }

    /// Reads from any stream, such as a socket or a slice.
    pub fn stream<R: Read>(self, inner: R) -> Result<Reader<R>, Error> {
        self.start(inner, None)
    }

    fn start<R: Read>(self, inner: R, size: Option<u64>) -> Result<Reader<R>, Error> {
        // A small file needs no large buffer.
        let block = size.map_or(BLOCK, |size| {
            usize::try_from(size)
                .map_or(BLOCK, |size| size.next_multiple_of(PAGE).clamp(PAGE, BLOCK))
        });
        let slack = SLACK.min(block);
        let buffer = vec![0u8; slack + block + PAGE];
        let base = slack + buffer[slack..].as_ptr().align_offset(PAGE).min(PAGE);
        let mut reader = Reader {
            source: Source::Plain(inner),
            file: self.name.unwrap_or_else(|| PathBuf::from("<stream>")),
            buffer,
            base,
            block,
            start: base,
            end: base,
            ended: false,
            record: 0,
            offset: 0,
            size,
            max_record: self.max_record,
        };
        reader.buffer.truncate(base + block);
        reader.recognise(self.compression)?;
        Ok(reader)
    }
}

/// Reads records in order from a file or stream, see the [module](self).
///
/// ```no_run
/// # fn main() -> Result<(), paceline_tfrecord::Error> {
/// let mut reader = paceline_tfrecord::Reader::open("train.tfrecord")?;
/// while let Some(payload) = reader.next_record()? {
///     assert!(payload.len() < 1 << 20);
/// }
/// # Ok(()) }
/// ```
pub struct Reader<R> {
    source: Source<R>,
    file: PathBuf,
    buffer: Vec<u8>,
    /// Where in `buffer` blocks are read to.
    base: usize,
    /// Bytes asked for at once.
    block: usize,
    /// Unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// No more bytes will come, or an error was reported.
    ended: bool,
    record: u64,
    /// RecordPlace of `buffer[start]` in the decompressed file.
    offset: u64,
    /// Size of a plain file, in bytes, where known.
    size: Option<u64>,
    max_record: u64,
}

impl Reader<File> {
    /// Opens a file with the default settings.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        ReaderOptions::default().open(path)
    }
}

impl<R: Read> Reader<R> {
    /// Reads a stream with the default settings.
    pub fn new(inner: R) -> Result<Self, Error> {
        ReaderOptions::default().stream(inner)
    }

    /// How the file is compressed.
    pub fn compression(&self) -> Compression {
        self.source.compression()
    }

    /// Number of the record that comes next, which is the number read so far.
    pub fn record_number(&self) -> u64 {
        self.record
    }

    /// Offset of the record that comes next, in decompressed bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record's payload, its checksums verified; `None` at the end.
    ///
    /// The payload is lent until the next call. After an error the reader has ended.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, Error> {
        match self.advance() {
            Ok(Some(range)) => Ok(Some(&self.buffer[range])),
            Ok(None) => Ok(None),
            Err(error) => {
                self.ended = true;
                self.start = self.end;
                Err(error)
            }
        }
    }

    /// All payloads, each in a vector of its own.
    pub fn collect_records(mut self) -> Result<Vec<Vec<u8>>, Error> {
        let mut records = Vec::new();
        while let Some(payload) = self.next_record()? {
            records.push(payload.to_vec());
        }
        Ok(records)
    }

    /// Steps over the next record and says where in `buffer` its payload is.
    #[inline]
    fn advance(&mut self) -> Result<Option<std::ops::Range<usize>>, Error> {
        if self.end - self.start < HEADER_LEN {
            self.gather(HEADER_LEN)?;
            match self.end - self.start {
                0 => return Ok(None),
                present if present < HEADER_LEN => {
                    let place = self.place();
                    return Err(Error::TruncatedHeader { place, present: present as u64 });
                }
                _ => {}
            }
        }
        let length = self.header()?;
        // Fits: `header` has compared it with the limit and with usize.
        let total = HEADER_LEN + length + FOOTER_LEN;
        if self.end - self.start < total {
            self.gather(total)?;
            let present = self.end - self.start;
            if present < total {
                return Err(self.truncated(total as u64, present as u64));
            }
        }
        let payload = self.start + HEADER_LEN..self.start + HEADER_LEN + length;
        let footer = self.buffer[payload.end..]
            .first_chunk::<FOOTER_LEN>()
            .expect("the whole record was gathered");
        if let Err(wrong) = frame::check_payload(&self.buffer[payload.clone()], *footer) {
            let place = self.place();
            return Err(Error::PayloadChecksum { place, found: wrong.found, wanted: wrong.wanted });
        }
        self.start += total;
        self.offset += total as u64;
        self.record += 1;
        Ok(Some(payload))
    }

    /// Checks the header at `start` and returns a length that can be gathered.
    #[inline]
    fn header(&mut self) -> Result<usize, Error> {
        let header = self.buffer[self.start..self.end]
            .first_chunk::<HEADER_LEN>()
            .expect("the header was gathered");
        let length = match frame::decode_header(header) {
            Ok(length) => length,
            Err(wrong) => {
                // A damaged file and one of another kind fail alike; a believable length tells them apart.
                let believable = self.size.map_or(1 << 40, |size| size - self.offset.min(size));
                let place = self.place();
                return Err(if self.record == 0 && frame::unchecked_length(header) > believable {
                    Error::NotTfRecord { place }
                } else {
                    Error::LengthChecksum { place, found: wrong.found, wanted: wrong.wanted }
                });
            }
        };
        if let Some(size) = self.size {
            let wanted = length.saturating_add(frame::OVERHEAD);
            let present = size.saturating_sub(self.offset);
            if wanted > present {
                return Err(self.truncated(wanted, present));
            }
        }
        match usize::try_from(length) {
            Ok(fits) if length <= self.max_record && fits <= isize::MAX as usize / 2 => Ok(fits),
            _ => Err(Error::Oversized { place: self.place(), length, limit: self.max_record }),
        }
    }

    /// Reads until `wanted` bytes lie together from `start` on, or the end has come.
    fn gather(&mut self, wanted: usize) -> Result<(), Error> {
        while self.end - self.start < wanted && !self.ended {
            self.make_room(wanted);
            let until = self.buffer.len().min(self.end + self.block);
            match self.source.fill(&mut self.buffer[self.end..until]) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.end += bytes,
                Err(fault) => return Err(self.fault(fault)),
            }
        }
        Ok(())
    }

    /// Makes at least one byte of room after `end`, growing the buffer only
    /// when it is full of bytes that really arrived: a header may promise
    /// anything.
    fn make_room(&mut self, wanted: usize) {
        let tail = self.end - self.start;
        if tail == 0 {
            self.start = self.base;
            self.end = self.base;
        }
        if self.end < self.buffer.len() && self.start + wanted <= self.buffer.len() {
            return;
        }
        let to = if tail <= self.base && self.base - tail + wanted <= self.buffer.len() {
            self.base - tail
        } else {
            0
        };
        self.buffer.copy_within(self.start..self.end, to);
        self.start = to;
        self.end = to + tail;
        if self.end == self.buffer.len() {
            let length = wanted.min(self.buffer.len() * 2);
            self.buffer.reserve_exact(length - self.buffer.len());
            self.buffer.resize(length, 0);
        }
    }

    /// Looks at the first block and puts a decompressor in front if need be.
    fn recognise(&mut self, given: Option<Compression>) -> Result<(), Error> {
        self.gather(HEADER_LEN)?;
        let first = &self.buffer[self.start..self.end];
        let compression = given.unwrap_or_else(|| Compression::recognise(first));
        if compression == Compression::Plain {
            return Ok(());
        }
        let first = first.to_vec();
        let plain = std::mem::replace(&mut self.source, Source::Ended(compression));
        if let Source::Plain(inner) = plain {
            self.source = Source::compressed(compression, first, inner);
        }
        (self.start, self.end, self.ended) = (self.base, self.base, false);
        // The file's size says nothing about what it unpacks to.
        self.size = None;
        Ok(())
    }

    fn place(&self) -> RecordPlace {
        RecordPlace { file: self.file.clone(), record: self.record, offset: self.offset }
    }

    #[cold]
    fn truncated(&self, wanted: u64, present: u64) -> Error {
        Error::TruncatedRecord { place: self.place(), wanted, present }
    }

    #[cold]
    fn fault(&self, fault: Fault) -> Error {
        match fault {
            Fault::Read(source) => Error::Read { file: self.file.clone(), source },
            Fault::TrailingGarbage => Error::TrailingGarbage { place: self.place() },
            Fault::Damaged(source) => {
                Error::Compression { place: self.place(), compression: self.compression(), source }
            }
        }
    }
}
