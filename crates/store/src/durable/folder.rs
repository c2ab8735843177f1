//! A folder, visible under its name only when everything in it is there.

use super::{TEMPORARY, parent_of, sync_folder, temporary_beside};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// A folder being filled. Dropping it without a commit removes it.
#[derive(Debug)]
pub struct AtomicFolder {
    temporary: PathBuf,
    target: PathBuf,
    renamed: bool,
}

impl AtomicFolder {
    /// Begins a folder that will be called `target`. The folder around it is made where it is missing, but nothing
    /// above that: a run folder that was removed must not come back with one checkpoint in it.
    pub fn create(target: &Path) -> io::Result<Self> {
        match fs::create_dir(parent_of(target)) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && parent_of(target).is_dir() => {}
            created => created?,
        }
        let temporary = temporary_beside(target);
        fs::create_dir(&temporary)?;
        Ok(Self { temporary, target: target.to_owned(), renamed: false })
    }

    /// Where it is filled.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// What it will be called.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Makes the folder visible, in place of one that is there. What lies in it must be durable already, see
    /// [`AtomicFolder::sync`].
    pub fn commit(mut self) -> io::Result<()> {
        remove_if_there(&self.target)?;
        self.rename()
    }

    /// Makes the folder visible if no other has its name; an empty one does not count. What lies in it must be durable
    /// already, see [`AtomicFolder::sync`].
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] where one has.
    pub fn commit_new(mut self) -> io::Result<()> {
        self.rename().map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => io::ErrorKind::AlreadyExists.into(),
            _ => error,
        })
    }

    /// Makes everything in it durable.
    pub fn sync(&self) -> io::Result<()> {
        sync_tree(&self.temporary)
    }

    fn rename(&mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.target)?;
        self.renamed = true;
        sync_folder(parent_of(&self.target))
    }
}

impl Drop for AtomicFolder {
    fn drop(&mut self) {
        if !self.renamed {
            // The caller learns of the first failure, not of the clean-up: a leftover is recognised by its name.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Makes everything in a folder durable, so that a rename cannot come before the bytes.
pub fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}

/// Removes a folder that may be in use by its name: hidden first, so that half of it is never taken for the whole.
pub fn remove(folder: &Path) -> io::Result<()> {
    let hidden = temporary_beside(folder);
    fs::rename(folder, &hidden)?;
    fs::remove_dir_all(&hidden)
}

/// The same, where one that is not there is as good.
pub fn remove_if_there(folder: &Path) -> io::Result<()> {
    match remove(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes what interrupted writes, commits and removals left in `folder`; returns how many. Only where no other process
/// writes there at the same time.
pub fn sweep(folder: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            continue;
        }
        let gone = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => removed += 1,
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_appears_whole_and_an_abandoned_one_not_at_all() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("made/42");
        let folder = AtomicFolder::create(&target).unwrap();
        fs::write(folder.path().join("a"), b"1").unwrap();
        assert!(!target.exists());
        folder.sync().unwrap();
        folder.commit().unwrap();
        assert_eq!(fs::read(target.join("a")).unwrap(), b"1");
        let abandoned = AtomicFolder::create(&target).unwrap();
        fs::write(abandoned.path().join("b"), b"2").unwrap();
        drop(abandoned);
        assert_eq!(fs::read_dir(scratch.path().join("made")).unwrap().count(), 1);
        let other = AtomicFolder::create(&target).unwrap();
        other.commit().unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "the old one is replaced as a whole");
    }

    #[test]
    fn of_two_new_folders_the_first_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("cell");
        let fill = |text: &str| {
            let folder = AtomicFolder::create(&target).unwrap();
            fs::write(folder.path().join("row"), text).unwrap();
            folder
        };
        let (first, second) = (fill("first"), fill("second"));
        first.commit_new().unwrap();
        assert_eq!(second.commit_new().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(target.join("row")).unwrap(), b"first");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_nothing_above_is_made() {
        let scratch = tempfile::tempdir().unwrap();
        std::mem::forget(AtomicFolder::create(&scratch.path().join("42")).unwrap());
        // As on a file system where every file has a name, or from a kill just before the last one.
        fs::write(temporary_beside(&scratch.path().join("43")), b"half").unwrap();
        fs::create_dir(scratch.path().join("44")).unwrap();
        assert_eq!(sweep(scratch.path()).unwrap(), 2);
        assert_eq!(sweep(scratch.path()).unwrap(), 0);
        assert_eq!(sweep(&scratch.path().join("missing")).unwrap(), 0);
        remove(&scratch.path().join("44")).unwrap();
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert!(AtomicFolder::create(&scratch.path().join("gone/checkpoints/1")).is_err());
    }
}
