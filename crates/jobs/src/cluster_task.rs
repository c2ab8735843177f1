//! A task of a cluster that something outside started and describes: `TF_CONFIG`, torchrun, MPI, Slurm, Spark, a file.

use crate::{
    JobError, JobNotice, JobObserver, JobResult, TaskPlacement, Work, launched::strangers,
    task_runner::TaskRunner, work::OpenedWork,
};
use paceline_runs::RunFolder;
use paceline_training::Start;
use paceline_wire::{Endpoint, TaskId, collective};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// A task of a cluster, before it takes part.
pub struct ClusterTask {
    /// Which task of which cluster it is.
    pub placement: TaskPlacement,
    /// What all tasks do; numbers of tasks are those of the cluster.
    pub work: Work,
    /// Where the run begins.
    pub start: Start,
    /// How long to wait for the other tasks.
    pub join_timeout: Duration,
    /// How long a task may be silent before it counts as lost; longer where most tasks are late.
    pub patience: Duration,
    /// Raised to stop in order.
    pub cancel: Arc<AtomicBool>,
    pub observer: Arc<dyn JobObserver>,
}

/// How a task's part in a run ended.
#[derive(Debug)]
pub struct TaskOutcome {
    pub task: TaskId,
    /// Whether its result is the run's.
    pub is_chief: bool,
    /// The run's folder on this host.
    pub run: RunFolder,
    /// What it has to show; servers and evaluators have nothing.
    pub result: Option<JobResult>,
}

/// A task whose data were found, whose settings were checked, and which the others can reach.
pub struct ReadyTask<'a> {
    task: &'a ClusterTask,
    opened: OpenedWork<'a>,
    endpoint: Endpoint,
}

impl ClusterTask {
    /// Finds the data, checks the settings, listens for the others.
    ///
    /// # Errors
    /// Whatever keeps the task from taking part.
    pub fn open(&mut self) -> Result<ReadyTask<'_>, JobError> {
        self.placement.fit(&mut self.work)?;
        let task = &*self;
        let opened = task.work.open(&*task.observer)?;
        opened.check()?;
        let endpoint = task.placement.listen(strangers(&task.observer))?;
        Ok(ReadyTask { task, opened, endpoint })
    }
}

impl ReadyTask<'_> {
    /// The resumed run whose folder this task is going to own, where it is the chief of one.
    #[must_use]
    pub fn resumed_run(&self) -> Option<&RunFolder> {
        match &self.task.start {
            Start::Resume { run } if self.task.placement.is_chief() => Some(run),
            _ => None,
        }
    }

    /// Joins, does the task's part, leaves.
    ///
    /// # Errors
    /// Whatever ends its part before the run is over.
    pub fn run(self) -> Result<TaskOutcome, JobError> {
        let ClusterTask { placement, work, start, join_timeout, patience, cancel, observer } =
            self.task;
        let runner = TaskRunner {
            own: placement.own,
            tasks: &placement.tasks,
            chief_address: placement.chief_address.clone(),
            work,
            opened: &self.opened,
            launched: false,
            cancel: Arc::clone(cancel),
            join_timeout: *join_timeout,
            patience: *patience,
            observer: Arc::clone(observer),
        };
        let is_chief = placement.is_chief();
        let outcome = runner.run(self.endpoint, start);
        if outcome.as_ref().is_err_and(|error| !error.is_finished()) {
            collective::give_up_mpi();
        }
        let (mut result, run) = outcome?;
        if collective::summed_by_mpi() {
            observer.notice(JobNotice::SummedByMpi);
        }
        if let (Some(result), true) = (&mut result, is_chief) {
            result.conclude(&run, &**observer);
        }
        Ok(TaskOutcome { task: placement.own, is_chief, run, result })
    }
}
