//! What a session says of the other tasks, written into the run's own log: by trainings on examples and on rows alike.

pub use paceline_cluster::session::SessionObserver;

use paceline_cluster::session::{Notice, TaskRow};
use paceline_runs::{Event, Recorder, TaskJoined, TaskLost, TaskRecovered};
use paceline_wire::TaskId;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// Takes what a session says: shows it at once, and keeps it for the run's own log until the worker has time for it.
pub struct Inbox {
    observer: Box<dyn SessionObserver>,
    notices: Mutex<Vec<Notice>>,
    /// The evaluator's results.
    scores: Mutex<Vec<Scored>>,
    /// Whether there is something in one of them: looked at after every step.
    pending: AtomicBool,
}

/// What the evaluator found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scored {
    pub(crate) step: u64,
    /// JSON has no word for what is not a number; a score that could not be read would be waited for.
    #[serde(deserialize_with = "number")]
    pub(crate) loss: f64,
    pub(crate) accuracy: f64,
    pub(crate) examples: u64,
    pub(crate) seconds: f64,
    pub(crate) confusion: Vec<u64>,
}

fn number<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::NAN))
}

impl Inbox {
    /// An inbox that also shows what comes in.
    #[must_use]
    pub fn new(observer: Box<dyn SessionObserver>) -> Arc<Self> {
        Arc::new(Self {
            observer,
            notices: Mutex::default(),
            scores: Mutex::default(),
            pending: AtomicBool::new(false),
        })
    }

    /// Writes what happened by `step` into the run's log; returns what the evaluator found.
    pub(crate) fn record(
        &self,
        recorder: &Recorder,
        step: u64,
        log: &mut SessionLog,
    ) -> Vec<Scored> {
        if !self.pending.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        for notice in std::mem::take(&mut *locked(&self.notices)) {
            log.events(step, notice).into_iter().for_each(|event| recorder.record(event));
        }
        std::mem::take(&mut *locked(&self.scores))
    }
}

impl SessionObserver for Inbox {
    fn table(&self, rows: &[TaskRow]) {
        self.observer.table(rows);
    }

    fn noticed(&self, notice: &Notice) {
        self.observer.noticed(notice);
        locked(&self.notices).push(notice.clone());
        self.pending.store(true, Ordering::Release);
    }

    fn told(&self, by: TaskId, value: &serde_json::Value) {
        // Evaluations are for the run itself; whatever else tasks tell is for those who watch.
        match serde_json::from_value(value.clone()) {
            Ok(scored) => {
                locked(&self.scores).push(scored);
                self.pending.store(true, Ordering::Release);
            }
            Err(_) => self.observer.told(by, value),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes notices as events, and remembers what the summary should say of them.
#[derive(Debug, Default)]
pub(crate) struct SessionLog {
    /// Tasks that were lost, with the reason.
    pub(crate) lost: Vec<String>,
    /// What else is worth a line in the summary: stragglers, workers whose data do not come.
    pub(crate) remarks: Vec<String>,
}

impl SessionLog {
    fn events(&mut self, step: u64, notice: Notice) -> Vec<Event> {
        match notice {
            Notice::Joined { task, address, host, process, offset, away } => {
                let mut events = vec![Event::TaskJoined(TaskJoined {
                    role: task.to_string(),
                    address: Some(address),
                    process,
                    host,
                    clock_offset: offset.map(|offset| offset.seconds),
                })];
                if let Some(away) = away {
                    events.push(Event::TaskRecovered(TaskRecovered {
                        recovered: task.to_string(),
                        step,
                        seconds: away.as_secs_f64(),
                    }));
                }
                events
            }
            Notice::Lost(loss) => {
                self.lost.push(loss.to_string());
                vec![Event::TaskLost(TaskLost {
                    lost: loss.task.to_string(),
                    address: Some(loss.address),
                    step,
                    reason: loss.reason,
                })]
            }
            Notice::Straggler(straggler) => {
                self.remarks.push(straggler.to_string());
                Vec::new()
            }
            Notice::Starved(starved) => {
                self.remarks.push(starved.to_string());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_cluster::session::{Loss, Starved, Unobserved};
    use paceline_runs::{RecorderSettings, RunEnded, RunFolder};
    use paceline_wire::Role;
    use std::time::Duration;

    const WORKER: TaskId = TaskId { role: Role::Worker, index: 1 };

    fn joined(away: Option<Duration>) -> Notice {
        Notice::Joined {
            task: WORKER,
            address: "here:1".to_owned(),
            host: "here".to_owned(),
            process: 7,
            offset: None,
            away,
        }
    }

    /// Recoveries were said to have taken 0.0 s.
    #[test]
    fn a_recovery_takes_as_long_as_the_task_was_away() {
        let mut log = SessionLog::default();
        let loss = Loss { task: WORKER, address: "here:1".to_owned(), reason: "gone".to_owned() };
        assert_eq!(log.events(3, joined(None)).len(), 1);
        assert_eq!(log.events(4, Notice::Lost(loss)).len(), 1);
        let events = log.events(4, joined(Some(Duration::from_millis(2500))));
        assert!(
            matches!(&events[1], Event::TaskRecovered(back) if back.seconds == 2.5 && back.step == 4),
            "{events:?}"
        );
        assert_eq!(log.lost.len(), 1);
    }

    /// Trainings on rows said nothing of workers whose data did not come.
    #[test]
    fn starvation_is_worth_a_line_of_the_summary() {
        let mut log = SessionLog::default();
        let starved = Starved { task: WORKER, seconds: 30 };
        log.events(0, Notice::Starved(starved.clone()));
        assert_eq!(log.remarks, [starved.to_string()]);
    }

    /// What both loops call: starvation and the time of a recovery reach the run's log and summary.
    #[test]
    fn what_a_session_says_reaches_the_log_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::create(folder.path(), "sparse-logistic", "ps-async").unwrap();
        let settings = RecorderSettings { tensorboard: false, ..RecorderSettings::default() };
        let recorder = Recorder::start(&run, "worker/0", &settings).unwrap();
        let (inbox, mut log) = (Inbox::new(Box::new(Unobserved)), SessionLog::default());
        inbox.noticed(&Notice::Starved(Starved { task: WORKER, seconds: 30 }));
        inbox.noticed(&joined(Some(Duration::from_millis(2500))));
        assert!(inbox.record(&recorder, 7, &mut log).is_empty());
        assert!(inbox.record(&recorder, 8, &mut log).is_empty(), "told once");
        assert_eq!(recorder.close(RunEnded::default()).lost, 0);
        assert_eq!(log.remarks.len(), 1);
        let path = run.path().join("events-worker-0.jsonl");
        let text = std::fs::read_to_string(path).unwrap();
        let back: Vec<&str> = text.lines().filter(|line| line.contains("task_recovered")).collect();
        assert!(back.len() == 1 && back[0].contains("2.5") && back[0].contains("7"), "{text}");
    }
}
