//! One ordered, authenticated channel of messages to one other task.
//!
//! Whatever carries it (threads of one process, shared memory, TCP, TLS), a link looks the same. Its
//! two halves are independent, so that one thread may send while another receives. Calls come in two
//! kinds: those that wait, for simple protocols, and those that never do ([`Sender::push`],
//! [`Receiver::take`]), with which one thread keeps several transfers going at once.

use crate::TaskId;
use crate::error::LinkError;
use crate::transport::shared::Pair;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest payload of one message, in bytes. Weights of a large model in one piece fit; a length
/// that comes from garbage does not.
pub const LONGEST: u64 = 1 << 34;

/// What precedes a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// What the message is; the protocol on top decides.
    pub kind: u8,
    /// A step, a ticket, a version; the protocol on top decides.
    pub number: u64,
    /// Bytes of payload that follow.
    pub length: u64,
}

/// How long to wait, and for what.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// When to give up.
    pub deadline: Instant,
    /// What is waited for, as it goes into the error: "waiting for the gradient of step 17".
    pub phase: &'a str,
    /// Set by another thread to end the wait early; checked every few milliseconds.
    pub cancel: [Option<&'a AtomicBool>; 2],
}

impl<'a> Wait<'a> {
    /// Waits that long from now.
    #[must_use]
    pub fn within(limit: Duration, phase: &'a str) -> Self {
        Self { deadline: Instant::now() + limit, phase, cancel: [None; 2] }
    }

    /// The same with a flag that ends it early, besides the one it may have; of more the last two count.
    #[must_use]
    pub fn unless(self, cancel: &'a AtomicBool) -> Self {
        Self { cancel: [Some(cancel), self.cancel[0]], ..self }
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.cancel.iter().flatten().any(|flag| flag.load(Ordering::Relaxed))
    }

    /// What is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// The half of a link that sends.
pub trait Sender: Send {
    /// Sends one message; returns when the transport has taken all of it. The pieces of the payload
    /// follow each other without gaps. Fails when the other side takes nothing for the
    /// [stall limit](Self::set_stall).
    fn send(&mut self, kind: u8, number: u64, payload: &[&[u8]]) -> Result<(), LinkError>;

    /// Begins a message whose payload follows by [`push`](Self::push).
    fn start(&mut self, head: Head) -> Result<(), LinkError>;

    /// Hands over as many bytes of the payload as the transport takes at once, perhaps none. Never
    /// waits. With no bytes it moves on what earlier calls left behind.
    fn push(&mut self, bytes: &[u8]) -> Result<usize, LinkError>;

    /// Whether everything handed over is on its way. While it is not, call `push`.
    fn flushed(&self) -> bool;

    /// How long a send may go without any progress; 30 s unless told.
    fn set_stall(&mut self, limit: Duration);

    /// From now on no call waits on while `alarm` is raised; see [`Link::heed`].
    fn heed(&mut self, alarm: &Arc<AtomicBool>);

    /// Bytes sent so far, heads included.
    fn sent(&self) -> u64;

    /// The socket to poll for room, where there is one.
    fn socket(&self) -> Option<RawFd>;
}

/// The half of a link that receives.
pub trait Receiver: Send {
    /// Waits for the next message. What was not read of the one before is passed over.
    fn receive(&mut self, wait: &Wait<'_>) -> Result<Head, LinkError>;

    /// Reads the next bytes of the payload, all of `into`. The wait of [`receive`](Self::receive)
    /// holds for its payload too.
    fn read(&mut self, into: &mut [u8]) -> Result<(), LinkError>;

    /// Says what the coming messages are waited for, for the errors of calls that do not wait.
    fn expect(&mut self, wait: &Wait<'_>);

    /// The next message if its head is there. Never waits.
    fn poll(&mut self) -> Result<Option<Head>, LinkError>;

    /// Reads what is there of the payload, perhaps nothing. Never waits.
    fn take(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;

    /// From now on no call waits on while `alarm` is raised; see [`Link::heed`].
    fn heed(&mut self, alarm: &Arc<AtomicBool>);

    /// Bytes received so far, heads included.
    fn received(&self) -> u64;

    /// The socket to poll for data, where there is one.
    fn socket(&self) -> Option<RawFd>;

    /// Waits for the next message and puts its payload into `into`, whose old contents go. More
    /// than `most` bytes is an error before anything is allocated.
    fn receive_into(
        &mut self,
        wait: &Wait<'_>,
        most: u64,
        into: &mut Vec<u8>,
    ) -> Result<Head, LinkError> {
        let head = self.receive(wait)?;
        if head.length > most {
            return Err(self.too_long(head.length, most));
        }
        into.clear();
        into.resize(usize::try_from(head.length).expect("memory holds what `most` allows"), 0);
        self.read(into)?;
        Ok(head)
    }

    /// The calling thread, which alone receives here from now on, runs on the core that the other side
    /// sent from last, where both are on one machine: for a thread that works while the other
    /// side waits, and waits while that one works.
    fn follow(&mut self);

    /// The error for a message longer than its kind allows; the caller knows the limit.
    fn too_long(&self, length: u64, most: u64) -> LinkError;
}

/// A channel to one task. Split it by taking its halves apart.
pub struct Link {
    /// The task at the other end.
    pub peer: TaskId,
    /// Where it is, for messages.
    pub address: String,
    pub sender: Box<dyn Sender>,
    pub receiver: Box<dyn Receiver>,
    /// Ends the link from any thread.
    pub closer: Closer,
    /// What carries it: "memory", "shared memory", "tcp", "tls".
    pub carrier: &'static str,
    /// The memory both ends map, where they do.
    pub(crate) pair: Option<Arc<Pair>>,
}

impl Link {
    /// Whether both ends are processes of one machine that map the same memory.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.pair.is_some()
    }

    /// Makes every call that would have to wait while `alarm` is raised end with [`LinkError::Cancelled`], in the middle of
    /// a message too, so that a peer that stopped reading or sending is not waited for in vain. A link on which
    /// a message was interrupted cannot carry another one.
    pub fn heed(&mut self, alarm: &Arc<AtomicBool>) {
        self.sender.heed(alarm);
        self.receiver.heed(alarm);
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link to {} at {} over {}", self.peer, self.address, self.carrier)
    }
}

/// Closes a link from any thread: every caller that waits on either half, here or at the other end, gets
/// [`LinkError::Lost`] at once.
#[derive(Clone)]
pub struct Closer(Arc<dyn Fn() + Send + Sync>);

impl Closer {
    /// Ends the link by calling `close`, which may be called more than once and from any thread.
    pub fn new(close: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(close))
    }

    /// Ends the link. Doing it twice does no harm.
    pub fn close(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Closer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closer")
    }
}

/// Two tasks of one process, joined: for tests of everything that speaks over links. A direction
/// holds 1 MiB; then senders wait, as on a socket.
#[must_use]
pub fn pair(a: TaskId, b: TaskId) -> (Link, Link) {
    crate::transport::memory::pair(a, b)
}
