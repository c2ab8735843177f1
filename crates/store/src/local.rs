//! A folder of the local file system as a [`Store`].
//!
//! Objects are written as [`AtomicFile`]s. Their temporary names carry a prefix that listings skip and
//! [`Store::sweep`] removes. Locks are `flock`s, which vanish with their holder.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
    process,
    sync::Arc,
};

use super::{
    FileEntry, IfExists, Listing, Lock, Object, Result, Store, StoreError, Upload, check_key,
    check_range,
    durable::{self, AtomicFile, TEMPORARY, make_folders},
    join_key,
};

/// A local folder; it need not exist before the first write.
#[derive(Debug, Clone)]
pub struct LocalStore {
    root: PathBuf,
}

impl LocalStore {
    /// A store in `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, key: &str) -> Result<PathBuf> {
        check_key(key)?;
        Ok(self.root.join(key))
    }

    fn folder(&self, folder: &str) -> Result<PathBuf> {
        if folder.is_empty() { Ok(self.root.clone()) } else { self.path(folder) }
    }

    /// Opens a regular file. Non-blocking, so that a pipe with a photo's name cannot hang the caller
    /// before it is recognised.
    fn open(&self, key: &str) -> Result<(File, u64)> {
        let path = self.path(key)?;
        let failed = |source| StoreError::io("read", self.locate(key), source);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(StoreError::NotAFile { location: self.locate(key) });
        }
        Ok((file, metadata.len()))
    }
}

impl Store for LocalStore {
    fn locate(&self, key: &str) -> String {
        if key.is_empty() {
            self.root.display().to_string()
        } else {
            self.root.join(key).display().to_string()
        }
    }

    fn identity(&self) -> String {
        // What does not exist yet has no canonical path, but its nearest living ancestor has. The rest
        // holds no links, so that `..` in it can be taken by the letter.
        for living in self.root.ancestors() {
            let start = if living.as_os_str().is_empty() { Path::new(".") } else { living };
            if let (Ok(mut path), Ok(rest)) = (start.canonicalize(), self.root.strip_prefix(living))
            {
                for part in rest.components() {
                    match part {
                        Component::ParentDir => drop(path.pop()),
                        Component::CurDir => {}
                        part => path.push(part),
                    }
                }
                return path.display().to_string().trim_end_matches('/').to_owned();
            }
        }
        self.locate("")
    }

    fn size(&self, key: &str) -> Result<Option<u64>> {
        match fs::metadata(self.path(key)?) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::io("examine", self.locate(key), source)),
        }
    }

    fn read_into(&self, key: &str, limit: u64, into: &mut Vec<u8>) -> Result<()> {
        let (file, size) = self.open(key)?;
        let too_large = |size| StoreError::TooLarge { location: self.locate(key), size, limit };
        if size > limit {
            return Err(too_large(size));
        }
        let start = into.len();
        into.reserve(usize::try_from(size).map_err(|_| too_large(size))?);
        // One byte beyond the limit shows a file that grows while it is read.
        file.take(limit.saturating_add(1))
            .read_to_end(into)
            .map_err(|source| StoreError::io("read", self.locate(key), source))?;
        let got = (into.len() - start) as u64;
        if got > limit { Err(too_large(got)) } else { Ok(()) }
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>> {
        self.find(key)?.read(range)
    }

    fn find(&self, key: &str) -> Result<Arc<dyn Object>> {
        let (file, size) = self.open(key)?;
        Ok(Arc::new(LocalObject { file, size, location: self.locate(key) }))
    }

    fn list(&self, folder: &str) -> Result<Listing> {
        let path = self.folder(folder)?;
        let failed = |source| StoreError::io("list", self.locate(folder), source);
        let mut listing = Listing::default();
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let os_name = entry.file_name();
            let exact = os_name.to_str().is_some();
            let name = printable(&os_name);
            if name.starts_with(TEMPORARY) {
                continue;
            }
            let file_type = entry.file_type().map_err(failed)?;
            // Follows links; a dangling one stays in the list as a file that cannot be read.
            let metadata = fs::metadata(entry.path()).ok();
            if metadata.as_ref().is_some_and(fs::Metadata::is_dir) {
                if file_type.is_symlink() && leads_back(&path, &entry.path()) {
                    continue;
                }
                if exact {
                    listing.folders.push(name);
                } else {
                    list_inexact(&entry.path(), &name, 0, &mut listing.files).map_err(failed)?;
                }
            } else {
                let metadata = metadata.filter(fs::Metadata::is_file);
                let size = metadata.as_ref().map_or(0, fs::Metadata::len);
                let changed = metadata.and_then(|found| found.modified().ok());
                listing.files.push(FileEntry { name, size, changed, exact });
            }
        }
        listing.folders.sort_unstable();
        listing.files.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(listing)
    }

    fn create(&self, key: &str, if_exists: IfExists) -> Result<Box<dyn Upload>> {
        let target = self.path(key)?;
        let location = self.locate(key);
        let failed = |source| StoreError::io("create", location.clone(), source);
        let folder = target.parent().unwrap_or(&self.root).to_path_buf();
        make_folders(&folder).map_err(failed)?;
        let file = AtomicFile::create(&target).map_err(failed)?;
        Ok(Box::new(LocalUpload { file, location, if_exists }))
    }

    fn remove(&self, key: &str) -> Result<()> {
        match fs::remove_file(self.path(key)?) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StoreError::io("remove", self.locate(key), source)),
        }
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        match fs::remove_dir(self.path(folder)?) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(StoreError::io("remove", self.locate(folder), source)),
        }
    }

    fn sweep(&self, folder: &str) -> Result<usize> {
        let path = self.folder(folder)?;
        let failed = |source| StoreError::io("clean", self.locate(folder), source);
        durable::sweep(&path).map_err(failed)
    }

    fn lock(&self, key: &str) -> Result<Box<dyn Lock>> {
        let path = self.path(key)?;
        let failed = |source| StoreError::io("lock", self.locate(key), source);
        loop {
            if let Some(folder) = path.parent() {
                make_folders(folder).map_err(failed)?;
            }
            let opened =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut file = match opened {
                Ok(file) => file,
                // The last holder has just removed the folder with its lock.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(failed(source)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    let pid = file.read_to_string(&mut text).ok();
                    let pid = pid.and_then(|_| text.trim().parse().ok());
                    let (location, host) = (self.locate(key), None);
                    return Err(StoreError::Locked { location, pid, host });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            // The last holder may have removed the file between our open and our lock; then the
            // lock is on a file that no other process can find, and protects nothing.
            let held = file.metadata().map_err(failed)?;
            let found = fs::metadata(&path);
            if found.is_ok_and(|found| (found.dev(), found.ino()) == (held.dev(), held.ino())) {
                // The number is only for people, so a failure to write it (a full disk) is ignored.
                let _ = file.set_len(0).and_then(|()| write!(file, "{}", process::id()));
                return Ok(Box::new(LocalLock { _file: file }));
            }
        }
    }

    fn free_space(&self) -> Option<u64> {
        // The folder may not exist yet; its nearest living ancestor has the same file system.
        let existing = self.root.ancestors().find(|path| path.exists())?;
        let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
        available_bytes(existing)
    }
}

/// Folders inside a folder that cannot be named are listed down to this depth.
const INEXACT_DEPTH: usize = 32;

/// Adds everything below a folder whose name is not text: no key leads there, but what is in it must not vanish.
fn list_inexact(
    folder: &Path,
    name: &str,
    depth: usize,
    files: &mut Vec<FileEntry>,
) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = join_key(name, &printable(&entry.file_name()));
        // Links are not followed, so this ends.
        if entry.file_type()?.is_dir() {
            if depth < INEXACT_DEPTH {
                list_inexact(&entry.path(), &name, depth + 1, files)?;
            }
            continue;
        }
        let size = entry.metadata().map_or(0, |metadata| metadata.len());
        files.push(FileEntry { name, size, changed: None, exact: false });
    }
    Ok(())
}

/// A name with `\xNN` in the place of bytes that are not text, so that different names stay different.
fn printable(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[derive(Debug)]
struct LocalObject {
    file: File,
    size: u64,
    location: String,
}

impl Object for LocalObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; check_range(&range, self.size, &self.location)?];
        self.file
            .read_exact_at(&mut bytes, range.start)
            .map_err(|source| StoreError::io("read", self.location.clone(), source))?;
        Ok(bytes)
    }
}

#[derive(Debug)]
struct LocalLock {
    /// Closing it releases the lock.
    _file: File,
}

impl Lock for LocalLock {}

struct LocalUpload {
    file: AtomicFile,
    location: String,
    if_exists: IfExists,
}

impl Write for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Upload for LocalUpload {
    fn commit(self: Box<Self>) -> Result<()> {
        let Self { file, location, if_exists } = *self;
        let committed = match if_exists {
            IfExists::Replace => file.commit(),
            IfExists::Fail => file.commit_new(),
        };
        committed.map_err(|error| match (if_exists, error.kind()) {
            (IfExists::Fail, io::ErrorKind::AlreadyExists) => StoreError::Exists { location },
            _ => StoreError::io("write", location, error),
        })
    }
}

/// Whether a link in `folder` leads to `folder` or above it, which would make listing endless.
fn leads_back(folder: &Path, link: &Path) -> bool {
    match (folder.canonicalize(), link.canonicalize()) {
        (Ok(folder), Ok(target)) => folder.starts_with(target),
        _ => true,
    }
}

#[allow(unsafe_code)] // std has no statvfs
fn available_bytes(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path is NUL-terminated, an all-zero statvfs is valid, and the call writes only it.
    let stat = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(path.as_ptr(), &raw mut stat) != 0 {
            return None;
        }
        stat
    };
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn store() -> (tempfile::TempDir, LocalStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::new(dir.path().join("new/deep"));
        (dir, store)
    }

    #[test]
    fn uncommitted_object_leaves_nothing() {
        let (_dir, store) = store();
        let mut upload = store.create("a/b", IfExists::Replace).unwrap();
        upload.write_all(b"half").unwrap();
        drop(upload);
        assert_eq!(store.size("a/b").unwrap(), None);
        assert_eq!(fs::read_dir(store.root().join("a")).unwrap().count(), 0);
    }

    #[test]
    fn old_object_stays_until_commit() {
        let (_dir, store) = store();
        store.write("key", b"old").unwrap();
        let mut upload = store.create("key", IfExists::Replace).unwrap();
        upload.write_all(b"new").unwrap();
        assert_eq!(store.read("key", 10).unwrap(), b"old");
        upload.commit().unwrap();
        assert_eq!(store.read("key", 10).unwrap(), b"new");
    }

    #[test]
    fn create_if_absent_has_one_winner() {
        let (_dir, store) = store();
        let mut first = store.create("key", IfExists::Fail).unwrap();
        let second = store.create("key", IfExists::Fail).unwrap();
        first.write_all(b"first").unwrap();
        first.commit().unwrap();
        assert!(matches!(second.commit(), Err(StoreError::Exists { .. })));
        assert_eq!(store.read("key", 10).unwrap(), b"first");
        assert_eq!(fs::read_dir(store.root()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_are_invisible_and_swept() {
        let (_dir, store) = store();
        store.write("real", b"1").unwrap();
        // As on a file system where every file has a name, or from a kill just before the last one.
        fs::write(store.root().join(format!("{TEMPORARY}1-0123456789abcdef")), b"lost").unwrap();
        assert_eq!(store.list("").unwrap().files.len(), 1);
        assert_eq!(store.sweep("").unwrap(), 1);
        assert_eq!(fs::read_dir(store.root()).unwrap().count(), 1);
    }

    #[test]
    fn lock_keeps_out_and_ends_with_its_holder() {
        let (_dir, store) = store();
        let held = store.lock("lock").unwrap();
        let refused = store.lock("lock").unwrap_err();
        assert!(
            matches!(refused, StoreError::Locked { pid: Some(pid), .. } if pid == process::id())
        );
        drop(held);
        store.lock("lock").unwrap();
    }

    #[test]
    fn lock_on_a_removed_file_is_not_a_lock() {
        let (_dir, store) = store();
        let held = store.lock("lock").unwrap();
        store.remove("lock").unwrap();
        // The old holder's file is gone, so the next one must get a fresh file, not wait.
        let next = store.lock("lock").unwrap();
        assert!(matches!(store.lock("lock"), Err(StoreError::Locked { .. })));
        drop((held, next));
    }

    #[test]
    fn pipes_loops_and_dangling_links_do_not_hang() {
        let (_dir, store) = store();
        store.write("class/a.jpg", b"x").unwrap();
        let class = store.root().join("class");
        symlink("..", class.join("up")).unwrap();
        symlink("nowhere", class.join("dangling.jpg")).unwrap();
        let pipe = std::ffi::CString::new(class.join("pipe.jpg").to_str().unwrap()).unwrap();
        #[allow(unsafe_code)] // SAFETY: a NUL-terminated path
        let made = unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) };
        assert_eq!(made, 0);
        let listing = store.list("class").unwrap();
        assert!(listing.folders.is_empty());
        let names: Vec<_> = listing.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a.jpg", "dangling.jpg", "pipe.jpg"]);
        assert!(matches!(store.read("class/pipe.jpg", 9), Err(StoreError::NotAFile { .. })));
        let gone = store.read("class/dangling.jpg", 9).unwrap_err();
        assert_eq!(gone.kind(), Some(io::ErrorKind::NotFound));
    }

    #[test]
    fn reads_stay_within_limit_and_file() {
        let (_dir, store) = store();
        store.write("key", b"0123456789").unwrap();
        assert!(matches!(store.read("key", 9), Err(StoreError::TooLarge { size: 10, .. })));
        assert_eq!(store.read_range("key", 2..5).unwrap(), b"234");
        assert!(matches!(store.read_range("key", 0..u64::MAX), Err(StoreError::OutOfRange { .. })));
        assert!(store.free_space().unwrap() > 0);
    }
}
