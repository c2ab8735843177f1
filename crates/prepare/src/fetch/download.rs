//! One file over HTTP, whatever the server does.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use ureq::{Agent, Body, http::Response};

use super::{
    Event, FetchError, FetchOptions, RemoteFile, error::failed, part_of, settle, sleep, verify,
};

/// Longest time between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Attempts in all, with progress or without: a server that sends a byte at a time must not keep us.
const MAX_ATTEMPTS: u32 = 100;
/// How much larger than the published file one with the same contents may be.
const REPACKED: u64 = 2;

/// A file to be downloaded.
pub(super) struct Download<'a> {
    pub(super) url: &'a str,
    pub(super) file: &'a RemoteFile,
    pub(super) target: &'a Path,
    /// Whether the size must be the published one.
    pub(super) exact: bool,
    pub(super) options: &'a FetchOptions,
    pub(super) cancel: &'a AtomicBool,
}

impl Download<'_> {
    /// Downloads, checks, and gives the file its name; returns its SHA-256.
    pub(super) fn run(&self, events: &mut dyn FnMut(Event<'_>)) -> Result<String, FetchError> {
        let part = part_of(self.target);
        let resumed = size(&part) > 0;
        self.receive(&part, events)?;
        let mut checked = verify::check(&part, self.file);
        if resumed && matches!(checked, Err(FetchError::Checksum { .. })) {
            // The first part may be an old one; once more from the start.
            self.forget(&part)?;
            self.receive(&part, events)?;
            checked = verify::check(&part, self.file);
        }
        match checked {
            Ok(sha256) => {
                settle(&part, self.target)?;
                let _ = fs::remove_file(tag_of(&part));
                Ok(sha256)
            }
            Err(error) => {
                self.forget(&part)?;
                Err(error.about(self.url.to_owned()))
            }
        }
    }

    /// Repeats attempts until the file is whole, or it makes no sense to go on.
    fn receive(&self, part: &Path, events: &mut dyn FnMut(Event<'_>)) -> Result<(), FetchError> {
        let mut fruitless = 0;
        for _ in 0..MAX_ATTEMPTS {
            let before = size(part);
            let error = match self.attempt(part, events) {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            fruitless = if size(part) > before { 0 } else { fruitless + 1 };
            if fruitless >= self.options.attempts {
                return Err(error);
            }
            let mut wait = self.options.back_off.saturating_mul(1 << fruitless.min(10));
            if let FetchError::Status { retry_after: Some(asked), .. } = error {
                wait = wait.max(asked);
            }
            let wait = wait.min(MAX_WAIT);
            events(Event::Retry { error: &error, wait });
            sleep(wait, self.cancel)?;
        }
        let (bytes, wanted) = (size(part), self.file.bytes);
        Err(FetchError::Truncated { url: self.url.into(), bytes, wanted })
    }

    /// One request, going on behind what is already there.
    fn attempt(&self, part: &Path, events: &mut dyn FnMut(Event<'_>)) -> Result<(), FetchError> {
        let mut have = size(part);
        if self.exact && have == self.file.bytes {
            return Ok(());
        }
        if have > self.limit() {
            self.forget(part)?;
            have = 0;
        }
        let response = self.request(part, have)?;
        let status = response.status().as_u16();
        let length = number(&response, "content-length");
        let (start, total) = match status {
            200 => (0, length),
            206 => {
                let range = text(&response, "content-range").and_then(parse_range);
                match range {
                    Some((start, total)) if start == have => (have, total),
                    _ => {
                        self.forget(part)?;
                        return Err(FetchError::WrongRange { url: self.url.into(), asked: have });
                    }
                }
            }
            416 => {
                // What is there is not a beginning of what the server has.
                self.forget(part)?;
                return Err(FetchError::WrongRange { url: self.url.into(), asked: have });
            }
            _ => {
                let retry_after = number(&response, "retry-after").map(Duration::from_secs);
                return Err(FetchError::Status { url: self.url.into(), status, retry_after });
            }
        };
        self.check_size(total)?;
        self.note_tag(part, &response)?;
        let total = total.unwrap_or(self.file.bytes);
        self.read_body(part, start, total, response.into_body(), events)
    }

    fn request(&self, part: &Path, have: u64) -> Result<Response<Body>, FetchError> {
        let agent: Agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(self.options.stall))
            .timeout_per_read(Some(self.options.stall))
            .timeout_per_write(Some(self.options.stall))
            .http_status_as_error(false)
            .max_redirects(8)
            .user_agent(concat!("paceline/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        // Compression on the way would make lengths and ranges meaningless.
        let mut request = agent.get(self.url).header("accept-encoding", "identity");
        if have > 0 {
            request = request.header("range", format!("bytes={have}-"));
            if let Some(tag) = self.known_tag(part) {
                // The server then sends the whole if it has another file by now.
                request = request.header("if-range", tag);
            }
        }
        request.call().map_err(|error| self.connection(error, have))
    }

    fn read_body(
        &self,
        part: &Path,
        start: u64,
        total: u64,
        body: Body,
        events: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), FetchError> {
        let failed = || failed("write", part);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(part)
            .map_err(failed())?;
        file.set_len(start).map_err(failed())?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(start)).map_err(failed())?;
        let mut have = start;
        let mut reader = body.into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 128 << 10];
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(FetchError::Cancelled);
            }
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(error, have)),
            };
            if have + count as u64 > total.min(self.limit()) {
                drop(file);
                self.forget(part)?;
                let (from, found) = (self.url.to_owned(), have + count as u64);
                return Err(FetchError::WrongSize { from, found, wanted: total });
            }
            file.write_all(&buffer[..count]).map_err(failed())?;
            have += count as u64;
            events(Event::Progress { file: self.file.name, bytes: have, total });
        }
        if have < total {
            return Err(FetchError::Truncated { url: self.url.into(), bytes: have, wanted: total });
        }
        file.sync_all().map_err(failed())
    }

    /// The most that is ever written.
    fn limit(&self) -> u64 {
        if self.exact { self.file.bytes } else { self.file.bytes.saturating_mul(REPACKED) }
    }

    /// Refuses a file of the wrong size before its first byte.
    fn check_size(&self, total: Option<u64>) -> Result<(), FetchError> {
        let wanted = self.file.bytes;
        match total {
            Some(found) if self.exact && found != wanted || found > self.limit() => {
                Err(FetchError::WrongSize { from: self.url.into(), found, wanted })
            }
            _ => Ok(()),
        }
    }

    /// Removes what was received and what is known about it.
    fn forget(&self, part: &Path) -> Result<(), FetchError> {
        for path in [part.to_path_buf(), tag_of(part)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Remembers which version the server sends. Weak tags do not promise equal bytes.
    fn note_tag(&self, part: &Path, response: &Response<Body>) -> Result<(), FetchError> {
        let path = tag_of(part);
        match text(response, "etag").filter(|tag| !tag.starts_with("W/")) {
            Some(tag) => {
                fs::write(&path, format!("{}\n{tag}\n", self.url)).map_err(failed("write", &path))
            }
            None => {
                let _ = fs::remove_file(&path);
                Ok(())
            }
        }
    }

    /// The tag that belongs to the partial file, if it came from here.
    fn known_tag(&self, part: &Path) -> Option<String> {
        let text = fs::read_to_string(tag_of(part)).ok()?;
        let (url, tag) = text.trim_end().split_once('\n')?;
        (url == self.url).then(|| tag.to_owned())
    }

    fn connection(&self, error: ureq::Error, bytes: u64) -> FetchError {
        match error {
            ureq::Error::Timeout(
                ureq::Timeout::PerRead | ureq::Timeout::RecvResponse | ureq::Timeout::RecvBody,
            ) => FetchError::Stalled { url: self.url.into(), stall: self.options.stall, bytes },
            error @ (ureq::Error::BadUri(_)
            | ureq::Error::TooManyRedirects
            | ureq::Error::RedirectFailed) => {
                FetchError::Address { url: self.url.into(), source: Box::new(error) }
            }
            error => FetchError::Connection { url: self.url.into(), source: Box::new(error) },
        }
    }

    fn broken(&self, error: io::Error, bytes: u64) -> FetchError {
        match error.downcast::<ureq::Error>() {
            Ok(error) => self.connection(error, bytes),
            Err(error) => self.connection(ureq::Error::Io(error), bytes),
        }
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Where the server's version tag of a partial file is kept.
fn tag_of(part: &Path) -> PathBuf {
    part.with_extension("tag")
}

fn text<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

fn number(response: &Response<Body>, name: &str) -> Option<u64> {
    text(response, name)?.trim().parse().ok()
}

/// `bytes 100-999/1000`: first byte and size of the whole, where it is said.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    Some((start.parse().ok()?, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_written() {
        assert_eq!(parse_range("bytes 100-999/1000"), Some((100, Some(1000))));
        assert_eq!(parse_range("bytes 0-9/*"), Some((0, None)));
        for bad in ["", "bytes", "bytes */1000", "items 1-2/3", "bytes 1/2", "bytes a-b/c"] {
            assert_eq!(parse_range(bad), None, "{bad}");
        }
    }
}
