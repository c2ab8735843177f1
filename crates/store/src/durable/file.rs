//! One file, visible under its name only when it is whole.

use super::{parent_of, temporary_beside};
use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Written bytes after which the system is asked to start writing them out.
const WRITE_BACK: u64 = 8 << 20;

/// A file being written. Dropping it without a commit leaves nothing behind, and what was there before untouched. Where the file
/// system can, it has no name until then, so that a process that is killed leaves nothing behind either.
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    written: u64,
    /// Bytes that the system has been asked to write out.
    sent: u64,
    temporary: PathBuf,
    target: PathBuf,
    name: FileName,
}

/// Under which name a file can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileName {
    /// None: the system removes it with the process.
    None,
    /// The temporary one.
    Temporary,
    /// The target's.
    Target,
}

impl AtomicFile {
    /// Begins a file that will be called `target`; its folder must be there.
    pub fn create(target: &Path) -> io::Result<Self> {
        let temporary = temporary_beside(target);
        let (file, name) = match unnamed(parent_of(target)) {
            Some(file) => (file, FileName::None),
            None => (File::create_new(&temporary)?, FileName::Temporary),
        };
        let target = target.to_owned();
        Ok(Self { file, written: 0, sent: 0, temporary, target, name })
    }

    /// Makes the file durable under its temporary name.
    fn settle(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if self.name == FileName::None {
            link_open_file(&self.file, &self.temporary)?;
            self.name = FileName::Temporary;
            // The name is to be durable with the bytes; these are on the disk already.
            self.file.sync_all()?;
        }
        Ok(())
    }

    /// Makes the file durable and visible, in place of one that is there.
    pub fn commit(mut self) -> io::Result<()> {
        self.settle()?;
        fs::rename(&self.temporary, &self.target)?;
        self.name = FileName::Target;
        sync_folder(parent_of(&self.target))
    }

    /// Makes the file durable and visible if no other has its name.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] where one has.
    pub fn commit_new(mut self) -> io::Result<()> {
        self.settle()?;
        // A link, unlike a rename, refuses to replace; drop then removes the temporary name.
        fs::hard_link(&self.temporary, &self.target)?;
        sync_folder(parent_of(&self.target))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        if self.written - self.sent >= WRITE_BACK {
            start_write_back(&self.file, self.sent, self.written - self.sent);
            self.sent = self.written;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.name == FileName::Temporary {
            // The caller learns of the first failure, not of the clean-up: a leftover is recognised by its name.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A file without a name in a folder; nothing where the file system or the kernel has none.
fn unnamed(folder: &Path) -> Option<File> {
    // Naming it needs the folder of open files.
    if !Path::new(OPEN_FILES).is_dir() {
        return None;
    }
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_TMPFILE).mode(0o666);
    options.open(folder).ok()
}

/// Where the kernel shows what this process has open.
const OPEN_FILES: &str = "/proc/self/fd";

/// Gives an open file a name; there must be none like it.
#[allow(unsafe_code)] // std's hard_link would link the entry of /proc itself
fn link_open_file(file: &File, name: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
    let from = path(Path::new(&format!("{OPEN_FILES}/{}", file.as_raw_fd())))?;
    let to = path(name)?;
    let here = libc::AT_FDCWD;
    // SAFETY: both are strings with an end that outlive the call, which reads them and keeps nothing.
    let linked =
        unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if linked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Writes `bytes` to `path` so that a reader, or the next start after a power cut, sees either the old file or the
/// complete new one.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

/// Gives a file that is whole its name, durably and in place of one that is there. For files that keep their temporary
/// name between two starts; others are [`AtomicFile`]s.
pub fn settle_file(temporary: &Path, target: &Path) -> io::Result<()> {
    File::open(temporary)?.sync_all()?;
    fs::rename(temporary, target)?;
    sync_folder(parent_of(target))
}

/// Makes renames and new names inside `folder` durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

/// Makes missing folders and makes them durable, so that a commit inside survives a crash.
pub fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    make_folders(parent_of(folder))?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        result => result?,
    }
    sync_folder(parent_of(folder))
}

/// Lets the disk work while there is more to compute, so that the `fsync` at the end has little left to
/// do. A hint: what it cannot do, the `fsync` does.
#[allow(unsafe_code)] // std has no sync_file_range
fn start_write_back(file: &File, from: u64, length: u64) {
    use std::os::fd::AsRawFd;
    if let (Ok(from), Ok(length)) = (i64::try_from(from), i64::try_from(length)) {
        // SAFETY: the descriptor is open; the call takes numbers only and changes no memory.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), from, length, libc::SYNC_FILE_RANGE_WRITE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| name(entry).unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn failed_write_leaves_the_old_file_and_no_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        write_file(&path, b"old").unwrap();
        // A folder in the way of the rename makes it fail after the temporary was written.
        let blocked = folder.path().join("blocked");
        fs::create_dir(&blocked).unwrap();
        fs::write(blocked.join("x"), b"").unwrap();
        assert!(write_file(&blocked, b"new").is_err());
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["blocked", "summary.json"]);
    }

    /// A log of clicks that was interrupted half-way left all it had drawn in a hidden file.
    #[test]
    fn a_file_that_is_being_written_has_no_name_that_could_stay() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clicks.tsv");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"rows").unwrap();
        // Some file systems have no files without a name.
        if file.name == FileName::None {
            assert_eq!(names(folder.path()), [""; 0]);
        }
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"rows");
        let usual = folder.path().join("usual");
        fs::write(&usual, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&usual));
        assert_eq!(names(folder.path()), ["clicks.tsv", "usual"]);
        let nowhere = folder.path().join("nowhere/clicks.tsv");
        assert_eq!(AtomicFile::create(&nowhere).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn of_two_new_files_the_first_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard");
        let mut first = AtomicFile::create(&path).unwrap();
        let mut second = AtomicFile::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        second.write_all(b"second").unwrap();
        first.commit_new().unwrap();
        let refused = second.commit_new().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["shard"]);
    }
}
