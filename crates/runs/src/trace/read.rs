//! A profiler's traces as a run.
//!
//! PyTorch's profiler (Kineto) marks each step as a slice `ProfilerStep#N`, the wait for a batch as
//! `enumerate(DataLoader)#…next…` and collectives as `nccl:`, `gloo:`, `mpi:` or `c10d::` slices. Slices of one kind nest and overlap
//! between threads, so what counts is the time that at least one of them covers. A profile holds few steps; how few is
//! part of what [`import`] returns, because a verdict on five steps is a guess.

use crate::{
    Event, EventLog, PhaseTimes, RunEnded, RunFolder, RunStarted, RunsError, Status, Step,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest trace that is read, in bytes: the whole file is held in memory.
const LARGEST: u64 = 2 << 30;

/// Why a trace could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// It cannot be read.
    #[error("cannot read trace `{}`", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// It is too large.
    #[error("trace `{}` has {bytes} bytes, more than the {LARGEST} that are read", .path.display())]
    TooLarge { path: PathBuf, bytes: u64 },
    /// It is not a Chrome trace.
    #[error("`{}` is not a Chrome trace in JSON", .path.display())]
    NotATrace { path: PathBuf, source: serde_json::Error },
    /// It has no steps.
    #[error("trace `{}` has no slice named ProfilerStep#N", .path.display())]
    NoSteps { path: PathBuf },
    /// Two files are of the same rank.
    #[error("traces `{}` and `{}` are both of rank {rank}", .first.display(), .second.display())]
    SameRank { rank: u64, first: PathBuf, second: PathBuf },
    /// The run folder cannot be written.
    #[error(transparent)]
    Run(#[from] RunsError),
}

impl TraceError {
    /// Whether it is the file that is not what is read, rather than a disk or a folder.
    #[must_use]
    pub fn is_of_contents(&self) -> bool {
        matches!(self, Self::NotATrace { .. } | Self::NoSteps { .. })
    }
}

/// What a trace does not say of its job; forecasts need it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracedJob {
    /// Examples of each rank's step.
    pub batch_size: Option<u64>,
    /// Trained values of the model.
    pub parameters: Option<u64>,
}

/// What was imported.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedTrace {
    pub run: PathBuf,
    /// Ranks, one per file.
    pub ranks: usize,
    /// Steps of the rank that has the fewest.
    pub steps: usize,
    /// Seconds from the first step to the last.
    pub seconds: f64,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "neither an object with `traceEvents` nor a list of events")]
enum Document {
    Whole {
        #[serde(rename = "traceEvents")]
        events: Vec<Slice>,
        #[serde(rename = "distributedInfo")]
        distributed: Option<Distributed>,
        #[serde(rename = "baseTimeNanoseconds")]
        base: Option<f64>,
    },
    Events(Vec<Slice>),
}

#[derive(Deserialize)]
struct Distributed {
    rank: Option<u64>,
}

/// One event of a trace; only complete slices (`"ph": "X"`) have a duration.
#[derive(Deserialize)]
struct Slice {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: Number,
    #[serde(default)]
    dur: Number,
}

/// Microseconds; some writers quote them.
#[derive(Deserialize, Clone, Copy)]
#[serde(from = "serde_json::Value")]
struct Number(f64);

impl Default for Number {
    fn default() -> Self {
        Self(f64::NAN)
    }
}

impl From<serde_json::Value> for Number {
    fn from(value: serde_json::Value) -> Self {
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
        Self(number.unwrap_or(f64::NAN))
    }
}

/// A stretch of time in seconds.
type Span = (f64, f64);

/// When a step was made, and where its time went.
type ProfiledStep = (Span, PhaseTimes);

/// Steps of one rank.
struct Rank {
    path: PathBuf,
    steps: Vec<ProfiledStep>,
}

/// Reads traces, one per rank, and writes them into `run`, a folder that must not hold a run yet.
///
/// # Errors
/// When a trace cannot be read or has no steps, when two are of one rank, or when the folder cannot be written.
pub fn import(
    traces: &[PathBuf],
    run: &Path,
    job: &TracedJob,
) -> Result<ImportedTrace, TraceError> {
    let mut ranks: BTreeMap<u64, Rank> = BTreeMap::new();
    for (at, path) in traces.iter().enumerate() {
        let (rank, steps) = steps_of(path)?;
        let rank = rank.unwrap_or(at as u64);
        if let Some(first) = ranks.get(&rank) {
            let (first, second) = (first.path.clone(), path.clone());
            return Err(TraceError::SameRank { rank, first, second });
        }
        ranks.insert(rank, Rank { path: path.clone(), steps });
    }
    let folder = RunFolder::create_at(run)?;
    let mut ends = (f64::INFINITY, f64::NEG_INFINITY);
    for (number, rank) in &ranks {
        if let Err(error) = write(&folder, *number, rank, ranks.len(), job) {
            // Half a run would be judged like a whole one.
            for number in ranks.keys() {
                let _ = fs::remove_file(folder.events_path(&task_name(*number)));
            }
            folder.abandon();
            return Err(error.into());
        }
        let all = rank.steps.iter().map(|(span, _)| *span);
        ends = all.fold(ends, |ends, span| (ends.0.min(span.0), ends.1.max(span.1)));
    }
    let fewest = ranks.values().map(|rank| rank.steps.len()).min().unwrap_or(0);
    Ok(ImportedTrace {
        run: run.to_owned(),
        ranks: ranks.len(),
        steps: fewest,
        seconds: (ends.1 - ends.0).max(0.0),
    })
}

fn task_name(rank: u64) -> String {
    format!("worker/{rank}")
}

fn write(
    folder: &RunFolder,
    number: u64,
    rank: &Rank,
    ranks: usize,
    job: &TracedJob,
) -> Result<(), RunsError> {
    let task = task_name(number);
    let mut log = EventLog::append(&folder.events_path(&task), &task)?;
    let (first, last) = (rank.steps.first(), rank.steps.last());
    let begun = first.map_or(0.0, |(span, _)| span.0);
    let ended = last.map_or(0.0, |(span, _)| span.1);
    let name = rank.path.file_stem().unwrap_or_default().to_string_lossy();
    let started = RunStarted {
        run: folder.name(),
        model: name.split('.').next().unwrap_or_default().to_owned(),
        strategy: if ranks > 1 { "data-parallel" } else { "one-device" }.to_owned(),
        framework: "PyTorch profiler".to_owned(),
        global_batch: job.batch_size.unwrap_or(0) * ranks as u64,
        parameters: job.parameters.unwrap_or(0),
        ..RunStarted::default()
    };
    log.write(begun, &Event::RunStarted(started))?;
    for (at, (span, phases)) in rank.steps.iter().enumerate() {
        let step = Step {
            step: at as u64 + 1,
            steps: 1,
            seconds: span.1 - span.0,
            examples: job.batch_size.unwrap_or(0),
            loss: f64::NAN,
            accuracy: f64::NAN,
            phases: *phases,
            ..Step::default()
        };
        log.write(span.1, &Event::Step(step))?;
    }
    let end = RunEnded {
        status: Status::Done,
        step: rank.steps.len() as u64,
        seconds: ended - begun,
        ..RunEnded::default()
    };
    log.write(ended, &Event::RunEnded(end))?;
    log.flush()
}

/// The rank that a trace says it is of, and its steps in order.
fn steps_of(path: &Path) -> Result<(Option<u64>, Vec<ProfiledStep>), TraceError> {
    let read = |source| TraceError::Read { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(read)?.len();
    if bytes > LARGEST {
        return Err(TraceError::TooLarge { path: path.to_owned(), bytes });
    }
    let document: Document = serde_json::from_slice(&whole(path).map_err(read)?)
        .map_err(|source| TraceError::NotATrace { path: path.to_owned(), source })?;
    let (slices, rank, base) = match document {
        Document::Whole { events, distributed, base } => {
            (events, distributed.and_then(|known| known.rank), base.unwrap_or(0.0))
        }
        Document::Events(events) => (events, None, 0.0),
    };
    let (mut steps, mut input, mut exchange) = (Vec::new(), Vec::new(), Vec::new());
    for slice in slices.iter().filter(|slice| slice.ph == "X" && slice.dur.0 >= 0.0) {
        let from = 1e-9 * base + 1e-6 * slice.ts.0;
        let span = (from, from + 1e-6 * slice.dur.0);
        if !span.0.is_finite() {
            continue;
        }
        if slice.name.starts_with("ProfilerStep#") {
            steps.push(span);
        } else if slice.name.starts_with("enumerate(DataLoader)") {
            input.push(span);
        } else if ["nccl:", "gloo:", "mpi:", "c10d::"]
            .iter()
            .any(|start| slice.name.starts_with(start))
        {
            exchange.push(span);
        }
    }
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The profiler draws a step on every stream; they cover the same time.
    steps.dedup_by(|next, kept| next.0 < kept.1 && next.1 <= kept.1 + 1e-6);
    if steps.is_empty() {
        return Err(TraceError::NoSteps { path: path.to_owned() });
    }
    let (input, exchange) = (united(input), united(exchange));
    let phases = |step: &Span| {
        let input = covered(&input, step);
        let exchange = covered(&exchange, step);
        let compute = (step.1 - step.0 - input - exchange).max(0.0);
        PhaseTimes { input, compute, exchange, wait: 0.0, ..PhaseTimes::default() }
    };
    Ok((rank, steps.iter().map(|step| (*step, phases(step))).collect()))
}

/// The contents of a file, unpacked where it is compressed. An archive that unpacks to more than [`LARGEST`] is cut off
/// there, and so does not parse.
fn whole(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    flate2::read::MultiGzDecoder::new(&*bytes).take(LARGEST).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

/// Spans without overlap, in order, that cover the same time.
fn united(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut united: Vec<Span> = Vec::new();
    for span in spans {
        match united.last_mut() {
            Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
            _ => united.push(span),
        }
    }
    united
}

/// Seconds of `step` that united spans cover.
fn covered(spans: &[Span], step: &Span) -> f64 {
    let from = spans.partition_point(|span| span.1 <= step.0);
    spans[from..]
        .iter()
        .take_while(|span| span.0 < step.1)
        .map(|span| span.1.min(step.1) - span.0.max(step.0))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunView;
    use serde_json::json;

    fn slice(name: &str, ts: f64, dur: f64) -> serde_json::Value {
        json!({ "ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1 })
    }

    fn trace(rank: u64, input: f64) -> serde_json::Value {
        let mut events = vec![json!({ "ph": "M", "name": "process_name", "args": {} })];
        for step in 0..5 {
            let at = 1e5 * f64::from(step);
            events.push(slice(&format!("ProfilerStep#{step}"), at, 1e5));
            // On a stream of the device as well.
            events.push(slice(&format!("ProfilerStep#{step}"), at, 9e4));
            events.push(slice("enumerate(DataLoader)#_SingleProcess.__next__", at, input));
            events.push(slice("c10d::allreduce_", at + 8e4, 1e4));
            events.push(slice("gloo:all_reduce", at + 8.2e4, 1e4)); // overlaps the one before
        }
        json!({ "traceEvents": events, "distributedInfo": { "rank": rank } })
    }

    #[test]
    fn traces_of_two_ranks_become_one_run_that_is_judged() {
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..2u64)
            .map(|rank| {
                let path = folder.path().join(format!("resnet.{rank}.json"));
                fs::write(&path, trace(rank, 7e4).to_string()).unwrap();
                path
            })
            .collect();
        let run = folder.path().join("runs/profiled");
        let imported = import(&files, &run, &TracedJob::default()).unwrap();
        assert_eq!((imported.ranks, imported.steps), (2, 5));
        assert!((imported.seconds - 0.5).abs() < 1e-9);
        let view = RunView::read(&run).unwrap();
        assert_eq!((&*view.state, &*view.summary.model), ("done", "resnet"));
        let phases = view.summary.phases;
        assert!((phases.input - 0.7).abs() < 1e-9, "{phases:?}");
        assert!((phases.exchange - 0.12).abs() < 1e-9, "{phases:?}");
        assert!(view.summary.verdict.contains("input-bound"), "{}", view.summary.verdict);
        assert!(view.summary.verdict.contains("thin evidence"), "{}", view.summary.verdict);
        assert!(
            matches!(import(&files, &run, &TracedJob::default()), Err(TraceError::Run(_))),
            "nothing is overwritten"
        );
    }

    #[test]
    fn what_is_not_a_profile_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let run = folder.path().join("run");
        let import = |files: &[PathBuf], run: &Path| import(files, run, &TracedJob::default());
        let text = write("notes.txt", "hello");
        assert!(matches!(import(&[text], &run), Err(TraceError::NotATrace { .. })));
        let empty = write("empty.json", r#"{"traceEvents": []}"#);
        assert!(matches!(import(&[empty], &run), Err(TraceError::NoSteps { .. })));
        let one = write("a.json", &trace(3, 1e4).to_string());
        let two = write("b.json", &trace(3, 1e4).to_string());
        let same = import(&[one, two], &run);
        assert!(matches!(same, Err(TraceError::SameRank { rank: 3, .. })));
        assert!(!run.exists(), "nothing is written before every trace is read");
    }

    #[test]
    fn times_that_are_quoted_or_missing_do_not_panic() {
        let slices: Vec<Slice> = serde_json::from_value(json!([
            { "ph": "X", "name": "a", "ts": "12.5", "dur": 1 },
            { "ph": "X", "name": "b" },
        ]))
        .unwrap();
        assert_eq!(slices[0].ts.0, 12.5);
        assert!(slices[1].dur.0.is_nan());
    }
}
