//! Who takes part in a run, and where.
//!
//! Every launcher describes a cluster in its own words: `TF_CONFIG`, `CLUSTER_SPEC`, torchrun's
//! variables, Open MPI's, Slurm's, or our own file. All of them become one [`Cluster`]: which task
//! this process is, which tasks there are, and either the address of each or the one place where
//! they meet and tell each other.

pub mod spec;
mod task;

pub use spec::{Cluster, Members, SpecError};
pub use task::{Role, TaskId};
