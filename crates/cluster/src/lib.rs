//! Who takes part in a run, where, and how they talk to each other.
//!
//! Every launcher describes a cluster in its own words: `TF_CONFIG`, `CLUSTER_SPEC`, torchrun's
//! variables, Open MPI's, Slurm's, or our own file. All of them become one [`Cluster`]: which task
//! this process is, which tasks there are, and either the address of each or the one place where
//! they meet and tell each other.
//!
//! Tasks talk over [links](link): ordered channels of messages between two tasks that have proved to
//! each other that they hold the same cluster key, over TCP, TLS or memory they share. A
//! [`LinkError`] names the task, its address and what was being waited for.

pub mod collective;
pub mod endpoint;
mod error;
mod frame;
mod handshake;
pub mod key;
pub mod launch;
pub mod link;
pub mod seat;
pub mod session;
pub mod spec;
mod strangers;
mod task;
mod transport;

pub use collective::Group;
pub use endpoint::{Endpoint, Identity};
pub use error::{LinkError, Refusal};
pub use handshake::{Purpose, Security};
pub use key::{ClusterKey, KeyError};
pub use link::{Closer, Head, Link, Receiver, Sender, Wait, pair};
pub use seat::Seat;
pub use spec::{Cluster, Members, SpecError};
pub use strangers::Notice;
pub use task::{Role, TaskId};
pub use transport::shared::Window;

/// A program's version as tasks tell it to each other. Builds with and without MPI do not go together: one would wait for
/// the other inside MPI.
#[must_use]
pub fn version(program: &str) -> String {
    if cfg!(feature = "mpi") { format!("{program}+mpi") } else { program.to_owned() }
}
