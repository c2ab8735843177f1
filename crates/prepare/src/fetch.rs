//! Downloads known data sets, safely for any number of processes at once.
//!
//! One process downloads while the others wait for its lock and then find everything done; the lock
//! vanishes with its holder. Files arrive under a temporary name, are compared with the SHA-256 in the
//! [registry](datasets::ALL), and only then get their own name. An interrupted download is resumed,
//! in this process or the next.
//!
//! Unlike `prepare`, this writes local files directly: it must resume partial files, which an object
//! store does not have.

pub mod datasets;
mod download;
mod error;
mod unpack;
mod verify;
pub mod weights;

pub use datasets::{Dataset, RemoteFile};
pub use error::FetchError;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use download::Download;
use error::failed;
use paceline_store::{LocalStore, Lock, Store, StoreError, durable};

/// Says that a folder holds a complete data set; written last.
pub const MARKER: &str = "fetched.json";
const LOCK: &str = ".paceline-fetch.lock";
/// How often a waiting process looks whether the lock is free.
const LOCK_POLL: Duration = Duration::from_millis(100);
/// Largest marker that is read back. Bytes.
const MARKER_LIMIT: u64 = 1 << 20;

/// How to fetch.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// Take the files from here instead of the known mirrors: a URL or a path, of the file itself or of
    /// the folder that holds it.
    pub from: Option<String>,
    /// A connection that delivers nothing for so long is given up.
    pub stall: Duration,
    /// Attempts in a row without a single new byte before a mirror is given up.
    pub attempts: u32,
    /// Wait before the second attempt; doubles with each further one.
    pub back_off: Duration,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            from: None,
            stall: Duration::from_secs(30),
            attempts: 5,
            back_off: Duration::from_millis(500),
        }
    }
}

/// News while fetching.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another process has the lock.
    Waiting {
        /// Its number, where known.
        pid: Option<u32>,
    },
    /// Bytes of a file that are here.
    Progress {
        file: &'a str,
        /// Bytes so far.
        bytes: u64,
        /// All its bytes.
        total: u64,
    },
    /// Something went wrong that may pass.
    Retry {
        error: &'a FetchError,
        /// Time until the next attempt.
        wait: Duration,
    },
    /// Files taken out of the archive so far.
    Unpacking { files: u64 },
}

/// What was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Name of the data set.
    pub dataset: String,
    /// Folder with the data, to be given to other commands.
    pub folder: PathBuf,
    pub files: Vec<FetchedFile>,
    /// Whether nothing had to be done.
    #[serde(skip_deserializing)]
    pub was_complete: bool,
}

/// One file of a [`Fetched`] data set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedFile {
    pub name: String,
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// URL or path it came from.
    pub from: String,
}

/// Brings `dataset` into the folder `out`, unless it is there already.
///
/// `events` is called on this thread.
///
/// # Errors
/// If no mirror delivers the right bytes, the disk fails, or `cancel` was raised.
pub fn fetch(
    dataset: &Dataset,
    out: &Path,
    options: &FetchOptions,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<Fetched, FetchError> {
    fs::create_dir_all(out).map_err(failed("create", out))?;
    let _lock = lock(out, cancel, events)?;
    if let Some(fetched) = complete(dataset, out)? {
        return Ok(fetched);
    }
    let mut files = Vec::new();
    for file in dataset.files {
        let target = out.join(file.name);
        // The user may have put it there, or a run ended between two files.
        let present = target.is_file().then(|| verify::check(&target, file)).and_then(Result::ok);
        let fetched = match present {
            Some(sha256) => described(file, &target, sha256, "present".into())?,
            None => bring(dataset, file, &target, options, cancel, events)?,
        };
        files.push(fetched);
    }
    let mut folder = out.to_path_buf();
    if let Some(archive) = &dataset.archive {
        let path = out.join(dataset.files[0].name);
        folder = unpack::unpack(&path, out, archive, cancel, events)?;
    }
    let fetched = Fetched { dataset: dataset.name.into(), folder, files, was_complete: false };
    let mut marker = serde_json::to_vec_pretty(&fetched).expect("plain structs become JSON");
    marker.push(b'\n');
    LocalStore::new(out).write(MARKER, &marker)?;
    if dataset.archive.is_some() {
        // Everything in it is unpacked and the marker says so; it would only take room.
        let archive = out.join(dataset.files[0].name);
        fs::remove_file(&archive).map_err(failed("remove", &archive))?;
    }
    Ok(fetched)
}

/// The lock of a folder; its file goes away with it.
struct FolderLock<'a> {
    out: &'a Path,
    _held: Box<dyn Lock>,
}

impl Drop for FolderLock<'_> {
    fn drop(&mut self) {
        // Removed while held: a process that has just opened it notices and creates a new one.
        let _ = LocalStore::new(self.out).remove(LOCK);
    }
}

fn lock<'a>(
    out: &'a Path,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<FolderLock<'a>, FetchError> {
    let store = LocalStore::new(out);
    let mut told = false;
    loop {
        match store.lock(LOCK) {
            Ok(held) => return Ok(FolderLock { out, _held: held }),
            Err(StoreError::Locked { pid, .. }) => {
                if !told {
                    events(Event::Waiting { pid });
                    told = true;
                }
                sleep(LOCK_POLL, cancel)?;
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// What the marker says, if what it names is still there.
fn complete(dataset: &Dataset, out: &Path) -> Result<Option<Fetched>, FetchError> {
    let store = LocalStore::new(out);
    if store.size(MARKER)?.is_none() {
        return Ok(None);
    }
    let marker = store.read(MARKER, MARKER_LIMIT)?;
    let Ok(mut fetched) = serde_json::from_slice::<Fetched>(&marker) else { return Ok(None) };
    if fetched.dataset != dataset.name {
        return Err(FetchError::OtherDataset { folder: out.into(), found: fetched.dataset });
    }
    let there = match &dataset.archive {
        Some(archive) => unpack::is_complete(&out.join(archive.folder), archive),
        None => fetched.files.iter().all(|file| {
            fs::metadata(out.join(&file.name)).is_ok_and(|found| found.len() == file.bytes)
        }),
    };
    // The folder may have been moved since.
    fetched.folder =
        dataset.archive.as_ref().map_or_else(|| out.into(), |archive| out.join(archive.folder));
    fetched.was_complete = true;
    Ok(there.then_some(fetched))
}

/// Gets one file from the first place that has it.
fn bring(
    dataset: &Dataset,
    file: &RemoteFile,
    target: &Path,
    options: &FetchOptions,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event<'_>),
) -> Result<FetchedFile, FetchError> {
    let mut last = None;
    for place in places(dataset, file, options) {
        let result = match &place {
            FileSource::Path(path) => copy(path, file, target),
            FileSource::Url(url) => {
                let exact =
                    file.is_exact() && (options.from.is_none() || file.content_sha256.is_none());
                Download { url, file, target, exact, options, cancel }.run(events)
            }
        };
        match result {
            Ok(sha256) => return described(file, target, sha256, place.to_string()),
            Err(FetchError::Cancelled) => return Err(FetchError::Cancelled),
            // A full disk will not be better with another mirror.
            Err(error @ FetchError::Io { .. }) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or(FetchError::NoMirror { dataset: dataset.name }))
}

/// Where a file can come from.
enum FileSource {
    Url(String),
    Path(PathBuf),
}

impl std::fmt::Display for FileSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

fn places(dataset: &Dataset, file: &RemoteFile, options: &FetchOptions) -> Vec<FileSource> {
    let Some(from) = &options.from else {
        return dataset
            .mirrors
            .iter()
            .map(|mirror| FileSource::Url(join_url(mirror, file)))
            .collect();
    };
    if from.starts_with("http://") || from.starts_with("https://") {
        return vec![FileSource::Url(join_url(from, file))];
    }
    let path = Path::new(from.strip_prefix("file://").unwrap_or(from));
    vec![FileSource::Path(if path.is_dir() { path.join(file.name) } else { path.into() })]
}

/// The address of a file, given its own or that of its folder.
fn join_url(base: &str, file: &RemoteFile) -> String {
    let base = base.trim_end_matches('/');
    let last = base.rsplit('/').next().unwrap_or(base);
    let last = last.split(['?', '#']).next().unwrap_or(last);
    if last == file.name { base.to_owned() } else { format!("{base}/{}", file.name) }
}

/// Copies a local file to a temporary name and checks it before it gets its own.
fn copy(path: &Path, file: &RemoteFile, target: &Path) -> Result<String, FetchError> {
    let part = part_of(target);
    // Open first: a missing source must not be blamed on the target.
    let mut from = File::open(path).map_err(failed("read", path))?;
    if !from.metadata().map_err(failed("read", path))?.is_file() {
        return Err(FetchError::NotAFile { path: path.into() });
    }
    let outcome = File::create(&part).and_then(|mut to| io::copy(&mut from, &mut to)).map(drop);
    let outcome = outcome.map_err(failed("write", &part)).and_then(|()| {
        verify::check(&part, file).map_err(|error| error.about(path.display().to_string()))
    });
    match outcome {
        Ok(sha256) => settle(&part, target).map(|()| sha256),
        Err(error) => {
            let _ = fs::remove_file(&part);
            Err(error)
        }
    }
}

/// The name under which a file arrives.
fn part_of(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.part"))
}

/// Makes a checked file durable and gives it its name.
fn settle(part: &Path, target: &Path) -> Result<(), FetchError> {
    durable::settle_file(part, target).map_err(failed("write", target))
}

fn described(
    file: &RemoteFile,
    target: &Path,
    sha256: String,
    from: String,
) -> Result<FetchedFile, FetchError> {
    let bytes = fs::metadata(target).map_err(failed("read", target))?.len();
    Ok(FetchedFile { name: file.name.into(), bytes, sha256, from })
}

/// Sleeps, but not through a cancellation.
fn sleep(duration: Duration, cancel: &AtomicBool) -> Result<(), FetchError> {
    let mut left = duration;
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(FetchError::Cancelled);
        }
        if left.is_zero() {
            return Ok(());
        }
        let step = left.min(Duration::from_millis(50));
        thread::sleep(step);
        left -= step;
    }
}
