//! What each task's machine does, told to the chief while training goes on, so that the verdict on a run knows every host.

use super::{node_links::Capacity, train_show::record_resources};
use crate::terminal::Terminal;
use paceline_cluster::{
    TaskId,
    session::{Notice, Row, Session},
};
use paceline_probes::{Reading, Sampler, Summary as Means};
use paceline_runs::{
    Machine, RunFolder, StartRow, StartTable, Summary, TaskLoad, diagnosis, unix_seconds,
};
use paceline_training::SessionObserver;
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// Seconds between two words to the chief; at first more often, since a run may be short.
const TELL_EVERY: f64 = 1.0;

/// What all tasks told last.
pub(super) type Loads = Arc<Mutex<BTreeMap<TaskId, TaskLoad>>>;

/// Keeps what tasks tell of their machines, and the table of those that are missing in the run's folder; the rest goes to another
/// onlooker.
pub(super) struct Gatherer {
    pub(super) onlooker: Box<dyn SessionObserver>,
    pub(super) loads: Loads,
    /// The run's folder and what is planned, at the chief.
    pub(super) chiefs: Option<(RunFolder, StartTable)>,
}

impl SessionObserver for Gatherer {
    fn table(&self, rows: &[Row]) {
        self.onlooker.table(rows);
        let Some((run, plan)) = &self.chiefs else { return };
        let tasks = rows.iter().map(|row| StartRow {
            task: row.task.to_string(),
            address: row.address.clone(),
            host: row.host.clone(),
            state: row.state.name().to_owned(),
            seconds: row.seconds,
            error: row.error.clone(),
            clock_offset: row.offset.map(|offset| offset.seconds),
        });
        let table = StartTable { written: unix_seconds(), tasks: tasks.collect(), ..plan.clone() };
        // Only for those who look on; a full disk will be noticed by the run itself.
        let _ = run.write_start_table(&table);
    }

    fn noticed(&self, notice: &Notice) {
        self.onlooker.noticed(notice);
    }

    fn told(&self, by: TaskId, value: &serde_json::Value) {
        if let Ok(load) = serde_json::from_value::<TaskLoad>(value.clone()) {
            self.loads.lock().unwrap_or_else(PoisonError::into_inner).insert(by, load);
        }
    }
}

/// Records this task's resources beside the run and tells the chief their means, until dropped.
pub(super) fn record_and_tell(
    run: &RunFolder,
    session: &Arc<Session>,
    address: String,
    capacity: Capacity,
) -> anyhow::Result<Sampler> {
    let (me, machine) = (session.me(), Machine::detect());
    let session = Arc::clone(session);
    let mut means = Means::default();
    let mut told = 0.0;
    record_resources(&run.resources_path(&me.to_string()), move |reading: &Reading| {
        means.add(reading);
        if reading.elapsed - told < TELL_EVERY.min(reading.elapsed / 2.0) {
            return;
        }
        told = reading.elapsed;
        let rows: BTreeMap<&str, f64> = means.rows().map(|(name, mean, _)| (name, mean)).collect();
        let found = TaskLoad::from_means(&me.to_string(), &machine, |name| rows.get(name).copied());
        let load = TaskLoad {
            address: address.clone(),
            send_capacity: capacity.send,
            receive_capacity: capacity.receive,
            ..found
        };
        session.tell(serde_json::to_value(&load).unwrap_or_default());
    })
}

/// Puts the full verdict into a run's summary, here and in its folder: all tasks' records are written by now.
pub(super) fn conclude(folder: &Path, summary: &mut Summary, terminal: &Terminal) {
    if let Err(error) = diagnosis::conclude(&RunFolder::at(folder), summary) {
        terminal.warn(format!("the verdict does not know the machines: {error}"));
    }
}
