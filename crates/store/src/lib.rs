//! The one layer through which data, checkpoints and run folders are read and written.
//!
//! Everything is addressed by a [key](check_key): a `/`-separated path relative to the store's root. A
//! new object becomes visible whole or not at all: it is written to an [`Upload`] and appears under its
//! key at [`Upload::commit`]. Nothing here renames, appends or seeks, because object stores cannot;
//! what they can do (whole and ranged reads, listing by folder, one atomic put, put-if-absent) is
//! exactly what is asked for.
//!
//! [`open`] takes a path or a URL; a URL may travel in a `Path`, because joining names to it works.
//! What needs more than a store offers is built on it: [`Stream`] reads front to back ahead of its
//! reader, [`Spool`] reads at random and keeps what it has read on this machine's disk, [`download`]
//! and [`Mirror`] bring whole folders here and there, and a [`Staging`] lets a command that needs a file
//! system work on a folder in a store. [`durable`] is how files of this machine are written, [`handout`] how
//! work is shared out among machines that see the same store.
//!
//! ```
//! use paceline_store::IfExists;
//! use std::io::Write;
//!
//! let scratch = tempfile::tempdir()?;
//! let store = paceline_store::open(scratch.path())?; // or open("s3://bucket/folder")
//! let mut upload = store.create("shards/0.tfrecord", IfExists::Fail)?;
//! upload.write_all(b"records")?;
//! assert_eq!(store.size("shards/0.tfrecord")?, None); // not before it is whole
//! upload.commit()?;
//! assert_eq!(store.read_range("shards/0.tfrecord", 0..3)?, b"rec");
//! assert!(!store.write_new("shards/0.tfrecord", b"others")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aws_profile;
mod download;
pub mod durable;
mod error;
pub mod handout;
mod local;
mod mirror;
mod place;
mod remote;
mod services;
mod side_by_side;
mod spool;
pub mod staging;
mod stream;

use idna_adapter as _; // its version is the reason, see Cargo.toml
use std::{fmt::Debug, io, ops::Range, sync::Arc, time::SystemTime};

pub use download::{Follower, download, download_if};
pub use error::{Advice, StoreError, advice, with_causes};
pub use local::LocalStore;
pub use mirror::{Mirror, MirrorReport, OWNER_FILE};
pub use place::{is_file, is_remote, open, open_file, open_with, read_file, split};
pub use remote::RemoteSettings;
pub use services::{ALL as SERVICES, Service};
pub use side_by_side::side_by_side;
pub use spool::Spool;
pub use staging::Staging;
pub use stream::Stream;

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// One file of a [`Listing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Last part of the key. With `\xNN` for bytes that are not UTF-8; of a file in a folder with such a name,
    /// the path from that folder on.
    pub name: String,
    /// Size in bytes; 0 where it cannot be read.
    pub size: u64,
    /// When it was last written, where that is known.
    pub changed: Option<SystemTime>,
    /// Whether `name` is exact, so that the file can be read by its key.
    pub exact: bool,
}

/// What lies directly in one folder, sorted by name. Temporary objects are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    pub folders: Vec<String>,
    /// Everything else, also what turns out to be unreadable.
    pub files: Vec<FileEntry>,
}

/// What to do when the key to be written exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// The new object takes its place at commit.
    Replace,
    /// Committing fails with [`StoreError::Exists`].
    Fail,
}

/// An object being written. Dropping it without a commit leaves nothing behind.
pub trait Upload: io::Write + Send {
    /// Makes the object durable and visible under its key, whole.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// An object that was found, at the version it had then.
pub trait Object: Send + Sync + Debug {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Path or URL, for messages.
    fn location(&self) -> &str;

    /// The bytes of `range`, all of them. An object that was replaced meanwhile is an error where the
    /// store can tell.
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>>;
}

/// A held lock; dropping it, or the death of the process, releases it.
pub trait Lock: Send + Debug {
    /// Whether it is still held: a lease that could not be renewed for long may have gone to another process.
    fn is_held(&self) -> bool {
        true
    }
}

/// A place where data lives.
pub trait Store: Send + Sync + Debug {
    /// The path or URL of a key, for messages; the empty key is the root.
    fn locate(&self, key: &str) -> String;

    /// The root in a form that is equal for equal places, however they were written.
    fn identity(&self) -> String {
        self.locate("")
    }

    /// Size in bytes, or `None` where no such object exists.
    fn size(&self, key: &str) -> Result<Option<u64>>;

    /// Appends the whole object to `into`, if it has no more than `limit` bytes.
    fn read_into(&self, key: &str, limit: u64, into: &mut Vec<u8>) -> Result<()>;

    /// The bytes of `range`, all of them.
    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>>;

    /// Finds an object, to be read piece by piece.
    fn find(&self, key: &str) -> Result<Arc<dyn Object>>;

    /// Whether every call is a round trip to another machine, so that many should be under way at once.
    fn is_distant(&self) -> bool {
        false
    }

    /// What lies directly in `folder` (empty: the root). A missing folder is an error.
    fn list(&self, folder: &str) -> Result<Listing>;

    /// Starts writing an object; folders on the way are made.
    fn create(&self, key: &str, if_exists: IfExists) -> Result<Box<dyn Upload>>;

    /// Removes an object; one that does not exist is not an error.
    fn remove(&self, key: &str) -> Result<()>;

    /// Removes a folder that has become empty, where folders are things of their own.
    fn remove_folder(&self, folder: &str) -> Result<()>;

    /// Removes what interrupted uploads left in `folder`; returns how many. Only for the holder of a
    /// lock that keeps other writers out.
    fn sweep(&self, folder: &str) -> Result<usize>;

    /// Takes the lock named `key`, or fails with [`StoreError::Locked`] at once.
    fn lock(&self, key: &str) -> Result<Box<dyn Lock>>;

    /// Bytes that can still be written, where there is such a limit.
    fn free_space(&self) -> Option<u64>;

    /// The whole object, if it has no more than `limit` bytes.
    fn read(&self, key: &str, limit: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read_into(key, limit, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes and commits an object that is at hand.
    fn write(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let mut upload = self.create(key, IfExists::Replace)?;
        upload
            .write_all(bytes)
            .map_err(|source| StoreError::io("write", self.locate(key), source))?;
        upload.commit()
    }

    /// Writes and commits an object that is at hand, unless its key exists; says whether it did.
    fn write_new(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        let mut upload = self.create(key, IfExists::Fail)?;
        upload
            .write_all(bytes)
            .map_err(|source| StoreError::io("write", self.locate(key), source))?;
        match upload.commit() {
            Ok(()) => Ok(true),
            Err(StoreError::Exists { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A unique number: different in every process and at every call. Not for secrets.
#[must_use]
pub fn fresh_token() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Accepts keys that stay inside the store on every kind of store.
pub fn check_key(key: &str) -> Result<()> {
    let bad = key.is_empty()
        || key.contains('\0')
        || key.split('/').any(|part| matches!(part, "" | "." | ".."));
    if bad { Err(StoreError::BadKey { key: key.to_owned() }) } else { Ok(()) }
}

/// Joins a folder key (possibly the root, empty) and a name.
#[must_use]
pub fn join_key(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Checks a range before anything is allocated for it: an index may lie about lengths.
fn check_range(range: &Range<u64>, size: u64, location: &str) -> Result<usize> {
    let out_of_range = || StoreError::OutOfRange { location: location.to_owned(), end: range.end };
    if range.end > size || range.start > range.end {
        return Err(out_of_range());
    }
    usize::try_from(range.end - range.start).map_err(|_| out_of_range())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_cannot_leave_the_store() {
        for bad in ["", "/etc/passwd", "a//b", "../a", "a/../b", "a/.", "a/", "a\0b"] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "a/b.tfrecord", "...", "rose 1.jpg", "é"] {
            assert!(check_key(good).is_ok(), "{good:?}");
        }
    }
}
