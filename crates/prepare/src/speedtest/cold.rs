//! Forgets what the system keeps of files in memory, so that the next read comes from storage.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{Advice, fadvise, sync};
use serde::{Deserialize, Serialize};

use super::SpeedTestError;

/// How the page cache was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColdMethod {
    /// As a whole, which needs root.
    Whole,
    /// File by file, which any reader may ask for and the system may ignore for pages in use.
    PerFile,
}

/// The system's page cache.
#[derive(Debug, Clone)]
pub struct PageCache {
    control: PathBuf,
}

impl Default for PageCache {
    fn default() -> Self {
        Self { control: PathBuf::from("/proc/sys/vm/drop_caches") }
    }
}

impl PageCache {
    /// A page cache with another switch, for tests without root.
    #[must_use]
    pub fn with_control(control: impl Into<PathBuf>) -> Self {
        Self { control: control.into() }
    }

    /// Drops everything, or, without root, all files at `paths`.
    ///
    /// # Errors
    /// The whole may not be dropped, and a file at `paths` cannot be opened either.
    pub fn drop_all(&self, paths: &[&Path]) -> Result<ColdMethod, SpeedTestError> {
        // Pages that wait to be written cannot be dropped.
        sync();
        // Opened without `create`: on a system without this switch nothing must appear in its place.
        let switched = fs::OpenOptions::new()
            .write(true)
            .open(&self.control)
            .and_then(|mut control| io::Write::write_all(&mut control, b"3"));
        let Err(whole) = switched else { return Ok(ColdMethod::Whole) };
        for path in paths {
            forget(path).map_err(|(path, source)| SpeedTestError::Cold {
                control: self.control.clone(),
                whole: io::Error::from(whole.kind()),
                path,
                source,
            })?;
        }
        Ok(ColdMethod::PerFile)
    }
}

/// Asks the system to forget a file, or every file below a folder.
fn forget(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    let failed = |source: io::Error| (path.to_owned(), source);
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Links are not followed: they could lead round in circles.
            if entry.file_type().map_err(failed)?.is_symlink() {
                continue;
            }
            forget(&entry.path())?;
        }
        return Ok(());
    }
    let file = fs::File::open(path).map_err(failed)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))
}
