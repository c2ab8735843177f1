//! A recording beside what a command writes: which machine worked on it, and how hard.
//!
//! The file is called `resources-TASK@HOST.csv`, so that those of many tasks on many hosts lie side by side in one shared folder and
//! `paceline report FOLDER` draws every node by name. A recording never fails the work it watches.

use crate::csv::{Layout, Writer};
use crate::probe::{Roots, Target};
use crate::recording_file::{RecordingError, append, mark};
use crate::sampler::{Sampler, SamplerError};
use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time between two readings.
const EVERY: Duration = Duration::from_millis(250);

/// Why nothing is recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderRecorderError {
    #[error("cannot make the folder `{}`", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    File(#[from] RecordingError),
    #[error("cannot write `{}`", .path.display())]
    Header { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}

/// Records this machine, this process and everything it starts, until it is dropped.
#[derive(Debug)]
pub struct FolderRecorder {
    _sampler: Sampler,
    path: PathBuf,
}

impl FolderRecorder {
    /// Begins in a folder, which is made; a recording of the same task on the same host goes on.
    ///
    /// # Errors
    /// The folder or the file cannot be written, or no thread can be started.
    pub fn start(folder: &Path, task: &str, host: &str) -> Result<Self, FolderRecorderError> {
        fs::create_dir_all(folder)
            .map_err(|source| FolderRecorderError::Folder { path: folder.to_owned(), source })?;
        let path = folder.join(format!("resources-{}@{}.csv", in_name(task), in_name(host)));
        let header = |source| FolderRecorderError::Header { path: path.clone(), source };
        let mut writer =
            Writer::new(BufWriter::new(append(&path)?), Layout::Full).map_err(header)?;
        let target = Target::tree(std::process::id());
        let sampler = Sampler::start(&Roots::default(), target, EVERY, move |reading| {
            // A full disk must not end the work; the gap in the recording shows it.
            let _ = writer.write(&reading);
        })?;
        Ok(Self { _sampler: sampler, path })
    }

    /// Marks this moment.
    pub fn mark(&self, words: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // As above: without the mark the work goes on.
        let _ = mark(&self.path, words, now.as_secs_f64());
    }

    /// Removes earlier recordings from a folder, and nothing else.
    pub fn forget(folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("resources-") && name.ends_with(".csv") && name.contains('@') {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A name as part of a file's.
fn in_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gets_a_recording_with_marks_and_only_recordings_are_forgotten() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("resources");
        let recorder = FolderRecorder::start(&folder, "task/1", "node a").unwrap();
        recorder.mark("begin");
        drop(recorder);
        let file = folder.join("resources-task-1@node-a.csv");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("time_seconds,") && text.contains(",\"begin\"\n"), "{text}");
        fs::write(folder.join("resources-mine.csv"), "my own").unwrap();
        FolderRecorder::forget(&folder);
        assert!(!file.exists() && folder.join("resources-mine.csv").exists());
    }
}
