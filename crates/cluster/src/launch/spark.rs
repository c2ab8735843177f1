//! Work done by tasks of the user's own Spark.
//!
//! Spark places tasks, tries them again and starts slow ones twice; what a task does is run this program on its
//! part of the work. Between the two stands a short [driver](DRIVER), written out for each call and given to the
//! user's `spark-submit` together with this very binary, so that nothing has to be installed on the machines of
//! the cluster. The driver speaks in lines of JSON on its standard output ([`report`]); everything else that Spark
//! says goes into a log, which is kept only where something failed.

mod process;
mod report;

pub use report::{SparkEvent, SparkWorkOutcome, TaskReport};

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use serde::Serialize;

use paceline_wire::{ClusterKey, TaskId};

/// What Spark runs.
const DRIVER: &str = include_str!("spark/driver.py");
/// Tasks per core where the user names no number: enough to even out slow tasks, few enough to cost nothing.
pub const TASKS_PER_CORE: u32 = 3;
/// Settings of Spark for measurements: a second attempt at one that goes on would only disturb it.
pub const MEASURING: &[(&str, &str)] = &[("spark.speculation", "false")];
/// Time between two looks at the flag and at progress.
const TICK: Duration = Duration::from_millis(200);
/// Name of the shipped binary on the executors.
const BINARY: &str = "paceline-task";
/// The log that is named in errors.
const LOG: &str = "spark.log";

/// A Spark and how to use it.
#[derive(Debug, Clone)]
pub struct Spark {
    /// The `spark-submit` to call.
    pub submit: PathBuf,
    /// `spark://…`, `yarn`, `k8s://…`, `local-cluster[…]`; its own default without.
    pub master: Option<String>,
    /// Further settings, which win over ours.
    pub conf: Vec<(String, String)>,
    /// The build of this program that tasks run.
    pub binary: PathBuf,
    /// How long to wait for the first executor.
    pub patience: Duration,
    /// Number of tasks; chosen from the cores without.
    pub partitions: Option<u32>,
}

/// What tasks are to do.
#[derive(Debug, Clone)]
pub struct Work {
    /// Name of the application in Spark's own pages.
    pub name: String,
    /// Arguments of the binary; it answers with one JSON document on its standard output.
    pub arguments: Vec<String>,
    /// Settings of Spark that suit this work; the user's own win.
    pub settings: &'static [(&'static str, &'static str)],
    /// What it is given beside them.
    pub kind: WorkKind,
}

/// How tasks relate to each other.
#[derive(Debug, Clone)]
pub enum WorkKind {
    /// Not at all: each gets some of the slices on its standard input, in any order, as often as Spark likes.
    Slices {
        /// What every task is told first.
        heading: String,
        /// The parts of the work, one line each.
        slices: Vec<String>,
    },
    /// All run at the same time and know each other's addresses, through `TF_CONFIG` (a barrier stage).
    Cluster {
        /// Who takes part.
        tasks: Vec<TaskId>,
        /// What they know each other by. It travels in Spark's own messages, as safe as the site made those.
        key: ClusterKey,
    },
}

/// Why work on Spark failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SparkError {
    /// No `spark-submit`.
    #[error("cannot start `{}`", .path.display())]
    Start { path: PathBuf, source: io::Error },
    /// The files for the driver could not be written.
    #[error("cannot write `{}`", .path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A task failed as often as Spark tries.
    #[error("a task on {host} failed: {message}")]
    Task {
        /// Host of the last attempt.
        host: String,
        /// In its own words.
        message: String,
        /// What could be done about it, where the task said so.
        hint: Option<String>,
        /// The exit code of the last attempt.
        exit: u8,
    },
    /// Spark ended the work for a reason of its own.
    #[error("Spark gave up: {message}")]
    Stage {
        /// The first line of what it said.
        message: String,
        log: PathBuf,
    },
    /// The cluster gave us nothing.
    #[error("{master} gave no executor within {} s", .waited.as_secs())]
    NoExecutors {
        master: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Tasks that must run at the same time do not all fit.
    #[error(
        "{wanted} tasks must run at the same time, and Spark has room for {slots}: {executors} executors with {cores} cores in all"
    )]
    TooFewSlots {
        /// Tasks that could run at once.
        slots: u32,
        /// Tasks of the work.
        wanted: u32,
        executors: u32,
        cores: u32,
    },
    /// `spark-submit` exited without a message from the driver.
    #[error("`{}` ended ({status}) before the work was done: {message}", .path.display())]
    Ended {
        path: PathBuf,
        status: String,
        /// The line of its log that looks like the reason.
        message: String,
        log: PathBuf,
    },
    /// Stopped from outside.
    #[error("stopped while Spark was working")]
    Cancelled,
}

impl SparkError {
    /// What the user could do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Start { .. } => "set SPARK_HOME, or name it by --spark-submit".to_owned(),
            Self::Task { hint, .. } => hint.clone()?,
            Self::NoExecutors { .. } => {
                "look at the master's page for free cores and memory; ask for less by --spark-conf \
                 spark.executor.memory=… or spark.executor.cores=…, or wait longer by --spark-wait"
                    .to_owned()
            }
            Self::TooFewSlots { .. } => {
                "ask for fewer tasks, or for more executors or cores by --spark-conf spark.executor.instances=… or \
                 spark.executor.cores=…; spark.task.cpus says how many cores a task takes"
                    .to_owned()
            }
            Self::Stage { log, .. } | Self::Ended { log, .. } => {
                format!("all that Spark said is in `{}`", log.display())
            }
            _ => return None,
        })
    }
}

/// The first line of the job file.
#[derive(Serialize)]
struct Spec<'a> {
    kind: &'a str,
    binary: &'a str,
    arguments: &'a [String],
    heading: &'a str,
    key: String,
    partitions: Option<u32>,
    per_core: u32,
    patience: f64,
}

impl Spark {
    /// The same with so many tasks where the user named no number.
    #[must_use]
    pub fn with_partitions(&self, tasks: usize) -> Self {
        let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
        Self { partitions: self.partitions.or(Some(tasks)), ..self.clone() }
    }

    /// Cores that Spark gives to one task, and so the threads of our binary there.
    #[must_use]
    pub fn task_cores(&self) -> usize {
        let set = self.conf.iter().rev().find(|(key, _)| key == "spark.task.cpus");
        set.and_then(|(_, value)| value.parse().ok()).unwrap_or(1)
    }

    /// Runs the work to its end. `tell` is called with every event, and with `None` a few times a second.
    ///
    /// # Errors
    /// A Spark that cannot be started or has no room, a task that failed for good, a raised `cancel`.
    pub fn run(
        &self,
        work: &Work,
        cancel: &AtomicBool,
        tell: &mut dyn FnMut(Option<&SparkEvent>),
    ) -> Result<SparkWorkOutcome, SparkError> {
        let folder = tempfile::Builder::new()
            .prefix("paceline-spark-")
            .tempdir()
            .map_err(|source| SparkError::Write { path: std::env::temp_dir(), source })?;
        let begun = Instant::now();
        let mut submitted = self.submit(work, folder.path())?;
        let mut outcome = report::Collected::default();
        loop {
            if cancel.load(Ordering::Relaxed) {
                submitted.end();
                return Err(SparkError::Cancelled);
            }
            match submitted.lines().recv_timeout(TICK) {
                Ok(line) => {
                    if let Some(event) = report::parse(&line) {
                        outcome.take(&event, begun);
                        tell(Some(&event));
                    }
                }
                Err(RecvTimeoutError::Timeout) => tell(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = submitted.wait(cancel);
        let log = || keep_log(folder.path());
        outcome.finish().map_err(|failure| match failure {
            report::Failure::Task { host, message, hint, exit } => {
                SparkError::Task { host, message, hint, exit }
            }
            report::Failure::Stage { message } => SparkError::Stage { message, log: log() },
            report::Failure::NoExecutors { master, waited } => {
                SparkError::NoExecutors { master, waited }
            }
            report::Failure::TooFewSlots { slots, wanted, executors, cores } => {
                SparkError::TooFewSlots { slots, wanted, executors, cores }
            }
            report::Failure::Silent => SparkError::Ended {
                path: self.submit.clone(),
                status,
                message: process::reason(&folder.path().join(LOG)),
                log: log(),
            },
        })
    }

    /// Writes the driver and its job, and starts `spark-submit`.
    fn submit(&self, work: &Work, folder: &Path) -> Result<process::Submitted, SparkError> {
        let write = |name: &str, fill: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let path = folder.join(name);
            let made = File::create_new(&path).and_then(|file| {
                let mut file = BufWriter::new(file);
                fill(&mut file)?;
                file.flush()
            });
            made.map_err(|source| SparkError::Write { path: path.clone(), source })?;
            Ok(path)
        };
        let driver = write("driver.py", &|file| file.write_all(DRIVER.as_bytes()))?;
        let (kind, heading, lines, key) = match &work.kind {
            WorkKind::Slices { heading, slices } => {
                ("slices", heading.as_str(), slices.clone(), String::new())
            }
            WorkKind::Cluster { tasks, key } => {
                ("cluster", "", tasks.iter().map(ToString::to_string).collect(), key.to_text())
            }
        };
        let spec = Spec {
            kind,
            binary: BINARY,
            arguments: &work.arguments,
            heading,
            key,
            partitions: self.partitions,
            per_core: TASKS_PER_CORE,
            patience: self.patience.as_secs_f64(),
        };
        let job = write("job.jsonl", &|file| {
            serde_json::to_writer(&mut *file, &spec)?;
            lines.iter().try_for_each(|slice| write!(file, "\n{slice}"))?;
            writeln!(file)
        })?;
        // A name of our own, without the commas and spaces that `--files` stumbles over. Not a symbolic link:
        // Spark would ship it under the name it leads to. A copy where a link is not allowed.
        let binary = folder.join(BINARY);
        std::fs::hard_link(&self.binary, &binary)
            .or_else(|_| std::fs::copy(&self.binary, &binary).map(drop))
            .map_err(|source| SparkError::Write { path: binary.clone(), source })?;
        let arguments = self.arguments(work, [&binary, &driver, &job]);
        process::Submitted::start(&self.submit, &arguments, &folder.join(LOG))
    }

    /// What `spark-submit` is told. The driver stays here: it reads its job from this machine, and we hear what it says.
    fn arguments(&self, work: &Work, [binary, driver, job]: [&Path; 3]) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--deploy-mode", "client", "--name", &work.name].map(str::to_owned).to_vec();
        if let Some(master) = &self.master {
            arguments.extend(["--master".into(), master.clone()]);
        }
        let mut settings = vec![("spark.ui.showConsoleProgress", "false")];
        if matches!(work.kind, WorkKind::Cluster { .. }) {
            // A cluster that lost a member ends with its own words, and goes on when the user says so.
            settings.push(("spark.stage.maxConsecutiveAttempts", "1"));
            // Tasks that wait for each other need executors that stay; some sites let them come and go.
            settings.push(("spark.dynamicAllocation.enabled", "false"));
        }
        let own = settings.into_iter().chain(work.settings.iter().copied());
        let theirs = self.conf.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        for (key, value) in own.chain(theirs) {
            arguments.extend(["--conf".into(), format!("{key}={value}")]);
        }
        arguments.extend(["--files".into(), binary.display().to_string()]);
        arguments.extend([driver.display().to_string(), job.display().to_string()]);
        arguments
    }
}

/// Saves the log from the folder that is about to go; returns where it is.
fn keep_log(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let kept = std::env::temp_dir().join(format!("{name}.log"));
    // Where it cannot be kept, the error still carries the line that matters.
    let _ = std::fs::copy(folder.join(LOG), &kept);
    kept
}

/// The `spark-submit` a user means who names none: that of `SPARK_HOME`, else the one on the path.
#[must_use]
pub fn default_submit(spark_home: Option<&Path>) -> PathBuf {
    match spark_home {
        Some(home) => home.join("bin/spark-submit"),
        None => PathBuf::from("spark-submit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_says_how_many_cores_a_task_has() {
        let spark = |conf: &[(&str, &str)]| Spark {
            submit: "spark-submit".into(),
            master: None,
            conf: conf.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            binary: "paceline".into(),
            patience: Duration::from_secs(1),
            partitions: None,
        };
        assert_eq!(spark(&[]).task_cores(), 1);
        assert_eq!(spark(&[("spark.task.cpus", "4"), ("spark.task.cpus", "2")]).task_cores(), 2);
        assert_eq!(spark(&[("spark.task.cpus", "many")]).task_cores(), 1);
    }
}
