//! Plain TCP: within one machine, where no one else can read the traffic, or where the user insists.
//!
//! Sockets do not block. Small reads go through a buffer, so that a head and a short payload are one
//! system call; large ones go straight to where they belong.

use super::patience::Patience;
use super::{Inlet, Outlet};
use crate::frame::{FramedReceiver, FramedSender, Peer};
use crate::link::{Closer, Link};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Read-ahead, in bytes.
const AHEAD: usize = 64 << 10;
/// Reads of at least this many bytes bypass the read-ahead.
const DIRECT: usize = 16 << 10;

/// What to wait for on a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ready {
    Read,
    Write,
}

/// Sleeps until one of the sockets is ready, at most that long.
#[allow(unsafe_code)]
pub(crate) fn sleep_on(sockets: &[(RawFd, Ready)], limit: Duration) -> io::Result<()> {
    let mut list = [libc::pollfd { fd: -1, events: 0, revents: 0 }; 2];
    for (slot, (fd, ready)) in list.iter_mut().zip(sockets) {
        slot.fd = *fd;
        slot.events = match ready {
            Ready::Read => libc::POLLIN,
            Ready::Write => libc::POLLOUT,
        };
    }
    let time = libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: `list` has two valid entries (an entry with fd -1 is passed over), `time` outlives the
    // call, and no signal mask is given.
    let code = unsafe { libc::ppoll(list.as_mut_ptr(), 2, &raw const time, std::ptr::null()) };
    if code < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// A call on a socket that does not block: `None` where it would have.
pub(crate) fn would_block<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// An error if the other side has closed the connection, or it broke. Reads nothing.
#[cfg(feature = "mpi")]
#[allow(unsafe_code)]
pub(crate) fn check(socket: RawFd) -> io::Result<()> {
    let mut entry = libc::pollfd { fd: socket, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry, and with a limit of 0 the call returns at once.
    if unsafe { libc::poll(&raw mut entry, 1, 0) } > 0 {
        return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the connection was closed"));
    }
    Ok(())
}

struct TcpOutlet(Arc<TcpStream>);

impl Outlet for TcpOutlet {
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        let mut slices: [IoSlice<'_>; 8] = std::array::from_fn(|_| IoSlice::new(&[]));
        let count = parts.len().min(slices.len());
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        Ok(would_block((&*self.0).write_vectored(&slices[..count]))?.unwrap_or(0))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        sleep_on(&[(self.0.as_raw_fd(), Ready::Write)], limit)
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.0.as_raw_fd())
    }
}

impl Drop for TcpOutlet {
    fn drop(&mut self) {
        // The other side hears the end even while the receiving half lives on.
        drop(self.0.shutdown(Shutdown::Write));
    }
}

struct TcpInlet {
    stream: Arc<TcpStream>,
    ahead: Box<[u8]>,
    /// The part of `ahead` that holds bytes not read yet.
    here: std::ops::Range<usize>,
    ended: bool,
    patience: Patience,
}

impl TcpInlet {
    /// Fills the empty read-ahead; whether anything came, the end included.
    fn fill(&mut self) -> io::Result<bool> {
        let Some(count) = would_block((&*self.stream).read(&mut self.ahead))? else {
            return Ok(false);
        };
        self.here = 0..count;
        self.ended = count == 0;
        Ok(true)
    }
}

impl Inlet for TcpInlet {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if self.here.is_empty() && !self.ended {
            if into.len() >= DIRECT {
                return would_block((&*self.stream).read(into));
            }
            self.fill()?;
        }
        if self.here.is_empty() {
            return Ok(self.ended.then_some(0));
        }
        let count = into.len().min(self.here.len());
        into[..count].copy_from_slice(&self.ahead[self.here.start..self.here.start + count]);
        self.here.start += count;
        Ok(Some(count))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        if !self.here.is_empty() || self.ended {
            return Ok(());
        }
        let socket = self.stream.as_raw_fd();
        self.patience = self.patience.wait_on(socket, limit, || self.fill())?;
        Ok(())
    }

    fn socket(&self) -> Option<RawFd> {
        Some(self.stream.as_raw_fd())
    }
}

/// A link over a connection whose ends have proved who they are.
pub(crate) fn link(stream: TcpStream, peer: Peer) -> io::Result<Link> {
    stream.set_nonblocking(true)?;
    let stream = Arc::new(stream);
    let inlet = TcpInlet {
        stream: Arc::clone(&stream),
        ahead: vec![0; AHEAD].into_boxed_slice(),
        here: 0..0,
        ended: false,
        patience: Patience::new(),
    };
    Ok(Link {
        peer: peer.task,
        address: peer.address.clone(),
        sender: Box::new(FramedSender::new(TcpOutlet(Arc::clone(&stream)), peer.clone())),
        receiver: Box::new(FramedReceiver::new(inlet, peer)),
        closer: closer(&stream),
        carrier: "tcp",
        pair: None,
    })
}

/// Ends a connection for both halves and both sides; does not keep it open.
pub(crate) fn closer(stream: &Arc<TcpStream>) -> Closer {
    let stream = Arc::downgrade(stream);
    Closer::new(move || {
        if let Some(stream) = stream.upgrade() {
            // The only failure is a socket that is closed already, which needs no report.
            drop(stream.shutdown(Shutdown::Both));
        }
    })
}
