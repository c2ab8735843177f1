//! Runs one cell: our own binary as a child process, its JSON kept, its stderr in a log, the machine's resources recorded.

use crate::error::SweepError;
use crate::grid::{Cell, Settings};
use crate::journal::{Failure, MeanPeak, Row};
use crate::recipe::Recipe;
use crate::recording::Recording;
use crate::template::{Names, fill};
use paceline_probes::{Roots, Sampler, Summary, Target};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest JSON of a command that the journal keeps.
const MOST_OUTPUT: u64 = 16 << 20;
/// Between two polls of a running cell.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Between two readings of the machine.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Time a cell has to exit after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(20);

/// Folders of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The sweep's own folder.
    pub out: PathBuf,
    /// The data set, if the recipe needs one.
    pub data: Option<PathBuf>,
}

impl Places {
    /// The folder of a cell.
    #[must_use]
    pub fn cell(&self, cell: &Cell) -> PathBuf {
        self.out.join("cells").join(&cell.key)
    }

    /// The data set, as rows name it: its full path, `drawn` if the sweep generated it, empty without one.
    #[must_use]
    pub fn data_name(&self) -> String {
        let Some(data) = &self.data else { return String::new() };
        let there = data.to_string_lossy();
        if *data == self.out.join("data") {
            "drawn".to_owned()
        } else if there.contains("://") {
            there.into_owned()
        } else {
            std::path::absolute(data).unwrap_or_else(|_| data.clone()).display().to_string()
        }
    }

    fn names(&self) -> Names {
        let mut names = Names::from([("out".to_owned(), self.out.display().to_string())]);
        if let Some(data) = &self.data {
            names.insert("data".to_owned(), data.display().to_string());
        }
        names
    }

    /// The command line of a cell, as it is run.
    ///
    /// # Errors
    /// An undefined placeholder.
    pub fn arguments(&self, cell: &Cell) -> Result<Vec<String>, SweepError> {
        self.arguments_in(cell, &self.cell(cell))
    }

    /// The command line of a cell that runs in `folder`.
    fn arguments_in(&self, cell: &Cell, folder: &Path) -> Result<Vec<String>, SweepError> {
        let mut names = self.names();
        names.insert("cell".to_owned(), folder.display().to_string());
        cell.arguments.iter().map(|argument| fill(argument, &names, &[])).collect()
    }
}

/// Runs cells.
#[derive(Debug)]
pub struct Runner<'a> {
    /// The program: our own binary.
    pub program: PathBuf,
    pub places: &'a Places,
    /// Time limit of a cell.
    pub timeout: Option<Duration>,
    /// Whether large files such as weights are kept when a cell is done.
    pub keep_all: bool,
    /// Set to stop.
    pub cancel: &'a AtomicBool,
}

impl Runner<'_> {
    /// Runs the setup commands whose results are missing.
    ///
    /// # Errors
    /// A command failed, or the sweep was interrupted.
    pub fn set_up(
        &self,
        recipe: &Recipe,
        settings: &Settings,
        mut tell: impl FnMut(&str),
    ) -> Result<(), SweepError> {
        let mut names = settings.names(recipe);
        names.extend(self.places.names());
        let mut steps = Vec::new();
        if let (Some(set), Some(data)) = (&recipe.data, &self.places.data) {
            let mut command = vec!["data".to_owned(), "synth".to_owned()];
            command.extend(set.synth.iter().cloned());
            steps.push((command, data.clone()));
        }
        for setup in &recipe.setup {
            steps.push((setup.command.clone(), PathBuf::from(fill(&setup.makes, &names, &[])?)));
        }
        for (command, makes) in steps {
            // Data in an object store is the user's; the commands report what is wrong with it.
            if makes.exists() || makes.to_string_lossy().contains("://") {
                continue;
            }
            let command: Vec<String> =
                command.iter().map(|part| fill(part, &names, &[])).collect::<Result<_, _>>()?;
            tell(&command.join(" "));
            let log = self.places.out.join("setup.log");
            let ran = self.child(&command, &log, None)?;
            if ran.interrupted {
                return Err(SweepError::Interrupted);
            }
            if let Some(failure) = failure(&ran, &log) {
                return Err(SweepError::Setup {
                    command: command.join(" "),
                    reason: failure.reason,
                });
            }
        }
        Ok(())
    }

    /// Runs a cell; `None` if interrupted before it was done.
    ///
    /// # Errors
    /// The program cannot be started or a file cannot be written. Errors inside the cell are in the row.
    pub fn run(&self, recipe: &Recipe, cell: &Cell) -> Result<Option<Row>, SweepError> {
        self.run_in(&recipe.discard, cell, &self.places.cell(cell))
    }

    /// Runs a cell in a folder of its own.
    pub(crate) fn run_in(
        &self,
        discard: &[String],
        cell: &Cell,
        folder: &Path,
    ) -> Result<Option<Row>, SweepError> {
        let write = |source| SweepError::Write { path: folder.to_owned(), source };
        if folder.exists() {
            // Left by an interrupted attempt, so not a result.
            fs::remove_dir_all(folder).map_err(write)?;
        }
        fs::create_dir_all(folder).map_err(write)?;
        let arguments = self.places.arguments_in(cell, folder)?;
        let log = folder.join("log.txt");
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ran = self.child(&arguments, &log, self.timeout)?;
        if ran.interrupted {
            return Ok(None);
        }
        let Recording { tasks, curve } = Recording::read(folder);
        if !self.keep_all {
            tidy(folder, discard);
        }
        Ok(Some(Row {
            cell: cell.key.clone(),
            settings: cell.settings.clone(),
            repeat: cell.repeat,
            data: self.places.data_name(),
            started: started.as_secs_f64(),
            seconds: ran.seconds,
            failure: failure(&ran, &log),
            output: ran.output,
            machine: ran.machine,
            tasks,
            curve,
            host: None,
        }))
    }

    fn child(
        &self,
        arguments: &[String],
        log: &Path,
        timeout: Option<Duration>,
    ) -> Result<ProcessResult, SweepError> {
        let file = File::create(log)
            .map_err(|source| SweepError::Write { path: log.to_owned(), source })?;
        let begin = Instant::now();
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--json").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        end_with_us(&mut command);
        let mut child = command
            .spawn()
            .map_err(|source| SweepError::Start { program: self.program.clone(), source })?;
        let stdout = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stdout) = stdout {
                // A pipe that breaks ends the output; the exit code says the rest.
                let _ = stdout.by_ref().take(MOST_OUTPUT).read_to_end(&mut bytes);
                let _ = std::io::copy(&mut stdout, &mut std::io::sink());
            }
            bytes
        });
        let seen = Arc::new(Mutex::new(Summary::default()));
        let sink = Arc::clone(&seen);
        let sampler = Sampler::start(
            &Roots::default(),
            Target::tree(child.id()),
            SAMPLE_EVERY,
            move |reading| {
                sink.lock().unwrap_or_else(PoisonError::into_inner).add(&reading);
            },
        );
        let (status, seconds, end) = match self.wait(&mut child, begin, timeout) {
            Ok(ended) => ended,
            Err(source) => {
                let _ = child.kill();
                return Err(SweepError::Start { program: self.program.clone(), source });
            }
        };
        sampler?.stop();
        let bytes = reader.join().unwrap_or_default();
        let machine = seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .rows()
            .map(|(name, mean, peak)| (name.to_owned(), MeanPeak { mean, peak }))
            .collect();
        Ok(ProcessResult {
            status,
            seconds,
            output: serde_json::from_slice(&bytes).unwrap_or_default(),
            machine,
            timed_out: end == ExitReason::TimedOut,
            interrupted: end == ExitReason::Interrupted,
        })
    }

    /// Waits for a cell, and ends it on a timeout or an interruption.
    fn wait(
        &self,
        child: &mut Child,
        begin: Instant,
        timeout: Option<Duration>,
    ) -> std::io::Result<(ExitStatus, f64, ExitReason)> {
        let mut end = ExitReason::Exited;
        let mut asked: Option<Instant> = None;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status, begin.elapsed().as_secs_f64(), end));
            }
            let late = timeout.is_some_and(|limit| begin.elapsed() > limit);
            let cancelled = self.cancel.load(Ordering::Relaxed);
            match asked {
                None if late || cancelled => {
                    end = if cancelled { ExitReason::Interrupted } else { ExitReason::TimedOut };
                    asked = Some(Instant::now());
                    // Ctrl-C has reached the child already, a SIGTERM to us alone has not; twice does no harm
                    // because a second one merely makes it end at once.
                    if let Some(process) =
                        i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
                    {
                        let _ =
                            rustix::process::kill_process(process, rustix::process::Signal::TERM);
                    }
                }
                Some(since) if since.elapsed() > GRACE => {
                    let _ = child.kill();
                }
                _ => {}
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Has the kernel kill the child when this thread ends: a killed sweep must not leave a cell behind that runs for hours and disturbs
/// the next sweep. The cell's own tasks are tied to it in the same way.
#[allow(unsafe_code)]
fn end_with_us(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let parent = rustix::process::getpid();
    let ask = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have ended before this call.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec, two system calls that neither allocate nor take a lock.
    unsafe { command.pre_exec(ask) };
}

/// Why a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExitReason {
    Exited,
    TimedOut,
    Interrupted,
}

struct ProcessResult {
    status: ExitStatus,
    seconds: f64,
    output: serde_json::Value,
    machine: BTreeMap<String, MeanPeak>,
    timed_out: bool,
    interrupted: bool,
}

/// Why a command failed, by its own error message.
fn failure(ran: &ProcessResult, log: &Path) -> Option<Failure> {
    if ran.status.success() && !ran.timed_out {
        return None;
    }
    let said = ran.output.get("error").and_then(serde_json::Value::as_str).map(str::to_owned);
    let reason = if ran.timed_out {
        format!("stopped after {:.0} s: time limit of a cell reached", ran.seconds)
    } else {
        said.or_else(|| last_error(log)).unwrap_or_else(|| ran.status.to_string())
    };
    Some(Failure { exit: ran.status.code(), reason })
}

/// The error in a log, else its last line.
fn last_error(log: &Path) -> Option<String> {
    let bytes = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(8 << 10)..]).into_owned();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| lines().next_back()).map(str::to_owned)
}

/// Removes large files that are not needed once a cell is done.
fn tidy(folder: &Path, discard: &[String]) {
    for name in discard {
        // A recipe names things below its cell's folder, nothing else.
        if Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)))
        {
            let _ = fs::remove_dir_all(folder.join(name));
        }
    }
    for run in paceline_runs::list(folder).unwrap_or_default() {
        let _ = fs::remove_dir_all(run.checkpoints_path());
    }
}
