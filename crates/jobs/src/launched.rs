//! A task that a local job started: its order and messages come in through a pipe, its reports go out through another.

use crate::{
    JobError, JobNotice, JobObserver, JobResult, Unobserved,
    local::WORKER_ARGUMENTS,
    placement::program_version,
    protocol::{Culprit, FailureWords, LauncherMessage, TaskOrder, TaskReport, TaskReporter, send},
    task_runner::TaskRunner,
};
use paceline_cluster::session::{JOINING, SessionError, chief_of};
use paceline_runs::{RunFolder, with_causes};
use paceline_training::Start;
use paceline_wire::{Endpoint, Identity, Security, endpoint};
use std::{
    io::{self, BufRead},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// How often to look whether this task shall stop, while it waits for a message.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The exit code of a task whose launcher is gone: the job may be started again.
const ORPHANED: i32 = 75;

/// A task of a local job, in the process that was started for it.
pub struct LaunchedTask {
    order: TaskOrder,
    run: RunFolder,
    chief: mpsc::Receiver<String>,
    cancel: Arc<AtomicBool>,
}

impl LaunchedTask {
    /// Reads the order from standard input, and keeps listening on a thread: `cancel` is raised when the launcher
    /// says so. When the input ends, so does this process, because its launcher is gone.
    ///
    /// # Errors
    /// When no order comes, or another text.
    pub fn receive(cancel: Arc<AtomicBool>) -> Result<Self, JobError> {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map_err(JobError::NoOrder)?;
        let order: TaskOrder = serde_json::from_str(&line).map_err(JobError::Order)?;
        let (tell, chief) = mpsc::channel();
        let raised = Arc::clone(&cancel);
        std::thread::Builder::new()
            .name("orders".into())
            .spawn(move || {
                for line in io::stdin().lock().lines() {
                    let Ok(line) = line else { break };
                    match serde_json::from_str(&line) {
                        // A second address is not waited for.
                        Ok(LauncherMessage::Chief { address }) => drop(tell.send(address)),
                        Ok(LauncherMessage::Stop) => raised.store(true, Ordering::Relaxed),
                        Err(_) => {}
                    }
                }
                orphaned();
            })
            .map_err(JobError::Thread)?;
        let run = RunFolder::at(&order.run);
        Ok(Self { order, run, chief, cancel })
    }

    /// The run's folder.
    #[must_use]
    pub fn run_folder(&self) -> &RunFolder {
        &self.run
    }

    /// Does what was ordered and reports it; `log` is told what is meant for this task's own log.
    ///
    /// # Errors
    /// Whatever ended the task's part; [`Self::report_failure`] tells the launcher.
    pub fn run(&self, log: Arc<dyn JobObserver>) -> Result<(), JobError> {
        let order = &self.order;
        let is_chief = chief_of(order.tasks.iter().copied()) == order.task;
        let reporter: Arc<dyn JobObserver> = Arc::new(TaskReporter::new(is_chief, log));
        let endpoint = self.listen(&reporter)?;
        send(&TaskReport::Listening { address: endpoint.address().to_string() });
        let chief_address = if is_chief { String::new() } else { self.address_of_chief()? };
        let tasks = order.tasks.iter().map(|task| (*task, String::new())).collect();
        let opened = order.work.open(&*reporter)?;
        let runner = TaskRunner {
            own: order.task,
            tasks: &tasks,
            chief_address,
            work: &order.work,
            opened: &opened,
            launched: true,
            cancel: Arc::clone(&self.cancel),
            join_timeout: Duration::from_secs(order.join_timeout),
            patience: Duration::from_secs(order.patience),
            observer: reporter,
        };
        let run = self.run.clone();
        let start = if order.resume { Start::Resume { run } } else { Start::In { run } };
        let (result, _) = runner.run(endpoint, &start)?;
        let summary = result.map(|result| match result {
            JobResult::Examples(summary) => summary,
            JobResult::Rows(report) => Box::new(report.summary),
        });
        send(&TaskReport::Done { summary });
        Ok(())
    }

    /// Tells the launcher why this task failed.
    pub fn report_failure(&self, culprit: FailureSource, words: FailureWords) {
        send(&TaskReport::Failed { words, culprit: culprit.0 });
    }

    fn listen(&self, observer: &Arc<dyn JobObserver>) -> Result<Endpoint, JobError> {
        let identity = Identity {
            me: self.order.task,
            run: self.run.name(),
            version: program_version(),
            plan: [0; 32], // settings are compared one by one when a task joins
            key: self.order.key.parse()?,
            security: Security::Plain, // nothing leaves this machine
            shared_memory: true,
        };
        Endpoint::bind_with(identity, "127.0.0.1:0", strangers(observer))
            .map_err(JobError::Endpoint)
    }

    /// Waits until the chief has said where it is, through the process that started both.
    fn address_of_chief(&self) -> Result<String, SessionError> {
        let (order, begun) = (&self.order, Instant::now());
        while begun.elapsed().as_secs() < order.join_timeout {
            if let Ok(address) = self.chief.recv_timeout(LOOK_EVERY) {
                return Ok(address);
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(SessionError::Cancelled { me: order.task, phase: JOINING });
            }
        }
        Err(SessionError::NoChief {
            chief: chief_of(order.tasks.iter().copied()),
            address: "an address of this machine".to_owned(),
            seconds: order.join_timeout,
            reason: "it did not say where it is".to_owned(),
        })
    }
}

/// Whose failure an error is; taken from it before it becomes words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureSource(Culprit);

impl FailureSource {
    /// Whose failure ended a task's part in a job.
    #[must_use]
    pub fn of(error: &JobError) -> Self {
        Self(Culprit::of(error))
    }
}

/// Connections that do not prove themselves become notices.
pub(crate) fn strangers(observer: &Arc<dyn JobObserver>) -> endpoint::Notify {
    let observer = Arc::clone(observer);
    Arc::new(move |notice| observer.notice(JobNotice::Stranger { text: notice.to_string() }))
}

/// Ends this process at once: its launcher is gone, and training must not continue unseen.
#[allow(clippy::disallowed_methods)] // from a thread there is no other way, and nothing is lost
fn orphaned() {
    std::process::exit(ORPHANED);
}

/// Plays a task's part, where a local job has started this process for it; `None` in any other process.
///
/// The executable that calls [`Job::run`](crate::Job::run) is also the one that the tasks run, so a program that
/// starts local jobs begins its `main` with this call and returns what it says. The `paceline` executable has a
/// command for the same purpose.
#[must_use]
pub fn run_if_launched() -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != WORKER_ARGUMENTS {
        return None;
    }
    let Ok(task) = LaunchedTask::receive(Arc::new(AtomicBool::new(false))) else {
        return Some(ExitCode::FAILURE);
    };
    let Err(error) = task.run(Arc::new(Unobserved)) else { return Some(ExitCode::SUCCESS) };
    let exit = if error.is_retryable() { 75 } else { 1 };
    let words = FailureWords { error: with_causes(&error), hint: None, exit };
    task.report_failure(FailureSource::of(&error), words);
    Some(ExitCode::from(exit))
}
