//! What the page knows about runs: found by walking the folder, remembered while their files do not change.

use paceline_runs::{
    Event, Record, RunFolder, RunState, StartRow, StartTable, Summary, TaskJoined,
    read_last_events, unix_seconds,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// Folders between the root and a run: sweeps keep theirs three deep.
const DEPTH: usize = 4;
/// Runs shown at most; beyond, the oldest are left out and the page says so.
const MOST_RUNS: usize = 10_000;
/// The last events of a running task are found in so many bytes.
const TAIL: u64 = 64 << 10;
/// A run that has written nothing for so many seconds is called silent.
const SILENT: f64 = 10.0;

/// A line of the list.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Line {
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
}

/// What tells whether a file has changed: its length and time.
type Mark = (u64, u128);

/// All runs below a folder.
#[derive(Debug)]
pub(crate) struct Runs {
    root: PathBuf,
    known: Mutex<HashMap<String, (Mark, Line)>>,
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
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut names = Vec::new();
        walk(&self.root, "", DEPTH, &mut names);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| names.binary_search(name).is_ok());
        let mut lines: Vec<Line> = names
            .into_iter()
            .filter_map(|name| {
                let path = self.root.join(&name);
                let summary = mark(&path.join("summary.json"));
                if let Some((then, line)) = known.get(&name)
                    && *then == summary
                    && summary != (0, 0)
                {
                    return Some(line.clone());
                }
                let line = match RunFolder::open(&path) {
                    Ok(run) => line(&name, &run),
                    Err(_) => forming(&name, &RunFolder::forming(&path)?),
                };
                known.insert(name, (summary, line.clone()));
                Some(line)
            })
            .collect();
        lines.sort_by(|a, b| b.started.total_cmp(&a.started).then_with(|| b.name.cmp(&a.name)));
        lines.truncate(MOST_RUNS);
        lines
    }

    /// A run by its name; nothing for what is no run or lies elsewhere, by `..` or by a link.
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
        if path.join("plan.json").is_file() || path.join("tasks.json").is_file() {
            names.push(full);
        } else if depth > 1 {
            walk(&path, &full, depth - 1, names);
        }
    }
    if prefix.is_empty() {
        names.sort();
    }
}

fn line(name: &str, run: &RunFolder) -> Line {
    let plan: Value = run.plan().unwrap_or(Value::Null);
    let asked = |key: &str| plan.get("spec").and_then(|spec| spec.get(key)).cloned();
    let text =
        |key: &str| asked(key).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let mut line = Line {
        name: name.to_owned(),
        model: text("model"),
        strategy: text("strategy"),
        data: text("data"),
        batch: asked("batch_size").and_then(|v| v.as_u64()).unwrap_or(0),
        planned: plan.get("planned_steps").and_then(Value::as_u64),
        // Until the first event the plan's own time is the best there is.
        started: mark(&run.path().join("plan.json")).1 as f64 / 1e9,
        ..Line::default()
    };
    match run.state() {
        RunState::Ended(summary) => ended(&mut line, &summary),
        RunState::Running => unfinished(&mut line, run, "running"),
        RunState::Died => unfinished(&mut line, run, "died"),
        RunState::Broken(why) => {
            line.state = "broken".to_owned();
            line.verdict = why;
        }
    }
    line
}

fn known(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn ended(line: &mut Line, summary: &Summary) {
    line.state = summary.status.to_string();
    line.workers = summary.workers.len().max(1) as u64;
    line.step = summary.global_steps;
    line.batch = summary.global_batch;
    line.train_loss = known(summary.last.train_loss);
    line.test_loss = known(summary.last.test_loss);
    line.accuracy = known(summary.last.test_accuracy);
    line.rate = known(summary.examples_per_second);
    line.seconds = summary.seconds;
    line.started = summary.started;
    line.verdict.clone_from(&summary.verdict);
}

/// As far as the last events tell.
fn unfinished(line: &mut Line, run: &RunFolder, state: &str) {
    state.clone_into(&mut line.state);
    let files = run.event_files().unwrap_or_default();
    line.workers =
        files.iter().filter(|file| file.to_string_lossy().contains("worker")).count().max(1) as u64;
    let mut last: f64 = 0.0;
    for file in &files {
        for record in read_last_events(file, TAIL).unwrap_or_default() {
            last = last.max(record.time);
            match &record.event {
                Some(Event::Step(step)) if step.step >= line.step => {
                    line.step = step.step;
                    line.train_loss = known(step.loss);
                    let rate = step.examples as f64 / step.seconds;
                    line.rate = known(rate);
                }
                Some(Event::Evaluation(evaluation)) => {
                    line.test_loss = known(evaluation.loss);
                    line.accuracy = known(evaluation.accuracy);
                }
                _ => {}
            }
        }
    }
    line.seconds = (last - line.started).max(0.0);
    let silent = unix_seconds() - last;
    if state == "running" && last > 0.0 && silent > SILENT {
        line.verdict = format!("no event for {silent:.0} s");
    }
}

/// The state of a run whose tasks are finding each other: the chief renews the table of them a few times a second.
pub(crate) fn forming_state(table: &StartTable) -> &'static str {
    if unix_seconds() - table.written > SILENT { "died" } else { "forming" }
}

fn forming(name: &str, run: &RunFolder) -> Line {
    let table = run.start_table().unwrap_or_default();
    let missing: Vec<&str> = table.missing().map(|row| row.task.as_str()).collect();
    Line {
        name: name.to_owned(),
        state: forming_state(&table).to_owned(),
        workers: table.tasks.len() as u64,
        started: table.written,
        verdict: format!("waiting for {}", missing.join(", ")),
        model: table.model.clone(),
        strategy: table.strategy.clone(),
        ..Line::default()
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

/// The tasks of a run: who has joined, how far each is, and who is missing or lost.
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
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |value: u128| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    let mut names: Vec<PathBuf> = fs::read_dir(run.path())
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    names.sort();
    for path in names {
        let (length, time) = mark(&path);
        add(u128::from(length));
        add(time);
    }
    hash
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
