//! The way in and out of a task: what a session needs of the network.
//!
//! The real one is [`Endpoint`](paceline_wire::Endpoint). Another joins tasks of one process, so that
//! everything above can be tested without a socket.

use paceline_wire::{Endpoint, Link, LinkError, Purpose, TaskId, Wait, pair};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Makes and takes connections for one task.
pub trait Gate: Send + Sync {
    /// Where others can reach this task.
    fn address(&self) -> String;
    /// Connects to a task.
    fn dial(
        &self,
        task: TaskId,
        address: &str,
        purpose: Purpose,
        wait: &Wait<'_>,
    ) -> Result<Link, LinkError>;
    /// Waits for a task that connects.
    fn accept(&self, wait: &Wait<'_>) -> Result<(Purpose, Link), LinkError>;
    /// Makes [`Gate::accept`] look at its flag.
    fn nudge(&self);
}

impl Gate for Endpoint {
    fn address(&self) -> String {
        self.public_address()
    }

    fn dial(
        &self,
        task: TaskId,
        address: &str,
        purpose: Purpose,
        wait: &Wait<'_>,
    ) -> Result<Link, LinkError> {
        self.dial(task, address, purpose, wait)
    }

    fn accept(&self, wait: &Wait<'_>) -> Result<(Purpose, Link), LinkError> {
        self.accept(wait)
    }

    fn nudge(&self) {
        self.nudge();
    }
}

/// Joins tasks of one process.
#[derive(Clone, Default)]
pub struct Switchboard {
    lines: Arc<(Mutex<Lines>, Condvar)>,
}

#[derive(Default)]
struct Lines {
    /// Connections that wait to be accepted; a task that is not in here does not listen.
    waiting: BTreeMap<TaskId, VecDeque<(Purpose, Link)>>,
}

/// One task's side of a [`Switchboard`].
pub struct SwitchboardLine {
    me: TaskId,
    board: Switchboard,
}

impl Switchboard {
    /// Lets a task in.
    #[must_use]
    pub fn line(&self, me: TaskId) -> SwitchboardLine {
        self.lock().waiting.insert(me, VecDeque::new());
        SwitchboardLine { me, board: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        // Queues stay whole wherever a holder could panic.
        self.lines.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SwitchboardLine {
    fn drop(&mut self) {
        self.board.lock().waiting.remove(&self.me);
    }
}

impl Gate for SwitchboardLine {
    fn address(&self) -> String {
        format!("memory:{}", self.me)
    }

    fn dial(
        &self,
        task: TaskId,
        address: &str,
        purpose: Purpose,
        _wait: &Wait<'_>,
    ) -> Result<Link, LinkError> {
        let mut lines = self.board.lock();
        let Some(queue) = lines.waiting.get_mut(&task) else {
            return Err(LinkError::Unreachable {
                task,
                address: address.to_owned(),
                cause: io::Error::from(io::ErrorKind::ConnectionRefused),
            });
        };
        let (near, far) = pair(self.me, task);
        queue.push_back((purpose, far));
        self.board.lines.1.notify_all();
        Ok(near)
    }

    fn accept(&self, wait: &Wait<'_>) -> Result<(Purpose, Link), LinkError> {
        let begun = Instant::now();
        let mut lines = self.board.lock();
        loop {
            if let Some(found) = lines.waiting.get_mut(&self.me).and_then(VecDeque::pop_front) {
                return Ok(found);
            }
            if wait.cancelled() || wait.left().is_zero() {
                return Err(LinkError::NoConnection {
                    address: self.address(),
                    phase: wait.phase.to_owned(),
                    waited: begun.elapsed(),
                });
            }
            let most = wait.left().min(Duration::from_millis(20));
            (lines, _) = self
                .board
                .lines
                .1
                .wait_timeout(lines, most)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn nudge(&self) {
        let _lines = self.board.lock();
        self.board.lines.1.notify_all();
    }
}
