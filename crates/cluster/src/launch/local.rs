//! Tasks as processes of this machine: children of this one, that never outlive it.
//!
//! Orders go to a child through its standard input, reports come back through its standard output,
//! a line each; everything else it prints ends up in a log of its own. The pipe is also how the
//! cluster key travels: neither a command line nor the environment nor a file ever holds it.
//!
//! Children die with their parent in two ways: the kernel kills them when the thread that started
//! them ends (so start them from one that lasts), and a child that reads the end of its input knows
//! that its parent is gone.

use paceline_wire::TaskId;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

/// How often an ended child is looked for once its output has ended, which comes first.
const REAP: Duration = Duration::from_millis(2);
/// Bytes of a log that its last lines are looked for in.
const TAIL: u64 = 16 << 10;

/// A task could not be started or spoken to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The process could not be started.
    #[error("cannot start {task}: `{}`", program.display())]
    Start {
        task: TaskId,
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its log could not be opened.
    #[error("cannot write the log of {task}, `{}`", path.display())]
    Log {
        task: TaskId,
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What a child did.
#[derive(Debug)]
pub enum Happened {
    /// It wrote a line to its standard output.
    Said {
        task: TaskId,
        /// Its process, counted from 0 for each task.
        process: u32,
        line: String,
    },
    /// It ended.
    Ended {
        task: TaskId,
        /// Its process, counted from 0 for each task.
        process: u32,
        status: ExitStatus,
    },
}

struct Running {
    child: Arc<Mutex<Child>>,
    input: ChildStdin,
}

/// The tasks of a run, as children of this process.
pub struct Processes {
    program: PathBuf,
    arguments: Vec<String>,
    running: BTreeMap<TaskId, Running>,
    /// Processes started so far, by task.
    started: BTreeMap<TaskId, u32>,
    happened: mpsc::Receiver<Happened>,
    tell: mpsc::Sender<Happened>,
}

impl Processes {
    /// Tasks that will run `program` with `arguments`.
    #[must_use]
    pub fn new(program: &Path, arguments: &[&str]) -> Self {
        let (tell, happened) = mpsc::channel();
        Self {
            program: program.to_path_buf(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            running: BTreeMap::new(),
            started: BTreeMap::new(),
            happened,
            tell,
        }
    }

    /// Starts a task, perhaps again, and gives it its first order.
    pub fn start(&mut self, task: TaskId, log: &Path, order: &str) -> Result<(), LaunchError> {
        let log_error = |source| LaunchError::Log { task, path: log.to_path_buf(), source };
        if let Some(folder) = log.parent() {
            fs::create_dir_all(folder).map_err(log_error)?;
        }
        let errors = OpenOptions::new().create(true).append(true).open(log).map_err(log_error)?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            // Ctrl-C is for the parent, which asks the tasks to stop in order.
            .process_group(0);
        die_with_parent(&mut command);
        let start_error =
            |source| LaunchError::Start { task, program: self.program.clone(), source };
        let mut child = command.spawn().map_err(start_error)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(start_error(io::ErrorKind::BrokenPipe.into()));
        };
        let count = self.started.entry(task).or_insert(0);
        let process = *count;
        *count += 1;
        let child = Arc::new(Mutex::new(child));
        let (ours, tell) = (Arc::clone(&child), self.tell.clone());
        std::thread::Builder::new()
            .name(format!("{task}"))
            .spawn(move || follow(task, process, output, &ours, &tell))
            .map_err(start_error)?;
        self.running.insert(task, Running { child, input });
        self.tell(task, order);
        Ok(())
    }

    /// Sends a task a line. One that is gone does not hear it; that it is gone is told elsewhere.
    pub fn tell(&mut self, task: TaskId, line: &str) {
        if let Some(running) = self.running.get_mut(&task) {
            let _ = running
                .input
                .write_all(line.as_bytes())
                .and_then(|()| running.input.write_all(b"\n"))
                .and_then(|()| running.input.flush());
        }
    }

    /// What happened next, if anything does in time.
    pub fn next(&mut self, within: Duration) -> Option<Happened> {
        let happened = match self.happened.recv_timeout(within) {
            Ok(happened) => happened,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        };
        if let Happened::Ended { task, process, .. } = happened
            && self.started.get(&task) == Some(&(process + 1))
        {
            self.running.remove(&task);
        }
        Some(happened)
    }

    /// Tasks that run.
    #[must_use]
    pub fn running(&self) -> Vec<TaskId> {
        self.running.keys().copied().collect()
    }

    /// How often a task was started.
    #[must_use]
    pub fn starts(&self, task: TaskId) -> u32 {
        self.started.get(&task).copied().unwrap_or(0)
    }

    /// The process of a task.
    #[must_use]
    pub fn process(&self, task: TaskId) -> Option<u32> {
        let running = self.running.get(&task)?;
        Some(running.child.lock().unwrap_or_else(PoisonError::into_inner).id())
    }

    /// Whether a task's process is on its way out already. One with much memory takes seconds for that, in which
    /// its connections are closed and its end has not been reported.
    #[must_use]
    pub fn is_ending(&self, task: TaskId) -> bool {
        self.process(task).is_some_and(|process| {
            fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| is_exiting(&stat))
        })
    }

    /// Ends a task by force, if it still runs. That it is gone is told as always.
    pub fn kill(&mut self, task: TaskId) {
        if let Some(running) = self.running.get(&task) {
            // One that has ended in this moment needs no killing.
            let _ = running.child.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
    }

    /// Ends those that still run, by force.
    pub fn kill_all(&mut self) {
        for task in self.running() {
            self.kill(task);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill_all();
        for running in self.running.values() {
            // A killed process ends at once; one that has already been waited for returns at once.
            let _ = running.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
        }
    }
}

/// Whether the kernel's line about a process (proc_pid_stat(5)) says that it exits or has done so.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u64 = 0x4;
    // The name before may hold anything, so count from its end: state, five numbers, flags.
    let Some((_, after)) = stat.rsplit_once(") ") else { return false };
    let mut words = after.split(' ');
    let dead = matches!(words.next(), Some("Z" | "X"));
    let flags = words.nth(5).and_then(|word| word.parse::<u64>().ok());
    dead || flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Passes on what a child says until it has ended.
fn follow(
    task: TaskId,
    process: u32,
    output: impl Read,
    child: &Mutex<Child>,
    tell: &mpsc::Sender<Happened>,
) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { break };
        if tell.send(Happened::Said { task, process, line }).is_err() {
            break;
        }
    }
    loop {
        let ended = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        match ended {
            Ok(None) => std::thread::sleep(REAP),
            Ok(Some(status)) => {
                let _ = tell.send(Happened::Ended { task, process, status });
                return;
            }
            // It was waited for elsewhere: its exit status is not known.
            Err(_) => {
                let status = ExitStatus::from_raw(0);
                let _ = tell.send(Happened::Ended { task, process, status });
                return;
            }
        }
    }
}

/// Has the kernel kill the child when the thread that starts it ends.
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: two system calls without memory, as is allowed between fork and exec.
        let (asked, now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        if asked != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before it was asked for.
        if u32::try_from(now) != Ok(parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: `ask` allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

/// The last lines of a log, for people who want to know what happened.
#[must_use]
pub fn last_lines(log: &Path, most: usize) -> Vec<String> {
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].iter().map(ToString::to_string).collect()
}

/// How a process ended, in words.
#[must_use]
pub fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(libc::SIGKILL)) => {
            "was killed (signal 9: by a user, or because the machine was out of memory)".to_owned()
        }
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    /// Long enough for a loaded machine.
    const LONG: Duration = Duration::from_secs(900);

    fn worker(index: u32) -> TaskId {
        TaskId::new(Role::Worker, index)
    }

    #[test]
    fn a_task_gets_its_order_answers_and_keeps_a_log() {
        let folder = std::env::temp_dir().join(format!("paceline-launch-{}", std::process::id()));
        let log = folder.join("logs/worker-0.log");
        let script = "read order; echo \"got $order\"; echo trouble >&2; read more; exit 7";
        let mut tasks = Processes::new(Path::new("/bin/sh"), &["-c", script]);
        tasks.start(worker(0), &log, "an order").unwrap();
        let said = tasks.next(LONG);
        assert!(matches!(said, Some(Happened::Said { line, .. }) if line == "got an order"));
        assert_eq!(tasks.running(), [worker(0)]);
        tasks.tell(worker(0), "go on");
        let Some(Happened::Ended { status, process: 0, .. }) = tasks.next(LONG) else {
            panic!("it did not end")
        };
        assert_eq!(ending(status), "ended with exit code 7");
        assert!(tasks.running().is_empty());
        assert_eq!(last_lines(&log, 5), ["trouble"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_exits_is_told_from_who_runs() {
        let line = |state: &str, flags: u64| {
            format!("7 (a ) name) {state} 1 7 7 0 -1 {flags} 80 0 0 0 0 0 0 0 20 0 1 0")
        };
        assert!(!is_exiting(&line("S", 4_194_304)));
        assert!(!is_exiting(&line("T", 4_194_560)));
        assert!(is_exiting(&line("R", 4_194_308)));
        assert!(is_exiting(&line("Z", 4_194_304)));
        assert!(!is_exiting(""));
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        assert!(!is_exiting(&own), "{own}");
    }

    #[test]
    fn dropping_the_tasks_ends_them() {
        let folder = std::env::temp_dir().join(format!("paceline-drop-{}", std::process::id()));
        let mut tasks = Processes::new(Path::new("/bin/sh"), &["-c", "sleep 100"]);
        tasks.start(worker(1), &folder.join("log"), "").unwrap();
        let process = tasks.process(worker(1)).unwrap();
        drop(tasks);
        assert!(!Path::new(&format!("/proc/{process}")).exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
