//! Keeps a folder of a store like a folder of this machine, while that one is written to.
//!
//! A run folder grows line by line, which no object store can do. So it is written here, and every few
//! seconds what has changed is put there: each file whole, as it was at one moment, text up to its last
//! whole line. What promises that others are complete (a checkpoint's `manifest.json`, a run's
//! `summary.json`) goes after them, and goes away before them. A reader of the store sees a slightly
//! older folder, never half a file and never a promise that is not kept.

mod whole;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use crate::{IfExists, Lock, Result, Store, StoreError, join_key, side_by_side};

/// Time between two looks at the folder.
const EVERY: Duration = Duration::from_secs(2);
/// Looks at the end, while something still changes.
const LAST_LOOKS: usize = 8;
/// Files on their way at once.
const AT_ONCE: usize = 8;
/// Every so many bytes let a file that grows wait one look longer, so that a long log is not sent whole
/// every time.
const PATIENCE: u64 = 4 << 20;
/// Names whose presence says that what lies beside and below them is complete.
const PROMISES: [&str; 3] = ["manifest.json", "summary.json", "rows.json"];
/// Of the promises, the one about files that never change: while they do, it must not be there.
const LASTING: &str = "manifest.json";
/// A file of this name says that a process of this machine writes to the folder it lies in; in the store a
/// lease of that name does.
pub const OWNER_FILE: &str = "owner.json";
/// Folders inside folders beyond this are not entered.
const MAX_DEPTH: usize = 32;

/// What came of it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MirrorReport {
    /// Files put there, every time counted.
    pub files: u64,
    pub bytes: u64,
    /// What could not be put there or removed in the end; empty where the store has everything.
    pub failures: Vec<StoreError>,
}

/// A folder that is being mirrored. Dropping it stops without a last look.
#[derive(Debug)]
pub struct Mirror {
    stop: Sender<()>,
    thread: Option<JoinHandle<MirrorReport>>,
    leases: Leases,
}

/// Leases of folders in the store, by their keys; given up when everything is there.
type Leases = Arc<Mutex<BTreeMap<String, Box<dyn Lock>>>>;

impl Mirror {
    /// Starts to put what is written to `folder` into `store`. With `same`, what lies in the folder now
    /// is there already.
    ///
    /// # Errors
    /// The system refused another thread.
    pub fn start(folder: &Path, store: Arc<dyn Store>, same: bool) -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut state = MirroredFolder::new(folder, store);
        if same {
            let files = state.look().files;
            state.sent = files.into_iter().map(|(key, seen)| (key, Sent::all_of(seen))).collect();
        }
        let location = state.store.locate("");
        let leases = Arc::clone(&state.leases);
        let thread = thread::Builder::new()
            .name("mirror".to_owned())
            .spawn(move || {
                loop {
                    match stopped.recv_timeout(EVERY) {
                        Err(RecvTimeoutError::Timeout) => drop(state.pass(false)),
                        Ok(()) => {
                            state.finish();
                            return state.report;
                        }
                        Err(RecvTimeoutError::Disconnected) => return state.report,
                    }
                }
            })
            .map_err(|source| StoreError::io("mirror", location, source))?;
        Ok(Self { stop, thread: Some(thread), leases })
    }

    /// Takes over the lease of a folder, which is held until the mirror ends.
    pub fn hold(&self, key: &str, lease: Box<dyn Lock>) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.insert(key.to_owned(), lease);
    }

    /// Puts everything there that is still missing, and ends.
    #[must_use]
    pub fn finish(mut self) -> MirrorReport {
        let _ = self.stop.send(());
        let Some(thread) = self.thread.take() else { return MirrorReport::default() };
        thread.join().unwrap_or_else(|_| {
            let source = io::Error::other("the thread that mirrored it panicked");
            let failures = vec![StoreError::io("mirror", "", source)];
            MirrorReport { failures, ..MirrorReport::default() }
        })
    }
}

/// A file as the system describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    size: u64,
    changed: SystemTime,
}

impl Seen {
    fn of(metadata: &fs::Metadata) -> Self {
        let changed = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { size: metadata.len(), changed }
    }
}

/// A file as it was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seen: Seen,
    at: Instant,
    /// Bytes that were put there: fewer than seen where the last line was not whole.
    bytes: u64,
}

impl Sent {
    fn all_of(seen: Seen) -> Self {
        Self { seen, at: Instant::now(), bytes: seen.size }
    }
}

/// The folder at one moment.
#[derive(Debug, Default)]
struct Look {
    files: BTreeMap<String, Seen>,
    /// Owners' files, which stand for leases and are not sent.
    owners: Vec<String>,
    /// Some of it could not be looked at, so that what is not in `files` may be there all the same.
    partial: bool,
}

#[derive(Debug)]
struct MirroredFolder {
    folder: PathBuf,
    store: Arc<dyn Store>,
    sent: BTreeMap<String, Sent>,
    leases: Leases,
    report: MirrorReport,
}

impl MirroredFolder {
    fn new(folder: &Path, store: Arc<dyn Store>) -> Self {
        let report = MirrorReport::default();
        let (sent, leases) = Default::default();
        Self { folder: folder.to_owned(), store, sent, leases, report }
    }

    /// Takes the leases of folders that have an owner here; gives those that another process has.
    fn lease(&self, look: &Look, failures: &mut Vec<StoreError>) -> Vec<String> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for key in &look.owners {
            let lock = match leases.get(key) {
                Some(lease) if lease.is_held() => continue,
                // No longer ours: the process that has it writes there now.
                Some(_) => {
                    let location = self.store.locate(key);
                    Err(StoreError::Locked { location, pid: None, host: None })
                }
                None => self.store.lock(key),
            };
            match lock {
                Ok(lease) => drop(leases.insert(key.clone(), lease)),
                Err(error) => {
                    if matches!(error, StoreError::Locked { .. }) {
                        taken.push(folder_of(key).to_owned());
                    }
                    failures.push(error);
                }
            }
        }
        taken
    }

    /// The last looks: as many as it takes until nothing changes any more, within reason.
    fn finish(&mut self) {
        for _ in 0..LAST_LOOKS {
            self.report.failures = self.pass(true);
            if !self.report.failures.iter().any(is_changing) {
                return;
            }
            thread::sleep(EVERY / 8);
        }
    }

    /// One look at the folder; what went wrong is tried again at the next.
    fn pass(&mut self, last: bool) -> Vec<StoreError> {
        let mut look = self.look();
        let mut failures = Vec::new();
        for folder in self.lease(&look, &mut failures) {
            look.partial = true; // what is not looked at is not removed there either
            look.files.retain(|key, _| !key.starts_with(&format!("{folder}/")));
        }
        if !look.partial {
            self.remove_gone(&look, &mut failures);
        }
        let (promises, others): (Vec<_>, Vec<_>) =
            look.files.iter().partition(|(key, _)| is_promise(key));
        let mut incomplete: BTreeSet<&str> = BTreeSet::new();
        for group in [others, promises] {
            let due = group.into_iter().filter(|(key, seen)| {
                let kept = is_promise(key) && incomplete.iter().any(|at| is_below(at, key));
                !kept && self.is_due(key, **seen, last)
            });
            let mut due: Vec<&String> = due.map(|(key, _)| key).collect();
            let stuck = self.withdraw(&due, &mut failures);
            let folders = due.iter().map(|&key| folder_of(key));
            incomplete.extend(folders.filter(|at| stuck.contains(*at)));
            due.retain(|key| !stuck.contains(folder_of(key)));
            for (&key, result) in due.iter().zip(self.send_all(&due, last)) {
                match result {
                    Ok(sent) => {
                        self.report.files += 1;
                        self.report.bytes += sent.bytes;
                        self.sent.insert(key.clone(), sent);
                    }
                    Err(error) => {
                        incomplete.insert(folder_of(key));
                        // Removed here since it was seen, which the next look will notice.
                        if !(error.is_missing() && matches!(error, StoreError::LocalCopy { .. })) {
                            failures.push(error);
                        }
                    }
                }
            }
        }
        failures
    }

    /// Removes there what is gone here, promises first.
    fn remove_gone(&mut self, look: &Look, failures: &mut Vec<StoreError>) {
        let gone = self.sent.keys().filter(|key| !look.files.contains_key(*key)).cloned();
        let (promises, others): (Vec<_>, Vec<_>) = gone.partition(|key| is_promise(key));
        for key in promises.into_iter().chain(others) {
            self.remove(&key, failures);
        }
    }

    /// Takes back the promises about files that are about to change; gives the folders where that
    /// failed, which must stay as they are.
    fn withdraw(&mut self, due: &[&String], failures: &mut Vec<StoreError>) -> BTreeSet<String> {
        let others = due.iter().filter(|key| !is_promise(key));
        let folders: BTreeSet<&str> = others.map(|key| folder_of(key)).collect();
        let mut stuck = BTreeSet::new();
        for folder in folders {
            let promise = join_key(folder, LASTING);
            if self.sent.contains_key(&promise) {
                self.remove(&promise, failures);
                if self.sent.contains_key(&promise) {
                    stuck.insert(folder.to_owned());
                }
            }
        }
        stuck
    }

    fn remove(&mut self, key: &str, failures: &mut Vec<StoreError>) {
        match self.store.remove(key) {
            Ok(()) => drop(self.sent.remove(key)),
            Err(error) => failures.push(error),
        }
    }

    /// Sends files side by side; the results are in their order.
    fn send_all(&self, due: &[&String], last: bool) -> Vec<Result<Sent>> {
        let send = |number: usize| Ok::<_, Infallible>(self.send(due[number], last));
        let Ok(results) = side_by_side(due.len(), AT_ONCE, send);
        results
    }

    fn is_due(&self, key: &str, seen: Seen, last: bool) -> bool {
        self.sent.get(key).is_none_or(|sent| {
            let looks = u32::try_from(seen.size / PATIENCE).unwrap_or(u32::MAX);
            match last {
                true => sent.seen != seen || sent.bytes < seen.size && whole::ends_anywhere(key),
                false => sent.seen != seen && sent.at.elapsed() >= EVERY.saturating_mul(looks),
            }
        })
    }

    /// Everything in the folder, hidden and temporary things left out.
    fn look(&self) -> Look {
        let mut look = Look::default();
        let mut open = vec![(self.folder.clone(), String::new(), 0)];
        while let Some((path, key, depth)) = open.pop() {
            let entries = match fs::read_dir(path) {
                Ok(entries) => entries,
                // A subfolder that was removed is empty. If the whole folder was removed, only this machine
                // was cleaned up, and the run must stay in the store.
                Err(error) if error.kind() == io::ErrorKind::NotFound && depth > 0 => continue,
                Err(_) => {
                    look.partial = true;
                    continue;
                }
            };
            for entry in entries {
                let Ok(entry) = entry else {
                    look.partial = true;
                    continue;
                };
                let Ok(name) = entry.file_name().into_string() else { continue };
                if name.starts_with('.') || name.ends_with(".tmp") {
                    continue;
                }
                let key = join_key(&key, &name);
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() && depth < MAX_DEPTH => {
                        open.push((entry.path(), key, depth + 1));
                    }
                    Ok(metadata) if metadata.is_file() && name == OWNER_FILE => {
                        look.owners.push(key);
                    }
                    Ok(metadata) if metadata.is_file() => {
                        look.files.insert(key, Seen::of(&metadata));
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => look.partial = true,
                    _ => {}
                }
            }
        }
        look
    }

    /// Puts a file there as it is now.
    fn send(&self, key: &str, last: bool) -> Result<Sent> {
        let path = self.folder.join(key);
        let failed = |source: io::Error| StoreError::LocalCopy {
            action: "read",
            path: path.clone(),
            location: self.store.locate(key),
            source,
        };
        // From here on it is this file, whatever takes its name meanwhile.
        let file = fs::File::open(&path).map_err(failed)?;
        let seen = Seen::of(&file.metadata().map_err(failed)?);
        let bytes = whole::length(&file, key, seen.size, last).map_err(failed)?;
        let mut upload = self.store.create(key, IfExists::Replace)?;
        let mut chunk = vec![0; 1 << 20];
        let (mut reader, mut left) = (&file, bytes);
        while left > 0 {
            let most = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
            let count = match io::Read::read(&mut reader, &mut chunk[..most]) {
                Ok(0) => return Err(failed(changing())),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(failed(source)),
            };
            io::Write::write_all(&mut upload, &chunk[..count])
                .map_err(|source| StoreError::io("write", self.store.locate(key), source))?;
            left -= count as u64;
        }
        // What only grows has kept the bytes that were read. Anything else may have been half old and
        // half new; dropping the upload leaves nothing of it.
        if !whole::grows(key) && Seen::of(&file.metadata().map_err(failed)?) != seen {
            return Err(failed(changing()));
        }
        upload.commit()?;
        Ok(Sent { seen, at: Instant::now(), bytes })
    }
}

/// A file that is being written right now.
fn changing() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "it changed while it was read")
}

fn is_changing(error: &StoreError) -> bool {
    error.kind() == Some(io::ErrorKind::WouldBlock)
}

fn folder_of(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_promise(key: &str) -> bool {
    PROMISES.contains(&key.rsplit('/').next().unwrap_or(key))
}

/// Whether the folder `at` is that of `key` or below it.
fn is_below(at: &str, key: &str) -> bool {
    let folder = folder_of(key);
    folder.is_empty()
        || at.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
