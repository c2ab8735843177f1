//! Run folders: creating a unique one, and reading existing ones.

use crate::{
    Event, Machine, Record, RunEnded, RunPlan, RunsError, StartTable, Status, Summary,
    atomic_file::write_atomically,
    clock, event_log,
    file_format::{self, FORMAT_FIELD, Numbered},
    ownership::{OWNER_FILE, is_written},
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

const PLAN: &str = "plan.json";
const MACHINE: &str = "machine.json";
const SUMMARY: &str = "summary.json";
const TASKS: &str = "tasks.json";
/// The end of a log in which its last event is looked for.
const LAST_BYTES: u64 = 64 << 10;

/// A run's folder.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
    /// Folders around it that were made for it, the innermost first.
    made: Vec<PathBuf>,
}

/// The same folder is the same run, whichever call made it.
impl PartialEq for RunFolder {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for RunFolder {}

/// The folders of a path that are not there yet, the innermost first.
fn missing(path: &Path) -> Vec<PathBuf> {
    let named = path.ancestors().filter(|folder| !folder.as_os_str().is_empty());
    named.take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect()
}

/// What a run's files say about its fate.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// It ended and said how.
    Ended(Box<Summary>),
    /// A task is writing its log at this moment.
    Running,
    /// It left no summary and no process writes: killed, or the machine went down.
    Died,
    /// A file is damaged; the text says which and how.
    Broken(String),
}

impl RunState {
    /// The state in a word, the same in every list, table and page.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Ended(summary) => summary.status.to_string(),
            Self::Running => "running".to_owned(),
            Self::Died => "died".to_owned(),
            Self::Broken(_) => "broken".to_owned(),
        }
    }
}

impl RunFolder {
    /// Creates `root/<date>-<time>-<model>-<strategy>-<suffix>`. Two runs that start in the same
    /// second get two folders: creating a folder succeeds for exactly one of them, and the other
    /// takes another suffix.
    pub fn create(root: &Path, model: &str, strategy: &str) -> Result<Self, RunsError> {
        let error = |path: &Path, source| RunsError::Create { path: path.to_path_buf(), source };
        let made: Vec<PathBuf> = missing(root);
        loop {
            // Again each time: a run that never began may take its folder away in between.
            fs::create_dir_all(root).map_err(|source| error(root, source))?;
            let now = clock::since_epoch();
            let name = format!(
                "{}-{}-{}-{}",
                clock::compact_utc(now.as_secs()),
                in_name(model),
                in_name(strategy),
                suffix(u64::from(now.subsec_nanos()))
            );
            let path = root.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, made }),
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(error(&path, source)),
            }
        }
    }

    /// This host's folder of a run that another task named: created where it is not there yet.
    pub fn join(root: &Path, name: &str) -> Result<Self, RunsError> {
        let path = root.join(in_name(name));
        fs::create_dir_all(&path)
            .map_err(|source| RunsError::Create { path: path.clone(), source })?;
        Ok(Self { path, made: Vec::new() })
    }

    /// Creates a run folder of a given name; a folder that is there already is refused, unless it is empty.
    pub fn create_at(path: &Path) -> Result<Self, RunsError> {
        let error = |source| RunsError::Create { path: path.to_path_buf(), source };
        fs::create_dir_all(path).map_err(error)?;
        if children(path)?.is_empty() {
            Ok(Self::at(path))
        } else {
            Err(error(io::Error::new(io::ErrorKind::AlreadyExists, "the folder is not empty")))
        }
    }

    /// A run's folder, whether or not its plan has been written yet.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf(), made: Vec::new() }
    }

    /// What a task's process printed, if its launcher captures that.
    #[must_use]
    pub fn log_path(&self, task: &str) -> PathBuf {
        self.path.join("logs").join(format!("{}.log", in_name(task)))
    }

    /// A run that exists: a folder with a plan, or with events that another program recorded.
    ///
    /// # Errors
    /// No run is there, or one of a version whose files this one cannot understand.
    pub fn open(path: &Path) -> Result<Self, RunsError> {
        let run = Self::at(path);
        if !run.is_run() {
            return Err(no_run(path));
        }
        run.check_formats(&[PLAN, SUMMARY])?;
        Ok(run)
    }

    /// Refuses a run whose files are of a later format; files that cannot be read are not its business.
    fn check_formats(&self, names: &[&str]) -> Result<(), RunsError> {
        names.iter().try_for_each(|name| {
            let path = self.path.join(name);
            fs::read(&path).map_or(Ok(()), |contents| file_format::check(&path, &contents))
        })
    }

    /// Whether a folder holds a run, of whichever version.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        Self::at(path).is_run()
    }

    /// Whether the folder holds a run. Tasks that are still looking for each other may have logs already.
    fn is_run(&self) -> bool {
        self.path.join(PLAN).is_file()
            || (!self.path.join(TASKS).is_file()
                && self.event_files().is_ok_and(|logs| !logs.is_empty()))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder's own name, by which people call the run.
    #[must_use]
    pub fn name(&self) -> String {
        let whole = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        whole.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The log of a task such as `worker/0`.
    #[must_use]
    pub fn events_path(&self, task: &str) -> PathBuf {
        self.path.join(format!("events-{}.jsonl", in_name(task)))
    }

    /// The recording of what the machine did while `task` ran.
    #[must_use]
    pub fn resources_path(&self, task: &str) -> PathBuf {
        self.path.join(format!("resources-{}.csv", in_name(task)))
    }

    /// TensorBoard's folder for a task.
    #[must_use]
    pub fn tensorboard_path(&self, task: &str) -> PathBuf {
        self.path.join("tensorboard").join(in_name(task))
    }

    /// Where checkpoints go.
    #[must_use]
    pub fn checkpoints_path(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Whether it has a checkpoint to resume from; one that is being written does not count.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        fs::read_dir(self.checkpoints_path()).is_ok_and(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.into_iter().any(|name| !name.to_string_lossy().starts_with('.'))
        })
    }

    /// Writes what is going to happen.
    pub fn write_plan<S: Serialize, D: Serialize>(
        &self,
        plan: &RunPlan<S, D>,
    ) -> Result<(), RunsError> {
        self.write_json(PLAN, "plan", &Numbered::new(plan))
    }

    /// Writes who has come and who is missing.
    pub fn write_start_table(&self, table: &StartTable) -> Result<(), RunsError> {
        self.write_json(TASKS, "table of tasks", table)
    }

    /// Who had come and who was missing when that was written last; nothing for a run of one task.
    #[must_use]
    pub fn start_table(&self) -> Option<StartTable> {
        self.read_json(TASKS, "table of tasks").ok()
    }

    /// A run whose tasks are only finding each other: it has a table of them and no plan yet.
    #[must_use]
    pub fn forming(path: &Path) -> Option<Self> {
        (path.join(TASKS).is_file() && !path.join(PLAN).is_file()).then(|| Self::at(path))
    }

    /// Removes the folder of a run that never began, and the folders around it that were made for it. One with
    /// something in it stays.
    pub fn abandon(&self) {
        let _ = fs::remove_file(self.path.join(TASKS));
        for folder in std::iter::once(&self.path).chain(&self.made) {
            if fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }

    /// Writes where it happens.
    pub fn write_machine(&self, machine: &Machine) -> Result<(), RunsError> {
        self.write_json(MACHINE, "machine description", machine)
    }

    /// Writes how it ended: the summary of every run, alone or with what only this kind of run says beside it.
    pub fn write_summary(&self, summary: &impl Serialize) -> Result<(), RunsError> {
        self.write_json(SUMMARY, "summary", &Numbered::new(summary))
    }

    /// Replaces what every run says in its summary; what only this kind of run says stays.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn amend_summary(&self, summary: &Summary) -> Result<(), RunsError> {
        let kept: Option<serde_json::Map<String, serde_json::Value>> =
            fs::read(self.path.join(SUMMARY))
                .ok()
                .and_then(|text| serde_json::from_slice(&text).ok());
        let mut all = kept.unwrap_or_default();
        if let Ok(serde_json::Value::Object(said)) = serde_json::to_value(summary) {
            all.extend(said);
        }
        all.remove(FORMAT_FIELD);
        self.write_summary(&all)
    }

    /// Forgets how an earlier process of this run ended, because it goes on.
    pub fn remove_summary(&self) -> Result<(), RunsError> {
        let path = self.path.join(SUMMARY);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(RunsError::Write { path, source })
            }
            _ => Ok(()),
        }
    }

    /// The plan of a run of a known kind; [`crate::RecordedPlan`] reads those of all kinds.
    pub fn plan<S: DeserializeOwned, D: DeserializeOwned>(
        &self,
    ) -> Result<RunPlan<S, D>, RunsError> {
        self.read_json(PLAN, "plan")
    }

    /// All that `plan.json` says, whichever program wrote it.
    pub(crate) fn plan_value(&self) -> Result<serde_json::Value, RunsError> {
        self.read_json(PLAN, "plan")
    }

    /// Where it happened.
    pub fn machine(&self) -> Result<Machine, RunsError> {
        self.read_json(MACHINE, "machine description")
    }

    /// How it ended; nothing while it runs, or if it died.
    pub fn summary(&self) -> Result<Option<Summary>, RunsError> {
        match self.read_json(SUMMARY, "summary") {
            Ok(summary) => Ok(Some(summary)),
            Err(RunsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Logs of all tasks, sorted by name.
    pub fn event_files(&self) -> Result<Vec<PathBuf>, RunsError> {
        let mut files: Vec<PathBuf> = children(&self.path)?
            .into_iter()
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("events-") && name.ends_with(".jsonl")
            })
            .collect();
        files.sort();
        Ok(files)
    }

    /// Events of all tasks in the order of their times, and the number of unreadable lines.
    pub fn events(&self) -> Result<(Vec<Record>, usize), RunsError> {
        let (mut all, mut broken) = (Vec::new(), 0);
        for file in self.event_files()? {
            let (records, unreadable) = event_log::read_events(&file)?;
            all.extend(records);
            broken += unreadable;
        }
        all.sort_by(|a: &Record, b: &Record| a.time.total_cmp(&b.time));
        Ok((all, broken))
    }

    /// What became of the run. Never fails: whatever is wrong is part of the answer.
    #[must_use]
    pub fn state(&self) -> RunState {
        match self.check_formats(&[PLAN]).and_then(|()| self.summary()) {
            Ok(Some(summary)) => return RunState::Ended(Box::new(summary)),
            Ok(None) => {}
            Err(error) => return RunState::Broken(crate::with_causes(&error)),
        }
        match self.event_files() {
            Err(error) => RunState::Broken(crate::with_causes(&error)),
            // Between its start and its first event a run has an owner and no log.
            Ok(mut files) => {
                files.push(self.path.join(OWNER_FILE));
                if files.iter().any(|file| is_written(file)) {
                    RunState::Running
                } else {
                    self.ended_by_its_events().unwrap_or(RunState::Died)
                }
            }
        }
    }

    /// How a run ended that leaves no summary, because another program recorded it: as its logs say in their last
    /// event. A task whose log has no such event died.
    fn ended_by_its_events(&self) -> Option<RunState> {
        if self.path.join(PLAN).is_file() {
            return None; // this program writes a summary
        }
        let mut worst: Option<RunEnded> = None;
        for log in self.event_files().ok()? {
            let last = event_log::read_last_events(&log, LAST_BYTES).ok()?;
            let ended = last.into_iter().rev().find_map(|record| match record.event {
                Some(Event::RunEnded(ended)) => Some(ended),
                _ => None,
            })?;
            if worst.as_ref().is_none_or(|known| gravity(ended.status) > gravity(known.status)) {
                worst = Some(ended);
            }
        }
        let ended = worst?;
        Some(RunState::Ended(Box::new(Summary {
            run: self.name(),
            status: ended.status,
            global_steps: ended.step,
            seconds: ended.seconds,
            verdict: ended.reason.unwrap_or_default(),
            ..Summary::default()
        })))
    }

    fn write_json(
        &self,
        name: &str,
        what: &'static str,
        value: &impl Serialize,
    ) -> Result<(), RunsError> {
        let path = self.path.join(name);
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|source| RunsError::Json {
            path: path.clone(),
            what,
            source,
        })?;
        bytes.push(b'\n');
        write_atomically(&path, &bytes)
    }

    fn read_json<T: DeserializeOwned>(
        &self,
        name: &str,
        what: &'static str,
    ) -> Result<T, RunsError> {
        let path = self.path.join(name);
        let bytes =
            fs::read(&path).map_err(|source| RunsError::Read { path: path.clone(), source })?;
        file_format::check(&path, &bytes)?;
        serde_json::from_slice(&bytes).map_err(|source| RunsError::Json { path, what, source })
    }
}

/// Which of several tasks' ends is the run's.
fn gravity(status: Status) -> u8 {
    match status {
        Status::Done => 0,
        Status::Unknown => 1,
        Status::Cancelled => 2,
        Status::Failed => 3,
    }
}

/// All runs directly under `root`, oldest first. Other folders are passed over; a `root` that does
/// not exist has no runs.
pub fn list(root: &Path) -> Result<Vec<RunFolder>, RunsError> {
    let mut runs: Vec<RunFolder> = match children(root) {
        Err(RunsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Vec::new()
        }
        other => other?.iter().map(|path| RunFolder::at(path)).filter(RunFolder::is_run).collect(),
    };
    runs.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(runs)
}

/// Why there is not a run at a path: often the folder around runs was named.
fn no_run(path: &Path) -> RunsError {
    let path = path.to_path_buf();
    if fs::symlink_metadata(&path).is_err() {
        return RunsError::NoRun { path };
    }
    match list(&path).ok().and_then(|mut runs| runs.pop()) {
        Some(latest) => RunsError::FolderOfRuns { path, latest: latest.path },
        None => RunsError::NotARun { path },
    }
}

fn children(folder: &Path) -> Result<Vec<PathBuf>, RunsError> {
    fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|source| RunsError::Read { path: folder.to_path_buf(), source })
}

/// A name that is safe inside a file name: `worker/0` becomes `worker-0`.
fn in_name(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.') { letter } else { '-' }
        })
        .collect::<String>()
        .trim_start_matches('.')
        .to_string()
}

/// Four letters that differ between processes and between calls.
fn suffix(nanoseconds: u64) -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut bits = (nanoseconds ^ (u64::from(std::process::id()) << 32) ^ (call << 20))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (0..4).map(|place| char::from(LETTERS[(bits >> (44 + 5 * place)) as usize % 32])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventLog;

    impl RunFolder {
        /// A new run for a test, gone with the folder it lies in.
        pub(crate) fn temporary() -> (tempfile::TempDir, Self) {
            let root = tempfile::tempdir().unwrap();
            let run = Self::create(root.path(), "softmax", "one-device").unwrap();
            (root, run)
        }
    }

    #[test]
    fn runs_of_the_same_second_get_folders_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let root = &root.path().join("runs");
        let made: Vec<RunFolder> = std::thread::scope(|scope| {
            let starters: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..50)
                            .map(|_| RunFolder::create(root, "softmax", "one-device").unwrap())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            starters.into_iter().flat_map(|starter| starter.join().unwrap()).collect()
        });
        let mut paths: Vec<_> = made.iter().map(RunFolder::path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 200);
        assert!(made[0].name().contains("-softmax-one-device-"), "{}", made[0].name());
        assert_eq!(list(root).unwrap(), [], "a folder without a plan is not a run");
    }

    /// A run that never began used to leave the folder of runs behind, empty.
    #[test]
    fn a_run_that_never_began_takes_the_folders_along_that_were_made_for_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("results/runs");
        RunFolder::create(&root, "script", "foreign").unwrap().abandon();
        assert!(!place.path().join("results").exists());
        // What others put there stays, and so does a folder that was there before.
        let first = RunFolder::create(&root, "script", "foreign").unwrap();
        let second = RunFolder::create(&root, "script", "foreign").unwrap();
        first.abandon();
        assert!(!first.path().exists() && second.path().exists());
        second.abandon();
        assert!(root.exists(), "it was there when the second run began");
    }

    #[test]
    fn listing_copes_with_running_dead_and_broken_runs() {
        let root = tempfile::tempdir().unwrap();
        let make = |model: &str| {
            let run = RunFolder::create(root.path(), model, "one-device").unwrap();
            fs::write(run.path().join(PLAN), format!(r#"{{ "model": "{model}" }}"#)).unwrap();
            run
        };
        let ended = make("ended");
        ended.write_summary(&Summary { global_steps: 7, ..Summary::default() }).unwrap();
        let running = make("running");
        let log = EventLog::append(&running.events_path("worker/0"), "worker/0").unwrap();
        let dead = make("dead");
        drop(EventLog::append(&dead.events_path("worker/0"), "worker/0").unwrap());
        let broken = make("broken");
        fs::write(broken.path().join(SUMMARY), b"{\"run\": ").unwrap();
        fs::write(root.path().join("a file"), b"").unwrap();

        assert_eq!(list(root.path()).unwrap().len(), 4);
        assert!(matches!(ended.state(), RunState::Ended(summary) if summary.global_steps == 7));
        assert_eq!(running.state(), RunState::Running);
        assert_eq!(dead.state(), RunState::Died);
        assert!(matches!(broken.state(), RunState::Broken(why) if why.contains("summary.json")));
        drop(log);
        assert_eq!(running.state(), RunState::Died);
        let owned = crate::Ownership::take(&running).unwrap();
        assert_eq!(running.state(), RunState::Running);
        drop(owned);
        assert_eq!(list(Path::new("/nonexistent")).unwrap(), []);
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        assert_eq!(in_name("../../etc"), "-..-etc");
        assert_eq!(in_name("worker/0"), "worker-0");
    }
}
