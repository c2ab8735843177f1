//! Sizes and checksums of files, computed while they are written.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};

/// Bytes read at once when a file is checked.
const BLOCK: usize = 1 << 20;

/// Size and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    pub bytes: u64,
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl FileSum {
    /// Of bytes that are at hand.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) }
    }

    /// Of everything that can be read.
    pub fn of_reader(mut input: impl Read) -> io::Result<Self> {
        let mut out = HashingWriter::new(io::sink());
        let mut block = vec![0; BLOCK];
        loop {
            match input.read(&mut block) {
                Ok(0) => return Ok(out.finish().1),
                Ok(count) => out.write_all(&block[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Counts and hashes what goes through to `W`. Every write is a step of the checksum, so what writes single words wants
/// a [`std::io::BufWriter`] in front of it.
#[derive(Debug)]
pub struct HashingWriter<W> {
    out: W,
    hash: Sha256,
    bytes: u64,
}

impl<W> HashingWriter<W> {
    /// Passes everything on to `out`.
    #[must_use]
    pub fn new(out: W) -> Self {
        Self { out, hash: Sha256::new(), bytes: 0 }
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was written to, and the sum of what went there.
    #[must_use]
    pub fn finish(self) -> (W, FileSum) {
        let sum = FileSum { bytes: self.bytes, sha256: hex(&self.hash.finalize()) };
        (self.out, sum)
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_a_sum_agree_with_the_standard() {
        // The example of FIPS 180-2.
        let wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut out = HashingWriter::new(Vec::new());
        out.write_all(b"a").unwrap();
        out.write_all(b"bc").unwrap();
        assert_eq!(out.bytes(), 3);
        let (bytes, sum) = out.finish();
        assert_eq!((bytes.as_slice(), sum.bytes, sum.sha256.as_str()), (&b"abc"[..], 3, wanted));
        assert_eq!(FileSum::of(b"abc"), sum);
        assert_eq!(FileSum::of_reader(&b"abc"[..]).unwrap(), sum);
    }
}
