//! Starting the tasks of a run, and taking part in one.
//!
//! A *job* is a training run seen from outside: processes that must be started, find each other, be watched, be
//! started again when they die, and end together. This crate does that, and nothing else: what a task computes is in
//! `paceline-training`, who takes part in `paceline-cluster`, how tasks talk in `paceline-wire`. There are four ways to run one:
//!
//! | way | entry |
//! | --- | --- |
//! | in this process | [`run_in_process`] |
//! | a process per task on this machine | [`Job`]; the started processes call [`run_if_launched`] or use [`LaunchedTask`] |
//! | as one task of a cluster that TF_CONFIG, torchrun, MPI, Slurm or a file describes | [`ClusterOptions`], [`ClusterTask`] |
//! | as tasks of a Spark barrier stage | [`SparkJob`] |
//!
//! Whatever the way, one task runner does a task's part: it makes or joins the run folder, meets the others, measures
//! the links between hosts, records its machine, trains, and leaves. The library prints nothing: a [`JobObserver`] gets
//! typed [`JobNotice`]s, and a [`JobError`] says what failed, so that the caller chooses the words.
//!
//! ```standalone_crate
//! use paceline_jobs::{Job, run_if_launched};
//! use paceline_training::{RunSpec, Stop};
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // The tasks run this same executable: in them this call does the work and returns.
//!     if let Some(exit) = run_if_launched() {
//!         return exit;
//!     }
//!     let folder = tempfile::tempdir().expect("a folder for the run");
//!     let spec = RunSpec {
//!         strategy: "multi-worker".to_owned(),
//!         batch_size: 16,
//!         stop: Stop { steps: Some(4), ..Stop::default() },
//!         ..RunSpec::new("softmax", "generated:digits?examples=64")
//!     };
//!     let outcome = Job::local(2).out(folder.path()).run(spec).expect("the job succeeds");
//!     assert_eq!(outcome.result.summary().global_steps, 4);
//!     assert_eq!(outcome.result.summary().workers.len(), 2);
//!     ExitCode::SUCCESS
//! }
//! ```

mod cluster_task;
mod error;
mod in_process;
mod launched;
mod link_capacity;
mod local;
mod machine_load;
mod meeting;
mod network_check;
mod notice;
mod placement;
mod protocol;
mod spark;
mod task_runner;
mod work;

pub use cluster_task::{ClusterTask, ReadyTask, TaskOutcome};
pub use error::JobError;
pub use in_process::run_in_process;
pub use launched::{FailureSource, LaunchedTask, run_if_launched};
pub use local::{FailedTask, Job, TasksFailed, local_tasks};
pub use meeting::Meeting;
pub use network_check::{MeasuredPair, MeasuredSums, NetworkReport, measure_network};
pub use notice::{JobNotice, JobObserver, MissingTask, Unobserved};
pub use placement::{ClusterOptions, ExtraTasks, TaskPlacement, resolve};
pub use protocol::FailureWords;
pub use spark::{SparkJob, SparkOutcome};
pub use work::{JobOutcome, JobResult, Work, recorded_report};
