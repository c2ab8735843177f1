//! Who takes part in a run, and where.
//!
//! Every launcher describes a cluster in its own words: `TF_CONFIG`, `CLUSTER_SPEC`, torchrun's
//! variables, Open MPI's, Slurm's, or our own file. All of them become one [`Cluster`]: which task
//! this process is, which tasks there are, and either the address of each or the one place where
//! they meet and tell each other. A [`session`] watches over them while they run, [`JobMembership`] is what a strategy
//! sees of it, [`launch`] starts tasks. How they talk is the business of `paceline-wire`.
//!
//! ```
//! use paceline_cluster::spec::{Members, from_environment};
//! use paceline_wire::{Role, TaskId};
//!
//! let tf_config = r#"{"cluster": {"worker": ["host0:7000", "host1:7000"]}, "task": {"type": "worker", "index": 1}}"#;
//! let cluster = from_environment(&|name| (name == "TF_CONFIG").then(|| tf_config.to_owned()))?;
//! let cluster = cluster.expect("TF_CONFIG is set");
//! assert_eq!(cluster.own, TaskId::new(Role::Worker, 1));
//! # Ok::<(), paceline_cluster::SpecError>(())
//! ```

pub mod launch;
pub mod membership;
pub mod session;
pub mod spec;

pub use membership::JobMembership;
pub use spec::{Cluster, Members, SpecError};
