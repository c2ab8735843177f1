//! A run's events, read once for all viewers and kept in bounded memory.
//!
//! Logs only grow, so each look reads what was added. A curve of ten million points looks like one of ten thousand: steps
//! beyond a number are merged in pairs, oldest first, so that sums (examples, seconds, phases) stay exact and losses become
//! means. The newest steps stay as they are, since tables show them.

use crate::plain_file::open_plain;
use paceline_runs::{Event, Record, Step};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Steps kept of all tasks together; twice as many at most.
const MOST_STEPS: usize = 8192;
/// Steps kept of one task in any case.
const LEAST_STEPS: usize = 256;
/// Newest steps of a task that stay as they are.
const NEWEST: usize = 64;
/// Events of other kinds kept; twice as many at most.
const MOST_OTHERS: usize = 8192;
/// Bytes read at once.
const BLOCK: usize = 1 << 20;
/// Longest line taken for an event.
const LONGEST_LINE: usize = 1 << 20;
/// Logs with more unread bytes than this are first looked at in samples.
const LONG: u64 = 48 << 20;
/// Samples of a long log, and the bytes of each.
const SAMPLES: (u64, usize) = (1500, 2048);
/// Bytes at both ends of a long log that are read whole.
const ENDS: usize = 128 << 10;

/// How far a log has been read.
#[derive(Debug, Default)]
struct LogPosition {
    file: u64,
    read: u64,
    /// A line whose end has not been written yet.
    begun: Vec<u8>,
}

/// The events of a run, as far as they have been read.
#[derive(Debug)]
pub(crate) struct Follower {
    folder: PathBuf,
    logs: BTreeMap<PathBuf, LogPosition>,
    steps: BTreeMap<String, Vec<Record>>,
    others: Vec<Record>,
    /// Events that one kept event stands for, at most.
    merged: u64,
    /// Bytes read so far.
    pub(crate) read: u64,
}

/// Logs of a run that are files, with the number and length of each.
fn logs(folder: &Path) -> Vec<(PathBuf, u64, u64)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("events-") && name.ends_with(".jsonl")
        })
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((entry.path(), meta.ino(), meta.len()))
        })
        .collect();
    found.sort();
    found
}

impl Follower {
    pub(crate) fn new(folder: &Path) -> Follower {
        Follower {
            folder: folder.to_owned(),
            logs: BTreeMap::new(),
            steps: BTreeMap::new(),
            others: Vec::new(),
            merged: 1,
            read: 0,
        }
    }

    /// Whether so much has not been read that a reader should not wait for it.
    pub(crate) fn is_far_behind(&self) -> bool {
        let unread = logs(&self.folder).into_iter().map(|(path, _, length)| {
            length.saturating_sub(self.logs.get(&path).map_or(0, |place| place.read))
        });
        unread.sum::<u64>() > LONG
    }

    /// Reads what was added. A log that was replaced or cut is read from its start, and all others with it.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let found = logs(&self.folder);
        let is_other = |(path, place): (&PathBuf, &LogPosition)| {
            !found.iter().any(|(log, file, length)| {
                log == path && *file == place.file && *length >= place.read
            })
        };
        if self.logs.iter().any(is_other) {
            let read = self.read;
            *self = Follower { read, ..Follower::new(&self.folder) };
        }
        for (path, file, _) in found {
            let mut place = self.logs.remove(&path).unwrap_or_default();
            place.file = file;
            let read = self.read_log(&path, &mut place);
            self.logs.insert(path, place);
            read?;
        }
        Ok(())
    }

    fn read_log(&mut self, path: &Path, place: &mut LogPosition) -> io::Result<()> {
        let file = open_plain(path)?;
        let length = file.metadata()?.len();
        let mut block = vec![0; BLOCK];
        while place.read < length {
            let count = file.read_at(&mut block, place.read)?;
            if count == 0 {
                break;
            }
            place.read += count as u64;
            self.read += count as u64;
            let mut rest = &block[..count];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let (line, after) = rest.split_at(end);
                rest = &after[1..];
                if place.begun.is_empty() {
                    self.line(line);
                } else {
                    place.begun.extend_from_slice(line);
                    let line = std::mem::take(&mut place.begun);
                    self.line(&line);
                }
            }
            // What is longer is not an event of ours; the rest of it will not parse either.
            let room = LONGEST_LINE.saturating_sub(place.begun.len());
            place.begun.extend_from_slice(&rest[..rest.len().min(room)]);
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let Some(record) = Record::parse(line) else { return };
        if !matches!(record.event, Some(Event::Step(_))) {
            self.others.push(record);
            if self.others.len() > 2 * MOST_OTHERS {
                thin(&mut self.others);
            }
            return;
        }
        let most = (MOST_STEPS / self.steps.len().max(1)).max(LEAST_STEPS);
        // A second look-up by reference spares a copy of the name for every step.
        if !self.steps.contains_key(&record.task) {
            self.steps.insert(record.task.clone(), Vec::new());
        }
        if let Some(steps) = self.steps.get_mut(&record.task) {
            steps.push(record);
            if steps.len() > 2 * most {
                merge(steps);
                let covered = steps.first().and_then(step_of).map_or(1, |step| step.steps);
                self.merged = self.merged.max(covered);
            }
        }
    }

    /// Everything known, in the order of time.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut all: Vec<Record> =
            self.steps.values().flatten().chain(&self.others).cloned().collect();
        all.sort_by(|a, b| a.time.total_cmp(&b.time));
        all
    }

    /// Steps that one point stands for; 1 where all are kept.
    pub(crate) fn merged(&self) -> u64 {
        self.merged
    }

    /// A long log at a glance: both ends whole, and samples in between.
    pub(crate) fn glance(folder: &Path) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        for (path, _, length) in logs(folder) {
            let file = open_plain(&path)?;
            let mut part = |from: u64, bytes: usize, only_one: bool| -> io::Result<()> {
                let mut block = vec![0; bytes];
                let count = file.read_at(&mut block, from)?;
                let text = &block[..count];
                // The first line is most likely cut, except at the start.
                let skipped = usize::from(from > 0);
                let lines = text.split(|byte| *byte == b'\n').skip(skipped);
                let found = lines.filter_map(Record::parse);
                records.extend(found.take(if only_one { 1 } else { usize::MAX }));
                Ok(())
            };
            part(0, ENDS, false)?;
            let (samples, bytes) = SAMPLES;
            let end = length.saturating_sub(ENDS as u64);
            for at in 1..samples {
                let from = ENDS as u64 + (end.saturating_sub(ENDS as u64)) / samples * at;
                if from < end {
                    part(from, bytes, true)?;
                }
            }
            if end > ENDS as u64 {
                part(end, ENDS, false)?;
            }
        }
        records.sort_by(|a: &Record, b: &Record| a.time.total_cmp(&b.time));
        Ok(records)
    }
}

fn step_of(record: &Record) -> Option<&Step> {
    match &record.event {
        Some(Event::Step(step)) => Some(step),
        _ => None,
    }
}

/// Drops every second event that is one of many alike; those that mark a change stay as long as there are few.
fn thin(records: &mut Vec<Record>) {
    let mut at = 0;
    let is_many = |record: &Record| {
        let event = record.event.as_ref();
        event.is_some_and(|event| event.is_sample() || matches!(event, Event::Evaluation(_)))
    };
    records.retain(|record| {
        at += usize::from(is_many(record));
        !is_many(record) || at % 2 == 0
    });
    // A log of checkpoints without end.
    if records.len() > MOST_OTHERS {
        let first = records.len() - MOST_OTHERS;
        records.drain(NEWEST..NEWEST + first);
    }
}

/// Merges pairs of older steps.
fn merge(steps: &mut Vec<Record>) {
    let newest = steps.split_off(steps.len().saturating_sub(NEWEST));
    let mut merged: Vec<Record> = Vec::with_capacity(steps.len() / 2 + NEWEST);
    let mut older = std::mem::take(steps).into_iter();
    while let Some(first) = older.next() {
        let Some(second) = older.next() else {
            merged.push(first);
            break;
        };
        match both(&first, &second) {
            Some(step) => merged.push(Record { event: Some(Event::Step(step)), ..second }),
            // The run was rolled back between them.
            None => merged.extend([first, second]),
        }
    }
    merged.extend(newest);
    *steps = merged;
}

/// The same events with at most twice as many steps of each task as given: a curve beside many others needs no more.
pub(crate) fn thinned(records: Vec<Record>, most: usize) -> Vec<Record> {
    let (mut steps, mut kept) = (BTreeMap::<String, Vec<Record>>::new(), Vec::new());
    for record in records {
        match record.event {
            Some(Event::Step(_)) => steps.entry(record.task.clone()).or_default().push(record),
            _ => kept.push(record),
        }
    }
    for mut task in steps.into_values() {
        let mut count = usize::MAX;
        // A log that was rolled back all the time cannot be merged further.
        while task.len() > 2 * most.max(NEWEST) && task.len() < count {
            count = task.len();
            merge(&mut task);
        }
        kept.append(&mut task);
    }
    kept.sort_by(|a, b| a.time.total_cmp(&b.time));
    kept
}

/// Two steps in a row as one; nothing where the second does not follow the first.
fn both(first: &Record, second: &Record) -> Option<Step> {
    let (a, b) = (step_of(first)?, step_of(second)?);
    if a.step > b.step.saturating_sub(b.steps) + 1 {
        return None;
    }
    let mean = |x: f64, y: f64| match (x.is_finite(), y.is_finite()) {
        (true, true) => {
            (x * a.steps as f64 + y * b.steps as f64) / (a.steps + b.steps).max(1) as f64
        }
        (true, false) => x,
        _ => y,
    };
    let mut phases = a.phases;
    phases += b.phases;
    Some(Step {
        steps: a.steps + b.steps,
        examples: a.examples + b.examples,
        seconds: a.seconds + b.seconds,
        loss: mean(a.loss, b.loss),
        accuracy: mean(a.accuracy, b.accuracy),
        phases,
        ..*b
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{EventLog, PhaseTimes, RunFolder, RunStarted, RunView};

    fn step(at: u64) -> Event {
        Event::Step(Step {
            step: at,
            steps: 1,
            examples: 32,
            seconds: 0.01,
            loss: 1.0 / at as f64,
            phases: PhaseTimes { compute: 0.01, ..PhaseTimes::default() },
            ..Step::default()
        })
    }

    fn write(folder: &Path, steps: std::ops::Range<u64>) {
        let path = folder.join("events-worker-0.jsonl");
        let mut log = EventLog::append(&path, "worker/0").unwrap();
        if steps.start == 1 {
            log.write(0.0, &Event::RunStarted(RunStarted::default())).unwrap();
        }
        for at in steps {
            log.write(0.01 * at as f64, &step(at)).unwrap();
        }
        log.flush().unwrap();
    }

    #[test]
    fn a_long_log_is_read_once_and_kept_in_bounds_with_its_sums() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1..40_001);
        let mut follower = Follower::new(folder.path());
        follower.refresh().unwrap();
        let read = follower.read;
        assert_eq!(read, fs::metadata(folder.path().join("events-worker-0.jsonl")).unwrap().len());
        assert!(follower.records().len() <= 2 * MOST_STEPS + 1, "{}", follower.records().len());
        assert!(follower.merged() > 1);
        write(folder.path(), 40_001..50_001);
        follower.refresh().unwrap();
        let now = fs::metadata(folder.path().join("events-worker-0.jsonl")).unwrap().len();
        assert_eq!(follower.read, now, "what was read is not read again");
        let run = RunFolder::at(folder.path());
        let thin = RunView::of_events(&run, follower.records()).summary;
        let full = RunView::of_events(&run, run.events().unwrap().0).summary;
        assert_eq!((thin.examples, thin.global_steps), (full.examples, full.global_steps));
        assert_eq!(thin.last.train_loss, full.last.train_loss);
        assert!((thin.workers[0].seconds - full.workers[0].seconds).abs() < 1e-6);
    }

    #[test]
    fn a_thinned_run_keeps_its_sums_its_ends_and_what_happened() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1..5001);
        let mut follower = Follower::new(folder.path());
        follower.refresh().unwrap();
        let thin = thinned(follower.records(), 100);
        assert!(thin.len() <= 201, "{}", thin.len());
        let steps: Vec<&Step> = thin.iter().filter_map(step_of).collect();
        assert_eq!(steps.iter().map(|step| step.examples).sum::<u64>(), 32 * 5000);
        assert_eq!(steps.last().unwrap().step, 5000);
        assert_eq!(thin.len(), steps.len() + 1, "the run's start stays");
    }

    #[test]
    fn a_log_that_was_replaced_is_read_from_its_start_and_a_link_is_not_followed() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(folder.path(), 1..101);
        let mut follower = Follower::new(folder.path());
        follower.refresh().unwrap();
        assert_eq!(follower.records().len(), 101);
        fs::remove_file(folder.path().join("events-worker-0.jsonl")).unwrap();
        write(folder.path(), 1..11);
        follower.refresh().unwrap();
        assert_eq!(follower.records().len(), 11);
        write(other.path(), 1..51);
        let link = folder.path().join("events-worker-1.jsonl");
        std::os::unix::fs::symlink(other.path().join("events-worker-0.jsonl"), link).unwrap();
        follower.refresh().unwrap();
        assert_eq!(follower.records().len(), 11);
    }

    #[test]
    fn half_a_line_waits_for_its_other_half() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1..3);
        let path = folder.path().join("events-worker-0.jsonl");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 20]).unwrap();
        let mut follower = Follower::new(folder.path());
        follower.refresh().unwrap();
        assert_eq!(follower.records().len(), 2);
        // Appended in place, as a task does it.
        use std::io::Write;
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&whole[whole.len() - 20..]).unwrap();
        follower.refresh().unwrap();
        assert_eq!(follower.records().len(), 3);
    }

    #[test]
    fn a_glance_at_a_long_log_has_both_ends_and_its_shape() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1..30_001);
        let glance = Follower::glance(folder.path()).unwrap();
        let steps: Vec<u64> = glance.iter().filter_map(step_of).map(|step| step.step).collect();
        assert_eq!((steps.first(), steps.last()), (Some(&1), Some(&30_000)));
        assert!(steps.len() < 6000 && steps.is_sorted(), "{}", steps.len());
        let gap = steps.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(gap < 300, "{gap}");
    }
}
