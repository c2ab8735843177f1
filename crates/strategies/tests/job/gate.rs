//! Links that let gradients through when a test says so.

use paceline_cluster::membership::Carrier;
use paceline_wire::{Head, LinkError, Sender, TaskId, pair};
use std::{
    os::fd::RawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The kind of a message with a gradient.
const PUSH: u8 = 4;

/// A gate on the way from one worker to one server. Open at first.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    broken: AtomicBool,
}

impl Gate {
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub fn open(&self) {
        self.closed.store(false, Ordering::Release);
    }

    /// The worker's side fails.
    pub fn break_down(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether bytes may pass now.
    fn passes(&self, peer: TaskId) -> Result<bool, LinkError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(LinkError::Lost {
                task: peer,
                address: "behind a gate".to_owned(),
                phase: "testing".to_owned(),
                cause: std::io::ErrorKind::BrokenPipe.into(),
            });
        }
        Ok(!self.closed.load(Ordering::Acquire))
    }
}

/// Links within this process; those of the gates' workers and servers have to pass them.
pub fn gated(gates: Vec<(TaskId, TaskId, Arc<Gate>)>) -> Carrier {
    Carrier::new(move |a, b| {
        let (mut near, far) = pair(a, b);
        if let Some((.., gate)) = gates.iter().find(|gate| (gate.0, gate.1) == (a, b)) {
            let inner = std::mem::replace(&mut near.sender, pair(a, b).0.sender);
            let gate = Arc::clone(gate);
            near.sender = Box::new(Gated { inner, gate, peer: b, pushing: false });
        }
        (near, far)
    })
}

struct Gated {
    inner: Box<dyn Sender>,
    gate: Arc<Gate>,
    peer: TaskId,
    /// A message with a gradient has been started.
    pushing: bool,
}

impl Sender for Gated {
    fn send(&mut self, kind: u8, number: u64, payload: &[&[u8]]) -> Result<(), LinkError> {
        while kind == PUSH && !self.gate.passes(self.peer)? {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.send(kind, number, payload)
    }

    fn start(&mut self, head: Head) -> Result<(), LinkError> {
        self.pushing = head.kind == PUSH;
        self.inner.start(head)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        if self.pushing && !self.gate.passes(self.peer)? {
            return Ok(0);
        }
        self.inner.push(bytes)
    }

    fn flushed(&self) -> bool {
        self.inner.flushed()
    }

    fn set_stall(&mut self, limit: Duration) {
        self.inner.set_stall(limit);
    }

    fn heed(&mut self, alarm: &Arc<AtomicBool>) {
        self.inner.heed(alarm);
    }

    fn sent(&self) -> u64 {
        self.inner.sent()
    }

    fn socket(&self) -> Option<RawFd> {
        self.inner.socket()
    }
}
