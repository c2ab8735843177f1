//! From a job and a shape to a running job: the job file, the site's own tool that submits it, and what is known of it later.
//!
//! Every target is one file: the files it writes, the commands that submit, ask, follow, stop and fetch. Nothing is run by
//! the target itself, so `--dry-run` shows exactly what a submission does. A [`SubmittedJob`] lies in `cloud/NAME`, and holds
//! names and commands, never a credential.

mod dataproc;
mod kubernetes;
mod record;
mod slurm;
mod ssh;
mod vertex;

pub use record::{Ending, Expectation, SubmittedJob};

use crate::error::CloudError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// Which permissions submitting and stopping needs.
    fn permissions(&self) -> &'static [&'static str] {
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
    /// GPUs of each node that works, by the name that the job's file has.
    #[serde(default)]
    pub gpu: Option<(String, u32)>,
    /// Tells this submission from others of the same name: a label that its cluster or job carries. See [`new_mark`].
    #[serde(default)]
    pub mark: String,
}

/// What a target does for a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobSteps {
    /// Written beside the job's record before anything runs: name and content.
    pub files: Vec<(String, String)>,
    /// Run one after the other; `{folder}` is the record's folder, `{id}` what the service called the job.
    pub submit: Vec<Vec<String>>,
    /// How many of the first of them leave nothing running, whatever becomes of them: they copy.
    #[serde(default)]
    pub preparing: usize,
    /// Prints what the service has of this one submission, one name or number to a line, and nothing if it has nothing.
    #[serde(default)]
    pub find: Vec<String>,
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
    /// Submission was not finished, or goes on elsewhere.
    Submitting,
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

/// A name that every service takes.
pub fn check_name(name: &str) -> Result<(), CloudError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let sound = (1..=40).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(inner);
    if sound { Ok(()) } else { Err(CloudError::Name { name: name.to_owned() }) }
}

/// A mark that no other submission has; every service takes it as a label.
#[must_use]
pub fn new_mark() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("p{now}-{}", std::process::id())
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

    /// The GPU as Compute Engine calls it, where it can be attached to the machine.
    fn attached_gpu(
        &self,
        target: &'static str,
    ) -> Result<Option<(&'static str, u32)>, CloudError> {
        let Some((gpu, count)) = &self.gpu else { return Ok(None) };
        let refuse = |why| CloudError::Gpu { target, gpu: gpu.clone(), why };
        let known = ATTACHED_GPUS.iter().find(|(quota, _)| quota == gpu);
        let (_, name) = known.ok_or_else(|| {
            refuse("only K80, P4, P100, T4 and V100 are attached to a machine of choice; others come with machine types of their own")
        })?;
        if !self.machine.starts_with("n1-") {
            return Err(refuse(
                "it is attached to n1 machines only: name some in [shape] machines, or one by --machine",
            ));
        }
        Ok(Some((name, *count)))
    }

    fn project_flag(&self) -> Vec<String> {
        self.project.iter().map(|project| format!("--project={project}")).collect()
    }
}

/// GPUs that go with N1 machines: as the quotas name them, and as commands do.
const ATTACHED_GPUS: &[(&str, &str)] = &[
    ("K80", "nvidia-tesla-k80"),
    ("P4", "nvidia-tesla-p4"),
    ("P100", "nvidia-tesla-p100"),
    ("T4", "nvidia-tesla-t4"),
    ("V100", "nvidia-tesla-v100"),
];

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

#[cfg(test)]
mod tests;
