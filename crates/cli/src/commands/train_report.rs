//! What the tasks of a local run and the process that started them tell each other, a line of JSON
//! each: orders through a task's standard input, reports through its standard output.

use paceline_cluster::{
    TaskId,
    session::{Loss, Notice, OnLoss, Row, RowState, SessionError},
};
use paceline_runs::{Evaluation, RunFolder, Summary};
use paceline_training::{Observer, Progress, RunPlan, RunSpec, SessionObserver};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, Write},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The first line a task is told: everything it needs but the chief's address.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// Which task it is.
    pub(super) task: TaskId,
    /// All tasks.
    pub(super) tasks: Vec<TaskId>,
    /// The key of this run, made for it alone.
    pub(super) key: String,
    /// What to do.
    pub(super) work: Work,
    /// The run's folder.
    pub(super) run: PathBuf,
    /// Whether it goes on from its latest checkpoint.
    pub(super) resume: bool,
    /// Seconds to wait for the others.
    pub(super) join_timeout: u64,
}

/// What the tasks of a run do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Work {
    /// Train a model on examples.
    Examples(Box<RunSpec>),
    /// Learn from rows of sparse features.
    Rows(Box<paceline_training::rows::Spec>),
}

impl Work {
    /// What happens when a worker is lost.
    pub(super) fn on_loss(&self) -> OnLoss {
        match self {
            Self::Examples(spec) => spec.on_loss,
            Self::Rows(spec) => spec.tasks.as_ref().map_or_else(OnLoss::default, |t| t.on_loss),
        }
    }
}

/// Any further line a task is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Word {
    /// Where the chief is.
    Chief {
        /// `host:port`.
        address: String,
    },
    /// Stop in order, with a checkpoint.
    Stop,
}

/// What a task reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub(super) enum Report {
    /// It takes connections there.
    Listening {
        /// `host:port`.
        address: String,
    },
    /// The table of tasks, as lines.
    Table {
        /// One per task that is not there.
        missing: Vec<String>,
        /// How many are.
        joined: usize,
    },
    /// Something happened to a task.
    Notice {
        /// In words.
        text: String,
        /// Whether people should worry.
        warning: bool,
    },
    /// The chief has given a task up.
    Lost {
        /// Which one.
        task: TaskId,
        /// Where its process took connections, which tells it from the one that follows.
        address: String,
        /// Why.
        reason: String,
    },
    /// The first step is next.
    Started {
        /// What will happen.
        plan: Box<RunPlan>,
        /// The step.
        first_step: u64,
    },
    /// Some steps were done.
    Progressed(Progress),
    /// The model was scored.
    Evaluated(Evaluation),
    /// The first row is next.
    RowsStarted {
        /// What will happen.
        plan: Box<paceline_training::rows::Plan>,
    },
    /// Some rows were learned from.
    RowsProgressed {
        /// How well they were predicted.
        recent: paceline_training::rows::Metrics,
        /// Rows learned from, over all workers.
        rows: u64,
        /// Bytes of text that the chief has read.
        done: u64,
        /// Rows a second of the chief.
        speed: f64,
    },
    /// Held-out rows were scored.
    RowsEvaluated {
        /// How well.
        metrics: paceline_training::rows::Metrics,
        /// Rows learned from, over all workers.
        rows: u64,
    },
    /// The run folder was renamed.
    Moved {
        /// Where it is.
        path: PathBuf,
    },
    /// Something the user should know.
    Warned {
        /// In words.
        text: String,
    },
    /// The task is done; the chief's summary is the run's.
    Done {
        /// How it ended.
        summary: Option<Box<Summary>>,
    },
    /// The task failed.
    Failed {
        /// Its error, with causes.
        error: String,
        /// What could be done.
        hint: Option<String>,
        /// The exit code it leaves with.
        exit: u8,
        /// Whose failure it is.
        whose: Whose,
    },
}

/// Whose failure a task reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Whose {
    /// Its own.
    Own,
    /// The chief's, which does not answer.
    Chief,
    /// Another task's: it only repeats that the run is over.
    Another,
}

impl Whose {
    /// Whose failure ended a task's part in a session.
    pub(super) fn of(error: &SessionError) -> Self {
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
/// When this process last told how far it is.
static PROGRESSED: Mutex<Option<Instant>> = Mutex::new(None);

/// Writes reports to standard output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reporter {
    /// Only the chief speaks of the run as a whole.
    pub(super) is_chief: bool,
}

impl Reporter {
    /// Sends a report. When nobody listens any more, the end of the input says so too.
    pub(super) fn send(self, report: &Report) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let mut out = io::stdout().lock();
            let _ = out.write_all(&line).and_then(|()| out.flush());
        }
    }
}

impl Observer for Reporter {
    fn started(&self, plan: &RunPlan, _run: &RunFolder, first_step: u64) {
        if self.is_chief {
            self.send(&Report::Started { plan: Box::new(plan.clone()), first_step });
        }
    }

    fn progressed(&self, progress: &Progress) {
        let mut last = PROGRESSED.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = last.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY);
        if rested || progress.planned == Some(progress.step) {
            *last = Some(Instant::now());
            self.send(&Report::Progressed(*progress));
        }
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        self.send(&Report::Evaluated(evaluation.clone()));
    }

    fn moved(&self, run: &RunFolder) {
        self.send(&Report::Moved { path: run.path().to_path_buf() });
    }

    fn warned(&self, text: &str) {
        self.send(&Report::Warned { text: text.to_owned() });
    }
}

impl paceline_training::rows::Observer for Reporter {
    fn started(&self, plan: &paceline_training::rows::Plan, _run: &RunFolder, _rows: u64) {
        self.send(&Report::RowsStarted { plan: Box::new(plan.clone()) });
    }

    fn progressed(
        &self,
        recent: &paceline_training::rows::Metrics,
        rows: u64,
        done: u64,
        speed: f64,
    ) {
        self.send(&Report::RowsProgressed { recent: *recent, rows, done, speed });
    }

    fn evaluated(&self, metrics: &paceline_training::rows::Metrics, rows: u64) {
        self.send(&Report::RowsEvaluated { metrics: *metrics, rows });
    }

    fn moved(&self, run: &RunFolder) {
        self.send(&Report::Moved { path: run.path().to_path_buf() });
    }

    fn warned(&self, text: &str) {
        self.send(&Report::Warned { text: text.to_owned() });
    }
}

impl SessionObserver for Reporter {
    fn table(&self, rows: &[Row]) {
        if self.is_chief {
            let (missing, joined) = missing(rows);
            self.send(&Report::Table { missing, joined });
        }
    }

    fn noticed(&self, notice: &Notice) {
        if let Some((text, warning)) = words(notice) {
            self.send(&Report::Notice { text, warning });
        }
        if let Notice::Lost(Loss { task, address, reason }) = notice.clone() {
            self.send(&Report::Lost { task, address, reason });
        }
    }
}

/// A line for each task that is not there, and how many are.
pub(super) fn missing(rows: &[Row]) -> (Vec<String>, usize) {
    let waiting = |row: &&Row| row.state == RowState::Waiting;
    let missing = rows.iter().filter(waiting).map(|row| {
        let place =
            if row.address.is_empty() { String::new() } else { format!(" at {}", row.address) };
        let error = row.error.as_ref().map(|error| format!(", last error: {error}"));
        format!(
            "waiting for {}{place}, {:.0} s{}",
            row.task,
            row.seconds,
            error.unwrap_or_default()
        )
    });
    (missing.collect(), rows.iter().filter(|row| !waiting(row)).count())
}

/// What happened, in words, and whether people should worry.
pub(super) fn words(notice: &Notice) -> Option<(String, bool)> {
    match notice {
        Notice::Joined { task, address, host, offset, away, .. } => {
            let clock = offset.map_or_else(String::new, |offset| {
                format!(
                    ", clock {:+.1} ms, round trip {:.2} ms",
                    1e3 * offset.seconds,
                    1e3 * offset.round_trip
                )
            });
            let word = if away.is_some() { "is back" } else { "joined" };
            Some((format!("{task} {word} at {address} on {host}{clock}"), false))
        }
        Notice::Refused { task, reason } => Some((format!("refused {task}: {reason}"), true)),
        Notice::Lost(loss) => Some((format!("lost {loss}"), true)),
        Notice::Straggler(straggler) => Some((straggler.to_string(), true)),
        Notice::Starved(starved) => Some((starved.to_string(), true)),
        _ => None,
    }
}
