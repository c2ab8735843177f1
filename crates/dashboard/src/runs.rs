//! The runs below a folder: found by walking it, and remembered while their files do not change.
//!
//! Runs that have ended are known from their summaries and the index; all others are followed, once for all viewers.

use crate::follow::{Follower, thinned};
use crate::index::{self, Marks};
use crate::notes::{self, Notes};
use crate::plain_file::{Mark, linked, mark};
use crate::rows::RunRow;
use paceline_report::names;
use paceline_runs::{RunFolder, RunState, RunView};
use paceline_stats::fnv::Fnv;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Folders between the root and a run: sweeps keep theirs three deep, and lie in folders themselves.
const DEPTH: usize = 6;
/// Runs shown at most; beyond, the oldest are left out and the page says so.
pub(crate) const MOST_RUNS: usize = 10_000;
/// Rereading unfinished runs may take one part in this many of the time.
const SPARED: u32 = 4;
/// But each is read again after this time: what a read took says little on a busy machine.
const LONGEST_SPARED: Duration = Duration::from_secs(1);
/// A run that is read faster than this is reread whenever it has changed.
const CHEAP: Duration = Duration::from_millis(20);
/// Runs whose events are kept in memory, beyond those that changed lately.
const MOST_OPEN: usize = 32;
/// Steps of a task that are kept of a run beside many others.
const AMONG_MANY: usize = 512;
/// New lines after which the index is written again.
const WORTH_WRITING: usize = 50;

/// All runs below a folder.
#[derive(Debug)]
pub(crate) struct Runs {
    root: PathBuf,
    known: Mutex<Known>,
    open: Mutex<HashMap<String, Arc<Mutex<OpenRun>>>>,
    /// Bytes of event logs read.
    pub(crate) read_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    rows: HashMap<String, CachedRun>,
    /// Lines that the index on disk does not have yet.
    new: usize,
    names: Names,
}

/// What runs are called, made again only when a run comes, goes or is asked for something else: steps change all the time.
#[derive(Debug, Default)]
struct Names {
    made: bool,
    /// By the names of the run folders.
    labels: HashMap<String, String>,
    differing: Vec<String>,
}

/// A line, and what tells whether it still holds.
#[derive(Debug)]
struct CachedRun {
    marks: Marks,
    files: u64,
    read: Instant,
    cost: Duration,
    /// It rests on samples of a long log.
    is_glance: bool,
    row: RunRow,
}

/// A run whose events are in memory, with the pages made of them.
#[derive(Debug)]
pub(crate) struct OpenRun {
    folder: RunFolder,
    follower: Follower,
    /// Whether the follower has read everything at least once.
    whole: bool,
    /// A thread reads the whole of a long log.
    reading: bool,
    used: Instant,
    /// What pages were made of, and they themselves, by task.
    pub(crate) pages: BTreeMap<String, (u64, bytes::Bytes)>,
}

/// A run's view, and how much of its log it rests on.
pub(crate) struct Seen {
    pub(crate) view: RunView,
    /// Steps that one point stands for.
    pub(crate) merged: u64,
    /// Only samples of the log have been read so far.
    pub(crate) is_glance: bool,
}

impl OpenRun {
    /// Whether its events are still partly unread.
    pub(crate) fn is_reading(&self) -> bool {
        self.reading
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn marks(path: &Path) -> Marks {
    ["summary.json", "plan.json", notes::FILE].map(|name| mark(&path.join(name)))
}

impl CachedRun {
    /// A summary is final. Before there is one, files and state tell, and a run that writes all the time is not read all the time.
    fn holds(&self, path: &Path, marks: &Marks) -> bool {
        if marks != &self.marks || self.is_glance {
            return false;
        }
        if marks[0].0 != 0 {
            return true;
        }
        let run = RunFolder::at(path);
        let pause = (SPARED * self.cost).min(LONGEST_SPARED);
        let spared = self.cost > CHEAP && self.read.elapsed() < pause;
        self.row.silent.is_none()
            && self.row.state != "forming"
            && (spared || fingerprint(path) == self.files)
            && self.row.state == run.state().word()
    }
}

impl Runs {
    pub(crate) fn new(root: PathBuf) -> Runs {
        let rows = index::read(&root).into_iter().map(|(name, (marks, row))| {
            let (read, cost) = (Instant::now(), Duration::ZERO);
            (name, CachedRun { marks, files: 0, read, cost, is_glance: false, row })
        });
        let known = Known { rows: rows.collect(), new: 0, names: Names::default() };
        Runs {
            root,
            known: Mutex::new(known),
            open: Mutex::new(HashMap::new()),
            read_bytes: AtomicU64::new(0),
        }
    }

    /// The list, newest first.
    pub(crate) fn lines(self: &Arc<Self>) -> Vec<RunRow> {
        let mut known = locked(&self.known);
        let mut names = Vec::new();
        walk(&self.root, "", DEPTH, &known.rows, &mut names);
        let count = known.rows.len();
        known.rows.retain(|name, _| names.binary_search(name).is_ok());
        known.new += count - known.rows.len();
        known.names.made &= count == known.rows.len();
        let mut rows: Vec<RunRow> = Vec::with_capacity(names.len());
        for name in names {
            let path = self.root.join(&name);
            let marks = marks(&path);
            if !known.rows.get(&name).is_some_and(|it| it.holds(&path, &marks)) {
                let (read, files) = (Instant::now(), fingerprint(&path));
                let Some((row, is_glance)) = self.row(&name, &path) else {
                    known.names.made &= known.rows.remove(&name).is_none();
                    continue;
                };
                let cached = CachedRun { marks, files, read, cost: read.elapsed(), is_glance, row };
                known.new += usize::from(marks[0].0 != 0);
                let before = known.rows.get(&name).map(|it| &it.row);
                let renames = before.is_none_or(|before| cached.row.renames(before));
                known.names.made &= !renames;
                known.rows.insert(name.clone(), cached);
            }
            rows.extend(known.rows.get(&name).map(|it| it.row.clone()));
        }
        if known.new >= WORTH_WRITING {
            known.new = 0;
            let ended = known.rows.values().filter(|it| it.marks[0].0 != 0);
            index::write(&self.root, ended.map(|it| (&it.marks, &it.row)));
        }
        rows.sort_by(|a, b| b.started.total_cmp(&a.started).then_with(|| b.name.cmp(&a.name)));
        rows.truncate(MOST_RUNS);
        if !known.names.made {
            known.names = names_of(&rows);
        }
        for row in &mut rows {
            row.label = known.names.labels.get(&row.name).cloned().unwrap_or_default();
        }
        drop(known);
        self.close_unused();
        rows
    }

    /// Settings in which the runs of the last list differ, by their names in a plan.
    pub(crate) fn differing(&self) -> Vec<String> {
        locked(&self.known).names.differing.clone()
    }

    /// A line from a run's files, and whether it rests on samples.
    fn row(self: &Arc<Self>, name: &str, path: &Path) -> Option<(RunRow, bool)> {
        if let Some(link) = linked(path) {
            let why = format!("`{link}` is a link, and links are not followed");
            return Some((RunRow::broken(name, why), false));
        }
        let mut is_glance = false;
        let mut row = match RunFolder::open(path) {
            Ok(run) => match run.state() {
                // Concluded: nothing more will be known of it.
                RunState::Ended(summary) if summary.diagnosis.is_some() => {
                    RunRow::of_summary(name, &run, &summary)
                }
                state => match self.see(name, &run) {
                    Ok(seen) => {
                        is_glance = seen.is_glance;
                        if !matches!(state, RunState::Running) && !seen.is_glance {
                            // It will not change again; its events need no memory.
                            locked(&self.open).remove(name);
                        }
                        RunRow::of_view(name, &seen.view)
                    }
                    Err(error) => RunRow::broken(name, error),
                },
            },
            // Of a later version, say: what its files mean is not known here.
            Err(error) if RunFolder::is_at(path) => {
                RunRow::broken(name, paceline_runs::with_causes(&error))
            }
            Err(_) => RunRow::forming(name, &RunFolder::forming(path)?),
        };
        row.notes = Notes::read(path);
        Some((row, is_glance))
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
        // A folder that is a link inside the root would be another run under a second name.
        (path == self.root.join(relative) && linked(&path).is_none()).then(run).flatten()
    }

    /// The run in memory, shared by all that look at it.
    pub(crate) fn opened(&self, name: &str, run: &RunFolder) -> Arc<Mutex<OpenRun>> {
        let mut open = locked(&self.open);
        let made = || {
            Arc::new(Mutex::new(OpenRun {
                folder: run.clone(),
                follower: Follower::new(run.path()),
                whole: false,
                reading: false,
                used: Instant::now(),
                pages: BTreeMap::new(),
            }))
        };
        Arc::clone(open.entry(name.to_owned()).or_insert_with(made))
    }

    /// Reads what was added to a run, and shows it.
    pub(crate) fn see(self: &Arc<Self>, name: &str, run: &RunFolder) -> Result<Seen, String> {
        let opened = self.opened(name, run);
        let mut it = locked(&opened);
        self.see_opened(&opened, &mut it)
    }

    /// A run among many, as its summary tells: without its events where it has ended.
    pub(crate) fn glimpse(
        self: &Arc<Self>,
        name: &str,
        run: &RunFolder,
    ) -> Result<RunView, String> {
        match run.state() {
            RunState::Ended(summary) if summary.diagnosis.is_some() => {
                Ok(RunView::of_events(run, Vec::new()))
            }
            _ => self.see_among_many(name, run),
        }
    }

    /// A run whose curves are drawn beside many others: means of its steps, and its events do not stay in memory.
    pub(crate) fn see_among_many(
        self: &Arc<Self>,
        name: &str,
        run: &RunFolder,
    ) -> Result<RunView, String> {
        let mut view = self.see(name, run)?.view;
        if !matches!(run.state(), RunState::Running) {
            locked(&self.open).remove(name);
        }
        view.records = thinned(std::mem::take(&mut view.records), AMONG_MANY);
        Ok(view)
    }

    /// The same for a run that is held already.
    pub(crate) fn see_opened(
        self: &Arc<Self>,
        opened: &Arc<Mutex<OpenRun>>,
        it: &mut OpenRun,
    ) -> Result<Seen, String> {
        it.used = Instant::now();
        let shown = |error: std::io::Error| format!("its events cannot be read: {error}");
        if it.reading || (!it.whole && it.follower.is_far_behind()) {
            if !it.reading {
                it.reading = self.read_aside(Arc::clone(opened), it.folder.clone());
            }
            let records = Follower::glance(it.folder.path()).map_err(shown)?;
            let view = RunView::of_events(&it.folder, records);
            return Ok(Seen { view, merged: 1, is_glance: true });
        }
        let before = it.follower.read;
        it.follower.refresh().map_err(shown)?;
        it.whole = true;
        self.read_bytes.fetch_add(it.follower.read - before, Ordering::Relaxed);
        let view = RunView::of_events(&it.folder, it.follower.records());
        Ok(Seen { view, merged: it.follower.merged(), is_glance: false })
    }

    /// Reads the whole of a long log while its viewers look at samples of it; says whether there is a thread for it.
    fn read_aside(self: &Arc<Self>, opened: Arc<Mutex<OpenRun>>, folder: RunFolder) -> bool {
        let runs = Arc::clone(self);
        let work = move || {
            let mut follower = Follower::new(folder.path());
            let read = follower.refresh().is_ok();
            runs.read_bytes.fetch_add(follower.read, Ordering::Relaxed);
            let mut it = locked(&opened);
            it.follower = follower;
            it.reading = false;
            it.whole = read;
            it.pages.clear();
        };
        // Without a thread the samples stay, and the next look tries again.
        std::thread::Builder::new().name("long-log".to_owned()).spawn(work).is_ok()
    }

    /// Forgets the events of runs that have not been looked at for longest.
    fn close_unused(&self) {
        let mut open = locked(&self.open);
        if open.len() <= MOST_OPEN {
            return;
        }
        let used = |run: &Arc<Mutex<OpenRun>>| run.try_lock().map_or(Instant::now(), |it| it.used);
        let mut by_use: Vec<(Instant, String)> =
            open.iter().map(|(name, run)| (used(run), name.clone())).collect();
        by_use.sort();
        let surplus = open.len() - MOST_OPEN;
        for (_, name) in by_use.into_iter().take(surplus) {
            open.remove(&name);
        }
    }
}

/// What runs, the newest first, are called: those that are not archived among each other, as the page lists them.
fn names_of(rows: &[RunRow]) -> Names {
    let mut labels = HashMap::new();
    let mut name = |archived: bool| {
        let members: Vec<&RunRow> =
            rows.iter().rev().filter(|row| archived || !row.notes.archived).collect();
        let listed: Vec<_> = members.iter().map(|row| row.listed()).collect();
        let found = names::of_list(&listed);
        for (row, label) in members.iter().zip(found.labels) {
            if row.notes.archived == archived {
                labels.insert(row.name.clone(), label);
            }
        }
        found.differing
    };
    let differing = name(false);
    if rows.iter().any(|row| row.notes.archived) {
        name(true);
    }
    Names { made: true, labels, differing }
}

/// Collects runs below `folder`; a run holds no further runs. Links are not followed.
fn walk(
    folder: &Path,
    prefix: &str,
    depth: usize,
    known: &HashMap<String, CachedRun>,
    names: &mut Vec<String>,
) {
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
        let is_run = known.contains_key(&full)
            || RunFolder::is_at(&path)
            || RunFolder::forming(&path).is_some();
        if is_run {
            names.push(full);
        } else if depth > 1 {
            walk(&path, &full, depth - 1, known, names);
        }
    }
    if prefix.is_empty() {
        names.sort();
    }
}

/// Changes whenever a file of the run does.
pub(crate) fn fingerprint(run: &Path) -> u64 {
    let mut hash = Fnv::default();
    let mut names: Vec<PathBuf> = fs::read_dir(run)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    names.sort();
    for path in names {
        let (length, time, number): Mark = mark(&path);
        hash.add(&length.to_le_bytes());
        hash.add(&time.to_le_bytes());
        hash.add(&number.to_le_bytes());
    }
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Diagnosis, Summary};

    fn make(root: &Path, name: &str) -> PathBuf {
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("plan.json"), r#"{"spec":{"model":"lenet","batch_size":64}}"#).unwrap();
        path
    }

    fn all(root: &Path) -> Arc<Runs> {
        Arc::new(Runs::new(root.to_owned()))
    }

    #[test]
    fn runs_are_found_at_any_depth_and_nothing_outside() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap().join("root");
        make(&root, "a");
        make(&root, "sweep/cells/key/b");
        make(&root, "home/tour/sweep/cells/key/c"); // the tour's sweep, seen from the folder above
        make(&root, "a/inner"); // a run holds no runs
        let outside = make(&root, "../outside");
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        let runs = all(&root);
        let names: Vec<String> = runs.lines().into_iter().map(|line| line.name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(runs.find("sweep/cells/key/b").is_some());
        for wrong in ["../outside", "link", "/etc", "", ".", "a/../../outside", "nothing", "a\0b"] {
            assert!(runs.find(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn links_inside_a_run_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap().join("root");
        let secret = make(&root, "../secret");
        fs::write(secret.join("plan.json"), r#"{"spec":{"model":"secret"}}"#).unwrap();
        for (name, file) in [("a", "plan.json"), ("b", "summary.json"), ("c", "events-x.jsonl")] {
            let path = make(&root, name);
            let _ = fs::remove_file(path.join(file));
            std::os::unix::fs::symlink(secret.join("plan.json"), path.join(file)).unwrap();
        }
        let runs = all(&root);
        let rows = runs.lines();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row.state, "broken", "{row:?}");
            assert!(row.verdict.contains("is a link") && row.model.is_empty(), "{row:?}");
            assert!(runs.find(&row.name).is_none());
        }
    }

    #[test]
    fn an_ended_run_is_read_once_and_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let path = make(&root, "a");
        let runs = all(&root);
        assert_eq!(runs.lines()[0].state, "died");
        let run = RunFolder::open(&path).unwrap();
        run.write_summary(&Summary { global_steps: 7, ..Summary::default() }).unwrap();
        assert_eq!(runs.lines()[0].step, 7);
        run.write_summary(&Summary { global_steps: 8, ..Summary::default() }).unwrap();
        assert_eq!(runs.lines()[0].step, 8);
        Notes { note: "mine".to_owned(), ..Notes::default() }.write(&path).unwrap();
        assert_eq!(runs.lines()[0].notes.note, "mine");
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(runs.lines(), []);
    }

    #[test]
    fn the_index_spares_reading_and_is_right_when_a_folder_changes() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let end = |name: &str, steps: u64| {
            let run = RunFolder::open(&make(&root, name)).unwrap();
            let diagnosis = Some(Diagnosis::default());
            let summary = Summary { global_steps: steps, diagnosis, ..Summary::default() };
            run.write_summary(&summary).unwrap();
        };
        (0..WORTH_WRITING).for_each(|number| end(&format!("{number:03}"), 7));
        let before = all(&root).lines();
        assert_eq!(before.len(), WORTH_WRITING);
        let again = all(&root);
        assert_eq!(locked(&again.known).rows.len(), WORTH_WRITING, "read from the index");
        assert_eq!(again.lines(), before);
        // While no server was there, one run changed, one went and one came.
        end("000", 99);
        fs::remove_dir_all(root.join("001")).unwrap();
        end("new", 5);
        let now = all(&root).lines();
        assert_eq!(now.len(), WORTH_WRITING);
        let steps = |name: &str| now.iter().find(|row| row.name == name).map(|row| row.step);
        assert_eq!((steps("000"), steps("001"), steps("new")), (Some(99), None, Some(5)));
        // Damage costs time, nothing else.
        fs::write(root.join(".paceline-index.json"), "{\"version\":").unwrap();
        assert_eq!(all(&root).lines(), now);
    }
}
