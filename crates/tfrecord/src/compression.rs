//! Detects plain, gzip or zlib files, and decompresses them.
//!
//! TensorFlow must be told how a file is compressed; here the first bytes say
//! it. A plain record header is recognised by its checksum first, because any
//! two bytes, gzip's magic number included, may begin a legitimate length.

use std::fmt;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::bufread::{GzDecoder, ZlibDecoder};

use crate::frame::{self, HEADER_LEN};

/// Compressed input is read in pieces of this size, in bytes.
const INPUT_BLOCK: usize = 64 << 10;

/// How a whole record file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all: records can be read at random and without a copy.
    #[default]
    Plain,
    /// A gzip file (RFC 1952), of one or several members.
    Gzip,
    /// A zlib stream (RFC 1950).
    Zlib,
}

impl Compression {
    /// Every kind, for tests and help texts.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Gzip, Self::Zlib];

    /// The name users write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
        }
    }

    /// Recognises the compression of a file from its first bytes (12 suffice).
    ///
    /// Anything unknown counts as plain: reading it then says what is wrong.
    pub fn recognise(first: &[u8]) -> Self {
        if let Some(header) = first.first_chunk::<HEADER_LEN>()
            && frame::decode_header(header).is_ok()
        {
            return Self::Plain;
        }
        match *first {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            // Method deflate, window of at most 32 KiB, no preset dictionary, and the header's own check.
            [method, flags, ..]
                if method & 0x0f == 8
                    && method >> 4 <= 7
                    && flags & 0x20 == 0
                    && u16::from_be_bytes([method, flags]).is_multiple_of(31) =>
            {
                Self::Zlib
            }
            _ => Self::Plain,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The file again from its start: the bytes already looked at, then the rest.
type Input<R> = BufReader<Chain<Cursor<Vec<u8>>, R>>;

/// Why no more bytes could be had.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file below could not be read.
    Read(io::Error),
    /// The compressed stream is damaged or cut short.
    Damaged(io::Error),
    /// Something follows the end of the compressed stream.
    TrailingGarbage,
}

/// Decompressed bytes of a file, whatever its compression.
pub(crate) enum Source<R> {
    Plain(R),
    // A decoder is some 40 KB of tables; boxed, so that plain readers stay small.
    Gzip(Box<GzDecoder<Input<R>>>),
    Zlib(Box<ZlibDecoder<Input<R>>>),
    /// The stream has ended; also the value while a gzip member is replaced.
    Ended(Compression),
}

impl<R: Read> Source<R> {
    /// `first` are bytes already taken from `inner`.
    pub(crate) fn compressed(compression: Compression, first: Vec<u8>, inner: R) -> Self {
        let input = |inner| BufReader::with_capacity(INPUT_BLOCK, Cursor::new(first).chain(inner));
        match compression {
            Compression::Gzip => Self::Gzip(Box::new(GzDecoder::new(input(inner)))),
            Compression::Zlib => Self::Zlib(Box::new(ZlibDecoder::new(input(inner)))),
            Compression::Plain => Self::Plain(inner),
        }
    }

    pub(crate) fn compression(&self) -> Compression {
        match self {
            Self::Plain(_) => Compression::Plain,
            Self::Gzip(_) => Compression::Gzip,
            Self::Zlib(_) => Compression::Zlib,
            Self::Ended(compression) => *compression,
        }
    }

    /// Reads some bytes into `buffer`, which must not be empty; 0 means the end.
    pub(crate) fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        loop {
            let read = match self {
                Self::Plain(inner) => inner.read(buffer),
                Self::Gzip(decoder) => decoder.read(buffer),
                Self::Zlib(decoder) => decoder.read(buffer),
                Self::Ended(_) => return Ok(0),
            };
            match read {
                Ok(0) => {
                    if !self.next_member()? {
                        return Ok(0);
                    }
                }
                Ok(bytes) => return Ok(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.classify(error)),
            }
        }
    }

    /// At the end of a stream: continues with the next gzip member, if there is one.
    fn next_member(&mut self) -> Result<bool, Fault> {
        let ended = Self::Ended(self.compression());
        match std::mem::replace(self, ended) {
            Self::Gzip(decoder) => {
                let mut input = decoder.into_inner();
                match input.fill_buf().map_err(Fault::Read)? {
                    [] => Ok(false),
                    [0x1f, ..] => {
                        *self = Self::Gzip(Box::new(GzDecoder::new(input)));
                        Ok(true)
                    }
                    _ => Err(Fault::TrailingGarbage),
                }
            }
            Self::Zlib(decoder) => {
                let mut input = decoder.into_inner();
                match input.fill_buf().map_err(Fault::Read)? {
                    [] => Ok(false),
                    _ => Err(Fault::TrailingGarbage),
                }
            }
            Self::Plain(inner) => {
                // A plain file may grow while it is read; leave it readable.
                *self = Self::Plain(inner);
                Ok(false)
            }
            Self::Ended(_) => Ok(false),
        }
    }

    /// The decoders report damage by these kinds; all others come from the file below.
    fn classify(&self, error: io::Error) -> Fault {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        match (self, error.kind()) {
            (Self::Gzip(_) | Self::Zlib(_), InvalidData | InvalidInput | UnexpectedEof) => {
                Fault::Damaged(error)
            }
            _ => Fault::Read(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_looks_like_gzip_is_still_a_plain_record() {
        // 0x088b1f is the magic number of gzip, read as a little-endian length; 0x9c78 that of zlib.
        for length in [0x08_8b1f, 0x9c78, 0x0178, 0xda78] {
            assert_eq!(Compression::recognise(&frame::encode_header(length)), Compression::Plain);
        }
    }

    #[test]
    fn compressed_streams_are_recognised_by_their_headers() {
        assert_eq!(Compression::recognise(&[0x1f, 0x8b, 8, 0]), Compression::Gzip);
        for flags in [0x01, 0x5e, 0x9c, 0xda] {
            assert_eq!(Compression::recognise(&[0x78, flags]), Compression::Zlib);
        }
        for other in [&b""[..], b"\x1f", b"\x1f\x8b\x07", b"PNG", b"\x78", b"\x78\x9d", b"\x78\xbb"]
        {
            assert_eq!(Compression::recognise(other), Compression::Plain, "{other:?}");
        }
    }
}
