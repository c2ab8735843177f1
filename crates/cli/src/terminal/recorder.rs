//! Recordings beside what `prepare`, `speedtest` and `matmul` write, for `paceline report FOLDER`.

use super::Terminal;
use paceline_probes::FolderRecorder;
use paceline_runs::Machine;
use std::path::Path;

/// Records this machine until dropped. Without it the work goes on, and that is said.
pub(crate) fn record(folder: &Path, task: &str, terminal: &Terminal) -> Option<FolderRecorder> {
    match FolderRecorder::start(folder, task, &Machine::detect().host) {
        Ok(recorder) => Some(recorder),
        Err(error) => {
            terminal.warn(format!("no resources are recorded: {error}"));
            None
        }
    }
}

/// Records the machine of an engine's task, under a name of its own.
pub(crate) fn record_task(folder: Option<&Path>, terminal: &Terminal) -> Option<FolderRecorder> {
    record(folder?, &format!("task-{}", std::process::id()), terminal)
}

/// Marks this moment in a recording, if there is one.
pub(crate) fn say(recorder: Option<&FolderRecorder>, words: &str) {
    if let Some(recorder) = recorder {
        recorder.mark(words);
    }
}

/// The command line of an engine's task that records its machine into a folder that all see.
pub(crate) fn recorded_task(command: &str, folder: &Path) -> Vec<String> {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let mut words = ["--json", "--quiet", "task", command, "--record"].map(str::to_owned).to_vec();
    words.push(whole.display().to_string());
    words
}
