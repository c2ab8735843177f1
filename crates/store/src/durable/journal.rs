//! What is finished, one JSON line each, so that work that was interrupted is continued and not repeated.
//!
//! A line is on disk before the next thing begins. A line that was cut off by a crash is the last one and lacks its
//! newline: it is taken away when the journal is opened, and its thing is done again. One process at a time holds the
//! journal.

use serde::Serialize;
use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds it.
    #[error("`{}` is in use by another process", .path.display())]
    Busy { path: PathBuf },
    /// It cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be created or written.
    #[error("cannot write `{}`", .path.display())]
    Write {
        /// The journal or its folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// An open journal, locked against other processes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

/// The whole lines that a journal held when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// Number from 1 and text of each line.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let lines = self.bytes.strip_suffix(b"\n").map(|text| text.split(|&byte| byte == b'\n'));
        lines.into_iter().flatten().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Whether the journal was new.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Journal {
    /// Opens the journal at `path`, or begins one; missing folders are made.
    pub fn open(path: &Path) -> Result<(Self, Lines), JournalError> {
        let write = |source| JournalError::Write { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(write)?;
        }
        let mut file =
            File::options().read(true).append(true).create(true).open(path).map_err(write)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Busy { path: path.to_owned() });
            }
            // A file system without locks: better unguarded than unusable.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|source| JournalError::Read { path: path.to_owned(), source })?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(write)?;
            bytes.truncate(whole);
        }
        Ok((Self { path: path.to_owned(), file }, Lines { bytes }))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line, on disk when this returns. On failure the journal is as it was.
    pub fn append(&mut self, entry: &impl Serialize) -> Result<(), JournalError> {
        let before = self.file.metadata().map_or(0, |metadata| metadata.len());
        let written = serde_json::to_vec(entry).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            // One write per line: a process killed between two calls leaves whole lines.
            self.file.write_all(&line)?;
            self.file.sync_data()
        });
        written.map_err(|source| {
            // Half a line would hide the next one. If this fails too, opening drops it.
            let _ = self.file.set_len(before);
            JournalError::Write { path: self.path.clone(), source }
        })
    }

    /// Removes it, when all it was kept for is done.
    pub fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path)
            .map_err(|source| JournalError::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &Lines) -> Vec<(usize, u32)> {
        lines.iter().map(|(line, text)| (line, serde_json::from_slice(text).unwrap())).collect()
    }

    #[test]
    fn whole_lines_come_back_and_a_torn_one_does_not() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("made/journal.jsonl");
        let (mut journal, lines) = Journal::open(&path).unwrap();
        assert!(lines.is_empty() && lines.iter().count() == 0);
        for entry in [7, 8, 9] {
            journal.append(&entry).unwrap();
        }
        drop(journal);
        // Cut at every byte of the last two lines: what is whole stays, and the next line is not glued to a half one.
        for length in 3..=6 {
            fs::write(&path, &b"7\n8\n9\n"[..length]).unwrap();
            let (mut journal, lines) = Journal::open(&path).unwrap();
            let whole: Vec<(usize, u32)> =
                [(1, 7), (2, 8), (3, 9)].into_iter().take(length / 2).collect();
            assert_eq!(read(&lines), whole, "cut after {length} bytes");
            journal.append(&5).unwrap();
            drop(journal);
            let (journal, lines) = Journal::open(&path).unwrap();
            assert_eq!(read(&lines).last(), Some(&(whole.len() + 1, 5)));
            journal.remove().unwrap();
            assert!(!path.exists());
        }
    }

    #[test]
    fn one_process_at_a_time() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("journal.jsonl");
        let first = Journal::open(&path).unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Busy { .. })));
        drop(first);
        Journal::open(&path).unwrap();
    }
}
