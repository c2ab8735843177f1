//! A job whose tasks are tasks of a Spark barrier stage, each of which runs `paceline node` as one of a cluster.

use crate::{JobError, JobObserver, Work, local_tasks};
use paceline_cluster::launch::spark::{
    Spark, SparkEvent, SparkWorkOutcome, Work as SparkWork, WorkKind,
};
use paceline_runs::{RunFolder, Summary};
use paceline_store::is_remote;
use paceline_training::{RunSpec, UNIFORM};
use paceline_wire::{ClusterKey, TaskId};
use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

/// Training on examples by tasks of Spark.
#[derive(Debug, Clone)]
pub struct SparkJob {
    /// What to train, and with how many tasks.
    pub spec: RunSpec,
    /// The folder of run folders, as all machines of the cluster see it.
    pub out: PathBuf,
    /// The run that continues, where one does.
    pub resume: Option<PathBuf>,
    /// Threads of a task, unless the specification says so.
    pub threads: usize,
    /// Flags of `paceline node` for everything else.
    pub flags: Vec<String>,
}

/// What Spark's tasks left.
#[derive(Debug)]
pub struct SparkOutcome {
    /// The job's tasks, in the order of Spark's.
    pub tasks: Vec<TaskId>,
    pub spark: SparkWorkOutcome,
    pub summary: Summary,
    /// Where the run's folder is, as all machines of the cluster see it.
    pub run: RunFolder,
}

impl SparkJob {
    /// Checks all settings, so that what is wrong is said before anything is started; then what Spark shall do.
    ///
    /// # Errors
    /// Settings that cannot work, data that cannot be read.
    pub fn prepare(&self, observer: &dyn JobObserver) -> Result<SparkWork, JobError> {
        Work::from(self.spec.clone()).open(observer)?.check()?;
        Ok(SparkWork {
            name: format!("paceline train {}", self.spec.model),
            arguments: self.arguments()?,
            settings: &[],
            kind: WorkKind::Cluster { tasks: self.tasks(), key: ClusterKey::generate()? },
        })
    }

    /// Has Spark do that; `tell` is called with every event, and with `None` a few times a second.
    ///
    /// # Errors
    /// What Spark says, and an answer that is not a summary.
    pub fn run(
        &self,
        spark: &Spark,
        work: &SparkWork,
        cancel: &AtomicBool,
        tell: &mut dyn FnMut(Option<&SparkEvent>),
    ) -> Result<SparkOutcome, JobError> {
        let outcome = spark.run(work, cancel, tell)?;
        let chief = outcome.tasks.first().ok_or(JobError::NoSparkTask)?;
        let summary: Summary =
            serde_json::from_value(chief.result.clone()).map_err(JobError::SparkAnswer)?;
        let run = RunFolder::at(&shared_path(&self.out)?.join(&summary.run));
        Ok(SparkOutcome { tasks: self.tasks(), spark: outcome, summary, run })
    }

    fn tasks(&self) -> Vec<TaskId> {
        local_tasks(self.spec.workers, self.spec.servers, self.spec.evaluator)
    }

    /// The command line of a task. Paths are absolute, because tasks start in folders of their own.
    fn arguments(&self) -> Result<Vec<String>, JobError> {
        let mut arguments: Vec<String> = ["--json", "--quiet", "node"].map(str::to_owned).to_vec();
        arguments.extend(self.flags.iter().cloned());
        let mut say = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
        let data = Path::new(&self.spec.data);
        // Other names of data than paths stay as they are.
        let data = if data.exists() { absolute(data)? } else { data.to_owned() };
        say("--data", data.display().to_string());
        say("--out", shared_path(&self.out)?.display().to_string());
        say("--threads", self.spec.threads.unwrap_or(self.threads).to_string());
        match (&self.resume, &self.spec.init) {
            // A run that continues has its own weights.
            (Some(run), _) => say("--resume", shared_path(run)?.display().to_string()),
            // A range of numbers is not a path.
            (None, Some(init)) if init.to_string_lossy().starts_with(UNIFORM) => {
                say("--init", init.display().to_string());
            }
            (None, Some(init)) => say("--init", shared_path(init)?.display().to_string()),
            (None, None) => {}
        }
        Ok(arguments)
    }
}

/// A folder or file as every machine of the cluster sees it.
fn shared_path(path: &Path) -> Result<PathBuf, JobError> {
    if is_remote(path) { Ok(path.to_owned()) } else { absolute(path) }
}

fn absolute(path: &Path) -> Result<PathBuf, JobError> {
    std::path::absolute(path)
        .map_err(|source| JobError::Absolute { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_told_absolute_paths_and_urls_as_they_are() {
        let job = SparkJob {
            spec: RunSpec::new("lenet", "generated:digits"),
            out: PathBuf::from("runs"),
            resume: Some(PathBuf::from("s3://bucket/runs/x")),
            threads: 3,
            flags: vec!["--epochs=2".to_owned()],
        };
        let line = job.arguments().unwrap().join(" ");
        assert!(line.starts_with("--json --quiet node --epochs=2 --data generated:digits --out /"));
        assert!(line.ends_with("/runs --threads 3 --resume s3://bucket/runs/x"), "{line}");
    }
}
