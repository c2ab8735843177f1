//! What could be done about a run that ended badly: only what is true of this run.

use super::Exit;
use crate::terminal::typed_path;
use paceline_cluster::session::{JOINING, SessionError};
use paceline_runs::{RunFolder, RunsError};

/// How to start again, for a run whose folder may be known.
pub(crate) fn start_again(run: Option<&RunFolder>) -> String {
    match run {
        Some(run) if run.is_resumable() => resume(run),
        Some(_) => "start it again: it had no checkpoint yet".to_owned(),
        None => "start it again; a run with a checkpoint continues with --resume".to_owned(),
    }
}

/// Where something is of a version that this program does not know.
pub(crate) const NEWER: &str = "use the version of paceline that wrote it, or a newer one";

/// How to continue a run that has a checkpoint.
pub(crate) fn resume(run: &RunFolder) -> String {
    format!(
        "`paceline train --resume {}` continues from its last checkpoint",
        typed_path(run.path())
    )
}

/// For tasks that did not hold together.
pub(crate) fn of_session(error: &SessionError, run: Option<&RunFolder>) -> (String, Option<Exit>) {
    let hint = match error {
        SessionError::NotStarted { .. } | SessionError::NoChief { .. } => {
            "start the tasks that are missing; `paceline check` examines a cluster, --join-timeout waits longer"
                .to_owned()
        }
        SessionError::Cancelled { phase: JOINING, .. } => {
            "nothing was done yet: start it again".to_owned()
        }
        SessionError::Refused { .. } => "start all tasks with the same settings and the same data".to_owned(),
        SessionError::ChiefLost { .. } => format!("the chief's log says why; {}", start_again(run)),
        _ => start_again(run),
    };
    (hint, error.is_retryable().then_some(Exit::Retry))
}

/// For a run folder that could not be written to.
pub(crate) fn of_records(error: &RunsError) -> Option<(String, Option<Exit>)> {
    match error {
        RunsError::Owned { .. } | RunsError::LogHeld { .. } => {
            let hint =
                "wait until that process has ended, or stop it; a process that died holds nothing";
            Some((hint.to_owned(), Some(Exit::Retry)))
        }
        RunsError::FinalWeights { rescued: Some(place), .. } => {
            let hint = if RunFolder::at(place).is_resumable() {
                format!("`paceline train --resume {}` continues from there", typed_path(place))
            } else {
                format!(
                    "`--init {}` starts a run with them",
                    typed_path(&place.join("weights.safetensors"))
                )
            };
            Some((hint, None))
        }
        RunsError::FinalWeights { rescued: None, .. } => Some((
            "make room, or choose a folder elsewhere with --out, and train again".to_owned(),
            None,
        )),
        _ => None,
    }
}
