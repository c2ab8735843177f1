//! Why a local job failed: the first task that failed by itself, what its log says last, and what the chief said.

use crate::FailureWords;
use paceline_runs::RunFolder;
use paceline_wire::TaskId;
use std::fmt;

/// A task that failed.
#[derive(Debug, Clone)]
pub struct FailedTask {
    pub task: TaskId,
    pub what: String,
    /// The last lines of its log.
    pub lines: Vec<String>,
    /// What it said itself, unless it had no time to.
    pub said: Option<FailureWords>,
}

/// A local job that failed.
#[derive(Debug, Clone)]
pub struct TasksFailed {
    /// The first task that failed by itself.
    pub first: Option<FailedTask>,
    /// The task at which all joined.
    pub chief: TaskId,
    /// What the chief said about the run.
    pub chief_said: Option<FailureWords>,
    pub run: RunFolder,
}

impl TasksFailed {
    /// The exit code of a task that failed in a way that may pass.
    pub const RETRY: u8 = 75;

    /// What was said last about the run. A chief that was ended because the run could not begin had no time to say why.
    #[must_use]
    pub fn last_words(&self) -> Option<&FailureWords> {
        let first = self.first.as_ref().and_then(|failure| failure.said.as_ref());
        self.chief_said.as_ref().or(first)
    }

    /// The exit code that fits.
    #[must_use]
    pub fn exit(&self) -> u8 {
        self.last_words().map_or(Self::RETRY, |words| words.exit)
    }
}

impl std::error::Error for TasksFailed {}

impl fmt::Display for TasksFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.first, &self.chief_said) {
            (Some(failure), verdict) => {
                write!(f, "{}: {}", failure.task, failure.what)?;
                for line in &failure.lines {
                    write!(f, "\n  {} | {line}", failure.task)?;
                }
                match verdict {
                    Some(verdict) if failure.task != self.chief => {
                        write!(f, "\n  {}: {}", self.chief, verdict.error)
                    }
                    _ => Ok(()),
                }
            }
            (None, Some(verdict)) => write!(f, "{}", verdict.error),
            (None, None) => write!(f, "{} exited without an error message", self.chief),
        }
    }
}

/// The line of a log that says why its process ended: the error it printed, or how it panicked or ran out of memory.
pub(super) fn cause(lines: &[String]) -> Option<String> {
    let at = lines.iter().rposition(|line| {
        line.starts_with("error: ")
            || line.contains(" panicked at ")
            || line.starts_with("memory allocation of ")
    })?;
    let line = &lines[at];
    match (line.strip_prefix("error: "), line.contains(" panicked at ")) {
        (Some(error), _) => Some(error.to_owned()),
        // The message has the line below the place.
        (None, true) => Some(lines.get(at + 1).unwrap_or(line).trim().to_owned()),
        (None, false) => Some(line.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::cause;

    fn of(log: &str) -> Option<String> {
        cause(&log.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_cause_comes_first_whatever_stands_below_it_in_the_log() {
        let out_of_memory = "memory allocation of 30105600000 bytes failed\nstack backtrace:\n   0: main\n   1: start";
        assert_eq!(of(out_of_memory).unwrap(), "memory allocation of 30105600000 bytes failed");
        let panic = "joined\nthread 'main' (7) panicked at src/main.rs:3:5:\nno such layer\nstack backtrace:\n   0: main";
        assert_eq!(of(panic).unwrap(), "no such layer");
        let error =
            "warning: slow\nerror: cannot write `x`\n  caused by: disk full\n\nhint: make room";
        assert_eq!(of(error).unwrap(), "cannot write `x`");
        assert_eq!(of("joined\nleft"), None);
    }
}
