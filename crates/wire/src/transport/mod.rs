//! What carries bytes between two tasks, one file per carrier.
//!
//! A carrier has two halves that never wait on their own, plus a way to sleep until something moves.
//! Everything else (messages, deadlines, errors) is the same for all of them: see `frame`.

pub(crate) mod memory;
pub(crate) mod patience;
pub(crate) mod sealed;
pub(crate) mod shared;
pub(crate) mod suite;
pub(crate) mod tcp;
pub(crate) mod tls;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The sending half of a carrier.
pub(crate) trait Outlet: Send {
    /// Takes as many bytes of the parts, in order, as there is room for; 0 when there is none.
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize>;

    /// Whether nothing that was taken is still waiting inside (a carrier that encrypts keeps some).
    fn is_clear(&self) -> bool {
        true
    }

    /// Moves on what waits inside; true if anything moved.
    fn clear(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Sleeps until there may be room, at most that long.
    fn wait(&mut self, limit: Duration) -> io::Result<()>;

    /// The socket to poll for room, where there is one.
    fn socket(&self) -> Option<RawFd> {
        None
    }
}

/// The receiving half of a carrier.
pub(crate) trait Inlet: Send {
    /// Takes what is there: nothing yet is `None`, `Some(0)` the end of the stream.
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>>;

    /// Sleeps until there may be data, at most that long.
    fn wait(&mut self, limit: Duration) -> io::Result<()>;

    /// From now on the calling thread, which alone waits here, runs where the other side does.
    fn follow(&mut self) {}

    /// The socket to poll for data, where there is one.
    fn socket(&self) -> Option<RawFd> {
        None
    }
}
