//! Lets an S3 service stand in for Google Cloud Storage.
//!
//! No registry has an emulator of the interface our client speaks: Google's XML one, which is S3's with
//! other names for headers and with *generations* where S3 has tags. So names are translated, and
//! conditions on generations decided here, one request at a time. What this cannot show is whatever the
//! real service does differently; that the addresses, headers and conditions we send are the right ones,
//! it does.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

/// An unsigned request would be anonymous; the emulator only looks at the name.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// What became of a request's head.
pub(crate) struct Translated {
    /// The head for S3.
    pub(crate) head: String,
    /// The generation that the object must have, 0 for none.
    pub(crate) condition: Option<u64>,
}

/// Translates the head of a request.
pub(crate) fn request(head: &str) -> Translated {
    let mut condition = None;
    let mut lines = Vec::new();
    for line in head.trim_end().lines() {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("x-goog-if-generation-match:") {
            condition = value.trim().parse().ok();
        } else if lower.starts_with("x-goog-copy-source:") {
            lines.push(format!("x-amz-copy-source:{}", &line["x-goog-copy-source:".len()..]));
        } else if !lower.starts_with("authorization:") {
            lines.push(line.to_owned());
        }
    }
    lines.push(format!("{SIGNED}\r\n\r\n"));
    Translated { head: lines.join("\r\n"), condition }
}

/// The generation of the object that a request is about; 0 where there is none.
pub(crate) fn generation(upstream: SocketAddr, path: &str) -> io::Result<u64> {
    let path = path.split('?').next().unwrap_or(path);
    let mut stream = TcpStream::connect(upstream)?;
    write!(
        stream,
        "HEAD {path} HTTP/1.1\r\nHost: {upstream}\r\nConnection: close\r\n{SIGNED}\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(if answer.contains(" 200 ") { of_tag(&answer).unwrap_or(0) } else { 0 })
}

/// Adds the generation to an answer that has a tag.
pub(crate) fn answer(bytes: &mut Vec<u8>) {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    if let Some(generation) = of_tag(&head) {
        let line = format!("\r\nx-goog-generation: {generation}");
        bytes.splice(end..end, line.into_bytes());
    }
}

/// A number that follows from an answer's tag, and so from the object's bytes.
fn of_tag(head: &str) -> Option<u64> {
    let tag = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("etag"))
        .map(|(_, tag)| tag.trim())?;
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    Some(hasher.finish() >> 12 | 1) // never 0, and no more digits than a JSON number keeps
}
