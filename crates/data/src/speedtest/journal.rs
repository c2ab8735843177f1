//! Measurements on disk, one line each, before the next one begins.
//!
//! ```text
//! {"speedtest":1,"settings":{…}}
//! {"order":0,"source":"records","batch_size":8,…}
//! ```
//! A line that was cut off by a crash is the last one and lacks its newline; it is taken away and its measurement repeated.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Sample, Settings, SpeedTestError, plan};

/// Name of the journal inside its folder.
pub const JOURNAL: &str = "speedtest.jsonl";

/// Version of the format.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    speedtest: u32,
    settings: Value,
}

/// The open journal, locked against other processes.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens or begins the journal in `folder`; returns what is in it already.
    pub(super) fn open(
        folder: &Path,
        settings: &Settings,
    ) -> Result<(Self, Vec<Sample>), SpeedTestError> {
        fs::create_dir_all(folder)
            .map_err(|source| SpeedTestError::Write { path: folder.to_owned(), source })?;
        let path = folder.join(JOURNAL);
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(|source| SpeedTestError::Write { path: path.clone(), source })?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(SpeedTestError::InUse { path }),
            // A file system without locks: better unguarded than unusable.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut journal = Self { path, file };
        let samples = journal.read_back(settings)?;
        Ok((journal, samples))
    }

    fn read_back(&mut self, settings: &Settings) -> Result<Vec<Sample>, SpeedTestError> {
        let mut bytes = Vec::new();
        self.file
            .read_to_end(&mut bytes)
            .map_err(|source| SpeedTestError::Read { path: self.path.clone(), source })?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            let cut = |file: &mut File| -> io::Result<()> {
                file.set_len(whole as u64)?;
                file.seek(SeekFrom::End(0))?;
                Ok(())
            };
            cut(&mut self.file)
                .map_err(|source| SpeedTestError::Write { path: self.path.clone(), source })?;
        }
        let damaged = |line: usize| SpeedTestError::Damaged { path: self.path.clone(), line };
        let text = std::str::from_utf8(&bytes[..whole]).map_err(|_| damaged(1))?;
        let mut lines = text.lines().enumerate();
        let now = serde_json::to_value(settings).expect("settings are plain data");
        let Some((_, first)) = lines.next() else {
            self.write_line(&Header { speedtest: VERSION, settings: now })?;
            return Ok(Vec::new());
        };
        let header: Header = serde_json::from_str(first).map_err(|_| damaged(1))?;
        if header.speedtest != VERSION {
            return Err(damaged(1));
        }
        self.compare(&header.settings, &now)?;
        let runs = plan(settings);
        let mut samples = Vec::new();
        for (index, line) in lines {
            let sample: Sample = serde_json::from_str(line).map_err(|_| damaged(index + 1))?;
            let planned = runs.get(samples.len()).is_some_and(|run| {
                (run.order, run.source, run.batch_size, run.batches, run.repetition)
                    == (
                        sample.order,
                        sample.source,
                        sample.batch_size,
                        sample.batches,
                        sample.repetition,
                    )
            });
            if !planned {
                return Err(damaged(index + 1));
            }
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Names the first setting that differs.
    fn compare(&self, before: &Value, now: &Value) -> Result<(), SpeedTestError> {
        let (Some(old), Some(new)) = (before.as_object(), now.as_object()) else {
            return Err(SpeedTestError::Damaged { path: self.path.clone(), line: 1 });
        };
        for (what, value) in new {
            let earlier = old.get(what).unwrap_or(&Value::Null);
            if earlier != value {
                return Err(SpeedTestError::SettingsChanged {
                    path: self.path.clone(),
                    what: what.replace('_', " "),
                    before: earlier.to_string(),
                    now: value.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Adds a measurement; it is on disk when this returns.
    pub(super) fn append(&mut self, sample: &Sample) -> Result<(), SpeedTestError> {
        self.write_line(sample)
    }

    fn write_line(&mut self, line: &impl Serialize) -> Result<(), SpeedTestError> {
        let mut text = serde_json::to_string(line).expect("measurements are plain data");
        text.push('\n');
        // One write per line: a process killed between two calls leaves whole lines.
        let write = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        write.map_err(|source| SpeedTestError::Write { path: self.path.clone(), source })
    }
}
