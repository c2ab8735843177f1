//! What a session says about the other tasks: shown at once, kept for the run's own log.

use paceline_cluster::{
    TaskId,
    session::{Notice, Row, Watcher},
};
use paceline_runs::{Event, Recorder, TaskJoined, TaskLost, TaskRecovered};
use std::sync::{Arc, Mutex, PoisonError};

/// Takes what a session says.
pub struct Inbox {
    onlooker: Box<dyn Watcher>,
    notices: Mutex<Vec<Notice>>,
}

impl Inbox {
    /// An inbox that also shows what comes in.
    #[must_use]
    pub fn new(onlooker: Box<dyn Watcher>) -> Arc<Self> {
        Arc::new(Self { onlooker, notices: Mutex::default() })
    }

    /// Writes what happened into the log; adds who was lost, and what else is worth a line.
    pub(super) fn record(
        &self,
        recorder: &Recorder,
        step: u64,
        lost: &mut Vec<String>,
        remarks: &mut Vec<String>,
    ) {
        let notices =
            std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner));
        for notice in notices {
            match notice {
                Notice::Joined { task, address, host, process, offset, returned } => {
                    recorder.record(Event::TaskJoined(TaskJoined {
                        role: task.to_string(),
                        address: Some(address),
                        process,
                        host,
                        clock_offset: offset.map(|offset| offset.seconds),
                    }));
                    if returned {
                        let (recovered, seconds) = (task.to_string(), 0.0);
                        let event = TaskRecovered { recovered, step, seconds };
                        recorder.record(Event::TaskRecovered(event));
                    }
                }
                Notice::Lost(loss) => {
                    lost.push(loss.to_string());
                    recorder.record(Event::TaskLost(TaskLost {
                        lost: loss.task.to_string(),
                        address: Some(loss.address),
                        step,
                        reason: loss.reason,
                    }));
                }
                Notice::Straggler(straggler) => remarks.push(straggler.to_string()),
                _ => {}
            }
        }
    }
}

impl Watcher for Inbox {
    fn table(&self, rows: &[Row]) {
        self.onlooker.table(rows);
    }

    fn noticed(&self, notice: &Notice) {
        self.onlooker.noticed(notice);
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(notice.clone());
    }

    fn told(&self, by: TaskId, value: &serde_json::Value) {
        self.onlooker.told(by, value);
    }
}
