//! Writing an object: one request for a small one, parts side by side for a large one.
//!
//! Either way the service shows the object whole, at one moment, or never. Where it must not exist
//! before, a small object is put on that condition; a large one goes to a temporary key and is copied by
//! the service on that condition, because parts cannot be completed on one everywhere.
//!
//! A lost answer leaves open whether a write happened. What is under the key afterwards decides: the very
//! bytes that were to be written are a success, no matter which process put them there.

use std::{
    collections::VecDeque,
    io::{self, Write},
    thread::{self, JoinHandle},
};

use bytes::Bytes;
use object_store::{
    CopyMode, CopyOptions, Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, path::Path as Key,
};

use super::{RemoteStore, wait};
use crate::{
    IfExists, Result, Store, StoreError, Upload, durable::TEMPORARY, fresh_token, join_key,
};

/// Bytes of a part; services want at least 5 MiB, all but the last of one size, and at most 10,000.
const PART: usize = 8 << 20;
/// Parts of one object on their way at once; with the one being filled, what an upload holds in memory.
const PARTS_AT_ONCE: usize = 4;
/// Most that is held in memory for a server that takes an object in one request only. Bytes.
const MOST_WHOLE: usize = 1 << 30;

/// How often a conditional write is tried whose outcome stays unknown.
const ATTEMPTS: usize = 4;

/// An object being written.
pub(super) struct RemoteUpload {
    store: RemoteStore,
    key: String,
    if_exists: IfExists,
    buffer: Vec<u8>,
    parts: Option<Parts>,
}

/// An upload in parts that has begun.
struct Parts {
    upload: Box<dyn MultipartUpload>,
    /// Where the parts become an object: the key itself, or a temporary one.
    target: String,
    /// The version that was under the key before, if there was one.
    before: Option<String>,
    /// Bytes handed over.
    bytes: u64,
    under_way: VecDeque<JoinHandle<object_store::Result<()>>>,
}

impl RemoteUpload {
    pub(super) fn new(store: RemoteStore, key: &str, if_exists: IfExists) -> Result<Self> {
        store.key(key)?;
        Ok(Self { store, key: key.to_owned(), if_exists, buffer: Vec::new(), parts: None })
    }

    fn failed(&self, error: &Error) -> StoreError {
        self.store.failed("write", &self.key, error)
    }

    /// Sends full parts away; waits where too many are on their way.
    fn send(&mut self, least: usize) -> Result<()> {
        while self.buffer.len() >= least && !self.buffer.is_empty() {
            let parts = match &mut self.parts {
                Some(parts) => parts,
                None => self.parts.insert(Parts::begin(&self.store, &self.key, self.if_exists)?),
            };
            let rest = self.buffer.split_off(self.buffer.len().min(PART));
            let part = std::mem::replace(&mut self.buffer, rest);
            if let Err(error) = parts.send(part) {
                return Err(self.store.failed("write", &self.key, &error));
            }
        }
        Ok(())
    }

    fn commit_whole(&mut self) -> Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        if !self.store.service.conditional {
            return self.commit_by_copy(&bytes);
        }
        let mode = match self.if_exists {
            IfExists::Replace => PutMode::Overwrite,
            IfExists::Fail => PutMode::Create,
        };
        let at = self.store.key(&self.key)?;
        let mut attempt = 1;
        loop {
            let payload = PutPayload::from(bytes.clone());
            let put = self.store.objects.put_opts(&at, payload, PutOptions::from(mode.clone()));
            let Err(error) = wait(put) else { return Ok(()) };
            if self.if_exists == IfExists::Replace {
                return Err(self.failed(&error));
            }
            // The client library does not repeat a conditional request without an answer, because its outcome
            // is unknown. Reading the object tells.
            match self.judge(&error, Compare::Bytes(&bytes)) {
                Err(problem) if attempt < ATTEMPTS && is_open(&problem) => attempt += 1,
                judged => return judged,
            }
        }
    }

    /// For servers without conditions: a temporary name, and a copy on the server.
    fn commit_by_copy(&self, bytes: &Bytes) -> Result<()> {
        let temporary = temporary(&self.key);
        let from = self.store.key(&temporary)?;
        // Folders are made when a server complains that there are none. Some do so without reading what is
        // sent, and then a large object meets a closed connection instead of the complaint: so nothing first.
        let put = |bytes: Bytes| wait(self.store.objects.put(&from, PutPayload::from(bytes)));
        let put = put(Bytes::new()).and_then(|_| put(bytes.clone()));
        let copied = put.and_then(|_| self.copy(&from));
        let _ = self.store.remove(&temporary); // swept later, if not now
        match copied {
            Ok(()) => Ok(()),
            Err(error) if self.if_exists == IfExists::Fail => {
                self.judge(&error, Compare::Bytes(bytes))
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn copy(&self, from: &Key) -> object_store::Result<()> {
        let to = Key::parse(join_key(&self.store.prefix, &self.key)).map_err(Error::from)?;
        let mode = match self.if_exists {
            IfExists::Replace => CopyMode::Overwrite,
            IfExists::Fail => CopyMode::Create,
        };
        wait(self.store.objects.copy_opts(from, &to, CopyOptions::new().with_mode(mode)))
    }

    fn commit_parts(&mut self, mut parts: Parts) -> Result<()> {
        let last = std::mem::take(&mut self.buffer);
        let sent = if last.is_empty() { Ok(()) } else { parts.send(last) };
        let done = sent.and_then(|()| parts.settle(0));
        if let Err(error) = done {
            parts.abandon();
            return Err(self.failed(&error));
        }
        if let Err(error) = wait(parts.upload.complete()) {
            // A lost answer, asked for again, finds no upload by that name any more.
            if !self.arrived(&parts)? {
                parts.abandon();
                return Err(self.failed(&error));
            }
        }
        if parts.target == self.key {
            return Ok(());
        }
        let from = self.store.key(&parts.target)?;
        let mut attempt = 1;
        let judged = loop {
            let Err(error) = self.copy(&from) else { break Ok(()) };
            match self.judge(&error, Compare::Object(&parts.target)) {
                Err(problem) if attempt < ATTEMPTS && is_open(&problem) => attempt += 1,
                judged => break judged,
            }
        };
        let _ = self.store.remove(&parts.target); // swept later, if not now
        judged
    }

    /// Whether the object of these parts is there, although the last answer said otherwise.
    fn arrived(&self, parts: &Parts) -> Result<bool> {
        let found = self.store.meta(&parts.target)?;
        Ok(found.is_some_and(|meta| meta.size == parts.bytes && meta.e_tag != parts.before))
    }

    /// A conditional write did not go through: because the object was there, or because an answer was
    /// lost and the repetition met our own object.
    fn judge(&self, error: &Error, wanted: Compare<'_>) -> Result<()> {
        let same = match wanted {
            Compare::Bytes(bytes) => {
                let found = self.store.read(&self.key, bytes.len() as u64);
                found.is_ok_and(|found| found == bytes[..])
            }
            Compare::Object(key) => self.is_copy_of(key).unwrap_or(false),
        };
        if same {
            return Ok(());
        }
        let location = || self.store.locate(&self.key);
        match error {
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                match self.store.size(&self.key)? {
                    Some(_) => Err(StoreError::Exists { location: location() }),
                    // Two simultaneous writers may both be refused; then neither has written yet.
                    None => {
                        let words = super::words(error);
                        Err(super::said("write", location(), io::ErrorKind::TimedOut, words))
                    }
                }
            }
            error => Err(self.failed(error)),
        }
    }

    /// Whether the object under the key holds what is under `other`.
    fn is_copy_of(&self, other: &str) -> Result<bool> {
        let (ours, theirs) = (self.store.find(other)?, self.store.find(&self.key)?);
        let size = ours.size();
        if theirs.size() != size {
            return Ok(false);
        }
        for start in (0..size).step_by(PART) {
            let range = start..size.min(start + PART as u64);
            if ours.read(range.clone())? != theirs.read(range)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What a key should hold after a conditional write.
#[derive(Clone, Copy)]
enum Compare<'a> {
    Bytes(&'a Bytes),
    /// What is under this key.
    Object(&'a str),
}

/// Whether a write may or may not have happened, and is not under its key: the way failed, not the service.
fn is_open(problem: &StoreError) -> bool {
    matches!(problem.kind(), Some(io::ErrorKind::TimedOut | io::ErrorKind::ConnectionReset))
}

impl Parts {
    fn begin(store: &RemoteStore, key: &str, if_exists: IfExists) -> Result<Self> {
        let target = match if_exists {
            IfExists::Replace => key.to_owned(),
            IfExists::Fail => temporary(key),
        };
        let before = store.meta(&target)?.and_then(|meta| meta.e_tag);
        let at = store.key(&target)?;
        let upload = wait(store.objects.put_multipart_opts(&at, PutMultipartOptions::default()))
            .map_err(|error| store.failed("write", key, &error))?;
        Ok(Self { upload, target, before, bytes: 0, under_way: VecDeque::new() })
    }

    fn send(&mut self, part: Vec<u8>) -> object_store::Result<()> {
        self.settle(PARTS_AT_ONCE - 1)?;
        self.bytes += part.len() as u64;
        let sending = self.upload.put_part(PutPayload::from(part));
        let thread = thread::Builder::new().spawn(move || wait(sending));
        let thread =
            thread.map_err(|source| Error::Generic { store: "part", source: Box::new(source) })?;
        self.under_way.push_back(thread);
        Ok(())
    }

    /// Waits until no more than `most` parts are on their way.
    fn settle(&mut self, most: usize) -> object_store::Result<()> {
        while self.under_way.len() > most {
            let Some(thread) = self.under_way.pop_front() else { break };
            thread.join().unwrap_or_else(|_| {
                Err(Error::Generic { store: "part", source: "its thread panicked".into() })
            })?;
        }
        Ok(())
    }

    /// Gives back what the service has kept so far.
    fn abandon(&mut self) {
        for thread in self.under_way.drain(..) {
            let _ = thread.join();
        }
        // A service that cannot be reached forgets parts after days, by its own rules.
        let _ = wait(self.upload.abort());
    }
}

impl Write for RemoteUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.store.service.conditional {
            self.send(PART)?;
        } else if self.buffer.len() > MOST_WHOLE {
            let location = self.store.locate(&self.key);
            let (size, limit) = (self.buffer.len() as u64, MOST_WHOLE as u64);
            return Err(StoreError::TooLarge { location, size, limit }.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // nothing is visible before the commit
    }
}

impl Upload for RemoteUpload {
    fn commit(mut self: Box<Self>) -> Result<()> {
        match self.parts.take() {
            Some(parts) => self.commit_parts(parts),
            None => self.commit_whole(),
        }
    }
}

impl Drop for RemoteUpload {
    fn drop(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.abandon();
        }
    }
}

/// A key beside `key` that listings leave out and [`Store::sweep`] removes.
fn temporary(key: &str) -> String {
    let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
    join_key(folder, &format!("{TEMPORARY}{}-{:016x}", std::process::id(), fresh_token()))
}
