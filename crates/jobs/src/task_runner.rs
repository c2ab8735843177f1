//! One task's part in a run, from joining to leaving: the same for tasks of a cluster and for those that a local job
//! starts, for examples and for rows.

use crate::{
    JobError, JobObserver, JobResult, link_capacity,
    machine_load::{LoadObserver, Loads, record_and_tell},
    notice::LoopNotices,
    work::{OpenedWork, Work},
};
use paceline_cluster::session::{Rules, Session, SessionObserver, SessionSettings, chief_of};
use paceline_runs::{Machine, Ownership, RunFolder, StartTable};
use paceline_training::{Inbox, Start};
use paceline_wire::{Endpoint, TaskId};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::AtomicBool},
    time::Duration,
};

/// One task's part in a run.
pub(crate) struct TaskRunner<'a> {
    pub(crate) own: TaskId,
    /// All tasks, with addresses where they are known.
    pub(crate) tasks: &'a BTreeMap<TaskId, String>,
    pub(crate) chief_address: String,
    pub(crate) work: &'a Work,
    /// The same with model and data.
    pub(crate) opened: &'a OpenedWork<'a>,
    /// Whether the process that started it owns the run folder.
    pub(crate) launched: bool,
    pub(crate) cancel: Arc<AtomicBool>,
    /// How long to wait for the others.
    pub(crate) join_timeout: Duration,
    /// How long a task may be silent.
    pub(crate) patience: Duration,
    pub(crate) observer: Arc<dyn JobObserver>,
}

/// The run folder of a task before it joins.
#[derive(Default)]
struct Folder {
    /// Where it is known: at the chief, and where a run is resumed.
    known: Option<RunFolder>,
    /// Whether this process has made it for this run.
    made: bool,
    ownership: Option<Ownership>,
}

impl Folder {
    /// Leaves no trace of a run that did not start.
    fn abandon(self) {
        drop(self.ownership);
        if let (true, Some(run)) = (self.made, self.known) {
            run.abandon();
        }
    }
}

impl TaskRunner<'_> {
    /// Whether this task is the one that all join at.
    pub(crate) fn is_chief(&self) -> bool {
        chief_of(self.tasks.keys().copied()) == self.own
    }

    /// Joins, trains (or serves, or evaluates), leaves. Workers have a result; the chief's is the run's.
    pub(crate) fn run(
        &self,
        endpoint: Endpoint,
        start: &Start,
    ) -> Result<(Option<JobResult>, RunFolder), JobError> {
        let folder = self.folder(start)?;
        let loads = Loads::default();
        let inbox = Inbox::new(Box::new(self.session_observer(&folder, &loads)?));
        let address = endpoint.public_address();
        let started = self.settings(&folder).and_then(|settings| {
            let observer: Arc<dyn SessionObserver> = inbox.clone();
            Ok(Session::start(Arc::new(endpoint), &settings, observer)?)
        });
        let session = match started {
            Ok(session) => Arc::new(session),
            Err(error) => {
                folder.abandon();
                return Err(error);
            }
        };
        let run = match (&folder.known, start) {
            (Some(run), _) | (None, Start::In { run } | Start::Resume { run }) => run.clone(),
            (None, Start::New { out }) => {
                let run = RunFolder::join(out, &session.view().run)?;
                self.opened.leave_plan(&run)?;
                run
            }
        };
        let capacity = link_capacity::measure(&session);
        let sampler = record_and_tell(&run, &session, address, capacity);
        if let Err(error) = &sampler {
            LoopNotices(&*self.observer).warn(error.warning());
        }
        let mut result = self.train(&session, &inbox, start, &run)?;
        if let Some(result) = &mut result {
            let told = std::mem::take(&mut *loads.lock().unwrap_or_else(PoisonError::into_inner));
            result.summary_mut().tasks = told.into_values().collect();
        }
        Ok((result, run))
    }

    /// Makes or takes the run's folder, where that is this task's to do. The chief names the run; the others learn
    /// its name when they join.
    fn folder(&self, start: &Start) -> Result<Folder, JobError> {
        let mut folder = Folder::default();
        match start {
            Start::New { out } if self.is_chief() => {
                let strategy = self.work.strategy()?.name;
                folder.known = Some(RunFolder::create(out, self.work.model(), strategy)?);
                folder.made = true;
            }
            Start::New { .. } => {}
            Start::In { run } | Start::Resume { run } => folder.known = Some(run.clone()),
        }
        let Some(run) = folder.known.as_ref().filter(|_| !self.launched) else {
            return Ok(folder);
        };
        if self.is_chief() {
            folder.ownership = Some(Ownership::take(run)?);
        }
        if matches!(start, Start::Resume { .. })
            && (self.is_chief() || self.opened.has_records(run))
        {
            self.opened.check_resume(run)?;
        }
        Ok(folder)
    }

    fn session_observer(&self, folder: &Folder, loads: &Loads) -> Result<LoadObserver, JobError> {
        let start_table = match &folder.known {
            Some(run) if self.is_chief() => {
                let (model, strategy) = (self.work.model(), self.work.strategy()?.name);
                let plan = StartTable {
                    model: model.to_owned(),
                    strategy: strategy.to_owned(),
                    ..StartTable::default()
                };
                Some((run.clone(), plan))
            }
            _ => None,
        };
        let observer = Arc::clone(&self.observer);
        Ok(LoadObserver { observer, loads: Arc::clone(loads), start_table })
    }

    fn settings(&self, folder: &Folder) -> Result<SessionSettings, JobError> {
        Ok(SessionSettings {
            me: self.own,
            tasks: self.tasks.clone(),
            chief_address: self.chief_address.clone(),
            run: folder.known.as_ref().map(RunFolder::name).unwrap_or_default(),
            plan: self.opened.shared()?,
            rules: Rules {
                on_loss: self.work.on_loss(),
                regroup: self.work.strategy()?.synchronous,
                all_finish: false,
                join_timeout: self.join_timeout,
                patience: self.patience,
            },
            host: Machine::detect().host,
            cancel: Arc::clone(&self.cancel),
        })
    }

    /// The part of this task that differs between examples and rows.
    fn train(
        &self,
        session: &Arc<Session>,
        inbox: &Arc<Inbox>,
        start: &Start,
        run: &RunFolder,
    ) -> Result<Option<JobResult>, JobError> {
        let (cancel, observer) = (&*self.cancel, &LoopNotices(&*self.observer));
        let is_resumed = matches!(start, Start::Resume { .. });
        match self.opened {
            OpenedWork::Examples { spec, parts } => {
                let run = run.clone();
                let start = if is_resumed { Start::Resume { run } } else { Start::In { run } };
                let control = paceline_training::Control { cancel, observer };
                let task = paceline_training::Task { session, inbox };
                let summary = paceline_training::train_task(spec, parts, &start, &control, task)?;
                Ok(summary.map(|summary| JobResult::Examples(Box::new(summary))))
            }
            OpenedWork::Rows { spec } => {
                let control = paceline_training::rows::Control { cancel, observer };
                let task =
                    paceline_training::rows::Task { session, inbox, run, resume: is_resumed };
                let report = paceline_training::rows::take_part(spec, &task, &control)
                    .map_err(JobError::of_rows)?;
                Ok(report.map(|report| JobResult::Rows(Box::new(report))))
            }
        }
    }
}
