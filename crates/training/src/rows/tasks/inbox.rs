//! What a session says about the other tasks: shown at once, kept for the run's own log.

use crate::{Notices, SessionLog};
use paceline_cluster::{
    TaskId,
    session::{Notice, Row, Watcher},
};
use paceline_runs::Recorder;
use std::sync::Arc;

/// Takes what a session says.
pub struct Inbox {
    onlooker: Box<dyn Watcher>,
    notices: Notices,
}

impl Inbox {
    /// An inbox that also shows what comes in.
    #[must_use]
    pub fn new(onlooker: Box<dyn Watcher>) -> Arc<Self> {
        Arc::new(Self { onlooker, notices: Notices::default() })
    }

    /// Writes what happened into the run's log.
    pub(super) fn record(&self, recorder: &Recorder, step: u64, log: &mut SessionLog) {
        log.record(recorder, step, self.notices.take());
    }
}

impl Watcher for Inbox {
    fn table(&self, rows: &[Row]) {
        self.onlooker.table(rows);
    }

    fn noticed(&self, notice: &Notice) {
        self.onlooker.noticed(notice);
        self.notices.push(notice);
    }

    fn told(&self, by: TaskId, value: &serde_json::Value) {
        self.onlooker.told(by, value);
    }
}
