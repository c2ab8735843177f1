//! What the tasks of a local job and the process that started them tell each other, a line of JSON each: an order and
//! messages through a task's standard input, reports through its standard output.

use crate::{JobError, JobNotice, JobObserver, Work};
use paceline_cluster::session::SessionError;
use paceline_runs::Summary;
use paceline_wire::TaskId;
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The first line a task is told: everything it needs but the chief's address.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TaskOrder {
    pub(crate) task: TaskId,
    pub(crate) tasks: Vec<TaskId>,
    /// The key of this run, made for it alone.
    pub(crate) key: String,
    pub(crate) work: Work,
    pub(crate) run: PathBuf,
    /// Whether it continues from its latest checkpoint.
    pub(crate) resume: bool,
    /// Seconds to wait for the others.
    pub(crate) join_timeout: u64,
    /// Seconds for which a task may be silent.
    pub(crate) patience: u64,
}

/// Any further line a task is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum LauncherMessage {
    /// Where the chief is, as `host:port`.
    Chief { address: String },
    /// Stop in order, with a checkpoint.
    Stop,
}

/// What a task reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(crate) enum TaskReport {
    /// It takes connections there, at `host:port`.
    Listening { address: String },
    /// Something happened.
    Notice(JobNotice),
    /// The task is done; the chief's summary is the run's.
    Done { summary: Option<Box<Summary>> },
    /// The task failed.
    Failed {
        #[serde(flatten)]
        words: FailureWords,
        culprit: Culprit,
    },
}

/// What is said about the failure of a task, and the code that its process exits with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureWords {
    /// The error, with its causes.
    pub error: String,
    /// What could be done about it.
    pub hint: Option<String>,
    pub exit: u8,
}

/// Whose failure a task reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Culprit {
    /// Its own.
    Own,
    /// The chief's, which does not answer.
    Chief,
    /// Another task's: it only repeats that the run is over.
    Another,
}

impl Culprit {
    /// Whose failure ended a task's part in a job.
    pub(crate) fn of(error: &JobError) -> Self {
        match error {
            JobError::Session(error) => Self::of_session(error),
            _ => Self::Own,
        }
    }

    fn of_session(error: &SessionError) -> Self {
        if error.is_without_chief() {
            Self::Chief
        } else if error.is_echo() {
            Self::Another
        } else {
            Self::Own
        }
    }
}

/// A bar is drawn no more often than this. Every report wakes the process that started the tasks, on a core
/// that one of them needs: for each step of a small model that would be several per cent of its time.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Reports of a task to the process that started it, on standard output.
pub(crate) struct TaskReporter {
    /// Only the chief speaks of the run as a whole.
    pub(crate) is_chief: bool,
    /// Told too, for this task's own log.
    pub(crate) log: Arc<dyn JobObserver>,
    /// When this process last told how far it is.
    progressed: Mutex<Option<Instant>>,
}

impl TaskReporter {
    pub(crate) fn new(is_chief: bool, log: Arc<dyn JobObserver>) -> Self {
        Self { is_chief, log, progressed: Mutex::new(None) }
    }

    /// Whether a launcher wants to hear that.
    fn is_wanted(&self, notice: &JobNotice) -> bool {
        match notice {
            JobNotice::Waiting { .. } | JobNotice::Started { .. } => self.is_chief,
            JobNotice::Progressed(progress) => {
                let mut last = self.progressed.lock().unwrap_or_else(PoisonError::into_inner);
                let rested = last.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY);
                let wanted = rested || progress.planned == Some(progress.step);
                if wanted {
                    *last = Some(Instant::now());
                }
                wanted
            }
            // It has looked at the data itself, and knows how it adds up gradients.
            JobNotice::DataRemark { .. } | JobNotice::SummedByMpi => false,
            _ => true,
        }
    }
}

/// Sends a report. When no process listens any more, the end of the input says so too.
pub(crate) fn send(report: &TaskReport) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let mut out = io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

impl JobObserver for TaskReporter {
    fn notice(&self, notice: JobNotice) {
        if self.is_wanted(&notice) {
            send(&TaskReport::Notice(notice.clone()));
        }
        self.log.notice(notice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_training::Progress;
    use paceline_wire::Role;

    fn there_and_back(report: &TaskReport) -> TaskReport {
        serde_json::from_str(&serde_json::to_string(report).unwrap()).unwrap()
    }

    #[test]
    fn reports_survive_the_pipe() {
        let lost = JobNotice::Lost {
            task: TaskId::new(Role::Worker, 1),
            address: "127.0.0.1:9".to_owned(),
            reason: "silent for 8 s".to_owned(),
        };
        let TaskReport::Notice(JobNotice::Lost { task, address, reason }) =
            there_and_back(&TaskReport::Notice(lost))
        else {
            panic!("another report")
        };
        assert_eq!((task.index, &*address, &*reason), (1, "127.0.0.1:9", "silent for 8 s"));
        let progress = Progress { step: 7, planned: Some(9), ..Progress::default() };
        let report = there_and_back(&TaskReport::Notice(JobNotice::Progressed(progress)));
        assert!(
            matches!(report, TaskReport::Notice(JobNotice::Progressed(found)) if found == progress)
        );
        let words = FailureWords { error: "disk full".to_owned(), hint: None, exit: 75 };
        let failed = TaskReport::Failed { words: words.clone(), culprit: Culprit::Another };
        let TaskReport::Failed { words: found, culprit } = there_and_back(&failed) else {
            panic!("another report")
        };
        assert_eq!((found, culprit), (words, Culprit::Another));
    }

    #[test]
    fn progress_is_told_a_few_times_a_second_and_at_the_end() {
        let reporter = TaskReporter::new(true, Arc::new(crate::Unobserved));
        let at = |step| {
            JobNotice::Progressed(Progress { step, planned: Some(9), ..Progress::default() })
        };
        assert!(reporter.is_wanted(&at(1)));
        assert!(!reporter.is_wanted(&at(2)), "the last word was just now");
        assert!(reporter.is_wanted(&at(9)), "the last step is always told");
    }

    #[test]
    fn only_the_chief_speaks_of_the_run() {
        let reporter = TaskReporter::new(false, Arc::new(crate::Unobserved));
        assert!(!reporter.is_wanted(&JobNotice::Waiting { missing: Vec::new(), joined: 2 }));
        assert!(
            reporter.is_wanted(&JobNotice::Warned { task: None, text: "slow disk".to_owned() })
        );
    }
}
