//! Whether a file is the published one.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::{FetchError, RemoteFile, error::failed};
use paceline_store::durable::hex;

/// Compares a file with the registry; returns its SHA-256.
///
/// Some mirrors compress the same contents again. Where the SHA-256 of the contents is known, such a
/// file is as good as the published one.
pub(super) fn check(path: &Path, file: &RemoteFile) -> Result<String, FetchError> {
    let open = || File::open(path).map_err(failed("read", path));
    let sha256 = hash(open()?, u64::MAX).map_err(failed("read", path))?;
    if sha256.starts_with(file.sha256) {
        return Ok(sha256);
    }
    if let Some((bytes, contents)) = file.content_sha256 {
        // One byte beyond the right size is enough to see that it is wrong.
        let found = hash(MultiGzDecoder::new(open()?), bytes + 1);
        if found.is_ok_and(|found| found == contents) {
            return Ok(sha256);
        }
    }
    let from = path.display().to_string();
    Err(FetchError::Checksum { from, found: sha256, wanted: file.sha256 })
}

fn hash(reader: impl Read, limit: u64) -> io::Result<String> {
    let mut reader = reader.take(limit);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
