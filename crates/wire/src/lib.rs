//! How two tasks talk: messages over links that both sides have proved themselves on, and sums over many of them.
//!
//! Training moves the same few megabytes between the same tasks thousands of times, and must notice within seconds when one
//! of them is gone. A general RPC layer copies too often for the first and says too little for the second, so this crate has
//! its own: [links](link) are ordered streams of messages between two tasks that hold the same [cluster key](key),
//! over TCP, TLS or memory they share; every wait has a deadline, and a [`LinkError`] names the task, its address and what
//! was being waited for. An [`Endpoint`] listens and dials. [`Channel`] lists what links are for, and
//! a [`Group`] adds up numbers over all its ranks. Who takes part, and who was lost, is decided one crate above.
//!
//! ```
//! use paceline_wire::{Role, TaskId, Wait, pair};
//! use std::time::Duration;
//!
//! let (mut near, mut far) = pair(TaskId::new(Role::Worker, 0), TaskId::new(Role::Ps, 0));
//! near.sender.send(1, 17, &[b"gradient of step 17"])?;
//!
//! let wait = Wait::within(Duration::from_secs(5), "waiting for the gradient of step 17");
//! let mut payload = Vec::new();
//! let head = far.receiver.receive_into(&wait, 1024, &mut payload)?;
//! assert_eq!((head.kind, head.number), (1, 17));
//! assert_eq!(payload, b"gradient of step 17");
//! # Ok::<(), paceline_wire::LinkError>(())
//! ```

mod channel;
pub mod collective;
pub mod endpoint;
mod error;
mod frame;
pub mod fuzzing;
mod handshake;
pub mod key;
pub mod link;
mod strangers;
mod task;
mod transport;

pub use channel::{Channel, UnknownChannel};
pub use collective::Group;
pub use endpoint::{Endpoint, Identity};
pub use error::{LinkError, Refusal};
pub use frame::stood_still;
pub use handshake::{Purpose, Security};
pub use key::{ClusterKey, KeyError};
pub use link::{Closer, Head, Link, Receiver, Sender, Wait, pair};
pub use strangers::Notice;
pub use task::{NoTask, Role, TaskId};
pub use transport::shared::Window;

/// What tasks say to each other once they have shaken hands, all crates above included: raised with every change to it. Builds of one
/// version may differ in it. The first builds of 0.1.0 did not name theirs, which was the first.
const FORMAT: u32 = 2;

/// A program's version as tasks tell it to each other. Builds with and without MPI do not go together: one would wait for
/// the other inside MPI. Nor do those with different formats of messages: such tasks trained without each other, or stood still.
#[must_use]
pub fn version(program: &str) -> String {
    let mpi = if cfg!(feature = "mpi") { "+mpi" } else { "" };
    format!("{program}{mpi} (wire {FORMAT})")
}
