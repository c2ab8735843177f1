//! What can be done to a run: stopping and deleting it. Both have the authority of the user that started the server.

use paceline_runs::{Machine, OWNER_FILE, RunFolder, RunState};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why something was not done: a status and words.
pub(crate) type Refusal = (u16, String);

/// Asks the process that owns a run to stop, as Ctrl-C in its terminal does: it writes a checkpoint and ends.
pub(crate) fn stop(run: &RunFolder) -> Result<u32, Refusal> {
    let Some(owner) = paceline_runs::owner(run) else {
        return Err((
            409,
            "no process owns this run: it has ended, or another program records it".to_owned(),
        ));
    };
    let here = Machine::host_name();
    if owner.host != here {
        let words = format!(
            "the run belongs to process {} on {}, and this page is served by {here}: stop it there",
            owner.pid, owner.host
        );
        return Err((409, words));
    }
    let gone = || (409, format!("process {} that owned this run has ended", owner.pid));
    let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    // Opened before the check, so that the number cannot come to mean another process in between.
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
    if !holds(owner.pid, &run.path().join(OWNER_FILE)) {
        let words = format!(
            "process {} does not hold the run's lock, as seen from here: the run is in another container or belongs to another user",
            owner.pid
        );
        return Err((409, words));
    }
    pidfd_send_signal(process, Signal::INT)
        .map_err(|error| (409, format!("cannot stop process {}: {error}", owner.pid)))?;
    Ok(owner.pid)
}

/// Whether a process has a file open. A number alone proves nothing: in another container it belongs to another process.
fn holds(pid: u32, file: &Path) -> bool {
    let Ok(wanted) = fs::metadata(file) else { return false };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| {
        fs::metadata(entry.path())
            .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    })
}

/// Removes a run's folder. It first gets a name that is not listed, so that no one sees half a run.
pub(crate) fn delete(run: &RunFolder) -> Result<(), Refusal> {
    if matches!(run.state(), RunState::Running) || paceline_runs::owner(run).is_some() {
        return Err((409, "the run is in progress: stop it first".to_owned()));
    }
    let path = run.path();
    let failed = |error: std::io::Error| (500, format!("cannot delete the run: {error}"));
    let hidden = path.with_file_name(format!(".deleted-{}-{}", std::process::id(), run.name()));
    fs::rename(path, &hidden).map_err(failed)?;
    // Links inside are removed, not followed.
    fs::remove_dir_all(&hidden).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::Ownership;

    #[test]
    fn only_a_process_that_holds_the_lock_is_stopped() {
        let root = tempfile::tempdir().unwrap();
        let run = RunFolder::create(root.path(), "softmax", "one-device").unwrap();
        assert_eq!(stop(&run).unwrap_err().0, 409);
        let held = Ownership::take(&run).unwrap();
        let file = run.path().join(OWNER_FILE);
        assert!(holds(std::process::id(), &file));
        assert!(!holds(1, &file));
        // The lock is ours; the number in it is not.
        let other = serde_json::json!({ "pid": 1, "host": Machine::host_name(), "since": 0.0 });
        fs::write(&file, other.to_string()).unwrap();
        let (status, words) = stop(&run).unwrap_err();
        assert_eq!(status, 409);
        assert!(words.contains("does not hold"), "{words}");
        let other = serde_json::json!({ "pid": 7, "host": "elsewhere", "since": 0.0 });
        fs::write(&file, other.to_string()).unwrap();
        let (_, words) = stop(&run).unwrap_err();
        assert!(words.contains("elsewhere"), "{words}");
        assert_eq!(delete(&run).unwrap_err().0, 409);
        drop(held);
    }

    #[test]
    fn a_run_is_deleted_and_what_its_links_lead_to_is_not() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("kept"), "x").unwrap();
        let run = RunFolder::create(root.path(), "softmax", "one-device").unwrap();
        std::os::unix::fs::symlink(outside.path(), run.path().join("link")).unwrap();
        delete(&run).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        assert!(outside.path().join("kept").exists());
    }
}
