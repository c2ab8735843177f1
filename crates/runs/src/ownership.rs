//! One process at a time writes to a run folder.
//!
//! Two that resume the same run would mix their events and delete each other's checkpoints. So the
//! process that writes holds the lock of `owner.json`, which names it, and removes the file when done. The
//! system releases the lock of a process that dies, however it dies. A run folder in an object store is
//! owned by a lease of the same name (`paceline_store`), because a store has no locks.

use crate::{FolderHandle, Machine, RunFolder, RunsError, folder_watch::is_same, unix_seconds};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    time::{Duration, Instant},
};

/// The file that the owner of a run folder keeps locked.
pub const OWNER_FILE: &str = "owner.json";
/// Readers that look whether a log is being written hold its lock for a moment: a lock counts as held when
/// it stays so for this long.
const HELD_FOR: Duration = Duration::from_secs(1);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);
/// Longest description of an owner taken for one. Bytes.
const LONGEST: u64 = 4096;

/// The process that writes to a run folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    pub pid: u32,
    pub host: String,
    /// Since when, in seconds since 1970.
    pub since: f64,
}

impl Owner {
    fn this_process() -> Self {
        Self { pid: std::process::id(), host: Machine::host_name(), since: unix_seconds() }
    }
}

/// The right to write to a run folder; given up when dropped.
#[derive(Debug)]
pub struct Ownership {
    file: File,
    /// The lock file lies in it, wherever it is by now.
    folder: FolderHandle,
}

impl Ownership {
    /// Takes the folder, unless another process has it.
    ///
    /// # Errors
    /// [`RunsError::Owned`] names the process that has it.
    pub fn take(run: &RunFolder) -> Result<Self, RunsError> {
        let path = run.path().join(OWNER_FILE);
        let failed = |source| RunsError::Create { path: path.clone(), source };
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            if !lock(&file) {
                return Err(RunsError::Owned {
                    path: run.path().to_path_buf(),
                    owner: read(&mut file).unwrap_or_default(),
                });
            }
            // The last owner may have removed the file between our open and our lock; then this lock is on a
            // file that no other process can find.
            if !is_same(&file, &path) {
                continue;
            }
            let folder = FolderHandle::open(run)?;
            let taken = Self { file, folder };
            // Tasks outlive the process that started and owned them by a moment; others have no owner's file.
            for log in run.event_files()? {
                if is_written(&log) {
                    let owner = read_at(&path).unwrap_or_default();
                    return Err(RunsError::Owned { path: run.path().to_path_buf(), owner });
                }
            }
            taken.sign();
            return Ok(taken);
        }
    }

    /// Writes down who this is. The words serve people only, so a full disk does not matter.
    fn sign(&self) {
        let mut file = &self.file;
        if let Ok(mut words) = serde_json::to_vec(&Owner::this_process()) {
            words.push(b'\n');
            let _ =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&words));
        }
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // While the lock is held: no other process can have taken the file that is removed here.
        if let Ok(run) = self.folder.present() {
            let path = run.path().join(OWNER_FILE);
            if is_same(&self.file, &path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Who writes to a run folder at the moment, as far as its owner's file tells.
#[must_use]
pub fn owner(run: &RunFolder) -> Option<Owner> {
    let path = run.path().join(OWNER_FILE);
    is_written(&path).then(|| read_at(&path)).flatten()
}

/// Takes a file's lock; says whether it was free. Some network file systems have no locks and refuse no
/// process; there a run in progress merely looks unfinished.
pub(crate) fn lock(file: &File) -> bool {
    let begun = Instant::now();
    while let Err(TryLockError::WouldBlock) = file.try_lock() {
        if begun.elapsed() >= HELD_FOR {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Whether some process holds the file's lock.
pub(crate) fn is_written(path: &Path) -> bool {
    File::open(path)
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn read_at(path: &Path) -> Option<Owner> {
    read(&mut File::open(path).ok()?)
}

fn read(file: &mut File) -> Option<Owner> {
    let mut words = Vec::new();
    file.rewind().ok()?;
    file.take(LONGEST).read_to_end(&mut words).ok()?;
    serde_json::from_slice(&words).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventLog;

    #[test]
    fn a_run_folder_has_one_owner_who_is_named() {
        let (_root, run) = RunFolder::temporary();
        assert_eq!(owner(&run), None);
        let held = Ownership::take(&run).unwrap();
        let error = Ownership::take(&run).unwrap_err();
        assert!(
            matches!(&error, RunsError::Owned { owner, .. } if owner.pid == std::process::id())
        );
        let text = error.to_string();
        let own = format!("process {} on {}", std::process::id(), Machine::host_name());
        assert!(text.contains(&own), "{text}");
        assert_eq!(owner(&run).unwrap().pid, std::process::id());
        drop(held);
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 0, "nothing is left behind");
        drop(Ownership::take(&run).unwrap());
    }

    #[test]
    fn a_task_that_still_writes_its_log_keeps_others_out() {
        let (_root, run) = RunFolder::temporary();
        let log = EventLog::append(&run.events_path("worker/1"), "worker/1").unwrap();
        assert!(matches!(Ownership::take(&run), Err(RunsError::Owned { .. })));
        drop(log);
        drop(Ownership::take(&run).unwrap());
    }
}
