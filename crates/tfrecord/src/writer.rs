//! Writes records, and says where each one went.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::write::{GzEncoder, ZlibEncoder};

use crate::compression::Compression;
use crate::error::Error;
use crate::frame;
use crate::index::Index;

/// Bytes collected before the file is written to.
const FILE_BUFFER: usize = 256 << 10;

/// Where a record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset of the record's first byte, before compression.
    pub offset: u64,
    /// Payload bytes.
    pub length: u64,
}

enum Sink<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zlib(ZlibEncoder<W>),
}

/// Writes records to anything that takes bytes.
///
/// Call [`finish`](Self::finish) at the end: only then is a compressed stream
/// complete, and only then are errors of the last bytes seen.
pub struct Writer<W: Write> {
    sink: Sink<W>,
    offset: u64,
    lengths: Index,
}

impl Writer<BufWriter<File>> {
    /// Creates (or empties) a file.
    ///
    /// For shards that must never be seen half-written, write to a temporary
    /// name, [`finish`](Self::finish), fsync and rename.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<Self, Error> {
        let path = path.as_ref();
        let file =
            File::create(path).map_err(|source| Error::Write { file: path.to_owned(), source })?;
        Ok(Self::with_compression(BufWriter::with_capacity(FILE_BUFFER, file), compression))
    }
}

impl<W: Write> Writer<W> {
    /// Writes plain records. Give it something buffered: a record is three small writes.
    pub fn new(inner: W) -> Self {
        Self::with_compression(inner, Compression::Plain)
    }

    /// Writes records through a compressor.
    pub fn with_compression(inner: W, compression: Compression) -> Self {
        let level = flate2::Compression::default();
        let sink = match compression {
            Compression::Plain => Sink::Plain(inner),
            Compression::Gzip => Sink::Gzip(GzEncoder::new(inner, level)),
            Compression::Zlib => Sink::Zlib(ZlibEncoder::new(inner, level)),
        };
        Self { sink, offset: 0, lengths: Index::default() }
    }

    /// Appends one record.
    pub fn write(&mut self, payload: &[u8]) -> io::Result<Span> {
        let length = payload.len() as u64;
        let sink: &mut dyn Write = match &mut self.sink {
            Sink::Plain(sink) => sink,
            Sink::Gzip(sink) => sink,
            Sink::Zlib(sink) => sink,
        };
        sink.write_all(&frame::encode_header(length))?;
        sink.write_all(payload)?;
        sink.write_all(&frame::encode_footer(payload))?;
        let span = Span { offset: self.offset, length };
        self.offset += length + frame::OVERHEAD;
        self.lengths.push(length);
        Ok(span)
    }

    /// Records written so far.
    pub fn records(&self) -> u64 {
        self.lengths.len()
    }

    /// Bytes written so far, before compression.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Completes the stream and hands back what was written to, flushed.
    pub fn finish(self) -> io::Result<W> {
        Ok(self.finish_with_index()?.0)
    }

    /// Like [`finish`](Self::finish), with the index of everything written.
    ///
    /// Of use for plain files only: a compressed one has no random access.
    pub fn finish_with_index(self) -> io::Result<(W, Index)> {
        let mut inner = match self.sink {
            Sink::Plain(inner) => inner,
            Sink::Gzip(encoder) => encoder.finish()?,
            Sink::Zlib(encoder) => encoder.finish()?,
        };
        inner.flush()?;
        Ok((inner, self.lengths))
    }
}
