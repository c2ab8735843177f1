//! Whether a run folder is still where it was.
//!
//! People rename and remove folders while a run writes to them. Writing to files that are open
//! still succeeds, but they cannot be found any more; what is opened later fails, or makes half a folder under the
//! old name.

use crate::{RunFolder, RunsError};
use std::{
    fs::{self, File},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Time between two looks during training.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether `path` names the file or folder that is open.
pub(crate) fn is_same(open: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (open.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(found)) => identity(open) == identity(found),
        _ => false,
    }
}

/// A run folder that is held open, so that it is found again after it was renamed, and missed after it
/// was removed.
#[derive(Debug)]
pub struct FolderHandle {
    open: File,
    run: RunFolder,
    /// Whether the plan was in it: then a folder without one was emptied: it could not be removed because it was
    /// being written to.
    planned: bool,
}

impl FolderHandle {
    /// Holds a run's folder.
    ///
    /// # Errors
    /// It is not there.
    pub fn open(run: &RunFolder) -> Result<Self, RunsError> {
        let path = run.path();
        let open = File::open(path)
            .map_err(|source| RunsError::Read { path: path.to_path_buf(), source })?;
        Ok(Self { open, run: run.clone(), planned: RunFolder::open(path).is_ok() })
    }

    /// Where the folder is now: where it was, or where it was moved to.
    ///
    /// # Errors
    /// [`RunsError::Removed`] where it is gone.
    pub fn present(&self) -> Result<RunFolder, RunsError> {
        let removed = || RunsError::Removed { path: self.run.path().to_path_buf() };
        let run = self.found().ok_or_else(removed)?;
        if self.planned && RunFolder::open(run.path()).is_err() {
            return Err(removed());
        }
        Ok(run)
    }

    fn found(&self) -> Option<RunFolder> {
        if is_same(&self.open, self.run.path()) {
            return Some(self.run.clone());
        }
        // The system knows the name of what is open. One that was removed has a name that leads nowhere.
        let link = PathBuf::from(format!("/proc/self/fd/{}", self.open.as_raw_fd()));
        let now = fs::read_link(link).ok().filter(|now| is_same(&self.open, now))?;
        Some(RunFolder::at(&shortened(&now)))
    }
}

/// A path as people would write it here: relative where it lies below the working folder.
fn shortened(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let below = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    below.unwrap_or_else(|| path.to_path_buf())
}

/// Looks after a run folder during training.
#[derive(Debug)]
pub struct FolderWatch {
    handle: FolderHandle,
    run: RunFolder,
    looked: Instant,
    removed: Option<String>,
}

impl FolderWatch {
    /// Begins with the folder as it is.
    ///
    /// # Errors
    /// It is not there.
    pub fn start(run: &RunFolder) -> Result<Self, RunsError> {
        let handle = FolderHandle::open(run)?;
        Ok(Self { handle, run: run.clone(), looked: Instant::now(), removed: None })
    }

    /// Where the folder was at the last look.
    #[must_use]
    pub fn run(&self) -> &RunFolder {
        &self.run
    }

    /// What happened to it, where it is gone.
    #[must_use]
    pub fn removed(&self) -> Option<&str> {
        self.removed.as_deref()
    }

    /// Looks again; says in words what has changed.
    pub fn look(&mut self) -> Option<String> {
        self.looked = Instant::now();
        if self.removed.is_some() {
            return None;
        }
        match self.handle.present() {
            Ok(run) if run == self.run => None,
            Ok(run) => {
                let before = std::mem::replace(&mut self.run, run);
                Some(format!(
                    "run folder `{}` was renamed to `{}`; the run continues there",
                    before.path().display(),
                    self.run.path().display()
                ))
            }
            Err(error) => {
                self.removed = Some(error.to_string());
                Some(format!("{error}; the run ends"))
            }
        }
    }

    /// The same, about once a second however often it is called.
    pub fn glance(&mut self) -> Option<String> {
        if self.looked.elapsed() >= LOOK_EVERY { self.look() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ownership;

    #[test]
    fn a_renamed_folder_is_found_again_and_a_removed_one_is_missed() {
        let root = tempfile::tempdir().unwrap();
        let run = RunFolder::create(root.path(), "softmax", "one-device").unwrap();
        let (handle, held) = (FolderHandle::open(&run).unwrap(), Ownership::take(&run).unwrap());
        assert_eq!(handle.present().unwrap(), run);
        let renamed = root.path().join("renamed");
        fs::rename(run.path(), &renamed).unwrap();
        assert_eq!(handle.present().unwrap().path(), fs::canonicalize(&renamed).unwrap());
        let moved = RunFolder::at(&renamed);
        assert!(matches!(Ownership::take(&moved), Err(RunsError::Owned { .. })), "it is the same");
        drop(held);
        drop(Ownership::take(&moved).unwrap());
        fs::write(moved.path().join("plan.json"), "{}").unwrap();
        let planned = FolderHandle::open(&moved).unwrap();
        fs::remove_file(moved.path().join("plan.json")).unwrap();
        assert!(matches!(planned.present(), Err(RunsError::Removed { .. })), "it was emptied");
        // Another folder of the old name is another folder.
        fs::create_dir(run.path()).unwrap();
        fs::remove_dir_all(&renamed).unwrap();
        assert!(matches!(handle.present(), Err(RunsError::Removed { .. })));
    }
}
