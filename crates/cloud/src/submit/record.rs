//! A job as it is kept in `cloud/NAME/job.json`: written before anything runs, so that whatever was begun can be ended.
//!
//! A submission is several commands, and the first may already cost money: a cluster bills from its creation on. The record
//! says how many commands have succeeded. It is removed only where nothing can be running; where that is not known the service is
//! asked for the submission's mark, and in doubt the record stays, for `cloud stop`.

use super::{JobNumber, JobState, JobSteps, SubmitRequest, Target, check_name, fill, target};
use crate::error::CloudError;
use crate::tool::{Tool, advice, command_line};
use paceline_store::durable::write_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

const RECORD: &str = "job.json";

/// A job that was submitted from here, or that was begun to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubmittedJob {
    pub target: String,
    pub id: String,
    pub request: SubmitRequest,
    pub steps: JobSteps,
    /// What a plan expected in seconds: low, expected, high.
    #[serde(default)]
    pub expected: Option<[f64; 3]>,
    /// What it expected in examples per second while the nodes work, in the same order.
    #[serde(default)]
    pub expected_rates: Option<[f64; 3]>,
    /// Where a run folder of it was fetched to.
    #[serde(default)]
    pub fetched: Option<PathBuf>,
    /// Unix seconds.
    pub submitted: u64,
    /// How many commands of the submission have succeeded; `None` once all have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<usize>,
    /// Whether its end was asked for; what the service then does not know any more has ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
}

/// What a plan expects of a job: low, expected, high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expectation {
    pub seconds: [f64; 3],
    /// Examples per second while the nodes work.
    pub rates: Option<[f64; 3]>,
}

/// What `stop` found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The service was asked to end the job; its record stays.
    Asked,
    /// What a submission had begun was ended, and its record removed.
    Undone,
    /// The service has nothing of this submission; its record was removed.
    Nothing,
}

impl SubmittedJob {
    /// Writes the record and the files, then runs the commands one after the other. Where one fails the record stays if
    /// anything may be running ([`CloudError::Unfinished`]), and is removed if nothing is.
    pub fn submit(
        target: &dyn Target,
        request: SubmitRequest,
        folder: &Path,
        expected: Option<Expectation>,
        tool: Tool<'_>,
        progress: &dyn Fn(&str),
    ) -> Result<Self, CloudError> {
        check_name(&request.name)?;
        let steps = target.steps(&request)?;
        std::fs::create_dir_all(folder)
            .map_err(|source| CloudError::Write { path: folder.to_owned(), source })?;
        let _ours = claim(folder)?;
        for (name, content) in &steps.files {
            write(&folder.join(name), content)?;
        }
        let submitted =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut job = Self {
            target: target.name().to_owned(),
            id: request.name.clone(),
            request,
            steps,
            expected: expected.map(|expected| expected.seconds),
            expected_rates: expected.and_then(|expected| expected.rates),
            fetched: None,
            submitted,
            unfinished: Some(0),
            stopped: false,
        };
        job.keep(folder)?;
        let commands = job.steps.submit.clone();
        for (at, argv) in commands.iter().enumerate() {
            let argv = fill(argv, &[("{folder}", &folder.display().to_string())]);
            let result = if tool.interrupt.load(Ordering::Relaxed) {
                Err((CloudError::Interrupted { command: command_line(&argv) }, false))
            } else {
                progress(&command_line(&argv));
                tool.output(&argv).map_err(|error| (error, true))
            };
            let printed =
                result.map_err(|(error, begun)| job.failed(folder, error, begun, tool))?;
            job.unfinished = Some(at + 1).filter(|succeeded| *succeeded < commands.len());
            if job.unfinished.is_none() {
                job.id = number(&job.steps.id, &job.request.name, &printed);
            }
            job.keep(folder).map_err(|error| job.left_behind(folder, error))?;
        }
        Ok(job)
    }

    /// After a failed command: removes the record if nothing can be running.
    fn failed(&self, folder: &Path, error: CloudError, begun: bool, tool: Tool<'_>) -> CloudError {
        let succeeded = self.unfinished.unwrap_or(0);
        let running = succeeded > self.steps.preparing
            || (begun
                && succeeded == self.steps.preparing
                && self.may_have_begun(&error, folder, tool));
        if running {
            return self.left_behind(folder, error);
        }
        match std::fs::remove_file(folder.join(RECORD)) {
            Ok(()) => error,
            Err(_) => self.left_behind(folder, error),
        }
    }

    /// Whether the first command that starts something did so although it failed. A cluster may have been made and then found
    /// unfit; of a command that was cut off it is not known.
    fn may_have_begun(&self, error: &CloudError, folder: &Path, tool: Tool<'_>) -> bool {
        match error {
            CloudError::NoTool { .. } => false,
            CloudError::Interrupted { .. } | CloudError::Silent { .. } => true,
            _ if self.steps.find.is_empty() => true,
            // A refusal in known words needs no second answer where there is none.
            _ => self
                .found(folder, tool)
                .map_or_else(|_| advice(error).is_none(), |ids| !ids.is_empty()),
        }
    }

    /// What the service has of this submission.
    fn found(&self, folder: &Path, tool: Tool<'_>) -> Result<Vec<String>, CloudError> {
        if self.steps.find.is_empty() {
            return Ok(Vec::new());
        }
        let printed = tool.output(&self.filled(&self.steps.find, &self.id, folder))?;
        let lines = printed.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }

    fn left_behind(&self, folder: &Path, error: CloudError) -> CloudError {
        CloudError::Unfinished {
            succeeded: self.unfinished.unwrap_or(self.steps.submit.len()),
            commands: self.steps.submit.len(),
            folder: folder.to_owned(),
            source: Box::new(error),
        }
    }

    fn keep(&self, folder: &Path) -> Result<(), CloudError> {
        write(&folder.join(RECORD), &serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// Remembers where a folder of it is now, for comparing what it measured with the plan.
    pub fn note_fetched(&mut self, folder: &Path, fetched: &Path) -> Result<(), CloudError> {
        self.fetched = Some(std::path::absolute(fetched).unwrap_or_else(|_| fetched.to_owned()));
        self.keep(folder)
    }

    /// Reads the record.
    pub fn open(folder: &Path) -> Result<Self, CloudError> {
        let path = folder.join(RECORD);
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => CloudError::NoJob { folder: folder.to_owned() },
            _ => CloudError::Read { path: path.clone(), source },
        })?;
        let wrong = |source| CloudError::Read { path: path.clone(), source };
        let job: Self =
            serde_json::from_str(&text).map_err(|source| wrong(std::io::Error::other(source)))?;
        if !is_number(&job.id) {
            let why = format!("{:?} is not a job's number", job.id);
            return Err(wrong(std::io::Error::other(why)));
        }
        Ok(job)
    }

    /// The status command.
    #[must_use]
    pub fn status_command(&self, folder: &Path) -> Vec<String> {
        self.filled(&self.steps.status, &self.id, folder)
    }

    /// Asks the service.
    pub fn state(&self, folder: &Path, tool: Tool<'_>) -> Result<JobState, CloudError> {
        if self.unfinished.is_some() {
            return Ok(JobState::Submitting);
        }
        let Some(target) = target(&self.target) else { return Ok(JobState::Unknown) };
        match tool.output(&self.status_command(folder)) {
            Err(error) if self.stopped && is_gone(&error) => Ok(JobState::Stopped),
            answer => Ok(target.state(&answer?)),
        }
    }

    /// The command that shows logs and follows them.
    #[must_use]
    pub fn logs_command(&self, folder: &Path) -> Vec<String> {
        self.filled(&self.steps.logs, &self.id, folder)
    }

    /// Ends the job, or undoes a submission that was not finished.
    pub fn stop(&self, folder: &Path, tool: Tool<'_>) -> Result<Ending, CloudError> {
        if self.unfinished.is_none() {
            self.end(&self.id, folder, tool)?;
            Self { stopped: true, ..self.clone() }.keep(folder)?;
            return Ok(Ending::Asked);
        }
        let ids = if self.steps.find.is_empty() {
            vec![self.id.clone()]
        } else {
            self.found(folder, tool)?
        };
        for id in &ids {
            self.end(id, folder, tool)?;
        }
        let path = folder.join(RECORD);
        std::fs::remove_file(&path).map_err(|source| CloudError::Write { path, source })?;
        Ok(if ids.is_empty() { Ending::Nothing } else { Ending::Undone })
    }

    fn end(&self, id: &str, folder: &Path, tool: Tool<'_>) -> Result<(), CloudError> {
        for argv in &self.steps.stop {
            tool.output(&self.filled(argv, id, folder))?;
        }
        Ok(())
    }

    /// The command that copies a folder from there to here.
    #[must_use]
    pub fn fetch_command(&self, folder: &Path, from: &str, to: &Path) -> Vec<String> {
        let to = to.display().to_string();
        let command = self.filled(&self.steps.fetch, &self.id, folder);
        fill(&command, &[("{from}", from), ("{to}", &to)])
    }

    fn filled(&self, argv: &[String], id: &str, folder: &Path) -> Vec<String> {
        fill(argv, &[("{id}", id), ("{folder}", &folder.display().to_string())])
    }
}

/// Whether the service has nothing of that name.
fn is_gone(error: &CloudError) -> bool {
    let CloudError::Tool { said, .. } = error else { return false };
    ["NotFound", "NOT_FOUND"].iter().any(|word| said.contains(word))
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Keeps a second submission out of a folder until the answer is dropped: both would see no record, and both start machines.
fn claim(folder: &Path) -> Result<std::fs::File, CloudError> {
    let exists = || CloudError::Exists { folder: folder.to_owned() };
    let open = std::fs::File::open(folder)
        .map_err(|source| CloudError::Write { path: folder.to_owned(), source })?;
    if matches!(open.try_lock(), Err(std::fs::TryLockError::WouldBlock))
        || folder.join(RECORD).exists()
    {
        return Err(exists());
    }
    // A file system without locks: better unguarded than unusable.
    Ok(open)
}

/// Whether a job's number can be put into commands: some are words of a shell's.
fn is_number(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "._-/+".contains(c))
}

fn write(path: &Path, content: &str) -> Result<(), CloudError> {
    write_file(path, content.as_bytes())
        .map_err(|source| CloudError::Write { path: path.to_owned(), source })
}

pub(super) fn number(kind: &JobNumber, name: &str, last: &str) -> String {
    let found = match kind {
        JobNumber::Name => None,
        // A site's own sbatch may greet before it answers, or say which job it was in a sentence.
        JobNumber::FirstWord => {
            let of_line = |line: &str| {
                let mut words = line.split(|c: char| c == ';' || c.is_whitespace());
                let number = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
                is_number(number).then(|| number.to_owned())
            };
            last.lines().rev().find_map(of_line)
        }
        JobNumber::JsonName => {
            let document: Option<Value> = serde_json::from_str(last).ok();
            document.and_then(|document| document["name"].as_str().map(str::to_owned))
        }
    };
    found.filter(|id| is_number(id)).unwrap_or_else(|| name.to_owned())
}
