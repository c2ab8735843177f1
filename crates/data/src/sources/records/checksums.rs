//! Compares shards with the checksums of their manifest while they are trained on.
//!
//! A shard that was exchanged for another of the same size opens without an error message, and every record in it is sound. Only its
//! checksum tells. Reading everything before the first step would cost a run on large data minutes, so it is read beside it:
//! no faster than training itself reads, so that the work stays a small part of decoding. `--verify` reads all of it first.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use sha2::{Digest, Sha256};

use crate::{
    DataError,
    store::{self, Stream},
};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes that may be compared before training has read as many: small sets are done in the first moment.
const FREE: u64 = 64 << 20;
/// Between two looks at how much was read.
const PAUSE: Duration = Duration::from_millis(200);

/// A shard and the checksum that its manifest has.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) path: PathBuf,
    pub(super) sha256: String,
}

impl Listed {
    fn compare(&self, found: String) -> Result<(), DataError> {
        if found.eq_ignore_ascii_case(&self.sha256) {
            return Ok(());
        }
        let (path, wanted) = (self.path.clone(), self.sha256.clone());
        Err(DataError::ShardChecksum { path, found, wanted })
    }
}

/// Compares all of them now.
pub(super) fn compare_all(shards: &[Listed]) -> Result<(), DataError> {
    let at_once = paceline_batch::cores().count;
    store::side_by_side(shards.len(), at_once, |n| {
        let shard = &shards[n];
        let found = digest(&shard.path, |_| true).map_err(DataError::read(&shard.path))?;
        found.map_or(Ok(()), |(_, found)| shard.compare(found))
    })?;
    Ok(())
}

/// A comparison that goes on beside the reading.
#[derive(Debug)]
pub(super) struct Watch {
    state: Arc<ComparisonState>,
    thread: Thread,
}

#[derive(Debug, Default)]
struct ComparisonState {
    /// Bytes that were read for training.
    read: AtomicU64,
    closing: AtomicBool,
    changed: OnceLock<(PathBuf, String, String)>,
}

impl Watch {
    /// Starts it; nothing where there is no thread to spare.
    pub(super) fn start(shards: Vec<Listed>) -> Option<Self> {
        let state = Arc::new(ComparisonState::default());
        let shared = Arc::clone(&state);
        let work = move || shared.compare(&shards);
        let handle = thread::Builder::new().name("checksums".into()).spawn(work).ok()?;
        Some(Self { state, thread: handle.thread().clone() })
    }

    /// Training reads so many bytes more.
    ///
    /// # Errors
    /// A shard is not what the manifest says, whichever it is.
    pub(super) fn reads(&self, bytes: usize) -> Result<(), DataError> {
        self.state.read.fetch_add(bytes as u64, Ordering::Relaxed);
        match self.state.changed.get() {
            None => Ok(()),
            Some((path, found, wanted)) => Err(DataError::ShardChecksum {
                path: path.clone(),
                found: found.clone(),
                wanted: wanted.clone(),
            }),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.closing.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

impl ComparisonState {
    fn compare(&self, shards: &[Listed]) {
        let mut done = 0;
        let mut may_go_on = |bytes: usize| {
            done += bytes as u64;
            while done > self.read.load(Ordering::Relaxed).saturating_add(FREE) {
                if self.closing.load(Ordering::Relaxed) {
                    return false;
                }
                thread::park_timeout(PAUSE);
            }
            !self.closing.load(Ordering::Relaxed)
        };
        // Processes that train together begin at different shards, and have seen all of them sooner.
        let first = std::process::id() as usize % shards.len().max(1);
        for shard in shards[first..].iter().chain(&shards[..first]) {
            let found = match digest(&shard.path, &mut may_go_on) {
                Ok(Some((_, found))) => found,
                Ok(None) => return,
                // Training reads it too, and says what is wrong with more care.
                Err(_) => continue,
            };
            if let Err(DataError::ShardChecksum { path, found, wanted }) = shard.compare(found) {
                let _ = self.changed.set((path, found, wanted));
                return;
            }
        }
    }
}

/// The bytes of a file or object.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if !store::is_remote(path) {
        return Ok(Box::new(File::open(path)?));
    }
    let (folder, key) = store::open_file(path)?;
    Ok(Box::new(Stream::new(folder.find(&key)?, 0)))
}

/// Size and SHA-256 of a file, unless `may_go_on`, which hears of every piece, says no.
pub(crate) fn digest(
    path: &Path,
    mut may_go_on: impl FnMut(usize) -> bool,
) -> io::Result<Option<(u64, String)>> {
    let mut file = open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut size = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        size += read as u64;
        hash.update(&buffer[..read]);
        if !may_go_on(read) {
            return Ok(None);
        }
    }
    let text = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some((size, text)))
}
