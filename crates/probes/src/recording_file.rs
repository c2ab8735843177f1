//! The file of a recording: who writes to it, and how another process puts a mark into it.
//!
//! Recorder and marker append whole lines, each with one write, so that neither tears the other's. The recorder holds the file's lock:
//! by that a marker knows that the recording goes on, and a second recorder that the file is taken.

use crate::csv::MARK;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Longest mark in characters; more than a chart can show.
const LONGEST: usize = 120;
/// Longest header that is looked at.
const LONGEST_HEADER: u64 = 1 << 16;

/// Why a recording's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    #[error("cannot write `{}`", .path.display())]
    File { path: PathBuf, source: io::Error },
    /// Another process records there.
    #[error("`{}` is being recorded by another process", .path.display())]
    Held { path: PathBuf },
    /// The file is not one of ours.
    #[error("`{}` has no column `{MARK}`: it is not a recording of paceline", .path.display())]
    NotOurs { path: PathBuf },
    /// No process records there any more.
    #[error("no process records to `{}`", .path.display())]
    Ended { path: PathBuf },
    #[error("a mark needs a text")]
    Empty,
}

/// Begins a recording: the file is made, or emptied.
///
/// # Errors
/// The file cannot be written, or another process records there.
pub fn create(path: &Path) -> Result<File, RecordingError> {
    let file = open(path, true)?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(RecordingError::Held { path: path.to_owned() });
    }
    let failed = |source| RecordingError::File { path: path.to_owned(), source };
    file.set_len(0).map_err(failed)?;
    Ok(file)
}

/// Continues a recording, or begins one. Without a lock, which some network file systems do not have, it is recorded all the same.
///
/// # Errors
/// The file cannot be written.
pub fn append(path: &Path) -> Result<File, RecordingError> {
    let file = open(path, true)?;
    let _ = file.try_lock();
    Ok(file)
}

fn open(path: &Path, make: bool) -> Result<File, RecordingError> {
    let failed = |source| RecordingError::File { path: path.to_owned(), source };
    OpenOptions::new().create(make).read(true).append(true).open(path).map_err(failed)
}

/// Puts words at a moment, in seconds since 1970, into a recording that is running.
///
/// # Errors
/// There is no such file, it is not a recording of ours, or no process records there any more.
pub fn mark(path: &Path, words: &str, time: f64) -> Result<(), RecordingError> {
    let plain: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let plain: String = plain.trim().chars().take(LONGEST).collect();
    if plain.is_empty() {
        return Err(RecordingError::Empty);
    }
    let mut file = open(path, false)?;
    let failed = |source| RecordingError::File { path: path.to_owned(), source };
    let mut header = String::new();
    let mut start = BufReader::new(io::Read::take(&file, LONGEST_HEADER));
    start.read_line(&mut header).map_err(failed)?;
    let names: Vec<&str> = header.trim_end().split(',').collect();
    if !names.contains(&MARK) || !names.contains(&"time_seconds") {
        return Err(RecordingError::NotOurs { path: path.to_owned() });
    }
    if file.try_lock_shared().is_ok() {
        return Err(RecordingError::Ended { path: path.to_owned() });
    }
    let cell = |name: &&str| match *name {
        "time_seconds" => format!("{time:.3}"),
        MARK => format!("\"{}\"", plain.replace('"', "\"\"")),
        _ => String::new(),
    };
    let line = names.iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
    file.write_all(line.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Writer};

    #[test]
    fn a_mark_goes_into_a_recording_that_runs_and_into_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let missing = mark(&path, "early", 1.0).unwrap_err();
        assert!(missing.to_string().contains("a.csv") && !path.exists(), "{missing}");
        let file = io::BufWriter::new(create(&path).unwrap());
        let recorder = Writer::new(file, Layout::Full).unwrap();
        mark(&path, "job \"a\",\nsubmitted", 12.5).unwrap();
        assert!(matches!(create(&path), Err(RecordingError::Held { .. })), "emptied by another");
        assert!(matches!(mark(&path, " \n", 1.0), Err(RecordingError::Empty)));
        let text = std::fs::read_to_string(&path).unwrap();
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("12.500,,") && last.ends_with(",\"job \"\"a\"\", submitted\""));
        assert_eq!(text.lines().count(), 2, "{text}");
        drop(recorder);
        assert!(matches!(mark(&path, "late", 1.0), Err(RecordingError::Ended { .. })));
        std::fs::write(&path, "my thesis\n").unwrap();
        assert!(matches!(mark(&path, "lost", 1.0), Err(RecordingError::NotOurs { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my thesis\n");
    }

    /// A run that continues keeps what was recorded before.
    #[test]
    fn a_recording_that_is_continued_keeps_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "before\n").unwrap();
        append(&path).unwrap().write_all(b"after\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\nafter\n");
    }
}
