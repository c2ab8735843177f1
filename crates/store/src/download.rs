//! Brings a folder of a store to this machine, for whatever needs files.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use crate::{IfExists, LocalStore, Result, Store, StoreError, Stream, join_key, side_by_side};

/// Files on their way at once.
const AT_ONCE: usize = 8;
/// Folders inside folders beyond this are not entered.
const MAX_DEPTH: usize = 32;
/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// Time between two looks at a folder that is followed.
const EVERY: Duration = Duration::from_secs(3);

/// Size and time of the objects that were fetched, by key.
type Known = BTreeMap<String, (u64, Option<SystemTime>)>;

/// Copies everything in `store` to the folder `to`; each file appears there whole. Returns how many.
///
/// # Errors
/// The first file that could not be read or written, by name.
pub fn download(store: &dyn Store, to: &Path) -> Result<usize> {
    download_if(store, to, &|_| true)
}

/// As [`download`], for the keys that `wanted` wants.
///
/// # Errors
/// As [`download`].
pub fn download_if(store: &dyn Store, to: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<usize> {
    download_new(store, to, wanted, &mut Known::new())
}

/// As [`download_if`], for what has changed since `known` was written, which is brought up to date.
fn download_new(
    store: &dyn Store,
    to: &Path,
    wanted: &dyn Fn(&str) -> bool,
    known: &mut Known,
) -> Result<usize> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), 0)];
    while let Some((folder, depth)) = open.pop() {
        let listing = store.list(&folder)?;
        for file in listing.files.into_iter().filter(|file| file.exact) {
            let (key, state) = (join_key(&folder, &file.name), (file.size, file.changed));
            if wanted(&key) && known.get(&key) != Some(&state) {
                found.push((key, state));
            }
        }
        if depth < MAX_DEPTH {
            let inner = listing.folders.iter().map(|name| (join_key(&folder, name), depth + 1));
            open.extend(inner);
        }
    }
    let target = LocalStore::new(to);
    side_by_side(found.len(), AT_ONCE, |number| copy(store, &target, &found[number].0))?;
    let count = found.len();
    known.extend(found);
    Ok(count)
}

/// A copy of a folder on this machine that follows it: what is new or other there comes here within
/// seconds, each file whole. What vanishes there stays here. Ends with this value.
#[derive(Debug)]
pub struct Follower {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Copies what `wanted` wants, and then goes on doing so. A folder that is not there yet is empty.
    ///
    /// # Errors
    /// The store cannot be read now. Should it stop answering later, the copy stays as it is until it
    /// answers again.
    pub fn start(store: Arc<dyn Store>, to: &Path, wanted: fn(&str) -> bool) -> Result<Self> {
        let mut known = Known::new();
        match download_new(&*store, to, &wanted, &mut known) {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        let (stop, stopped) = mpsc::channel();
        let (to, location) = (to.to_owned(), store.locate(""));
        let thread = thread::Builder::new()
            .name("follower".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    // Tried again at the next look.
                    let _ = download_new(&*store, &to, &wanted, &mut known);
                }
            })
            .map_err(|source| StoreError::io("follow", location, source))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop = None;
        // A file that is still being written must not appear after the caller has cleaned up.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Copies one object under the same key, with bounded memory.
fn copy(from: &dyn Store, to: &LocalStore, key: &str) -> Result<()> {
    let mut stream = Stream::new(from.find(key)?, 0);
    let mut upload = to.create(key, IfExists::Replace)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(StoreError::io("read", from.locate(key), source)),
        };
        upload.write_all(&chunk[..count]).map_err(|source| StoreError::LocalCopy {
            action: "write",
            path: to.root().join(key),
            location: from.locate(key),
            source,
        })?;
    }
    upload.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_arrives_with_its_folders() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = LocalStore::new(from.path());
        for (key, bytes) in [("a", &b"1"[..]), ("b/c/d", b"23"), ("b/empty", b"")] {
            store.write(key, bytes).unwrap();
        }
        assert_eq!(download_if(&store, to.path(), &|key| key != "a").unwrap(), 2);
        let copy = LocalStore::new(to.path());
        assert_eq!(copy.read("b/c/d", 9).unwrap(), b"23");
        assert_eq!((copy.size("b/empty").unwrap(), copy.size("a").unwrap()), (Some(0), None));
        let mut known = Known::new();
        let fetch = |known: &mut Known| download_new(&store, to.path(), &|_| true, known).unwrap();
        assert_eq!((fetch(&mut known), fetch(&mut known)), (3, 0));
        store.write("b/empty", b"no more").unwrap();
        assert_eq!(fetch(&mut known), 1);
        assert_eq!(copy.read("b/empty", 9).unwrap(), b"no more");
        let gone = LocalStore::new(from.path().join("nowhere"));
        assert!(download(&gone, to.path()).unwrap_err().is_missing());
    }
}
