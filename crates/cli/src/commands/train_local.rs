//! `paceline train` with several tasks: a process for each on this machine, watched from here.

use super::{
    node_load::conclude,
    run_hints,
    staging::Staging,
    train,
    train_flags::Flags,
    train_local_silence::Silence,
    train_report::{Order, Report, Whose, Word, Work},
    train_show::{Watcher, explain},
};
use crate::{
    failure::{Exit, FailureExt},
    terminal::{Progress as Bar, Terminal, Unit},
};
use anyhow::Context;
use paceline_cluster::{
    ClusterKey, Role, TaskId,
    launch::local::{Happened, Processes, ending, last_lines},
    session::{OnLoss, chief_of},
};
use paceline_runs::{Ownership, RunFolder, Summary};
use paceline_training::{Observer, RunSpec, Start, TrainError};
use std::{
    collections::BTreeMap,
    process::ExitStatus,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How often a task is started again before the run is given up.
const MOST_STARTS: u32 = 4;
/// How long the others may take to end once the chief has, before they are ended by force. They notice
/// within eight seconds even if nobody tells them.
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

/// Trains with a process per task.
pub(super) fn exec(
    flags: &Flags,
    mut spec: RunSpec,
    start: &Start,
    staging: &Staging,
    terminal: &mut Terminal,
) -> anyhow::Result<Exit> {
    let cancel = terminal.interrupt()?;
    if spec.threads.is_none() {
        // Servers and evaluators mostly wait; the workers share the cores.
        let cores = paceline_batch::cores().count;
        spec.threads = Some((cores / spec.workers.max(1)).max(1));
    }
    // What is wrong with the settings is said once, before any process starts.
    let parts = train::open(&spec, terminal)?;
    paceline_training::check(&spec, &parts).map_err(explain)?;
    let (run, resume) = match start {
        Start::New { out } => (RunFolder::create(out, &spec.model, &spec.strategy)?, false),
        Start::In { run } => (run.clone(), false),
        Start::Resume { run } => (run.clone(), true),
    };
    let _owned = Ownership::take(&run).map_err(|error| explain(error.into()))?;
    if resume {
        match paceline_training::check_resume(&spec, &parts, &run) {
            Err(TrainError::Finished { .. }) => return train::show_finished(&run, terminal),
            checked => checked.map_err(explain)?,
        }
    }
    drop(parts);
    let tasks = tasks(spec.workers, spec.servers, spec.evaluator);
    let watcher = Watcher::new(terminal, None);
    let show = |report: Report, run: &RunFolder| match report {
        Report::Started { plan, first_step } => watcher.started(&plan, run, first_step),
        Report::Progressed(progress) => watcher.progressed(&progress),
        Report::Evaluated(evaluation) => watcher.evaluated(&evaluation),
        Report::Warned { text } => watcher.warned(&text),
        _ => {}
    };
    let place = Place { run: &run, resume, join_timeout: flags.join_timeout.whole_seconds() };
    let work = Work::Examples(Box::new(spec));
    let outcome = carry_out(work, &tasks, &place, &cancel, terminal, &show);
    watcher.done();
    let (mut summary, run) = outcome?;
    conclude(run.path(), &mut summary, terminal);
    train::show(&summary, &staging.there(run.path()), cancel.load(Ordering::Relaxed), terminal)?;
    Ok(Exit::Done)
}

/// Where a run of several processes leaves its records, and how it begins.
pub(super) struct Place<'a> {
    /// Its folder.
    pub(super) run: &'a RunFolder,
    /// Whether it goes on from its latest checkpoint.
    pub(super) resume: bool,
    /// Seconds to wait for all tasks.
    pub(super) join_timeout: u64,
}

/// Starts a process for each task and watches them to the end; `show` is told what the chief reports. Says also
/// where the run folder is in the end.
pub(super) fn carry_out(
    work: Work,
    tasks: &[TaskId],
    place: &Place<'_>,
    cancel: &AtomicBool,
    terminal: &Terminal,
    show: &dyn Fn(Report, &RunFolder),
) -> anyhow::Result<(Box<Summary>, RunFolder)> {
    let order = Order {
        task: tasks[0],
        tasks: tasks.to_vec(),
        key: ClusterKey::generate()?.to_text(),
        run: std::path::absolute(place.run.path())?,
        resume: place.resume,
        join_timeout: place.join_timeout,
        work,
    };
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut job = Job {
        processes: Processes::new(&program, &["node", "--launched"]),
        chief: chief_of(tasks.iter().copied()),
        address: None,
        order,
        run: place.run.clone(),
        terminal,
        show,
        waiting: None,
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
    };
    job.carry_out(tasks, cancel)?;
    let summary = job.summary.take().context("the chief exited without a result")?;
    Ok((summary, job.run))
}

/// All tasks of a run on this machine; worker 0 is the chief.
pub(super) fn tasks(workers: usize, servers: usize, evaluator: bool) -> Vec<TaskId> {
    let of =
        |role: Role, count: usize| (0..count).map(move |index| TaskId::new(role, index as u32));
    of(Role::Worker, workers)
        .chain(of(Role::Ps, servers))
        .chain(of(Role::Evaluator, usize::from(evaluator)))
        .collect()
}

/// How a task failed.
struct Failed {
    task: TaskId,
    what: String,
    lines: Vec<String>,
    /// What it said itself, unless it had no time to.
    said: Option<Verdict>,
}

/// What a task said when it failed; the chief's word is about the run.
#[derive(Clone)]
struct Verdict {
    error: String,
    hint: Option<String>,
    exit: u8,
}

/// The line of a log that says why its process ended: the error it printed, or how it panicked or ran out of memory.
fn cause(lines: &[String]) -> Option<String> {
    let at = lines.iter().rposition(|line| {
        line.starts_with("error: ")
            || line.contains(" panicked at ")
            || line.starts_with("memory allocation of ")
    })?;
    let line = &lines[at];
    match (line.strip_prefix("error: "), line.contains(" panicked at ")) {
        (Some(error), _) => Some(error.to_owned()),
        // The message has the line below the place.
        (None, true) => Some(lines.get(at + 1).unwrap_or(line).trim().to_owned()),
        (None, false) => Some(line.clone()),
    }
}

/// A run whose tasks are children of this process.
struct Job<'a> {
    processes: Processes,
    chief: TaskId,
    address: Option<String>,
    order: Order,
    run: RunFolder,
    terminal: &'a Terminal,
    show: &'a dyn Fn(Report, &RunFolder),
    /// Shown while tasks are missing.
    waiting: Option<Bar>,
    summary: Option<Box<Summary>>,
    /// The first task that failed by itself.
    failure: Option<Failed>,
    verdict: Option<Verdict>,
    /// Tasks that said they are done.
    done: Vec<TaskId>,
    /// Whether all tasks have been there at one time; from then on the chief deals with losses.
    met: bool,
    /// Whether all were ended from here because they can never meet.
    cut_short: bool,
    /// Where the present processes take connections.
    addresses: BTreeMap<TaskId, String>,
    /// Whose failure the present processes reported before they ended.
    failed: BTreeMap<TaskId, Whose>,
    silence: Silence,
    /// Those that did not answer and were ended from here, with what is to be said about them.
    put_down: BTreeMap<TaskId, String>,
    /// Tasks that ended because the chief did not answer: if it does after all, they are started again
    /// as the policy says.
    orphans: Vec<(TaskId, ExitStatus)>,
}

impl Job<'_> {
    /// Starts all tasks and stays until the last has ended.
    fn carry_out(&mut self, tasks: &[TaskId], cancel: &AtomicBool) -> anyhow::Result<()> {
        for task in tasks {
            self.start(*task)?;
        }
        let mut told_to_stop = false;
        let mut chief_gone: Option<Instant> = None;
        while !self.processes.running().is_empty() {
            if cancel.load(Ordering::Relaxed) && !told_to_stop {
                told_to_stop = true;
                for task in tasks {
                    self.tell(*task, &Word::Stop);
                }
            }
            match self.processes.next(LOOK_EVERY) {
                Some(Happened::Said { task, line, .. }) => {
                    self.said(task, &line);
                    if task == self.chief && self.silence.chief_spoke() {
                        for (task, status) in std::mem::take(&mut self.orphans) {
                            self.ended(task, status, !told_to_stop)?;
                        }
                    }
                }
                Some(Happened::Ended { task, status, .. }) => {
                    self.silence.ended(task);
                    if task == self.chief {
                        chief_gone = Some(Instant::now());
                    }
                    let go_on = chief_gone.is_none() && !told_to_stop;
                    if go_on && self.failed.get(&task) == Some(&Whose::Chief) {
                        self.orphans.push((task, status));
                    } else {
                        self.ended(task, status, go_on)?;
                    }
                }
                None => {}
            }
            for (task, reason) in self.silence.overdue(self.chief, Instant::now()) {
                if self.processes.is_ending(task) {
                    continue;
                }
                let what = format!("did not answer ({reason}) and was ended by force");
                self.put_down.insert(task, what);
                self.processes.kill(task);
            }
            let leave = if self.met { LEAVE } else { LEAVE_UNMET };
            if chief_gone.is_some_and(|since| since.elapsed() > leave) {
                self.processes.kill_all();
            }
        }
        self.waiting = None;
        if self.summary.is_some() {
            return Ok(());
        }
        Err(self.explain())
    }

    fn start(&mut self, task: TaskId) -> anyhow::Result<()> {
        self.failed.remove(&task);
        self.addresses.remove(&task);
        self.order.task = task;
        let order = serde_json::to_string(&self.order)?;
        let log = self.run.log_path(&task.to_string());
        self.processes.start(task, &log, &order)?;
        if let Some(address) = self.address.clone()
            && task != self.chief
        {
            self.tell(task, &Word::Chief { address });
        }
        Ok(())
    }

    fn tell(&mut self, task: TaskId, word: &Word) {
        if let Ok(line) = serde_json::to_string(word) {
            self.processes.tell(task, &line);
        }
    }

    fn said(&mut self, task: TaskId, line: &str) {
        // Whatever is no report was not meant for us; the log has what was meant for people.
        let Ok(report) = serde_json::from_str(line) else { return };
        let is_chief = task == self.chief;
        match report {
            Report::Listening { address } => {
                self.addresses.insert(task, address.clone());
                if !is_chief {
                    return;
                }
                self.address = Some(address.clone());
                for task in self.processes.running() {
                    if task != self.chief {
                        self.tell(task, &Word::Chief { address: address.clone() });
                    }
                }
            }
            Report::Table { missing, joined } => {
                self.met |= missing.is_empty();
                self.show_table(&missing, joined);
            }
            Report::Lost { task, address, reason } => {
                // The process that is meant may be gone, and another one started in its place.
                if self.processes.running().contains(&task)
                    && self.addresses.get(&task) == Some(&address)
                {
                    self.silence.lost(task, reason, Instant::now());
                }
            }
            Report::Notice { text, warning: true } => self.terminal.warn(text),
            Report::Notice { .. } => {} // local tasks that join are no news
            Report::Warned { text } => {
                let text = if is_chief { text } else { format!("{task}: {text}") };
                (self.show)(Report::Warned { text }, &self.run);
            }
            Report::Moved { path } => self.run = RunFolder::at(&path),
            Report::Done { summary } => {
                self.silence.leaves(task, Instant::now());
                self.done.push(task);
                if is_chief {
                    self.summary = summary;
                }
            }
            Report::Failed { error, hint, exit, whose } => {
                self.silence.leaves(task, Instant::now());
                self.failed.insert(task, whose);
                if whose == Whose::Chief
                    && self.processes.running().contains(&self.chief)
                    && self.silence.without_chief(&format!("{task}: {error}"), Instant::now())
                {
                    self.terminal.warn(format!("{task}: {error}"));
                }
                let said = Verdict { error, hint, exit };
                if whose == Whose::Own && self.failure.is_none() {
                    let (what, lines) = (said.error.clone(), Vec::new());
                    self.failure = Some(Failed { task, what, lines, said: Some(said.clone()) });
                }
                if is_chief {
                    self.verdict = Some(said);
                }
            }
            report => {
                if matches!(report, Report::Started { .. } | Report::RowsStarted { .. }) {
                    self.waiting = None;
                }
                (self.show)(report, &self.run);
            }
        }
    }

    fn show_table(&mut self, missing: &[String], joined: usize) {
        if missing.is_empty() || !self.terminal.watched() {
            self.waiting = None;
            return;
        }
        let total = (missing.len() + joined) as u64;
        let bar = self.waiting.get_or_insert_with(|| {
            self.terminal.progress("tasks", Some(total), Unit::Items("joined"))
        });
        bar.set(joined as u64);
        bar.message(format!("· {}", missing.join("; ")));
    }

    /// A task's process is gone: starts it again where that helps.
    fn ended(&mut self, task: TaskId, status: ExitStatus, go_on: bool) -> anyhow::Result<()> {
        if status.success() || self.done.contains(&task) {
            return Ok(());
        }
        let log = self.run.log_path(&task.to_string());
        let what = self.put_down.remove(&task).unwrap_or_else(|| {
            // Why stands before how: what follows it in the log is a trace of where.
            let how = ending(status);
            cause(&last_lines(&log, SEARCHED_LINES))
                .map_or(how.clone(), |why| format!("{how}: {why}"))
        });
        let reported = self.failed.get(&task).copied();
        if self.failure.is_none() && reported.is_none() {
            let lines = last_lines(&log, SHOWN_LINES);
            self.failure = Some(Failed { task, what: what.clone(), lines, said: None });
        } else if let Some(failure) = &mut self.failure
            && failure.task == task
            && failure.lines.is_empty()
        {
            failure.lines = last_lines(&log, SHOWN_LINES);
        }
        if task == self.chief && reported.is_none() && !self.cut_short {
            // It could not say so itself, and a task that the run went on without may have failed before.
            self.verdict = Some(Verdict { error: what, hint: None, exit: Exit::Retry.code() });
            return Ok(());
        }
        // Whoever repeats another's failure knows that the run is over.
        if !go_on || task == self.chief || reported == Some(Whose::Another) {
            return Ok(());
        }
        let on_loss = self.order.work.on_loss();
        // The run cannot begin without a task that was never there; it has lost nothing either, so that
        // another attempt does no harm. One that says what is wrong would only say it again.
        let unborn = !self.met;
        let may_pass = status.code().is_none_or(|code| code == i32::from(Exit::Retry.code()));
        let again = match task.role {
            _ if unborn => on_loss != OnLoss::Stop && may_pass,
            Role::Ps => on_loss != OnLoss::Stop,
            Role::Worker | Role::Chief => on_loss == OnLoss::Restart,
            Role::Evaluator => true,
        };
        let spent = self.processes.starts(task) >= MOST_STARTS;
        if again && spent {
            self.terminal.warn(format!(
                "{task} {what}; it was started {MOST_STARTS} times and is not started again"
            ));
        }
        if !again || spent {
            if unborn {
                // The others would wait for it until their deadline.
                self.cut_short = true;
                self.processes.kill_all();
            }
            return Ok(());
        }
        self.terminal.warn(format!("{task} {what}; starting it again"));
        // If it fails again or does not come back, that is said then; any other end has another cause.
        self.failure.take_if(|failure| failure.task == task);
        self.start(task)
    }

    /// The first failure on top, with what its task said last.
    fn explain(&mut self) -> anyhow::Error {
        let verdict = self.verdict.take();
        // A chief that was ended because the run could not begin had no time to say why.
        let last_word = verdict
            .clone()
            .or_else(|| self.failure.as_ref().and_then(|failure| failure.said.clone()));
        let exit = last_word.as_ref().map_or(Exit::Retry, |word| match word.exit {
            75 => Exit::Retry,
            130 => Exit::Interrupted,
            143 => Exit::Terminated,
            code => Exit::Of(code),
        });
        let logs = self.run.path().join("logs");
        // A hint must be true: there may be no checkpoint, and the folder itself may be gone.
        let resume = || {
            let folder = RunFolder::at(&self.terminal.place(self.run.path()));
            self.run.is_resumable().then(|| run_hints::resume(&folder))
        };
        let shown =
            || logs.is_dir().then(|| format!("the logs of all tasks are in `{}`", logs.display()));
        let said = last_word.and_then(|word| word.hint);
        let hint = match exit {
            Exit::Retry => resume().or(said),
            _ => said.or_else(resume),
        };
        let hint = hint.or_else(shown);
        let text = match (&self.failure, verdict) {
            (Some(failure), verdict) => {
                let mut text = format!("{}: {}", failure.task, failure.what);
                for line in &failure.lines {
                    text.push_str(&format!("\n  {} | {line}", failure.task));
                }
                if let Some(verdict) = verdict
                    && failure.task != self.chief
                {
                    text.push_str(&format!("\n  {}: {}", self.chief, verdict.error));
                }
                text
            }
            (None, Some(verdict)) => verdict.error,
            (None, None) => format!("{} exited without an error message", self.chief),
        };
        let failed: anyhow::Result<()> = Err(anyhow::anyhow!(text));
        let failed = match hint {
            Some(hint) => failed.hint(hint).exit(exit),
            None => failed.exit(exit),
        };
        match failed {
            Err(error) => error,
            Ok(()) => unreachable!("an error stays an error when it is dressed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cause;

    fn of(log: &str) -> Option<String> {
        cause(&log.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_cause_comes_first_whatever_stands_below_it_in_the_log() {
        let out_of_memory = "memory allocation of 30105600000 bytes failed\nstack backtrace:\n   0: main\n   1: start";
        assert_eq!(of(out_of_memory).unwrap(), "memory allocation of 30105600000 bytes failed");
        let panic = "joined\nthread 'main' (7) panicked at src/main.rs:3:5:\nno such layer\nstack backtrace:\n   0: main";
        assert_eq!(of(panic).unwrap(), "no such layer");
        let error =
            "warning: slow\nerror: cannot write `x`\n  caused by: disk full\n\nhint: make room";
        assert_eq!(of(error).unwrap(), "cannot write `x`");
        assert_eq!(of("joined\nleft"), None);
    }
}
