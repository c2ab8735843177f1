//! Two threads of one process, joined by two bounded queues of bytes.
//!
//! For tests: a queue of 1 MiB makes senders wait as a socket does, so that a protocol that would
//! deadlock over a network does so here too.

use super::{Inlet, Outlet};
use crate::TaskId;
use crate::frame::{FramedReceiver, FramedSender, Peer};
use crate::link::{Closer, Link};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes a direction holds.
const ROOM: usize = 1 << 20;

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    moved: Condvar,
}

#[derive(Default)]
struct QueueState {
    bytes: VecDeque<u8>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Bytes in a queue are valid whatever thread panicked beside it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.moved.notify_all();
    }

    fn wait_until(&self, limit: Duration, ready: impl Fn(&QueueState) -> bool) {
        let guard = self.lock();
        let waited = self.moved.wait_timeout_while(guard, limit, |state| !ready(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Writes to a queue; dropping it ends the stream.
struct In(Arc<Queue>);
/// Reads from a queue; dropping it makes the writer fail.
struct Out(Arc<Queue>);

impl Outlet for In {
    fn offer(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut moved = 0;
        for part in parts {
            let count = part.len().min(ROOM - state.bytes.len());
            state.bytes.extend(&part[..count]);
            moved += count;
        }
        if moved > 0 {
            self.0.moved.notify_all();
        }
        Ok(moved)
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.0.wait_until(limit, |state| state.closed || state.bytes.len() < ROOM);
        Ok(())
    }
}

impl Inlet for Out {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut state = self.0.lock();
        if state.bytes.is_empty() {
            return Ok(if state.closed { Some(0) } else { None });
        }
        let count = into.len().min(state.bytes.len());
        for (slot, byte) in into.iter_mut().zip(state.bytes.drain(..count)) {
            *slot = byte;
        }
        self.0.moved.notify_all();
        Ok(Some(count))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.0.wait_until(limit, |state| state.closed || !state.bytes.is_empty());
        Ok(())
    }
}

impl Drop for In {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// See [`crate::link::pair`].
pub(crate) fn pair(a: TaskId, b: TaskId) -> (Link, Link) {
    let there = Arc::new(Queue::default());
    let back = Arc::new(Queue::default());
    let link = |peer: TaskId, write: &Arc<Queue>, read: &Arc<Queue>| {
        let address = String::from("this process");
        let who = Peer { task: peer, address: address.clone() };
        let (write, read) = (Arc::clone(write), Arc::clone(read));
        let both = (Arc::clone(&write), Arc::clone(&read));
        Link {
            peer,
            address,
            sender: Box::new(FramedSender::new(In(write), who.clone())),
            receiver: Box::new(FramedReceiver::new(Out(read), who)),
            closer: Closer::new(move || {
                both.0.close();
                both.1.close();
            }),
            carrier: "memory",
            pair: None,
        }
    };
    (link(b, &there, &back), link(a, &back, &there))
}
