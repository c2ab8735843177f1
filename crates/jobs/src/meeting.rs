//! Tasks that meet for other work than training: the same descriptions, key and session, and the same words when one is lost.

use crate::{
    JobError, JobObserver, TaskPlacement,
    launched::strangers,
    machine_load::{LoadObserver, Loads},
};
use paceline_cluster::session::{Rules, Session, SessionSettings};
use paceline_runs::Machine;
use serde_json::Value;
use std::sync::{Arc, atomic::AtomicBool};

/// What the tasks meet for.
pub struct Meeting {
    /// Its name; the chief's counts.
    pub run: String,
    /// Settings that all tasks must share.
    pub plan: Value,
    /// How to deal with trouble.
    pub rules: Rules,
    /// Raised to give up waiting.
    pub cancel: Arc<AtomicBool>,
    pub observer: Arc<dyn JobObserver>,
}

impl TaskPlacement {
    /// Listens, and returns when all tasks have joined.
    ///
    /// # Errors
    /// An address that cannot be bound, and tasks that do not come or do not fit.
    pub fn meet(&self, meeting: Meeting) -> Result<Session, JobError> {
        let Meeting { run, plan, rules, cancel, observer } = meeting;
        let endpoint = self.listen(strangers(&observer))?;
        let settings = SessionSettings {
            me: self.own,
            tasks: self.tasks.clone(),
            chief_address: self.chief_address.clone(),
            run,
            plan,
            rules,
            host: Machine::detect().host,
            cancel,
        };
        let observer = LoadObserver { observer, loads: Loads::default(), start_table: None };
        Ok(Session::start(Arc::new(endpoint), &settings, Arc::new(observer))?)
    }
}
