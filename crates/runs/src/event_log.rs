//! `events-<task>.jsonl`: one event a line, in a versioned envelope.

use crate::{RunsError, event::ENVELOPE_VERSION, event::Event, event::Step, ownership};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// What surrounds an event on its line. Field order is the order on disk.
#[derive(Serialize)]
struct Line<'a> {
    v: u32,
    time: f64,
    task: &'a str,
    #[serde(flatten)]
    event: &'a Event,
}

/// One event as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Seconds since 1970.
    pub time: f64,
    /// The task that wrote it, such as `worker/0`.
    pub task: String,
    /// The event's kind as written.
    pub kind: String,
    /// The event, or nothing where a later version of the program wrote a kind unknown here.
    pub event: Option<Event>,
}

/// Appends events to a task's log. Holds a lock on the file while it lives, by which readers tell a
/// running task from a dead one.
#[derive(Debug)]
pub struct EventLog {
    file: BufWriter<File>,
    path: PathBuf,
    task: String,
    line: Vec<u8>,
}

impl EventLog {
    /// Opens the log for appending: a resumed run continues the file it had.
    ///
    /// # Errors
    /// [`RunsError::LogHeld`] where another process is writing it.
    pub fn append(path: &Path, task: &str) -> Result<Self, RunsError> {
        let create = |source| RunsError::Create { path: path.to_path_buf(), source };
        let mut file =
            OpenOptions::new().create(true).append(true).read(true).open(path).map_err(create)?;
        if !ownership::lock(&file) {
            return Err(RunsError::LogHeld { path: path.to_path_buf() });
        }
        let unfinished = ends_mid_line(&file).map_err(create)?;
        if unfinished {
            // The process before this one died while writing: its half line must not eat ours.
            file.write_all(b"\n").map_err(create)?;
        }
        Ok(Self {
            file: BufWriter::with_capacity(64 << 10, file),
            path: path.to_path_buf(),
            task: task.to_string(),
            line: Vec::with_capacity(512),
        })
    }

    /// Appends one event that happened at `time` seconds since 1970.
    pub fn write(&mut self, time: f64, event: &Event) -> Result<(), RunsError> {
        self.line.clear();
        let line = Line { v: ENVELOPE_VERSION, time, task: &self.task, event };
        serde_json::to_writer(&mut self.line, &line)
            .map_err(io::Error::from)
            .and_then(|()| {
                self.line.push(b'\n');
                self.file.write_all(&self.line)
            })
            .map_err(|source| RunsError::Write { path: self.path.clone(), source })
    }

    /// Hands everything to the system, so that readers see it.
    pub fn flush(&mut self) -> Result<(), RunsError> {
        self.file.flush().map_err(|source| RunsError::Write { path: self.path.clone(), source })
    }
}

/// Whether the last byte of a non-empty file is something else than a line end.
fn ends_mid_line(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(false);
    }
    let mut last = [0u8];
    file.read_exact_at(&mut last, length - 1)?;
    Ok(last[0] != b'\n')
}

/// Reads a log. Malformed lines (a process died while writing) are skipped and counted in the second value; kinds
/// and fields that this version does not know are tolerated.
pub fn read_events(path: &Path) -> Result<(Vec<Record>, usize), RunsError> {
    let bytes =
        fs::read(path).map_err(|source| RunsError::Read { path: path.to_path_buf(), source })?;
    let mut records = Vec::new();
    let mut broken = 0;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match parse(line) {
            Some(record) => records.push(record),
            None => broken += 1,
        }
    }
    Ok((records, broken))
}

/// Reads the last events of a log, out of its last `most_bytes` bytes: for a look at a run that goes on.
pub fn read_last_events(path: &Path, most_bytes: u64) -> Result<Vec<Record>, RunsError> {
    use std::os::unix::fs::FileExt;
    let read = |source| RunsError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(read)?;
    let length = file.metadata().map_err(read)?.len();
    let from = length.saturating_sub(most_bytes);
    let mut bytes = vec![0; usize::try_from(length - from).unwrap_or(0)];
    file.read_exact_at(&mut bytes, from).map_err(read)?;
    let whole = match from {
        0 => &bytes[..],
        // The first line is most likely cut.
        _ => bytes.iter().position(|byte| *byte == b'\n').map_or(&[][..], |at| &bytes[at..]),
    };
    Ok(whole.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

#[derive(Deserialize)]
struct Envelope {
    v: u32,
    time: f64,
    task: String,
    kind: String,
    #[serde(default)]
    data: serde_json::Value,
}

/// A line of the most frequent kind, without the detour through a tree of values: long logs consist of these.
#[derive(Deserialize)]
struct StepLine {
    v: u32,
    time: f64,
    task: String,
    kind: String,
    data: Step,
}

impl Record {
    /// Reads one line of a log; nothing where it is malformed, because a process died while writing it.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        parse(line)
    }
}

fn parse(line: &[u8]) -> Option<Record> {
    if let Ok(StepLine { v: ENVELOPE_VERSION, time, task, kind, data }) =
        serde_json::from_slice::<StepLine>(line)
        && kind == "step"
    {
        return Some(Record { time, task, kind, event: Some(Event::Step(data)) });
    }
    let Envelope { v, time, task, kind, data } = serde_json::from_slice(line).ok()?;
    // A later envelope may give the same words another meaning: keep the line, not its contents.
    let event = if v == ENVELOPE_VERSION {
        serde_json::from_value(serde_json::json!({ "kind": kind, "data": data })).ok()
    } else {
        None
    };
    Some(Record { time, task, kind, event })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Checkpoint, CheckpointAction, Evaluation, RunEnded, Status};

    fn events() -> Vec<Event> {
        vec![
            Event::Step(Step { step: 10, steps: 10, loss: f64::NAN, ..Step::default() }),
            Event::Evaluation(Evaluation { step: 10, loss: 0.5, best: true, ..Default::default() }),
            Event::Checkpoint(Checkpoint {
                action: CheckpointAction::Saved,
                step: 10,
                seconds: 0.25,
                bytes: 4,
                reason: None,
            }),
            Event::RunEnded(RunEnded { status: Status::Done, step: 10, ..Default::default() }),
        ]
    }

    #[test]
    fn events_come_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events-worker-0.jsonl");
        let mut log = EventLog::append(&path, "worker/0").unwrap();
        for event in events() {
            log.write(12.5, &event).unwrap();
        }
        log.flush().unwrap();
        let (records, broken) = read_events(&path).unwrap();
        assert_eq!(broken, 0);
        // NaN differs from itself, so compare what is written about both.
        let read: Vec<_> = records.iter().map(|record| record.event.clone().unwrap()).collect();
        assert_eq!(format!("{read:?}"), format!("{:?}", events()));
        assert!(records.iter().all(|r| r.time == 12.5 && r.task == "worker/0"));
    }

    #[test]
    fn two_processes_do_not_mix_their_events_in_one_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events-worker-0.jsonl");
        let log = EventLog::append(&path, "worker/0").unwrap();
        assert!(matches!(EventLog::append(&path, "worker/0"), Err(RunsError::LogHeld { .. })));
        drop(log);
        EventLog::append(&path, "worker/0").unwrap();
    }

    #[test]
    fn the_last_events_are_found_without_reading_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events-worker-0.jsonl");
        let mut log = EventLog::append(&path, "worker/0").unwrap();
        for time in 0..100 {
            log.write(f64::from(time), &events()[1]).unwrap();
        }
        log.flush().unwrap();
        let last = read_last_events(&path, 1000).unwrap();
        assert!((2..20).contains(&last.len()), "{}", last.len());
        assert_eq!(last.last().unwrap().time, 99.0);
        assert_eq!(read_last_events(&path, u64::MAX).unwrap().len(), 100);
    }

    #[test]
    fn half_a_line_from_a_dead_process_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events-worker-0.jsonl");
        fs::write(&path, b"{\"v\":1,\"time\":3.0,\"task\":\"worker/0\",\"ki").unwrap();
        let mut log = EventLog::append(&path, "worker/0").unwrap();
        log.write(4.0, &events()[1]).unwrap();
        log.flush().unwrap();
        let (records, broken) = read_events(&path).unwrap();
        assert_eq!((records.len(), broken), (1, 1));
        assert_eq!(records[0].kind, "evaluation");
    }

    #[test]
    fn later_versions_do_not_stop_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(
            &path,
            concat!(
                r#"{"v":1,"time":1,"task":"worker/0","kind":"teleported","data":{"x":1}}"#,
                "\n",
                r#"{"v":1,"time":2,"task":"worker/0","kind":"step","data":{"step":7,"colour":"red"},"more":1}"#,
                "\n",
                r#"{"v":9,"time":3,"task":"worker/0","kind":"step","data":{"step":"eight"}}"#,
                "\n",
                r#"{"v":1,"time":4,"task":"worker/0","kind":"checkpoint","data":{"action":"mirrored","step":3}}"#,
                "\n",
            ),
        )
        .unwrap();
        let (records, broken) = read_events(&path).unwrap();
        assert_eq!((records.len(), broken), (4, 0));
        assert_eq!((&records[0].event, records[0].kind.as_str()), (&None, "teleported"));
        assert!(matches!(records[1].event, Some(Event::Step(Step { step: 7, .. }))));
        assert_eq!(records[2].event, None);
        assert!(matches!(
            records[3].event,
            Some(Event::Checkpoint(Checkpoint { action: CheckpointAction::Unknown, .. }))
        ));
    }
}
