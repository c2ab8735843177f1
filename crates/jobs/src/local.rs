//! A job on this machine: a process for each task, started and watched from here.

mod failure;
mod silence;
mod supervisor;

pub use failure::{FailedTask, TasksFailed};

use crate::{
    JobError, JobObserver, JobOutcome, JobResult, Unobserved, Work, protocol::TaskOrder,
    work::recorded_report,
};
use paceline_cluster::session::SILENCE;
use paceline_runs::{Ownership, RunFolder, Summary};
use paceline_training::Start;
use paceline_wire::{ClusterKey, Role, TaskId};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use supervisor::Supervisor;

/// How an executable is told to be a task; `paceline node --launched` is the same for the command line.
pub(crate) const WORKER_ARGUMENTS: [&str; 2] = ["node", "--launched"];
/// How long to wait for all tasks, unless the caller says otherwise.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A job whose tasks are processes of this machine.
///
/// Tasks run the executable of this process, which must begin with [`run_if_launched`](crate::run_if_launched),
/// or the one that [`Self::program`] names.
pub struct Job {
    workers: usize,
    servers: Option<usize>,
    start: Start,
    join_timeout: Duration,
    patience: Duration,
    program: Option<PathBuf>,
    cancel: Arc<AtomicBool>,
    observer: Arc<dyn JobObserver>,
}

impl Job {
    /// A job of so many workers.
    #[must_use]
    pub fn local(workers: usize) -> Self {
        Self {
            workers,
            servers: None,
            start: Start::New { out: PathBuf::from("runs") },
            join_timeout: JOIN_TIMEOUT,
            patience: SILENCE,
            program: None,
            cancel: Arc::default(),
            observer: Arc::new(Unobserved),
        }
    }

    /// With so many servers that hold the weights, for strategies that have any; 1 for these otherwise.
    #[must_use]
    pub fn servers(self, servers: usize) -> Self {
        Self { servers: Some(servers), ..self }
    }

    /// With a new run folder under this folder; `runs` otherwise.
    #[must_use]
    pub fn out(self, folder: &Path) -> Self {
        self.start(Start::New { out: folder.to_path_buf() })
    }

    /// Beginning there.
    #[must_use]
    pub fn start(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// Waiting so long for all tasks, at the start and after a loss.
    #[must_use]
    pub fn join_timeout(self, join_timeout: Duration) -> Self {
        Self { join_timeout, ..self }
    }

    /// Waiting so long for a sign of life before a task counts as lost; longer where most tasks are late.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Running tasks with another executable than that of this process, such as `paceline`.
    #[must_use]
    pub fn program(self, program: &Path) -> Self {
        Self { program: Some(program.to_path_buf()), ..self }
    }

    /// Stopping in order, with a checkpoint, when that flag is raised.
    #[must_use]
    pub fn cancel(self, cancel: Arc<AtomicBool>) -> Self {
        Self { cancel, ..self }
    }

    /// Telling that observer what happens.
    #[must_use]
    pub fn observer(self, observer: Arc<dyn JobObserver>) -> Self {
        Self { observer, ..self }
    }

    /// Starts a process for each task and watches them until the last has ended.
    ///
    /// # Errors
    /// Settings that cannot work, before any process starts; a task that failed, and the run with it.
    pub fn run(&self, work: impl Into<Work>) -> Result<JobOutcome, JobError> {
        let mut work = work.into();
        let strategy = work.strategy()?;
        if strategy.in_process {
            return Err(JobError::OneProcess { strategy: strategy.name });
        }
        let servers = self.servers.unwrap_or(usize::from(strategy.needs_servers));
        let tasks = share_out(&mut work, self.workers, servers);
        // What is wrong with the settings is said once, before any process starts.
        let opened = work.open(&*self.observer)?;
        opened.check()?;
        opened.check_one_machine()?;
        let (run, resume) = match &self.start {
            Start::New { out } => (RunFolder::create(out, work.model(), strategy.name)?, false),
            Start::In { run } => (run.clone(), false),
            Start::Resume { run } => (run.clone(), true),
        };
        let _owned = Ownership::take(&run)?;
        if resume {
            opened.check_resume(&run)?;
        }
        drop(opened);
        let is_rows = matches!(work, Work::Rows(_));
        let (summary, run) = self.supervise(work, tasks, &run, resume)?;
        let mut result = if is_rows {
            let mut report = recorded_report(&run)?;
            report.summary.tasks.clone_from(&summary.tasks);
            JobResult::Rows(Box::new(report))
        } else {
            JobResult::Examples(summary)
        };
        result.conclude(&run, &*self.observer);
        Ok(JobOutcome { run, result })
    }

    /// Starts the processes and watches them; says also where the run folder is in the end.
    fn supervise(
        &self,
        work: Work,
        tasks: Vec<TaskId>,
        run: &RunFolder,
        resume: bool,
    ) -> Result<(Box<Summary>, RunFolder), JobError> {
        let folder = run.path();
        let order = TaskOrder {
            task: tasks[0],
            tasks,
            key: ClusterKey::generate()?.to_text(),
            run: std::path::absolute(folder)
                .map_err(|source| JobError::Absolute { path: folder.to_path_buf(), source })?,
            resume,
            join_timeout: whole_seconds(self.join_timeout),
            patience: whole_seconds(self.patience),
            work,
        };
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(JobError::Program)?,
        };
        Supervisor::new(&program, order, run, &*self.observer).watch(&self.cancel)
    }
}

/// In whole seconds, none of it cut off.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs_f64().ceil() as u64
}

/// Puts the numbers of tasks into the work, and lists them.
fn share_out(work: &mut Work, workers: usize, servers: usize) -> Vec<TaskId> {
    match work {
        Work::Examples(spec) => {
            (spec.workers, spec.servers) = (workers, servers);
            if spec.threads.is_none() {
                // Servers and evaluators mostly wait; the workers share the cores.
                let cores = paceline_batch::cores().count;
                spec.threads = Some((cores / workers.max(1)).max(1));
            }
            local_tasks(workers, servers, spec.evaluator)
        }
        Work::Rows(spec) => {
            let evaluator = spec.tasks.as_mut().is_some_and(|tasks| {
                (tasks.workers, tasks.servers) = (workers, servers);
                tasks.evaluator
            });
            local_tasks(workers, servers, evaluator)
        }
    }
}

/// All tasks of a job that one process starts; worker 0 is the chief.
#[must_use]
pub fn local_tasks(workers: usize, servers: usize, evaluator: bool) -> Vec<TaskId> {
    let of =
        |role: Role, count: usize| (0..count).map(move |index| TaskId::new(role, index as u32));
    of(Role::Worker, workers)
        .chain(of(Role::Ps, servers))
        .chain(of(Role::Evaluator, usize::from(evaluator)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_waited_for_too() {
        assert_eq!(whole_seconds(Duration::from_secs(7200)), 7200);
        assert_eq!(whole_seconds(Duration::from_millis(1500)), 2);
    }

    #[test]
    fn the_first_worker_comes_first() {
        let names: Vec<String> = local_tasks(2, 1, true).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["worker/0", "worker/1", "ps/0", "evaluator/0"]);
    }
}
