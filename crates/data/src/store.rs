//! The one layer through which prepared data is read and written.
//!
//! Everything is addressed by a [key](check_key): a `/`-separated path relative to the store's root. A
//! new object becomes visible whole or not at all: it is written to an [`Upload`] and appears under its
//! key at [`Upload::commit`]. Nothing here renames, appends or seeks, because object stores cannot;
//! what they can do (whole and ranged reads, listing by folder, one atomic put, put-if-absent) is
//! exactly what is asked for. A local folder is the first implementation.

mod local;

use std::{fmt::Debug, io, ops::Range};

pub use local::LocalStore;

/// Why a store could not do what was asked; every message names the object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Reading, writing, listing or removing failed.
    #[error("cannot {action} `{location}`")]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// Path or URL of the object.
        location: String,
        /// What the system said.
        source: io::Error,
    },
    /// The object exists and the write was to happen only if it did not.
    #[error("`{location}` exists already")]
    Exists {
        /// Path or URL of the object.
        location: String,
    },
    /// A folder, pipe, socket or device where a file was expected; opening one could block for ever.
    #[error("`{location}` is not a regular file")]
    NotAFile {
        /// Path or URL of the object.
        location: String,
    },
    /// The object is larger than the caller is ready to hold.
    #[error("`{location}` has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Path or URL of the object.
        location: String,
        /// Its size in bytes.
        size: u64,
        /// The caller's limit in bytes.
        limit: u64,
    },
    /// The object ends before the range that was asked for.
    #[error("`{location}` ends before byte {end}")]
    OutOfRange {
        /// Path or URL of the object.
        location: String,
        /// End of the range that was asked for.
        end: u64,
    },
    /// A key that is absolute, empty, or climbs out of the store.
    #[error("`{key}` is not a valid key: it must be relative, without `.`, `..` or empty parts")]
    BadKey {
        /// The key as given.
        key: String,
    },
    /// Another living process holds the lock.
    #[error("`{location}` is locked by another process{}", holder(.pid.as_ref()))]
    Locked {
        /// Path or URL of the lock.
        location: String,
        /// Process id the holder wrote into it, where known.
        pid: Option<u32>,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, location: impl Into<String>, source: io::Error) -> Self {
        Self::Io { action, location: location.into(), source }
    }

    /// The system's error kind, where the system was asked at all.
    #[must_use]
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether the target has no room left (device full or quota used up).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}

fn holder(pid: Option<&u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// One file of a [`Listing`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Last part of the key; lossy where the name is not UTF-8.
    pub name: String,
    /// Size in bytes; 0 where it cannot be read.
    pub size: u64,
    /// Whether `name` is exact, so that the file can be read by its key.
    pub exact: bool,
}

/// What lies directly in one folder, sorted by name. Temporary objects are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Names of folders.
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

/// A held lock; dropping it, or the death of the process, releases it.
pub trait Lock: Send + Debug {}

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

    /// What lies directly in `folder` (empty: the root). A missing folder is an error.
    fn list(&self, folder: &str) -> Result<Listing>;

    /// Starts writing an object; folders on the way are made.
    fn create(&self, key: &str, if_exists: IfExists) -> Result<Box<dyn Upload>>;

    /// Removes an object; one that does not exist is no error.
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
}

/// A number nobody else has: different in every process and at every call. Not for secrets.
pub(crate) fn fresh_token() -> u64 {
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
