//! From a job and a shape to a running job: the job file, the site's own tool that submits it, and what is known of it later.
//!
//! Every target is one file: the files it writes, the commands that submit, ask, follow, stop and fetch. Nothing is run by
//! the target itself, so `--dry-run` shows exactly what a submission does. A [`SubmittedJob`] lies in `cloud/NAME`, and holds
//! names and commands, never a credential.

mod dataproc;
mod kubernetes;
mod slurm;
mod ssh;
mod vertex;

use crate::error::CloudError;
use crate::tool::{Tool, command_line};
use paceline_store::durable::write_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where a job can be submitted.
pub trait Target: Sync {
    /// As it is typed.
    fn name(&self) -> &'static str;
    /// One line for lists.
    fn about(&self) -> &'static str;
    /// Which of the provider's services must be enabled.
    fn services(&self) -> &'static [&'static str] {
        &[]
    }
    /// Which settings of a request it reads, by their flags; others would change nothing.
    fn reads(&self) -> &'static [&'static str];
    /// Files and commands for this request.
    fn steps(&self, request: &SubmitRequest) -> Result<JobSteps, CloudError>;
    /// Which state the answer to the status command means.
    fn state(&self, answer: &str) -> JobState;
}

/// All targets; a new one is one file and one line here.
pub static TARGETS: &[&dyn Target] =
    &[&dataproc::Dataproc, &vertex::Vertex, &kubernetes::Kubernetes, &slurm::Slurm, &ssh::Ssh];

/// By its name.
#[must_use]
pub fn target(name: &str) -> Option<&'static dyn Target> {
    TARGETS.iter().copied().find(|target| target.name() == name)
}

/// What to submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubmitRequest {
    pub name: String,
    /// The `paceline` command, without `paceline`.
    pub command: Vec<String>,
    pub nodes: u32,
    pub machine: String,
    pub vcpus: u32,
    pub memory_gib: u32,
    /// Kind and size of each node's disk, where the target makes it.
    pub disk: Option<(String, u32)>,
    pub project: Option<String>,
    pub region: Option<String>,
    /// Container image, for targets that run one.
    pub image: Option<String>,
    /// Hosts, for ssh.
    pub hosts: Vec<String>,
    /// The cluster's key: a file here, or a path or secret there, as the target needs it.
    pub key: Option<String>,
    /// The binary to copy, for targets that copy one.
    pub binary: Option<PathBuf>,
    /// A volume claim with data and run folders, for Kubernetes.
    pub claim: Option<String>,
    /// Where each task listens, where the target leaves that open.
    pub port: u16,
    /// Most minutes the job may take, where the target can end it by itself.
    pub minutes: Option<u32>,
}

/// What a target does for a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSteps {
    /// Written beside the job's record before anything runs: name and content.
    pub files: Vec<(String, String)>,
    /// Run one after the other; `{folder}` is the record's folder, `{id}` what the service called the job.
    pub submit: Vec<Vec<String>>,
    /// Which of them prints the job's number, and whether as JSON under `name`.
    pub id: JobNumber,
    pub status: Vec<String>,
    pub logs: Vec<String>,
    pub stop: Vec<Vec<String>>,
    /// Copies `{from}` on the other side to `{to}` here.
    pub fetch: Vec<String>,
}

/// How the service tells the job's number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobNumber {
    /// The name that was given.
    #[default]
    Name,
    /// The first line that the last command printed, up to a semicolon.
    FirstWord,
    /// `name` of the JSON document that the last command printed.
    JsonName,
}

/// A job's state, in words all targets share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Accepted, not running yet.
    Waiting,
    /// At work.
    Running,
    /// Ended well.
    Done,
    /// Ended otherwise.
    Failed,
    /// Ended by the user.
    Stopped,
    /// The answer is not known.
    Unknown,
}

/// A submitted job as it is kept in `cloud/NAME/job.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubmittedJob {
    pub target: String,
    pub id: String,
    pub request: SubmitRequest,
    pub steps: JobSteps,
    /// What a plan expected in seconds: low, expected, high.
    #[serde(default)]
    pub expected: Option<[f64; 3]>,
    /// Unix seconds.
    pub submitted: u64,
}

const RECORD: &str = "job.json";

/// A name that every service takes.
pub fn check_name(name: &str) -> Result<(), CloudError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let sound = (1..=40).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(inner);
    if sound { Ok(()) } else { Err(CloudError::Name { name: name.to_owned() }) }
}

impl SubmitRequest {
    /// The command of each task: `train` is `node` where several take part, and `matmul` is told that it is one of them.
    #[must_use]
    pub fn task_command(&self) -> Vec<String> {
        let mut command = self.command.clone();
        match command.first().map(String::as_str) {
            Some("train") if self.nodes > 1 => "node".clone_into(&mut command[0]),
            Some("matmul") if self.nodes > 1 => command.push("--node".to_owned()),
            _ => {}
        }
        command
    }

    fn needed<'a>(
        value: &'a Option<String>,
        target: &'static str,
        key: &'static str,
    ) -> Result<&'a str, CloudError> {
        value.as_deref().ok_or(CloudError::Missing { target, key })
    }

    fn project_flag(&self) -> Vec<String> {
        self.project.iter().map(|project| format!("--project={project}")).collect()
    }
}

/// Replaces the places in a command.
fn fill(argv: &[String], places: &[(&str, &str)]) -> Vec<String> {
    argv.iter()
        .map(|word| {
            places.iter().fold(word.clone(), |word, (place, value)| word.replace(place, value))
        })
        .collect()
}

/// A string as YAML and JSON both write it.
fn text(value: &str) -> String {
    Value::from(value).to_string()
}

impl SubmittedJob {
    /// Writes the files, runs the commands one after the other, keeps what is known. Where a command fails the record is
    /// removed again, since nothing runs.
    pub fn submit(
        target: &dyn Target,
        request: SubmitRequest,
        folder: &Path,
        expected: Option<[f64; 3]>,
        tool: Tool<'_>,
        progress: &dyn Fn(&str),
    ) -> Result<Self, CloudError> {
        check_name(&request.name)?;
        let steps = target.steps(&request)?;
        if folder.join(RECORD).exists() {
            return Err(CloudError::Exists { folder: folder.to_owned() });
        }
        let write = |path: &Path, content: &str| {
            write_file(path, content.as_bytes())
                .map_err(|source| CloudError::Write { path: path.to_owned(), source })
        };
        std::fs::create_dir_all(folder)
            .map_err(|source| CloudError::Write { path: folder.to_owned(), source })?;
        for (name, content) in &steps.files {
            write(&folder.join(name), content)?;
        }
        let here = folder.display().to_string();
        let mut last = String::new();
        for argv in &steps.submit {
            let argv = fill(argv, &[("{folder}", &here)]);
            progress(&command_line(&argv));
            last = tool.output(&argv)?;
        }
        let id = number(&steps.id, &request.name, &last);
        let submitted = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let job =
            Self { target: target.name().to_owned(), id, request, steps, expected, submitted };
        let record = serde_json::to_string_pretty(&job).unwrap_or_default();
        write(&folder.join(RECORD), &record)?;
        Ok(job)
    }

    /// Reads the record.
    pub fn open(folder: &Path) -> Result<Self, CloudError> {
        let path = folder.join(RECORD);
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => CloudError::NoJob { folder: folder.to_owned() },
            _ => CloudError::Read { path: path.clone(), source },
        })?;
        serde_json::from_str(&text)
            .map_err(|source| CloudError::Read { path, source: std::io::Error::other(source) })
    }

    /// The status command.
    #[must_use]
    pub fn status_command(&self, folder: &Path) -> Vec<String> {
        self.filled(&self.steps.status, folder)
    }

    /// Asks the service.
    pub fn state(&self, folder: &Path, tool: Tool<'_>) -> Result<JobState, CloudError> {
        let Some(target) = target(&self.target) else { return Ok(JobState::Unknown) };
        Ok(target.state(&tool.output(&self.status_command(folder))?))
    }

    /// The command that shows logs and follows them.
    #[must_use]
    pub fn logs_command(&self, folder: &Path) -> Vec<String> {
        self.filled(&self.steps.logs, folder)
    }

    /// Ends the job.
    pub fn stop(&self, folder: &Path, tool: Tool<'_>) -> Result<(), CloudError> {
        for argv in &self.steps.stop {
            tool.output(&self.filled(argv, folder))?;
        }
        Ok(())
    }

    /// The command that copies a folder from there to here.
    #[must_use]
    pub fn fetch_command(&self, folder: &Path, from: &str, to: &Path) -> Vec<String> {
        let to = to.display().to_string();
        fill(&self.filled(&self.steps.fetch, folder), &[("{from}", from), ("{to}", &to)])
    }

    fn filled(&self, argv: &[String], folder: &Path) -> Vec<String> {
        fill(argv, &[("{id}", &self.id), ("{folder}", &folder.display().to_string())])
    }
}

fn number(kind: &JobNumber, name: &str, last: &str) -> String {
    let first = || last.lines().map(str::trim).find(|line| !line.is_empty());
    let found = match kind {
        JobNumber::Name => None,
        JobNumber::FirstWord => {
            first().and_then(|line| line.split([';', ' ']).next()).map(str::to_owned)
        }
        JobNumber::JsonName => {
            let document: Option<Value> = serde_json::from_str(last).ok();
            document.and_then(|document| document["name"].as_str().map(str::to_owned))
        }
    };
    found.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests;
