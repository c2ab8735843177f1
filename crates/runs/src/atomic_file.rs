//! Files that are there whole or not at all.

use crate::RunsError;
use paceline_store::durable;
use std::path::Path;

/// Writes `bytes` to `path` so that a reader, or the next start after a power cut, sees either the
/// old file or the complete new one.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunsError> {
    durable::write_file(path, bytes)
        .map_err(|source| RunsError::Write { path: path.to_path_buf(), source })
}

/// Makes renames and new names inside `folder` durable.
pub fn sync_folder(folder: &Path) -> Result<(), RunsError> {
    durable::sync_folder(folder)
        .map_err(|source| RunsError::Write { path: folder.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
