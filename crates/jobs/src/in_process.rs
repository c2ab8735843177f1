//! A job of one process: this one. The machine is recorded beside the run, as every task of several does.

use crate::{
    JobError, JobNotice, JobObserver, JobOutcome, JobResult, Work, machine_load::record_resources,
    notice::LoopNotices, work::OpenedWork,
};
use paceline_probes::Sampler;
use paceline_runs::RunFolder;
use paceline_training::Start;
use paceline_wire::{Role, TaskId};
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
};

/// Trains in this process, with a strategy that needs no other.
///
/// # Errors
/// Settings that cannot work, data that cannot be read, weights that diverge, a run folder that cannot be written.
pub fn run_in_process(
    work: &Work,
    start: &Start,
    cancel: &AtomicBool,
    observer: &dyn JobObserver,
) -> Result<JobOutcome, JobError> {
    let opened = work.open(observer)?;
    let recorder = MachineRecorder::new(observer);
    let loop_observer = &LoopNotices(&recorder);
    let mut result = match &opened {
        OpenedWork::Examples { spec, parts } => {
            let control = paceline_training::Control { cancel, observer: loop_observer };
            let summary = paceline_training::train(spec, parts, start, &control)?;
            JobResult::Examples(Box::new(summary))
        }
        OpenedWork::Rows { spec } => {
            let control = paceline_training::rows::Control { cancel, observer: loop_observer };
            let report =
                paceline_training::rows::learn(spec, start, &control).map_err(JobError::of_rows)?;
            JobResult::Rows(Box::new(report))
        }
    };
    let run = recorder.finish(start, &result.summary().run);
    result.conclude(&run, observer);
    Ok(JobOutcome { run, result })
}

/// Passes notices on; records the machine from the first step on, and where the run folder is.
struct MachineRecorder<'a> {
    observer: &'a dyn JobObserver,
    sampler: Mutex<Option<Sampler>>,
    moved: Mutex<Option<PathBuf>>,
}

impl<'a> MachineRecorder<'a> {
    fn new(observer: &'a dyn JobObserver) -> Self {
        let (sampler, moved) = Default::default();
        Self { observer, sampler, moved }
    }

    /// Ends the recording; says where the run folder is.
    fn finish(self, start: &Start, name: &str) -> RunFolder {
        match (self.moved.into_inner().unwrap_or_else(PoisonError::into_inner), start) {
            (Some(folder), _) => RunFolder::at(&folder),
            (None, Start::New { out }) => RunFolder::at(&out.join(name)),
            (None, Start::In { run } | Start::Resume { run }) => run.clone(),
        }
    }

    fn record(&self, run: &RunFolder) {
        let worker = TaskId::new(Role::Worker, 0).to_string();
        match (record_resources(&run.resources_path(&worker), |_| ()), self.sampler.lock()) {
            (Ok(sampler), Ok(mut slot)) => *slot = Some(sampler),
            (Err(error), _) => LoopNotices(self.observer).warn(error.warning()),
            (Ok(_), Err(_)) => {}
        }
    }
}

impl JobObserver for MachineRecorder<'_> {
    fn notice(&self, notice: JobNotice) {
        let begun = match &notice {
            JobNotice::Started { run, .. } | JobNotice::RowsStarted { run, .. } => {
                Some(RunFolder::at(run))
            }
            JobNotice::Moved { run } => {
                *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
                None
            }
            _ => None,
        };
        self.observer.notice(notice);
        if let Some(run) = begun {
            self.record(&run);
        }
    }
}
