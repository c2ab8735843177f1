//! What each task's machine does, told to the chief while training goes on, so that the verdict on a run knows every host.

use crate::{JobNotice, JobObserver, MissingTask, link_capacity::Capacity};
use paceline_cluster::session::{Loss, Notice, Session, SessionObserver, TaskRow, TaskRowState};
use paceline_probes::{
    Layout, Reading, RecordingError, Roots, Sampler, SamplerError, Summary as Means, Target,
    Writer, append,
};
use paceline_runs::{
    Machine, RunFolder, StartRow, StartTable, TaskLoad, unix_seconds, with_causes,
};
use paceline_wire::TaskId;
use std::{
    collections::BTreeMap,
    io::{self, BufWriter},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Seconds between two messages to the chief; at first more often, since a run may be short.
const TELL_EVERY: f64 = 1.0;
/// Time between two readings of the machine.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// What all tasks told last.
pub(crate) type Loads = Arc<Mutex<BTreeMap<TaskId, TaskLoad>>>;

/// Observes the session of a task: keeps what tasks tell of their machines, and the table of those that are missing
/// in the run's folder; everything else becomes a notice.
pub(crate) struct LoadObserver {
    pub(crate) observer: Arc<dyn JobObserver>,
    pub(crate) loads: Loads,
    /// The run's folder and what is planned, at the chief.
    pub(crate) start_table: Option<(RunFolder, StartTable)>,
}

impl LoadObserver {
    fn write_start_table(&self, rows: &[TaskRow]) {
        let Some((run, plan)) = &self.start_table else { return };
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
        // Only for readers of the folder; a full disk will be noticed by the run itself.
        let _ = run.write_start_table(&table);
    }

    fn keep_load(&self, by: TaskId, value: &serde_json::Value) {
        if let Ok(load) = serde_json::from_value::<TaskLoad>(value.clone()) {
            self.loads.lock().unwrap_or_else(PoisonError::into_inner).insert(by, load);
        }
    }
}

impl SessionObserver for LoadObserver {
    fn table(&self, rows: &[TaskRow]) {
        self.observer.notice(waiting(rows));
        self.write_start_table(rows);
    }

    fn noticed(&self, notice: &Notice) {
        if let Some(notice) = translated(notice) {
            self.observer.notice(notice);
        }
    }

    fn told(&self, by: TaskId, value: &serde_json::Value) {
        self.keep_load(by, value);
    }
}

fn waiting(rows: &[TaskRow]) -> JobNotice {
    let is_missing = |row: &&TaskRow| row.state == TaskRowState::Waiting;
    let missing: Vec<MissingTask> = rows
        .iter()
        .filter(is_missing)
        .map(|row| MissingTask {
            task: row.task,
            address: row.address.clone(),
            seconds: row.seconds,
            error: row.error.clone(),
        })
        .collect();
    let joined = rows.len() - missing.len();
    JobNotice::Waiting { missing, joined }
}

fn translated(notice: &Notice) -> Option<JobNotice> {
    match notice.clone() {
        Notice::Joined { task, address, host, offset, away, .. } => {
            Some(JobNotice::Joined { task, address, host, clock: offset, returned: away.is_some() })
        }
        Notice::Refused { task, reason } => Some(JobNotice::Refused { task, reason }),
        Notice::Lost(Loss { task, address, reason }) => {
            Some(JobNotice::Lost { task, address, reason })
        }
        Notice::Straggler(straggler) => Some(JobNotice::Slow { text: straggler.to_string() }),
        Notice::Starved(starved) => Some(JobNotice::Slow { text: starved.to_string() }),
        _ => None,
    }
}

/// Why a machine's resources are not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Open(#[from] RecordingError),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}

impl RecordError {
    /// What is said about it: the run continues without these records.
    pub(crate) fn warning(&self) -> String {
        format!("no resources are recorded: {}", with_causes(self))
    }
}

/// Records the machine's resources until dropped, and shows each reading to `each`; a resumed run continues its file.
pub(crate) fn record_resources(
    path: &Path,
    mut each: impl FnMut(&Reading) + Send + 'static,
) -> Result<Sampler, RecordError> {
    let mut writer = Writer::new(BufWriter::new(append(path)?), Layout::Full)?;
    let sampler = Sampler::start(&Roots::default(), Target::own(), SAMPLE_EVERY, move |reading| {
        // A full disk must not end a run; the gap in the recording shows it.
        let _ = writer.write(&reading);
        each(&reading);
    })?;
    Ok(sampler)
}

/// Records this task's resources beside the run and tells the chief their means, until dropped.
pub(crate) fn record_and_tell(
    run: &RunFolder,
    session: &Arc<Session>,
    address: String,
    capacity: Capacity,
) -> Result<Sampler, RecordError> {
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
