//! Our training runs, paused between measurements.
//!
//! Peers are warm processes that wait for their next turn. Our run is also started once, and paused and continued by signals:
//! turns can be short and close to each other, changing load on the machine affects all sides equally, and no start-up is
//! measured.

use super::paceline::Paceline;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a run may take to come to its first steps.
const START: Duration = Duration::from_secs(120);
/// Caches and clocks settle before steps count.
pub const SKIP: f64 = 0.05;
/// How long a run continues after its turn: reports are written twice a second.
const WRITING: Duration = Duration::from_millis(700);
/// Fewest reports in a turn: they bound the steps in between.
const REPORTS: usize = 3;
/// How often a turn may be extended until it has them.
const TURNS: usize = 4;

/// A paused run.
pub struct PausedRun {
    child: Child,
    events: PathBuf,
    /// Bytes of the events that were read.
    read: u64,
    turn: Duration,
}

/// A run's report about its last steps.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Seconds since 1970.
    pub time: f64,
    pub step: u64,
    /// Images of a step, over all processes.
    pub batch: f64,
    /// How many steps it is about, and how long they took.
    pub steps: u64,
    pub seconds: f64,
}

/// The part of an event that counts here.
#[derive(Deserialize)]
struct Event {
    time: f64,
    kind: String,
    data: serde_json::Value,
}

impl PausedRun {
    /// Starts a run under `folder` and lets it reach step `warm`. Its turns take as long as `turn`.
    pub fn start(
        program: &Paceline,
        args: &[String],
        folder: &Path,
        warm: u64,
        turn: Duration,
    ) -> anyhow::Result<Self> {
        let _ = fs::remove_dir_all(folder);
        let child = Command::new(program.program())
            .args(args)
            .args(["--quiet", "--no-tensorboard", "--out"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", program.program().display()))?;
        let mut run = Self { child, events: PathBuf::new(), read: 0, turn };
        let begun = Instant::now();
        let mut step = 0;
        while step < warm {
            if begun.elapsed() > START || run.child.try_wait()?.is_some() {
                bail!("paceline {} only reached step {step}", args.join(" "));
            }
            sleep(Duration::from_millis(20));
            if run.events.as_os_str().is_empty() {
                run.events = chief_events(folder).unwrap_or_default();
            } else if let Some(last) = run.reports()?.last() {
                step = last.step;
            }
        }
        run.halt();
        Ok(run)
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    pub fn halt(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// How long a turn takes.
    pub fn turn(&self) -> Duration {
        self.turn
    }

    /// Continues for a turn; returns examples per second.
    pub fn measure(&mut self) -> anyhow::Result<f64> {
        let from = now() + SKIP;
        self.resume();
        let mut reports = Vec::new();
        let mut to = from;
        // A slow machine has fewer reports in the same time.
        for _ in 0..TURNS {
            sleep(self.turn);
            to = now();
            sleep(WRITING);
            reports.extend(self.reports()?);
            if reports.iter().filter(|report| (from..=to).contains(&report.time)).count() >= REPORTS
            {
                break;
            }
        }
        self.halt();
        reports.retain(|report| (from..=to).contains(&report.time));
        let [first, .., last] = &reports[..] else { bail!("a turn without steps") };
        if reports.len() < REPORTS {
            bail!("a turn of {:?} is too short: {} reports", self.turn, reports.len());
        }
        Ok((last.step - first.step) as f64 * last.batch / (last.time - first.time))
    }

    /// Reports that are new.
    pub fn reports(&mut self) -> anyhow::Result<Vec<Report>> {
        let mut file = File::open(&self.events)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let events = text[..whole].lines().filter_map(|line| serde_json::from_str(line).ok());
        let report = |event: Event| {
            Some(Report {
                time: event.time,
                step: event.data["step"].as_u64()?,
                batch: event.data["global_batch"].as_f64()?,
                steps: event.data["steps"].as_u64()?,
                seconds: event.data["seconds"].as_f64()?,
            })
        };
        Ok(events.filter(|event: &Event| event.kind == "step").filter_map(report).collect())
    }

    /// Signals the process that was started and its children.
    #[allow(unsafe_code)]
    fn signal(&self, signal: i32) {
        let parent = self.child.id();
        let mut all = vec![parent];
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        for process in all.into_iter().filter_map(|process| i32::try_from(process).ok()) {
            // SAFETY: no memory is involved. A process that has ended is not waited for yet, so its number has not been reused.
            unsafe { libc::kill(process, signal) };
        }
    }
}

impl Drop for PausedRun {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The log of a run's first worker, once it is there.
fn chief_events(folder: &Path) -> Option<PathBuf> {
    let run = fs::read_dir(folder).ok()?.flatten().next()?.path();
    let mut logs: Vec<PathBuf> = fs::read_dir(run)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("events-") && name.ends_with(".jsonl"))
        })
        .collect();
    logs.sort();
    logs.into_iter().next()
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
