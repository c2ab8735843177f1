//! The process that started all tasks of a local job: hears what they report, starts lost ones again, ends silent ones.

use super::{
    WORKER_ARGUMENTS,
    failure::{FailedTask, TasksFailed, cause},
    silence::Silence,
};
use crate::{
    FailureWords, JobError, JobNotice, JobObserver,
    protocol::{Culprit, LauncherMessage, TaskOrder, TaskReport},
};
use paceline_cluster::{
    launch::local::{Happened, Processes, ending, last_lines},
    session::{OnLoss, chief_of},
};
use paceline_runs::{RunFolder, Summary};
use paceline_wire::{Role, TaskId};
use std::{
    collections::BTreeMap,
    path::Path,
    process::ExitStatus,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How often a task is started again before the run is given up.
const MOST_STARTS: u32 = 4;
/// How long the others may take to end once the chief has, before they are ended by force. They notice
/// within eight seconds even if no message reaches them.
const LEAVE: Duration = Duration::from_secs(12);
/// The same before all have met: they would look for the chief until their deadline. One that has something to say
/// about itself says it by then.
const LEAVE_UNMET: Duration = Duration::from_secs(1);
/// How often to look whether the user wants to stop, when no task has anything to say.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Lines of a failed task's log that are shown.
const SHOWN_LINES: usize = 8;
/// Lines of its end that are searched for the cause: a backtrace may stand below it.
const SEARCHED_LINES: usize = 100;

/// A run whose tasks are children of this process.
pub(super) struct Supervisor<'a> {
    processes: Processes,
    chief: TaskId,
    address: Option<String>,
    order: TaskOrder,
    run: RunFolder,
    observer: &'a dyn JobObserver,
    summary: Option<Box<Summary>>,
    /// The first task that failed by itself.
    failure: Option<FailedTask>,
    /// What the chief said when it failed; its word is about the run.
    verdict: Option<FailureWords>,
    /// Tasks that said they are done.
    done: Vec<TaskId>,
    /// Whether all tasks have been there at one time; from then on the chief deals with losses.
    met: bool,
    /// Whether all were ended from here because they can never meet.
    cut_short: bool,
    /// Where the present processes take connections.
    addresses: BTreeMap<TaskId, String>,
    /// Whose failure the present processes reported before they ended.
    failed: BTreeMap<TaskId, Culprit>,
    silence: Silence,
    /// Tasks that did not answer and were ended from here, with what is to be said about them.
    put_down: BTreeMap<TaskId, String>,
    /// Tasks that ended because the chief did not answer: if it does after all, they are started again
    /// as the policy says.
    orphans: Vec<(TaskId, ExitStatus)>,
    told_to_stop: bool,
    chief_gone: Option<Instant>,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(
        program: &Path,
        order: TaskOrder,
        run: &RunFolder,
        observer: &'a dyn JobObserver,
    ) -> Self {
        Self {
            processes: Processes::new(program, &WORKER_ARGUMENTS),
            chief: chief_of(order.tasks.iter().copied()),
            address: None,
            order,
            run: run.clone(),
            observer,
            summary: None,
            failure: None,
            verdict: None,
            done: Vec::new(),
            met: false,
            cut_short: false,
            addresses: BTreeMap::new(),
            failed: BTreeMap::new(),
            silence: Silence::default(),
            put_down: BTreeMap::new(),
            orphans: Vec::new(),
            told_to_stop: false,
            chief_gone: None,
        }
    }

    /// Starts all tasks and stays until the last has ended. Says also where the run folder is in the end.
    pub(super) fn watch(
        mut self,
        cancel: &AtomicBool,
    ) -> Result<(Box<Summary>, RunFolder), JobError> {
        let tasks = self.order.tasks.clone();
        for task in &tasks {
            self.start(*task)?;
        }
        while !self.processes.running().is_empty() {
            if cancel.load(Ordering::Relaxed) && !self.told_to_stop {
                self.told_to_stop = true;
                for task in &tasks {
                    self.tell(*task, &LauncherMessage::Stop);
                }
            }
            if let Some(happened) = self.processes.next(LOOK_EVERY) {
                self.happened(happened)?;
            }
            self.end_silent_tasks();
            let leave = if self.met { LEAVE } else { LEAVE_UNMET };
            if self.chief_gone.is_some_and(|since| since.elapsed() > leave) {
                self.processes.kill_all();
            }
        }
        match self.summary.take() {
            Some(summary) => Ok((summary, self.run)),
            None => Err(JobError::Tasks(Box::new(TasksFailed {
                first: self.failure,
                chief: self.chief,
                chief_said: self.verdict,
                run: self.run,
            }))),
        }
    }

    fn happened(&mut self, happened: Happened) -> Result<(), JobError> {
        match happened {
            Happened::Said { task, line, .. } => {
                self.said(task, &line);
                if task == self.chief && self.silence.chief_spoke() {
                    for (task, status) in std::mem::take(&mut self.orphans) {
                        self.ended(task, status, !self.told_to_stop)?;
                    }
                }
            }
            Happened::Ended { task, status, .. } => {
                self.silence.ended(task);
                if task == self.chief {
                    self.chief_gone = Some(Instant::now());
                }
                let go_on = self.chief_gone.is_none() && !self.told_to_stop;
                if go_on && self.failed.get(&task) == Some(&Culprit::Chief) {
                    self.orphans.push((task, status));
                } else {
                    self.ended(task, status, go_on)?;
                }
            }
        }
        Ok(())
    }

    fn end_silent_tasks(&mut self) {
        for (task, reason) in self.silence.overdue(self.chief, Instant::now()) {
            if self.processes.is_ending(task) {
                continue;
            }
            let what = format!("did not answer ({reason}) and was ended by force");
            self.put_down.insert(task, what);
            self.processes.kill(task);
        }
    }

    fn start(&mut self, task: TaskId) -> Result<(), JobError> {
        self.failed.remove(&task);
        self.addresses.remove(&task);
        self.order.task = task;
        let order = serde_json::to_string(&self.order).map_err(JobError::WriteOrder)?;
        let log = self.run.log_path(&task.to_string());
        self.processes.start(task, &log, &order)?;
        if let Some(address) = self.address.clone()
            && task != self.chief
        {
            self.tell(task, &LauncherMessage::Chief { address });
        }
        Ok(())
    }

    fn tell(&mut self, task: TaskId, message: &LauncherMessage) {
        if let Ok(line) = serde_json::to_string(message) {
            self.processes.tell(task, &line);
        }
    }

    fn said(&mut self, task: TaskId, line: &str) {
        // Anything but a report was not meant for us; the log has what was meant for people.
        let Ok(report) = serde_json::from_str(line) else { return };
        match report {
            TaskReport::Listening { address } => self.listens(task, &address),
            TaskReport::Notice(notice) => self.noticed(task, notice),
            TaskReport::Done { summary } => {
                self.silence.leaves(task, Instant::now());
                self.done.push(task);
                if task == self.chief {
                    self.summary = summary;
                }
            }
            TaskReport::Failed { words, culprit } => self.reported_failure(task, words, culprit),
        }
    }

    fn listens(&mut self, task: TaskId, address: &str) {
        self.addresses.insert(task, address.to_owned());
        if task != self.chief {
            return;
        }
        self.address = Some(address.to_owned());
        for task in self.processes.running() {
            if task != self.chief {
                self.tell(task, &LauncherMessage::Chief { address: address.to_owned() });
            }
        }
    }

    fn noticed(&mut self, by: TaskId, mut notice: JobNotice) {
        match &mut notice {
            JobNotice::Waiting { missing, .. } => self.met |= missing.is_empty(),
            // Otherwise the process that is meant is gone, and perhaps another one started in its place.
            JobNotice::Lost { task, address, reason }
                if self.processes.running().contains(task)
                    && self.addresses.get(task) == Some(address) =>
            {
                self.silence.lost(*task, reason.clone(), Instant::now());
            }
            JobNotice::Warned { task, .. } => *task = (by != self.chief).then_some(by),
            JobNotice::Moved { run } => self.run = RunFolder::at(run),
            // As it was named here, not as the task was told.
            JobNotice::Started { run, .. } | JobNotice::RowsStarted { run, .. } => {
                *run = self.run.path().to_path_buf();
            }
            _ => {}
        }
        self.observer.notice(notice);
    }

    fn reported_failure(&mut self, task: TaskId, words: FailureWords, culprit: Culprit) {
        self.silence.leaves(task, Instant::now());
        self.failed.insert(task, culprit);
        let error = &words.error;
        if culprit == Culprit::Chief
            && self.processes.running().contains(&self.chief)
            && self.silence.without_chief(&format!("{task}: {error}"), Instant::now())
        {
            self.observer.notice(JobNotice::ChiefUnreachable { task, error: error.clone() });
        }
        if culprit == Culprit::Own && self.failure.is_none() {
            let (what, lines) = (words.error.clone(), Vec::new());
            self.failure = Some(FailedTask { task, what, lines, said: Some(words.clone()) });
        }
        if task == self.chief {
            self.verdict = Some(words);
        }
    }

    /// A task's process is gone: starts it again where that helps.
    fn ended(&mut self, task: TaskId, status: ExitStatus, go_on: bool) -> Result<(), JobError> {
        if status.success() || self.done.contains(&task) {
            return Ok(());
        }
        let what = self.keep_failure(task, status);
        let reported = self.failed.get(&task).copied();
        if task == self.chief && reported.is_none() && !self.cut_short {
            // It could not say so itself, and a task that the run continued without may have failed before.
            let exit = TasksFailed::RETRY;
            self.verdict = Some(FailureWords { error: what, hint: None, exit });
            return Ok(());
        }
        // A task that repeats another's failure knows that the run is over.
        if !go_on || task == self.chief || reported == Some(Culprit::Another) {
            return Ok(());
        }
        let again = self.may_start_again(task, status);
        let spent = self.processes.starts(task) >= MOST_STARTS;
        if again && spent {
            let starts = MOST_STARTS;
            self.observer.notice(JobNotice::GivenUp { task, what: what.clone(), starts });
        }
        if !again || spent {
            if !self.met {
                // The others would wait for it until their deadline.
                self.cut_short = true;
                self.processes.kill_all();
            }
            return Ok(());
        }
        self.observer.notice(JobNotice::Restarting { task, what });
        // If it fails again or does not come back, that is said then; any other end has another cause.
        self.failure.take_if(|failure| failure.task == task);
        self.start(task)
    }

    /// How a task's process ended; kept with the end of its log, where it is the first that failed.
    fn keep_failure(&mut self, task: TaskId, status: ExitStatus) -> String {
        let log = self.run.log_path(&task.to_string());
        let what = self.put_down.remove(&task).unwrap_or_else(|| {
            // Why stands before how: what follows it in the log is a trace of where.
            let how = ending(status);
            cause(&last_lines(&log, SEARCHED_LINES))
                .map_or(how.clone(), |why| format!("{how}: {why}"))
        });
        if self.failure.is_none() && !self.failed.contains_key(&task) {
            let lines = last_lines(&log, SHOWN_LINES);
            self.failure = Some(FailedTask { task, what: what.clone(), lines, said: None });
        } else if let Some(failure) = &mut self.failure
            && failure.task == task
            && failure.lines.is_empty()
        {
            failure.lines = last_lines(&log, SHOWN_LINES);
        }
        what
    }

    /// Whether the policy of the run wants that task back.
    fn may_start_again(&self, task: TaskId, status: ExitStatus) -> bool {
        let on_loss = self.order.work.on_loss();
        let is_transient = status.code().is_none_or(|code| code == i32::from(TasksFailed::RETRY));
        match task.role {
            // The run cannot begin without a task that was never there; it has lost nothing either, so that
            // another attempt does no harm. One that says what is wrong would only say it again.
            _ if !self.met => on_loss != OnLoss::Stop && is_transient,
            Role::Ps => on_loss != OnLoss::Stop,
            Role::Worker | Role::Chief => on_loss == OnLoss::Restart,
            Role::Evaluator => true,
        }
    }
}
