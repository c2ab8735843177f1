//! Flags that say which cluster a process belongs to, for every command that is a task of one.

use crate::terminal::Terminal;
use paceline_jobs::{ClusterOptions, ExtraTasks, TaskPlacement};
use paceline_wire::{Security, TaskId};
use std::path::PathBuf;

/// Which cluster, and which of its tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The cluster as TOML: chief, workers, ps, evaluator [default: TF_CONFIG, CLUSTER_SPEC, torchrun, MPI, Slurm]
    #[arg(long, value_name = "FILE", requires = "task", help_heading = "Cluster")]
    cluster: Option<PathBuf>,
    /// Which task of the cluster file this process is, such as worker/1
    #[arg(long, value_name = "TASK", requires = "cluster", help_heading = "Cluster")]
    task: Option<TaskId>,
    /// The cluster key; `paceline key new` makes one
    #[arg(long, value_name = "FILE", env = "PACELINE_KEY_FILE", help_heading = "Cluster")]
    key: Option<PathBuf>,
    /// Address to listen on, where it is not the one the cluster names
    #[arg(long, value_name = "HOST:PORT", help_heading = "Cluster")]
    listen: Option<String>,
    /// No encryption between hosts and no key needed: anyone on the network can read and join
    #[arg(long, help_heading = "Cluster")]
    insecure: bool,
    /// Use the network even between tasks of one host
    #[arg(long, help_heading = "Cluster")]
    no_shared_memory: bool,
}

impl ClusterArgs {
    /// The same for the library, with tasks that the description does not have.
    pub(crate) fn options(&self, extra: ExtraTasks) -> ClusterOptions {
        ClusterOptions {
            file: self.cluster.clone().zip(self.task),
            key: self.key.clone(),
            listen: self.listen.clone(),
            insecure: self.insecure,
            no_shared_memory: self.no_shared_memory,
            extra,
        }
    }

    /// Says aloud what --insecure means.
    pub(crate) fn warn(&self, terminal: &Terminal) {
        if self.insecure {
            terminal
                .warn("--insecure: anyone on the network can read this run and take part in it");
        }
    }
}

/// Which description wins and what follows, in a line.
pub(crate) fn placement_words(placement: &TaskPlacement) -> String {
    let security = match placement.security {
        Security::Tls => "encrypted",
        Security::Plain => "not encrypted",
    };
    format!(
        "{} of {} tasks, as {} says; meeting at {}, {security}",
        placement.own,
        placement.tasks.len(),
        placement.origin,
        placement.chief_address
    )
}
