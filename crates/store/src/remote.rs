//! An object store as a [`Store`].
//!
//! The crate `object_store` signs, retries with growing pauses and knows each service's conditional
//! writes; its futures are driven on the calling thread ([`wait`]), and its requests go out through a
//! blocking client ([`client`]). Many things at once therefore means many threads: large reads and writes
//! are cut into pieces that travel side by side.

mod client;
mod lease;
mod upload;

use std::{
    fmt, io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use object_store::{
    Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt,
    client::{HttpError, HttpErrorKind},
    path::Path as Key,
};

use crate::{
    FileEntry, IfExists, Listing, Lock, Object, Result, Service, Store, StoreError, Upload,
    check_key, check_range, durable::TEMPORARY, error::Said, join_key, side_by_side,
};
pub(crate) use client::{Connector, NoCredentials};

/// Objects up to this come in one answer; larger ones in pieces of this size, side by side. Bytes.
const PIECE: u64 = 4 << 20;
/// Pieces of one object on their way at once.
const PIECES_AT_ONCE: usize = 8;

/// Limits of patience, and what is known beside the environment. The defaults suit a service on the
/// internet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// How long connecting may take.
    pub connect: Duration,
    /// An answer that stands still for so long is given up and asked for again.
    pub stall: Duration,
    /// How often a request is repeated.
    pub retries: usize,
    /// First pause before a repetition; later ones grow, with chance in them, up to a hundred times this.
    pub back_off: Duration,
    /// No repetition begins later than this after the first request.
    pub give_up: Duration,
    /// Time between two renewals of a lock; one that was not renewed four times belongs to the dead.
    pub renew: Duration,
    /// Variables that come before those of the environment, such as `AWS_ENDPOINT_URL`.
    pub variables: Vec<(String, String)>,
}

impl RemoteSettings {
    /// A variable, if it says something.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let given = self.variables.iter().find(|(known, _)| known == name);
        let value = given.map(|(_, value)| value.clone());
        value.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
    }
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            retries: 8,
            back_off: Duration::from_millis(100),
            give_up: Duration::from_secs(180),
            renew: Duration::from_secs(15),
            variables: Vec::new(),
        }
    }
}

/// Runs a future of `object_store` to its end on this thread; only its timers need a runtime.
fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime of timers alone takes nothing from the system")
        .block_on(future)
}

/// A bucket, from some prefix on.
#[derive(Clone)]
pub(crate) struct RemoteStore {
    objects: Arc<dyn ObjectStore>,
    service: &'static Service,
    /// `scheme://bucket`.
    root: String,
    /// Without slashes at its ends; empty for the whole bucket.
    prefix: String,
    /// Time between two renewals of a lock.
    renew: Duration,
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore").field("location", &self.locate("")).finish_non_exhaustive()
    }
}

impl RemoteStore {
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        service: &'static Service,
        root: String,
        prefix: &str,
        renew: Duration,
    ) -> Self {
        Self { objects, service, root, prefix: prefix.to_owned(), renew }
    }

    fn key(&self, key: &str) -> Result<Key> {
        check_key(key)?;
        Key::parse(join_key(&self.prefix, key))
            .map_err(|_| StoreError::BadKey { key: key.to_owned() })
    }

    fn folder(&self, folder: &str) -> Result<Key> {
        if folder.is_empty() {
            Key::parse(&self.prefix).map_err(|_| StoreError::BadKey { key: self.prefix.clone() })
        } else {
            self.key(folder)
        }
    }

    fn failed(&self, action: &'static str, key: &str, error: &Error) -> StoreError {
        failed(action, self.locate(key), error)
    }

    fn found(&self, key: &str, meta: ObjectMeta) -> RemoteObject {
        RemoteObject {
            objects: Arc::clone(&self.objects),
            location: self.locate(key),
            // A weak tag says "much the same", which is not enough for a condition.
            tag: meta.e_tag.filter(|tag| !tag.starts_with("W/")),
            key: meta.location,
            size: meta.size,
        }
    }

    fn meta(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let at = self.key(key)?;
        match wait(self.objects.head(&at)) {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("examine", key, &error)),
        }
    }
}

impl Store for RemoteStore {
    fn locate(&self, key: &str) -> String {
        join_key(&self.root, &join_key(&self.prefix, key)).trim_end_matches('/').to_owned()
    }

    fn size(&self, key: &str) -> Result<Option<u64>> {
        Ok(self.meta(key)?.map(|meta| meta.size))
    }

    fn read_into(&self, key: &str, limit: u64, into: &mut Vec<u8>) -> Result<()> {
        let at = self.key(key)?;
        let failed = |error: Error| self.failed("read", key, &error);
        let answer = wait(self.objects.get(&at)).map_err(failed)?;
        let size = answer.meta.size;
        let too_large = || StoreError::TooLarge { location: self.locate(key), size, limit };
        if size > limit {
            return Err(too_large());
        }
        let length = usize::try_from(size).map_err(|_| too_large())?;
        if size <= PIECE {
            let start = into.len();
            into.reserve(length);
            return collect(answer, length, into).map_err(|problem| {
                into.truncate(start);
                problem.at("read", &self.locate(key))
            });
        }
        let object = self.found(key, answer.meta.clone());
        drop(answer); // the rest of this one answer would come alone
        into.append(&mut object.read(0..size)?);
        Ok(())
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>> {
        if range.end.saturating_sub(range.start) > PIECE {
            return self.find(key)?.read(range);
        }
        let at = self.key(key)?;
        fetch(&*self.objects, &at, &self.locate(key), None, &range)
    }

    fn find(&self, key: &str) -> Result<Arc<dyn Object>> {
        let meta = self.meta(key)?.ok_or_else(|| {
            StoreError::io("read", self.locate(key), io::ErrorKind::NotFound.into())
        })?;
        Ok(Arc::new(self.found(key, meta)))
    }

    fn is_distant(&self) -> bool {
        true
    }

    fn list(&self, folder: &str) -> Result<Listing> {
        let at = self.folder(folder)?;
        let prefix = (!at.as_ref().is_empty()).then_some(&at);
        let found = match wait(self.objects.list_with_delimiter(prefix)) {
            Ok(found) => found,
            // A plain web server knows files, not folders.
            Err(error) if !self.service.conditional && refused(&error) => {
                let reason = "this server lists no folders; name the files, or use one with WebDAV";
                return Err(StoreError::Unsupported { location: self.locate(folder), reason });
            }
            Err(error) => return Err(self.failed("list", folder, &error)),
        };
        let name = |key: &Key| key.filename().unwrap_or_default().to_owned();
        let mut listing = Listing {
            folders: found.common_prefixes.iter().map(name).collect(),
            files: found
                .objects
                .iter()
                // Some tools put an empty object in the place of a folder.
                .filter(|meta| meta.location != at)
                .map(|meta| FileEntry {
                    name: name(&meta.location),
                    size: meta.size,
                    changed: Some(meta.last_modified.into()),
                    exact: true,
                })
                .filter(|file| !file.name.is_empty() && !file.name.starts_with(TEMPORARY))
                .collect(),
        };
        if listing.folders.is_empty() && found.objects.is_empty() {
            // Folders exist through what is in them.
            let source = io::ErrorKind::NotFound.into();
            return Err(StoreError::io("list", self.locate(folder), source));
        }
        listing.folders.sort_unstable();
        listing.files.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(listing)
    }

    fn create(&self, key: &str, if_exists: IfExists) -> Result<Box<dyn Upload>> {
        Ok(Box::new(upload::RemoteUpload::new(self.clone(), key, if_exists)?))
    }

    fn remove(&self, key: &str) -> Result<()> {
        let at = self.key(key)?;
        match wait(self.objects.delete(&at)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove", key, &error)),
        }
    }

    fn remove_folder(&self, _: &str) -> Result<()> {
        Ok(()) // gone with the last object in it
    }

    fn sweep(&self, folder: &str) -> Result<usize> {
        let at = self.folder(folder)?;
        let prefix = (!at.as_ref().is_empty()).then_some(&at);
        let found = match wait(self.objects.list_with_delimiter(prefix)) {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(0),
            Err(error) if !self.service.conditional && refused(&error) => return Ok(0),
            Err(error) => return Err(self.failed("clean", folder, &error)),
        };
        let names = found.objects.iter().filter_map(|meta| meta.location.filename());
        let left: Vec<&str> = names.filter(|name| name.starts_with(TEMPORARY)).collect();
        for name in &left {
            self.remove(&join_key(folder, name))?;
        }
        Ok(left.len())
    }

    fn lock(&self, key: &str) -> Result<Box<dyn Lock>> {
        lease::take(self, key)
    }

    fn free_space(&self) -> Option<u64> {
        None
    }
}

/// An object at the version it had when it was found.
struct RemoteObject {
    objects: Arc<dyn ObjectStore>,
    key: Key,
    location: String,
    size: u64,
    tag: Option<String>,
}

impl fmt::Debug for RemoteObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteObject").field("location", &self.location).finish_non_exhaustive()
    }
}

impl RemoteObject {
    fn fetch(&self, range: &Range<u64>) -> Result<Vec<u8>> {
        fetch(&*self.objects, &self.key, &self.location, self.tag.clone(), range)
    }
}

impl Object for RemoteObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let length = check_range(&range, self.size, &self.location)?;
        if length as u64 <= PIECE {
            return self.fetch(&range);
        }
        let mut bytes = vec![0; length];
        let pieces: Vec<Mutex<&mut [u8]>> =
            bytes.chunks_mut(PIECE as usize).map(Mutex::new).collect();
        side_by_side(pieces.len(), PIECES_AT_ONCE, |number| {
            let mut piece = pieces[number].lock().unwrap_or_else(PoisonError::into_inner);
            let start = range.start + number as u64 * PIECE;
            let bytes = self.fetch(&(start..start + piece.len() as u64))?;
            piece.copy_from_slice(&bytes);
            Ok(())
        })?;
        drop(pieces);
        Ok(bytes)
    }
}

/// One range in one request, exactly as long as asked for.
fn fetch(
    objects: &dyn ObjectStore,
    key: &Key,
    location: &str,
    tag: Option<String>,
    range: &Range<u64>,
) -> Result<Vec<u8>> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let options = GetOptions {
        range: Some(GetRange::Bounded(range.clone())),
        if_match: tag,
        ..GetOptions::default()
    };
    let out_of_range = || StoreError::OutOfRange { location: location.to_owned(), end: range.end };
    let answer = match wait(objects.get_opts(key, options)) {
        Ok(answer) => answer,
        Err(error) if words(&error).starts_with("416") => return Err(out_of_range()),
        Err(error) if words(&error).contains("non-partial response") => {
            let reason = "this server sends files whole only; use one that answers range requests";
            return Err(StoreError::Unsupported { location: location.to_owned(), reason });
        }
        Err(error) => return Err(failed("read", location.to_owned(), &error)),
    };
    if answer.range != *range {
        return Err(out_of_range());
    }
    let length = usize::try_from(range.end - range.start).map_err(|_| out_of_range())?;
    let mut bytes = Vec::with_capacity(length.min(PIECE as usize));
    collect(answer, length, &mut bytes).map_err(|problem| problem.at("read", location))?;
    Ok(bytes)
}

enum Problem {
    Service(Error),
    /// Bytes received where others were announced.
    Length(u64, u64),
}

impl Problem {
    fn at(self, action: &'static str, location: &str) -> StoreError {
        match self {
            Self::Service(error) => failed(action, location.to_owned(), &error),
            Self::Length(got, wanted) => {
                let words = format!("{got} bytes came where {wanted} were announced");
                said(action, location.to_owned(), io::ErrorKind::ConnectionReset, words)
            }
        }
    }
}

/// Appends the bytes of an answer; exactly `length` must come.
fn collect(
    answer: GetResult,
    length: usize,
    into: &mut Vec<u8>,
) -> std::result::Result<(), Problem> {
    let start = into.len();
    wait(async {
        let mut stream = answer.into_stream();
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(Problem::Service)?;
            into.extend_from_slice(&bytes);
            if into.len() - start > length {
                break; // no memory for more than was announced
            }
        }
        let got = into.len() - start;
        if got == length { Ok(()) } else { Err(Problem::Length(got as u64, length as u64)) }
    })
}

/// A failure with the object's URL and what the service said about it.
fn failed(action: &'static str, location: String, error: &Error) -> StoreError {
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } => io::ErrorKind::AlreadyExists,
        Error::Precondition { .. } => io::ErrorKind::StaleNetworkFileHandle,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        _ => kind_of(error),
    };
    said(action, location, kind, words(error))
}

/// A failure of the service of `location`.
fn said(action: &'static str, location: String, kind: io::ErrorKind, words: String) -> StoreError {
    let said = Said { words, credentials: crate::services::hint(&location) };
    StoreError::Io { action, location, source: io::Error::new(kind, said) }
}

/// What the errors below an error say about it.
fn kind_of(error: &Error) -> io::ErrorKind {
    let causes = || {
        std::iter::successors(std::error::Error::source(error), |cause| {
            std::error::Error::source(*cause)
        })
    };
    if causes().find_map(|cause| cause.downcast_ref::<NoCredentials>()).is_some() {
        return io::ErrorKind::PermissionDenied;
    }
    if let Some(http) = causes().find_map(|cause| cause.downcast_ref::<HttpError>()) {
        return match http.kind() {
            HttpErrorKind::Timeout => io::ErrorKind::TimedOut,
            HttpErrorKind::Connect => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::ConnectionReset,
        };
    }
    // The service's own words, without the request: a key may contain anything.
    let text = words(error);
    // S3 answers 400, not 403, to a token whose time is over, and so does Google's exchange of tokens.
    const DENIED: [&str; 4] = ["ExpiredToken", "InvalidToken", "invalid_grant", "invalid_client"];
    let answered = |statuses: &[&str]| statuses.iter().any(|status| text.starts_with(status));
    if DENIED.iter().any(|code| text.contains(code)) || answered(&["401 ", "403 "]) {
        io::ErrorKind::PermissionDenied
    } else if answered(&["404 "]) {
        io::ErrorKind::NotFound
    } else if answered(&["50", "429 ", "408 "]) {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    }
}

/// Whether the server does not know the request at all.
fn refused(error: &Error) -> bool {
    let text = words(error);
    ["405", "501", "400", "403"].iter().any(|status| text.starts_with(status))
        || matches!(error, Error::NotSupported { .. } | Error::NotImplemented { .. })
}

/// What a service said, in a line: its own message where it sent one, without the request around it.
pub(crate) fn words(error: &Error) -> String {
    let mut last = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(this) = cause {
        last = this.to_string();
        cause = this.source();
    }
    const STATUS: &str = "Server returned non-2xx status code: ";
    let text = match last.find(STATUS) {
        Some(at) => &last[at + STATUS.len()..],
        None => last.as_str(),
    };
    let status = text.split(": ").next().unwrap_or_default();
    let inside = |name: &str| {
        let from = text.find(&format!("<{name}>"))? + name.len() + 2;
        let length = text[from..].find(&format!("</{name}>"))?;
        Some(text[from..from + length].lines().next().unwrap_or_default().trim())
    };
    match (inside("Code"), inside("Message")) {
        (Some(code), Some(message)) => format!("{status}: {message} ({code})"),
        (Some(code), None) => format!("{status}: {code}"),
        _ => {
            let line = text.lines().next().unwrap_or_default().trim().trim_end_matches(':');
            // A page of HTML does not help the user.
            line.split('<').next().unwrap_or_default().trim().trim_end_matches(':').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str);

    fn error(text: &'static str) -> Error {
        Error::Generic { store: "S3", source: Box::new(Said(text)) }
    }

    #[test]
    fn the_message_of_the_service_is_all_that_is_said() {
        let told = error(
            "Server returned non-2xx status code: 400 Bad Request: <?xml version=\"1.0\"?>\n<Error><Code>ExpiredToken</Code>\
             <Message>The provided token has expired.</Message></Error>",
        );
        assert_eq!(words(&told), "400 Bad Request: The provided token has expired. (ExpiredToken)");
        assert_eq!(kind_of(&told), io::ErrorKind::PermissionDenied);
        let page =
            error("Server returned non-2xx status code: 503 Service Unavailable: <html><body>..");
        assert_eq!(words(&page), "503 Service Unavailable");
        assert_eq!(kind_of(&page), io::ErrorKind::ResourceBusy);
        assert_eq!(words(&error("connection refused")), "connection refused");
    }
}
