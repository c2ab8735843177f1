//! Logs of a run: plain text files beside its records, read incrementally.

use crate::plain_file::open_plain;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most bytes handed out at once.
const MOST: u64 = 256 << 10;
/// Folders of a run that may hold logs, besides the run's own.
const FOLDERS: &[&str] = &["", "logs"];

/// Names of the logs of a run, relative to its folder.
pub(crate) fn list(run: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for folder in FOLDERS {
        let place = run.join(folder);
        let is_folder = std::fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_dir());
        let Some(entries) = is_folder.then(|| std::fs::read_dir(&place).ok()).flatten() else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && (name.ends_with(".log") || name.ends_with(".txt")) {
                names.push(if folder.is_empty() { name } else { format!("{folder}/{name}") });
            }
        }
    }
    names.sort();
    names
}

/// How long each log is, for those that follow it.
pub(crate) fn lengths(run: &Path) -> BTreeMap<String, u64> {
    let length = |name: &String| std::fs::symlink_metadata(run.join(name)).map_or(0, |it| it.len());
    list(run).into_iter().map(|name| (name.clone(), length(&name))).collect()
}

/// A piece of a log.
#[derive(Debug, serde::Serialize)]
pub(crate) struct LogChunk {
    /// Where it begins, in bytes.
    pub(crate) from: u64,
    /// Where the next one begins.
    pub(crate) next: u64,
    /// The text; bytes that are not UTF-8 are replaced.
    pub(crate) text: String,
}

/// Reads from `from` on; without it, or where the file has become shorter, its end.
pub(crate) fn read(path: &Path, from: Option<u64>) -> io::Result<LogChunk> {
    let file = open_plain(path)?;
    let length = file.metadata()?.len();
    let from = from.filter(|from| *from <= length).unwrap_or(length.saturating_sub(MOST));
    let count = (length - from).min(MOST);
    let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
    file.read_exact_at(&mut bytes, from)?;
    // A character that is only half written comes with the next read.
    let whole = match std::str::from_utf8(&bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
    Ok(LogChunk { from, next: from + whole as u64, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_log_is_read_piece_by_piece() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker-0.log");
        std::fs::write(&path, "one µ".as_bytes().split_last().unwrap().1).unwrap();
        let first = read(&path, None).unwrap();
        assert_eq!((first.text.as_str(), first.next), ("one ", 4));
        std::fs::write(&path, "one µ two").unwrap();
        assert_eq!(read(&path, Some(first.next)).unwrap().text, "µ two");
        std::fs::write(&path, "new").unwrap();
        assert_eq!(read(&path, Some(10)).unwrap().text, "new");
        assert_eq!(list(folder.path()), ["worker-0.log"]);
        // A folder that is a link is as foreign as a file that is one.
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("secret.log"), "x").unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("logs")).unwrap();
        assert_eq!(list(folder.path()), ["worker-0.log"]);
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("a.log")).unwrap();
        assert!(read(&folder.path().join("a.log"), None).is_err());
    }
}
