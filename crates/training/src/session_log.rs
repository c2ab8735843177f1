//! What a session says of the other tasks, written into the run's own log: by trainings on examples and on rows alike.

use paceline_cluster::session::Notice;
use paceline_runs::{Event, Recorder, TaskJoined, TaskLost, TaskRecovered};
use std::sync::{Mutex, PoisonError};

/// Keeps what a session says until the worker has time for it.
#[derive(Debug, Default)]
pub struct Notices(Mutex<Vec<Notice>>);

impl Notices {
    /// Takes a notice in.
    pub fn push(&self, notice: &Notice) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
    }

    /// Everything since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Writes notices as events, and remembers what the summary should say of them.
#[derive(Debug, Default)]
pub struct SessionLog {
    /// Tasks that were lost, with the reason.
    pub lost: Vec<String>,
    /// What else is worth a line in the summary: stragglers, workers whose data do not come.
    pub remarks: Vec<String>,
}

impl SessionLog {
    /// Writes what happened by `step`.
    pub fn record(&mut self, recorder: &Recorder, step: u64, notices: Vec<Notice>) {
        for notice in notices {
            self.events(step, notice).into_iter().for_each(|event| recorder.record(event));
        }
    }

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
    use paceline_cluster::{
        Role, TaskId,
        session::{Loss, Starved},
    };
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
}
