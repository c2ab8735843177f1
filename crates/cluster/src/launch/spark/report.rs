//! What the driver says, and what it adds up to.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Stands before every line of ours among whatever Spark prints.
const MARK: &str = "@paceline ";

/// A word from the driver.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SparkEvent {
    /// Spark has accepted the application.
    Session {
        /// Version of Spark.
        version: String,
        /// Its name for the application.
        application: String,
    },
    /// No executor yet.
    Waiting {
        /// For so long.
        seconds: f64,
    },
    /// Work begins.
    Stage {
        /// Executors at this moment; more may join.
        executors: u32,
        cores: u32,
        /// Number of tasks.
        partitions: u32,
    },
    /// A task is done; told when all are.
    Task(TaskReport),
    /// All are done.
    Done {
        /// From handing out the first task to having the last.
        seconds: f64,
        /// Executors at the end.
        executors: u32,
        cores: u32,
        /// Tasks that could have run at the same time.
        slots: u32,
    },
    /// There was no executor in time.
    NoExecutors {
        /// How long was waited.
        seconds: f64,
        master: String,
    },
    /// Tasks that must run at once do not fit.
    TooFewSlots {
        /// Tasks that could run at once.
        slots: u32,
        /// Tasks of the work.
        wanted: u32,
        executors: u32,
        cores: u32,
    },
    /// It is over.
    Failed {
        /// Host of the task that failed, where it was one.
        #[serde(default)]
        host: Option<String>,
        error: String,
        /// What the task suggests.
        #[serde(default)]
        hint: Option<String>,
        /// Exit code of the task.
        #[serde(default)]
        exit: Option<u8>,
    },
}

/// What one task did, where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Number of the task, from 0.
    pub partition: u32,
    /// Which attempt succeeded, from 0.
    pub attempt: u32,
    /// Host it ran on.
    pub host: String,
    /// Executor on that host, by Spark's name; empty where unknown.
    pub executor: String,
    /// Slices it was given.
    pub slices: u64,
    /// When it began, in seconds since 1970 by its host's clock.
    pub begun: f64,
    /// How long it took.
    pub seconds: f64,
    /// What the binary answered.
    pub result: Value,
}

/// Work that was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SparkWorkOutcome {
    /// Version of Spark.
    pub version: String,
    /// Spark's name for the application.
    pub application: String,
    /// Executors that were there, at the beginning or at the end.
    pub executors: u32,
    pub cores: u32,
    /// Number of tasks.
    pub partitions: u32,
    /// From calling `spark-submit` until the first task began: processes, session, executors, Python.
    pub startup_seconds: f64,
    /// From the first task's beginning to the last one's end.
    pub work_seconds: f64,
    /// How much of that time the places for tasks were taken, in percent: too few tasks leave executors idle.
    pub busy_percent: f64,
    /// The tasks, by number.
    pub tasks: Vec<TaskReport>,
}

/// How it can fail, as far as the driver knows.
pub(super) enum Failure {
    Task { host: String, message: String, hint: Option<String>, exit: u8 },
    Stage { message: String },
    NoExecutors { master: String, waited: Duration },
    TooFewSlots { slots: u32, wanted: u32, executors: u32, cores: u32 },
    Silent,
}

/// A line of ours; others, and what a newer driver may say, are nothing.
pub(super) fn parse(line: &str) -> Option<SparkEvent> {
    serde_json::from_str(line.strip_prefix(MARK)?).ok()
}

/// Everything said so far.
#[derive(Debug, Default)]
pub(super) struct Collected {
    session: Option<(String, String)>,
    stage: Option<(u32, u32, u32)>,
    /// Seconds from calling `spark-submit` to the stage.
    before_stage: f64,
    tasks: Vec<TaskReport>,
    last: Option<SparkEvent>,
}

impl Collected {
    pub(super) fn take(&mut self, event: &SparkEvent, begun: Instant) {
        match event {
            SparkEvent::Session { version, application } => {
                self.session = Some((version.clone(), application.clone()));
            }
            SparkEvent::Stage { executors, cores, partitions } => {
                self.stage = Some((*executors, *cores, *partitions));
                self.before_stage = begun.elapsed().as_secs_f64();
            }
            SparkEvent::Task(task) => self.tasks.push(task.clone()),
            SparkEvent::Done { .. }
            | SparkEvent::Failed { .. }
            | SparkEvent::NoExecutors { .. }
            | SparkEvent::TooFewSlots { .. } => {
                self.last = Some(event.clone());
            }
            SparkEvent::Waiting { .. } => {}
        }
    }

    /// What was done, or why not.
    pub(super) fn finish(mut self) -> Result<SparkWorkOutcome, Failure> {
        match self.last.take() {
            Some(SparkEvent::Done { seconds, executors, cores, slots }) => {
                match (self.session.take(), self.stage.take()) {
                    (Some(session), Some((before, fewer, partitions))) => {
                        let size = (before.max(executors), fewer.max(cores), partitions);
                        Ok(self.outcome(session, size, slots, seconds))
                    }
                    _ => Err(Failure::Silent),
                }
            }
            Some(SparkEvent::Failed { host: Some(host), error, hint, exit }) => {
                Err(Failure::Task { host, message: error, hint, exit: exit.unwrap_or(1) })
            }
            Some(SparkEvent::Failed { error, .. }) => Err(Failure::Stage { message: error }),
            Some(SparkEvent::NoExecutors { seconds, master }) => {
                let waited = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                Err(Failure::NoExecutors { master, waited })
            }
            Some(SparkEvent::TooFewSlots { slots, wanted, executors, cores }) => {
                Err(Failure::TooFewSlots { slots, wanted, executors, cores })
            }
            _ => Err(Failure::Silent),
        }
    }

    fn outcome(
        mut self,
        (version, application): (String, String),
        (executors, cores, partitions): (u32, u32, u32),
        slots: u32,
        stage_seconds: f64,
    ) -> SparkWorkOutcome {
        self.tasks.sort_by_key(|task| task.partition);
        let first = self.tasks.iter().map(|task| task.begun).fold(f64::INFINITY, f64::min);
        let last = self.tasks.iter().map(|task| task.begun + task.seconds).fold(0.0, f64::max);
        // Clocks of several hosts: never more than the whole stage, never nothing.
        let work_seconds = (last - first).clamp(1e-9, stage_seconds.max(1e-9));
        let worked: f64 = self.tasks.iter().map(|task| task.seconds).sum();
        let busy = worked / (work_seconds * f64::from(slots.max(1)));
        SparkWorkOutcome {
            version,
            application,
            executors,
            cores,
            partitions,
            startup_seconds: self.before_stage + stage_seconds - work_seconds,
            work_seconds,
            // Of an executor that was lost on the way only the work counts.
            busy_percent: 100.0 * busy.min(1.0),
            tasks: self.tasks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(lines: &[&str]) -> Result<SparkWorkOutcome, Failure> {
        let mut collected = Collected::default();
        for event in lines.iter().filter_map(|line| parse(line)) {
            collected.take(&event, Instant::now());
        }
        collected.finish()
    }

    const SESSION: &str =
        r#"@paceline {"event":"session","version":"4.3.0","application":"app-1","seconds":3.5}"#;
    const STAGE: &str = r#"@paceline {"event":"stage","executors":2,"cores":2,"partitions":2}"#;

    #[test]
    fn tasks_are_sorted_and_start_up_is_told_apart_from_work() {
        let task = |partition: u32, begun: f64| {
            format!(
                r#"@paceline {{"event":"task","partition":{partition},"attempt":1,"host":"a","executor":"0","slices":1,"begun":{begun},"seconds":2.0,"result":{{}}}}"#
            )
        };
        let (one, two) = (task(1, 101.0), task(0, 100.0));
        let done = r#"@paceline {"event":"done","seconds":7.0,"executors":3,"cores":3,"slots":3}"#;
        let lines = [SESSION, "noise", "@paceline {broken", STAGE, &one, &two, done];
        let outcome = collected(&lines).ok().unwrap();
        assert_eq!(outcome.tasks.iter().map(|task| task.partition).collect::<Vec<_>>(), [0, 1]);
        assert!((outcome.work_seconds - 3.0).abs() < 1e-9, "{outcome:?}");
        assert!(outcome.startup_seconds >= 4.0, "{outcome:?}");
        assert_eq!((outcome.executors, outcome.cores), (3, 3), "one came up later");
        let busy = 100.0 * (2.0 + 2.0) / (3.0 * 3.0);
        assert!((outcome.busy_percent - busy).abs() < 1e-9, "{outcome:?}");
    }

    #[test]
    fn a_failed_task_speaks_for_itself_and_silence_is_noticed() {
        let ours = r#"@paceline {"event":"failed","host":"b","error":"disk full","hint":"free some","exit":1}"#;
        assert!(matches!(
            collected(&[SESSION, STAGE, ours]),
            Err(Failure::Task { host, hint: Some(_), .. }) if host == "b"
        ));
        let theirs = r#"@paceline {"event":"failed","error":"ExecutorLostFailure"}"#;
        assert!(matches!(collected(&[SESSION, theirs]), Err(Failure::Stage { .. })));
        assert!(matches!(collected(&[SESSION, STAGE]), Err(Failure::Silent)));
        assert!(matches!(
            collected(&[r#"@paceline {"event":"no_executors","seconds":5,"master":"yarn"}"#]),
            Err(Failure::NoExecutors { .. })
        ));
    }
}
