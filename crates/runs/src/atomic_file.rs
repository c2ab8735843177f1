//! Files that are there whole or not at all.

use crate::RunsError;
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

/// Writes `bytes` to `path` so that a reader, or the next start after a power cut, sees either the
/// old file or the complete new one: temporary name, sync, rename, sync of the folder.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunsError> {
    let temporary = temporary_name(path);
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(source) = written.and_then(|()| fs::rename(&temporary, path)) {
        // Best effort: the caller learns of the first failure, not of the clean-up.
        let _ = fs::remove_file(&temporary);
        return Err(RunsError::Write { path: path.to_path_buf(), source });
    }
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Makes renames and new names inside `folder` durable.
pub fn sync_folder(folder: &Path) -> Result<(), RunsError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| RunsError::Write { path: folder.to_path_buf(), source })
}

/// Hidden, in the same folder (a rename must not cross file systems), and one per process.
fn temporary_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_leaves_the_old_file_and_no_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        write_atomically(&path, b"old").unwrap();
        // A folder in the way of the rename makes it fail after the temporary was written.
        let blocked = folder.path().join("blocked");
        fs::create_dir(&blocked).unwrap();
        fs::write(blocked.join("x"), b"").unwrap();
        assert!(matches!(write_atomically(&blocked, b"new"), Err(RunsError::Write { .. })));
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
