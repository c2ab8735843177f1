//! Runs one cell as a child process: what it printed is kept, its stderr in a log, the machine's resources recorded.

use crate::error::SweepError;
use crate::figures::Figures;
use crate::grid::{Cell, SweepSettings};
use crate::hosts;
use crate::journal::{Failure, MeanPeak, Row};
use crate::process::{GRACE, fill_known, last_error};
use crate::recipe::Recipe;
use crate::recording::Recording;
use crate::template::{Names, fill};
use paceline_probes::{
    ChildLimits, ExitReason, Reach, Roots, Sampler, Summary, Target, read_pipe, shell_word, tie,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest JSON of a command that the journal keeps.
const MOST_OUTPUT: u64 = 16 << 20;
/// Between two readings of the machine.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

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
        let arguments = cell.arguments.iter();
        match cell.program {
            Some(_) => Ok(arguments.map(|argument| fill_known(argument, &names)).collect()),
            None => arguments.map(|argument| fill(argument, &names, &[])).collect(),
        }
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
        settings: &SweepSettings,
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
            tell(&command.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
            let log = self.places.out.join("setup.log");
            let ran = self.child(self.own(&command), &log, Reach::Process, None)?;
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
        let (command, reach) = match &cell.program {
            Some(program) => (foreign(program, &arguments, folder)?, Reach::Group),
            None if cell.hosts => {
                let command = hosts::command(&self.program, &arguments, &self.places.out, folder)?;
                (command, Reach::Group)
            }
            None => (self.own(&arguments), Reach::Process),
        };
        let ran = self.child(command, &log, reach, self.timeout)?;
        if ran.interrupted {
            return Ok(None);
        }
        let mut failed = failure(&ran, &log);
        let mut figures = Figures::default();
        if cell.program.is_some() {
            let output = folder.join("output.txt");
            fs::write(&output, &ran.printed)
                .map_err(|source| SweepError::Write { path: output, source })?;
            figures = Figures::read(&ran.printed, &log, folder);
            let missing = figures.find(&cell.patterns).err();
            failed = failed.or(missing.map(|reason| Failure { exit: Some(0), reason }));
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
            failure: failed,
            output: if cell.program.is_some() { figures.document } else { ran.output },
            figures: figures.values,
            machine: ran.machine,
            tasks,
            curve,
            host: None,
        }))
    }

    /// Our own program.
    fn own(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--json").env("NO_COLOR", "1");
        command
    }

    fn child(
        &self,
        mut command: Command,
        log: &Path,
        reach: Reach,
        timeout: Option<Duration>,
    ) -> Result<ProcessResult, SweepError> {
        let file = File::create(log)
            .map_err(|source| SweepError::Write { path: log.to_owned(), source })?;
        let program = PathBuf::from(command.get_program());
        let begin = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        tie(&mut command, reach);
        let mut child = command
            .spawn()
            .map_err(|source| SweepError::Start { program: program.clone(), source })?;
        let reader = child.stdout.take().map(|pipe| read_pipe(pipe, MOST_OUTPUT));
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
        let limits = ChildLimits { reach, timeout, grace: GRACE, cancel: self.cancel };
        let ended = match limits.wait(&mut child, begin) {
            Ok(ended) => ended,
            Err(source) => {
                let _ = child.kill();
                return Err(SweepError::Start { program, source });
            }
        };
        sampler?.stop();
        let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        let machine = seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .rows()
            .map(|(name, mean, peak)| (name.to_owned(), MeanPeak { mean, peak }))
            .collect();
        Ok(ProcessResult {
            status: ended.status,
            seconds: ended.seconds,
            output: serde_json::from_slice(&bytes).unwrap_or_default(),
            printed: bytes,
            machine,
            timed_out: ended.reason == ExitReason::TimedOut,
            interrupted: ended.reason == ExitReason::Interrupted,
        })
    }
}

/// Any program. Python loops that record themselves leave their run in the cell's folder.
fn foreign(program: &str, arguments: &[String], folder: &Path) -> Result<Command, SweepError> {
    let whole = std::path::absolute(folder)
        .map_err(|source| SweepError::Read { path: folder.to_owned(), source })?;
    let mut command = Command::new(program);
    command.args(arguments).env("PACELINE_RUN_FOLDER", whole.join("run"));
    Ok(command)
}

struct ProcessResult {
    status: ExitStatus,
    seconds: f64,
    output: serde_json::Value,
    printed: Vec<u8>,
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
