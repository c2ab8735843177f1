//! Flags that say which cluster a process belongs to, for every command that is a task of one.

use paceline_jobs::{ClusterOptions, ExtraTasks};
use paceline_wire::TaskId;
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

    /// Whether anyone may read the links and join.
    pub(crate) fn is_insecure(&self) -> bool {
        self.insecure
    }
}
