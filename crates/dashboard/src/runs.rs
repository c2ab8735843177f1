//! The list of runs: found by walking the folder, cached while their files do not change.

use paceline_runs::{
    Event, Record, RecordedPlan, RunFolder, RunState, RunView, StartRow, StartTable, Summary,
    TaskJoined, unix_seconds,
};
use paceline_stats::fnv::Fnv;
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Folders between the root and a run: sweeps keep theirs three deep.
const DEPTH: usize = 4;
/// Runs shown at most; beyond, the oldest are left out and the page says so.
const MOST_RUNS: usize = 10_000;
/// Rereading unfinished runs may take one part in this many of the time.
const SPARED: u32 = 20;
/// A run that is read faster than this is reread whenever it has changed.
const CHEAP: Duration = Duration::from_millis(20);
/// Seconds without an event after which a run is called silent.
const SILENT: f64 = 10.0;

/// A line of the list.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct RunRow {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) model: String,
    pub(crate) strategy: String,
    pub(crate) data: String,
    pub(crate) workers: u64,
    pub(crate) batch: u64,
    pub(crate) step: u64,
    pub(crate) planned: Option<u64>,
    pub(crate) train_loss: Option<f64>,
    pub(crate) test_loss: Option<f64>,
    pub(crate) accuracy: Option<f64>,
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) started: f64,
    pub(crate) verdict: String,
    /// Seconds without an event, where a running task should have written one.
    pub(crate) silent: Option<f64>,
}

/// What tells whether a file has changed: its length and time.
type Mark = (u64, u128);

/// All runs below a folder.
#[derive(Debug)]
pub(crate) struct Runs {
    root: PathBuf,
    known: Mutex<HashMap<String, CachedRun>>,
}

/// A line, and what tells whether it still holds.
#[derive(Debug)]
struct CachedRun {
    summary: Mark,
    files: u64,
    read: Instant,
    cost: Duration,
    line: RunRow,
}

impl CachedRun {
    fn read(name: &str, run: &RunFolder, summary: Mark, files: u64) -> CachedRun {
        let read = Instant::now();
        let line = line(name, run);
        CachedRun { summary, files, read, cost: read.elapsed(), line }
    }

    /// A summary is final. Before there is one, files and state tell, and a run that writes all the time is not read all the time.
    fn holds(&self, run: &RunFolder, summary: Mark, files: u64) -> bool {
        if summary != self.summary || summary != (0, 0) {
            return summary == self.summary;
        }
        let spared = self.cost > CHEAP && self.read.elapsed() < SPARED * self.cost;
        self.line.silent.is_none()
            && (files == self.files || spared)
            && self.line.state == run.state().word()
    }
}

fn mark(path: &Path) -> Mark {
    fs::metadata(path).map_or((0, 0), |meta| {
        let time = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        (meta.len(), time.unwrap_or_default().as_nanos())
    })
}

impl Runs {
    pub(crate) fn new(root: PathBuf) -> Runs {
        Runs { root, known: Mutex::new(HashMap::new()) }
    }

    /// The list, newest first.
    pub(crate) fn lines(&self) -> Vec<RunRow> {
        let mut names = Vec::new();
        walk(&self.root, "", DEPTH, &mut names);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| names.binary_search(name).is_ok());
        let mut lines: Vec<RunRow> = names
            .into_iter()
            .filter_map(|name| {
                let path = self.root.join(&name);
                let Ok(run) = RunFolder::open(&path) else {
                    return Some(forming(&name, &RunFolder::forming(&path)?));
                };
                let (summary, files) = (mark(&path.join("summary.json")), fingerprint(&run));
                let holds = known.get(&name).is_some_and(|it| it.holds(&run, summary, files));
                if !holds {
                    known.insert(name.clone(), CachedRun::read(&name, &run, summary, files));
                }
                known.get(&name).map(|it| it.line.clone())
            })
            .collect();
        lines.sort_by(|a, b| b.started.total_cmp(&a.started).then_with(|| b.name.cmp(&a.name)));
        lines.truncate(MOST_RUNS);
        lines
    }

    /// A run by its name; `None` if there is none, or if the name leads outside through `..` or a link.
    pub(crate) fn find(&self, name: &str) -> Option<RunFolder> {
        let relative = Path::new(name);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.is_empty() || name.contains('\0') {
            return None;
        }
        let path = fs::canonicalize(self.root.join(relative)).ok()?;
        let run = || RunFolder::open(&path).ok().or_else(|| RunFolder::forming(&path));
        path.starts_with(&self.root).then(run).flatten()
    }
}

/// Collects runs below `folder`; a run holds no further runs. Links are not followed.
fn walk(folder: &Path, prefix: &str, depth: usize, names: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut folders: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    folders.sort();
    for name in folders {
        if names.len() > 2 * MOST_RUNS {
            return;
        }
        let path = folder.join(&name);
        let full = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if RunFolder::open(&path).is_ok() || RunFolder::forming(&path).is_some() {
            names.push(full);
        } else if depth > 1 {
            walk(&path, &full, depth - 1, names);
        }
    }
    if prefix.is_empty() {
        names.sort();
    }
}

fn line(name: &str, run: &RunFolder) -> RunRow {
    let mut line = RunRow {
        name: name.to_owned(),
        // Until the first event the plan's own time is the best there is.
        started: mark(&run.path().join("plan.json")).1 as f64 / 1e9,
        ..RunRow::default()
    };
    let state = run.state();
    line.state = state.word();
    match state {
        // Concluded: nothing more will be known of it.
        RunState::Ended(summary) if summary.diagnosis.is_some() => {
            settings(&mut line, &RecordedPlan::read(run, &[]));
            figures(&mut line, &summary);
        }
        _ => match RunView::read(run.path()) {
            Ok(view) => {
                settings(&mut line, &view.plan);
                figures(&mut line, &view.summary);
                let last = view.records.last().map_or(line.started, |record| record.time);
                let silent = unix_seconds() - last;
                line.silent = (view.state == "running" && silent > SILENT).then_some(silent);
            }
            Err(error) => line.verdict = error.to_string(),
        },
    }
    line
}

/// What a run was going to do.
fn settings(line: &mut RunRow, plan: &RecordedPlan) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    line.model = text(&plan.model);
    line.strategy = text(&plan.strategy);
    line.data = text(&plan.data);
    line.batch = plan.batch_size.unwrap_or(0);
    line.planned = plan.planned_steps;
}

fn known(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// What a run did, as every other output has it.
fn figures(line: &mut RunRow, summary: &Summary) {
    line.workers = summary.workers.len().max(1) as u64;
    line.step = summary.global_steps;
    if summary.global_batch > 0 {
        line.batch = summary.global_batch;
    }
    line.train_loss = known(summary.last.train_loss);
    line.test_loss = known(summary.last.test_loss);
    line.accuracy = known(summary.last.test_accuracy);
    line.rate = known(summary.examples_per_second).filter(|rate| *rate > 0.0);
    line.seconds = summary.seconds;
    if summary.started > 0.0 {
        line.started = summary.started;
    }
    line.verdict.clone_from(&summary.verdict);
}

/// The state of a run whose tasks have not all joined: the chief updates their table a few times a second.
pub(crate) fn forming_state(table: &StartTable) -> &'static str {
    if unix_seconds() - table.written > SILENT { "died" } else { "forming" }
}

fn forming(name: &str, run: &RunFolder) -> RunRow {
    let table = run.start_table().unwrap_or_default();
    let missing: Vec<&str> = table.missing().map(|row| row.task.as_str()).collect();
    RunRow {
        name: name.to_owned(),
        state: forming_state(&table).to_owned(),
        workers: table.tasks.len() as u64,
        started: table.written,
        verdict: format!("waiting for {}", missing.join(", ")),
        model: table.model.clone(),
        strategy: table.strategy.clone(),
        ..RunRow::default()
    }
}

/// A task as its log tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Task {
    pub(crate) task: String,
    pub(crate) role: String,
    pub(crate) address: String,
    pub(crate) state: String,
    pub(crate) joined: Option<f64>,
    pub(crate) step: u64,
    pub(crate) last: f64,
    pub(crate) words: String,
}

impl From<StartRow> for Task {
    fn from(row: StartRow) -> Task {
        let since = format!("for {:.0} s", row.seconds);
        Task {
            words: match (row.state.as_str(), row.error) {
                ("waiting", Some(error)) => format!("{since}, last error: {error}"),
                ("waiting", None) => since,
                _ if row.host.is_empty() => String::new(),
                _ => format!("on {}", row.host),
            },
            task: row.task,
            address: row.address,
            state: row.state,
            ..Task::default()
        }
    }
}

/// The tasks of a run: which have joined, how far each is, and which are missing or lost.
pub(crate) fn tasks(run: &RunFolder, records: &[Record]) -> Vec<Task> {
    let table = run.start_table().unwrap_or_default();
    let mut tasks: Vec<Task> = table.tasks.into_iter().map(Task::from).collect();
    fn of<'a>(tasks: &'a mut Vec<Task>, name: &str) -> &'a mut Task {
        let at = tasks.iter().position(|task| task.task == name).unwrap_or_else(|| {
            tasks.push(Task { task: name.to_owned(), ..Task::default() });
            tasks.len() - 1
        });
        &mut tasks[at]
    }
    for record in records {
        let task = of(&mut tasks, &record.task);
        task.last = record.time;
        match &record.event {
            // The chief writes this of every task that joins; the name of that task is in it.
            Some(Event::TaskJoined(TaskJoined { role, address, process, host, .. })) => {
                let name = if role.contains('/') { role.clone() } else { record.task.clone() };
                let (role, time) = (role.clone(), record.time);
                let (address, words) = (address.clone(), format!("process {process} on {host}"));
                let task = of(&mut tasks, &name);
                task.role = role;
                task.address = address.unwrap_or_else(|| std::mem::take(&mut task.address));
                task.joined = Some(time);
                if task.state.is_empty() || task.state == "waiting" {
                    task.state = "joined".to_owned();
                }
                task.words = words;
            }
            Some(Event::RunStarted(_)) => task.state = "running".to_owned(),
            Some(Event::Step(step)) => {
                task.state = "running".to_owned();
                task.step = step.step;
            }
            Some(Event::RunEnded(end)) => {
                task.state = end.status.to_string();
                task.words = end.reason.clone().unwrap_or_default();
            }
            Some(Event::TaskLost(lost)) => {
                let (name, reason) = (lost.lost.clone(), lost.reason.clone());
                let task = of(&mut tasks, &name);
                task.state = "lost".to_owned();
                task.words = reason;
            }
            Some(Event::TaskRecovered(back)) => {
                let (name, seconds) = (back.recovered.clone(), back.seconds);
                let task = of(&mut tasks, &name);
                task.state = "running".to_owned();
                task.words = format!("back after {seconds:.1} s");
            }
            _ => {}
        }
    }
    tasks
}

/// Changes whenever a file of the run does.
pub(crate) fn fingerprint(run: &RunFolder) -> u64 {
    let mut hash = Fnv::default();
    let mut names: Vec<PathBuf> = fs::read_dir(run.path())
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    names.sort();
    for path in names {
        let (length, time) = mark(&path);
        hash.add(&u128::from(length).to_le_bytes());
        hash.add(&time.to_le_bytes());
    }
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("plan.json"), r#"{"spec":{"model":"lenet","batch_size":64}}"#).unwrap();
        path
    }

    #[test]
    fn runs_are_found_at_any_depth_and_nothing_outside() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap().join("root");
        make(&root, "a");
        make(&root, "sweep/cells/key/b");
        make(&root, "a/inner"); // a run holds no runs
        let outside = make(&root, "../outside");
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        let runs = Runs::new(root.clone());
        let names: Vec<String> = runs.lines().into_iter().map(|line| line.name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(runs.find("sweep/cells/key/b").is_some());
        for wrong in ["../outside", "link", "/etc", "", ".", "a/../../outside", "nothing", "a\0b"] {
            assert!(runs.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn an_ended_run_is_read_once_and_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let path = make(&root, "a");
        let runs = Runs::new(root);
        assert_eq!(runs.lines()[0].state, "died");
        let run = RunFolder::open(&path).unwrap();
        run.write_summary(&Summary { global_steps: 7, ..Summary::default() }).unwrap();
        assert_eq!(runs.lines()[0].step, 7);
        run.write_summary(&Summary { global_steps: 1234, ..Summary::default() }).unwrap();
        assert_eq!(runs.lines()[0].step, 1234);
    }
}
