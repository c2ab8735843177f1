//! Messages over a stream of bytes, written once for all carriers.
//!
//! A carrier moves bytes and never waits ([`Outlet`], [`Inlet`]); here are heads, deadlines, flags,
//! counters and the words of errors.

use crate::TaskId;
use crate::error::LinkError;
use crate::link::{Head, LONGEST, Receiver, Sender, Wait};
use crate::transport::{Inlet, Outlet};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a head on the wire.
pub(crate) const HEAD: usize = 24;

/// Stands in every head: a stream that lost its place is noticed, not interpreted.
const MARK: [u8; 3] = *b"PL1";

/// How often a waiting thread looks at its flag: seldom where it has waited long, for each look takes a moment from those who
/// compute.
const GLANCE: Duration = Duration::from_millis(20);
const RARE_GLANCE: Duration = Duration::from_millis(200);

/// How long to wait for something before looking at a flag again, after having waited for it that long.
pub(crate) fn glance(waited: Duration) -> Duration {
    waited.clamp(GLANCE, RARE_GLANCE)
}

/// A wait that takes so much longer than was asked for: this process stood still (stopped by its user, paused with its
/// machine), or had no core.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// How long this process stood still in a wait begun then for that long, if it did. Such time says nothing about others, who
/// as a rule stood still too.
#[must_use]
pub fn stood_still(begun: Instant, asked: Duration) -> Option<Duration> {
    begun.elapsed().checked_sub(asked).filter(|late| *late >= STOOD_STILL)
}

/// How long a send may stand still unless told otherwise.
const STALL: Duration = Duration::from_secs(30);

impl Head {
    /// As on the wire: kind, mark, four zeros, number, length; little-endian.
    pub(crate) fn write(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = self.kind;
        bytes[1..4].copy_from_slice(&MARK);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Reads what [`write`](Self::write) wrote; nothing if the mark is not there.
    pub(crate) fn read(bytes: &[u8; HEAD]) -> Option<Self> {
        let word = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a range of 8 bytes"))
        };
        (bytes[1..4] == MARK && bytes[4..8] == [0; 4]).then(|| Self {
            kind: bytes[0],
            number: word(8),
            length: word(16),
        })
    }
}

/// Who is at the other end, for errors.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) task: TaskId,
    pub(crate) address: String,
}

impl Peer {
    pub(crate) fn lost(&self, phase: &str, cause: io::Error) -> LinkError {
        LinkError::Lost {
            task: self.task,
            address: self.address.clone(),
            phase: phase.to_owned(),
            cause,
        }
    }

    pub(crate) fn timed_out(&self, phase: &str, waited: Duration) -> LinkError {
        LinkError::TimedOut {
            task: self.task,
            address: self.address.clone(),
            phase: phase.to_owned(),
            waited,
        }
    }

    pub(crate) fn cancelled(&self, phase: &str) -> LinkError {
        LinkError::Cancelled {
            task: self.task,
            address: self.address.clone(),
            phase: phase.to_owned(),
        }
    }

    pub(crate) fn protocol(&self, found: impl Into<String>, expected: &str) -> LinkError {
        LinkError::Protocol {
            task: self.task,
            address: self.address.clone(),
            found: found.into(),
            expected: expected.to_owned(),
        }
    }
}

/// Whether a link's alarm is raised, where it has one. Asked only by those that would have to wait.
fn raised(alarm: Option<&Arc<AtomicBool>>) -> bool {
    alarm.is_some_and(|alarm| alarm.load(Ordering::Relaxed))
}

/// A closed connection, in the system's own words.
fn end_of_stream() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")
}

/// Sends messages into an [`Outlet`].
pub(crate) struct FramedSender<O> {
    outlet: O,
    peer: Peer,
    stall: Duration,
    /// A head begun by `start` that has not left completely.
    head: [u8; HEAD],
    /// How much of it has.
    head_gone: usize,
    /// Payload bytes announced but not yet pushed.
    owed: u64,
    sent: u64,
    /// Ends waits early.
    alarm: Option<Arc<AtomicBool>>,
    /// A message was left unfinished: what followed would be taken for the rest of it.
    torn: bool,
}

impl<O: Outlet> FramedSender<O> {
    pub(crate) fn new(outlet: O, peer: Peer) -> Self {
        Self {
            outlet,
            peer,
            stall: STALL,
            head: [0; HEAD],
            head_gone: HEAD,
            owed: 0,
            sent: 0,
            alarm: None,
            torn: false,
        }
    }

    fn lost(&self, what: &str, length: u64, cause: io::Error) -> LinkError {
        self.peer.lost(&format!("sending {what} of {length} bytes"), cause)
    }

    /// Hands over all bytes of all parts, waiting for room.
    fn write_all(&mut self, parts: &mut [&[u8]], length: u64) -> Result<(), LinkError> {
        if self.torn {
            let cause = io::Error::other("an earlier message was broken off");
            return Err(self.lost("a message", length, cause));
        }
        let (mut first, before) = (0, self.sent);
        let mut idle_since: Option<Instant> = None;
        loop {
            while first < parts.len() && parts[first].is_empty() {
                first += 1;
            }
            let done = first == parts.len();
            if done && self.outlet.is_clear() {
                return Ok(());
            }
            let moved = if done {
                usize::from(self.outlet.clear().map_err(|e| self.lost("a message", length, e))?)
            } else {
                let moved = self
                    .outlet
                    .offer(&parts[first..])
                    .map_err(|e| self.lost("a message", length, e))?;
                self.sent += moved as u64;
                let mut left = moved;
                for part in &mut parts[first..] {
                    let step = left.min(part.len());
                    *part = &part[step..];
                    left -= step;
                }
                moved
            };
            if moved > 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(Instant::now);
            let (stop, late) = (raised(self.alarm.as_ref()), since.elapsed() >= self.stall);
            if stop || late {
                self.torn = self.sent > before;
                let phase = format!("taking a message of {length} bytes");
                return Err(if stop {
                    self.peer.cancelled(&phase)
                } else {
                    self.peer.timed_out(&phase, since.elapsed())
                });
            }
            let (now, moment) = (Instant::now(), GLANCE.min(self.stall));
            self.outlet.wait(moment).map_err(|e| self.lost("a message", length, e))?;
            if let Some(late) = stood_still(now, moment) {
                idle_since = Some(since + late);
            }
        }
    }
}

impl<O: Outlet> Sender for FramedSender<O> {
    fn send(&mut self, kind: u8, number: u64, payload: &[&[u8]]) -> Result<(), LinkError> {
        debug_assert!(self.owed == 0 && self.head_gone == HEAD, "a started message is unfinished");
        let length = payload.iter().map(|part| part.len() as u64).sum();
        let head = Head { kind, number, length }.write();
        // Few messages have more than seven pieces; those that do cost a list.
        let mut short: [&[u8]; 8] = [&[]; 8];
        let mut long;
        let parts = if payload.len() < short.len() {
            short[1..=payload.len()].copy_from_slice(payload);
            &mut short[..=payload.len()]
        } else {
            long = vec![&[][..]; payload.len() + 1];
            long[1..].copy_from_slice(payload);
            &mut long[..]
        };
        parts[0] = &head;
        self.write_all(parts, length)
    }

    fn start(&mut self, head: Head) -> Result<(), LinkError> {
        debug_assert!(self.owed == 0 && self.head_gone == HEAD, "a started message is unfinished");
        self.head = head.write();
        self.head_gone = 0;
        self.owed = head.length;
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        let length = self.owed;
        let most = usize::try_from(self.owed).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = &bytes[..most];
        let head_left = HEAD - self.head_gone;
        if head_left == 0 && bytes.is_empty() {
            if !self.outlet.is_clear() {
                self.outlet.clear().map_err(|e| self.lost("a message", length, e))?;
            }
            return Ok(0);
        }
        let head = self.head;
        let moved = self
            .outlet
            .offer(&[&head[self.head_gone..], bytes])
            .map_err(|e| self.lost("a message", length, e))?;
        self.sent += moved as u64;
        let of_head = moved.min(head_left);
        self.head_gone += of_head;
        let of_bytes = moved - of_head;
        self.owed -= of_bytes as u64;
        Ok(of_bytes)
    }

    fn flushed(&self) -> bool {
        self.head_gone == HEAD && self.owed == 0 && self.outlet.is_clear()
    }

    fn set_stall(&mut self, limit: Duration) {
        self.stall = limit;
    }

    fn heed(&mut self, alarm: &Arc<AtomicBool>) {
        self.alarm = Some(Arc::clone(alarm));
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn socket(&self) -> Option<RawFd> {
        self.outlet.socket()
    }
}

/// Receives messages from an [`Inlet`].
pub(crate) struct FramedReceiver<I> {
    inlet: I,
    peer: Peer,
    /// The head as far as it has come.
    head: [u8; HEAD],
    head_here: usize,
    /// Payload bytes of the present message not yet read.
    left: u64,
    received: u64,
    /// The wait of the present message, for its payload.
    began: Instant,
    deadline: Instant,
    phase: String,
    /// Ends waits early.
    alarm: Option<Arc<AtomicBool>>,
}

impl<I: Inlet> FramedReceiver<I> {
    pub(crate) fn new(inlet: I, peer: Peer) -> Self {
        let now = Instant::now();
        Self {
            inlet,
            peer,
            head: [0; HEAD],
            head_here: 0,
            left: 0,
            received: 0,
            began: now,
            deadline: now,
            phase: String::from("receiving"),
            alarm: None,
        }
    }

    /// Takes what is there; an end of the stream is an error.
    fn take_some(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        match self.inlet.take(into) {
            Ok(Some(0)) if !into.is_empty() => Err(self.peer.lost(&self.phase, end_of_stream())),
            Ok(count) => {
                let count = count.unwrap_or(0);
                self.received += count as u64;
                Ok(count)
            }
            Err(cause) => Err(self.peer.lost(&self.phase, cause)),
        }
    }

    /// Waits a moment for data, within the present deadline.
    fn pause(&mut self) -> Result<(), LinkError> {
        if raised(self.alarm.as_ref()) {
            return Err(self.peer.cancelled(&self.phase));
        }
        let now = Instant::now();
        if now >= self.deadline {
            return Err(self.peer.timed_out(&self.phase, now - self.began));
        }
        let moment = glance(now - self.began).min(self.deadline - now);
        self.inlet.wait(moment).map_err(|cause| self.peer.lost(&self.phase, cause))?;
        if let Some(late) = stood_still(now, moment) {
            self.deadline += late;
            self.began += late;
        }
        Ok(())
    }

    /// Passes over what is left of the present payload, as far as it is here.
    fn skip(&mut self) -> Result<(), LinkError> {
        let mut waste = [0; 4096];
        while self.left > 0 {
            let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(waste.len());
            let count = self.take_some(&mut waste[..most])?;
            if count == 0 {
                return Ok(());
            }
            self.left -= count as u64;
        }
        Ok(())
    }
}

impl<I: Inlet> Receiver for FramedReceiver<I> {
    fn receive(&mut self, wait: &Wait<'_>) -> Result<Head, LinkError> {
        self.expect(wait);
        loop {
            if let Some(head) = self.poll()? {
                return Ok(head);
            }
            if wait.cancelled() {
                return Err(self.peer.cancelled(&self.phase));
            }
            self.pause()?;
        }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), LinkError> {
        if into.len() as u64 > self.left {
            let found = format!("a payload with {} bytes left", self.left);
            return Err(self.peer.protocol(found, &format!("{} more", into.len())));
        }
        let mut here = 0;
        while here < into.len() {
            let count = self.take(&mut into[here..])?;
            here += count;
            if count == 0 {
                self.pause()?;
            }
        }
        Ok(())
    }

    fn expect(&mut self, wait: &Wait<'_>) {
        self.began = Instant::now();
        self.deadline = wait.deadline;
        self.phase.clear();
        self.phase.push_str(wait.phase);
    }

    fn poll(&mut self) -> Result<Option<Head>, LinkError> {
        if self.left > 0 {
            self.skip()?;
            if self.left > 0 {
                return Ok(None);
            }
        }
        while self.head_here < HEAD {
            let mut part = [0; HEAD];
            let rest = &mut part[self.head_here..];
            let count = self.take_some(rest)?;
            if count == 0 {
                return Ok(None);
            }
            self.head[self.head_here..self.head_here + count].copy_from_slice(&rest[..count]);
            self.head_here += count;
        }
        self.head_here = 0;
        let Some(head) = Head::read(&self.head) else {
            return Err(self.peer.protocol("malformed bytes", "the head of a message"));
        };
        if head.length > LONGEST {
            return Err(self.too_long(head.length, LONGEST));
        }
        self.left = head.length;
        Ok(Some(head))
    }

    fn take(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.take_some(&mut into[..most])?;
        self.left -= count as u64;
        Ok(count)
    }

    fn heed(&mut self, alarm: &Arc<AtomicBool>) {
        self.alarm = Some(Arc::clone(alarm));
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn follow(&mut self) {
        self.inlet.follow();
    }

    fn socket(&self) -> Option<RawFd> {
        self.inlet.socket()
    }

    fn too_long(&self, length: u64, most: u64) -> LinkError {
        LinkError::TooLong {
            task: self.peer.task,
            address: self.peer.address.clone(),
            length,
            most,
        }
    }
}
