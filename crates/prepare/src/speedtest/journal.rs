//! Measurements on disk, one line each, before the next one begins.
//!
//! ```text
//! {"speedtest":1,"settings":{…}}
//! {"order":0,"source":"records","batch_size":8,…}
//! ```

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Sample, SpeedTestError, SpeedTestSettings, plan};
use paceline_store::durable;

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
    file: durable::Journal,
}

impl Journal {
    /// Opens or begins the journal in `folder`; returns what is in it already.
    pub(super) fn open(
        folder: &Path,
        settings: &SpeedTestSettings,
    ) -> Result<(Self, Vec<Sample>), SpeedTestError> {
        let (file, lines) = durable::Journal::open(&folder.join(JOURNAL))?;
        let mut journal = Self { file };
        let samples = journal.read_back(&lines, settings)?;
        Ok((journal, samples))
    }

    fn read_back(
        &mut self,
        lines: &durable::Lines,
        settings: &SpeedTestSettings,
    ) -> Result<Vec<Sample>, SpeedTestError> {
        let path = self.file.path().to_owned();
        let damaged = |line: usize| SpeedTestError::Damaged { path: path.clone(), line };
        let mut lines = lines.iter();
        let now = serde_json::to_value(settings).expect("settings are plain data");
        let Some((_, first)) = lines.next() else {
            self.file.append(&Header { speedtest: VERSION, settings: now })?;
            return Ok(Vec::new());
        };
        let header: Header = serde_json::from_slice(first).map_err(|_| damaged(1))?;
        if header.speedtest != VERSION {
            return Err(damaged(1));
        }
        self.compare(&header.settings, &now)?;
        let runs = plan(settings);
        let mut samples = Vec::new();
        for (number, line) in lines {
            let sample: Sample = serde_json::from_slice(line).map_err(|_| damaged(number))?;
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
                return Err(damaged(number));
            }
            samples.push(sample);
        }
        Ok(samples)
    }

    /// Names the first setting that differs.
    fn compare(&self, before: &Value, now: &Value) -> Result<(), SpeedTestError> {
        let (Some(old), Some(new)) = (before.as_object(), now.as_object()) else {
            return Err(SpeedTestError::Damaged { path: self.file.path().to_owned(), line: 1 });
        };
        for (what, value) in new {
            let earlier = old.get(what).unwrap_or(&Value::Null);
            if earlier != value {
                return Err(SpeedTestError::SettingsChanged {
                    path: self.file.path().to_owned(),
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
        Ok(self.file.append(sample)?)
    }
}
