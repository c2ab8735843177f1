//! A task that holds weights, whatever kind of weights they are.
//!
//! `ParameterServer` is written once over a `Table`: dense weights are a part of the model's flat
//! buffer and change under the server's lock; [sparse](crate::sparse) ones are tens of millions of slots that change without one.
//! What is the same for both is here:
//!
//! - **Sessions** (`WorkerSession`): one thread for each worker accepts its link, receives its requests, has the table answer
//!   them, and notes whether the worker is expected, here, gone or finished. What all threads share is behind one lock
//!   (`Core`) that is never held while a message is sent or received.
//! - **Waiting**: a thread that has to wait for other workers does so at one place, which knows when the server closes, when a
//!   worker is lost without which nothing can follow, and when it has taken too long.
//! - **Rollback**: a worker that dies between two servers has its gradient in the update of one and not of the other. In
//!   lockstep that update is rolled back, once a generation, by what the table kept of it.
//! - **Copies of one version**: updates are held, the servers tell how far they are, each makes the updates that it lacks, and
//!   copies (`snapshot.rs`).
//!
//! What differs is behind the trait: messages, storage, the rule of updates, what is counted. Calls are resolved when
//! the program is built, so the trait costs nothing where 20,000 gradients come in a second.

mod core;
mod session;
mod snapshot;
mod table;

pub(crate) use self::core::{Core, Hold, Presence};
pub(crate) use session::{Failure, Next, WorkerSession};
pub(crate) use table::Table;

use crate::StrategyError;
use paceline_cluster::JobMembership;
use paceline_wire::TaskId;
use std::{
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How often a server looks whether it is still needed.
const LOOK: Duration = Duration::from_millis(10);
/// How often a waiting thread looks whether the server closes.
const GLANCE: Duration = Duration::from_millis(50);
/// Parts begin on a cache line.
const LINE: usize = 16;

/// Cuts `length` weights into one part per server, equal to a cache line; a large tensor may be cut.
#[must_use]
pub fn parts(length: usize, servers: usize) -> Vec<Range<usize>> {
    let cut = |at: usize| {
        if at == servers {
            length
        } else {
            (length * at / servers).next_multiple_of(LINE).min(length)
        }
    };
    (0..servers).map(|server| cut(server)..cut(server + 1)).collect()
}

/// Which server this task is, and its part of `length` weights.
pub(crate) fn own_part(
    membership: &dyn JobMembership,
    length: usize,
) -> Result<(usize, Range<usize>), StrategyError> {
    let (servers, task) = (membership.servers(), membership.me());
    let index = servers.iter().position(|server| *server == task);
    let index = index.ok_or(StrategyError::NoServer { task })?;
    Ok((index, parts(length, servers.len()).swap_remove(index)))
}

/// Why a thread stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// The server ends.
    Closing,
    /// The generation cannot go on without this one.
    Lost(TaskId),
    /// It took too long.
    Late,
}

/// A task that holds the weights of a table.
#[derive(Debug)]
pub(crate) struct ParameterServer<T: Table> {
    pub(crate) membership: Arc<dyn JobMembership>,
    pub(crate) table: T,
    core: Mutex<Core<T>>,
    changed: Condvar,
    /// All sessions end.
    pub(crate) closing: AtomicBool,
    /// Threads that listen to workers.
    sessions: AtomicUsize,
}

impl<T: Table> ParameterServer<T> {
    pub(crate) fn new(membership: Arc<dyn JobMembership>, table: T, ledger: T::Ledger) -> Self {
        Self {
            membership,
            table,
            core: Mutex::new(Core::new(ledger)),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
        }
    }

    /// Serves these workers, a generation, until `over` says so or the membership's alarm is raised; says which.
    /// The weights stay, so that it may be called again for the next generation. `beside` runs on a thread of its own, and ends
    /// when the server closes.
    pub(crate) fn serve(
        &self,
        workers: Vec<TaskId>,
        over: impl Fn() -> bool,
        beside: Option<(&str, &(dyn Fn() + Sync))>,
    ) -> bool {
        self.open(workers);
        let (tasks, inboxes) = {
            let core = self.locked();
            (Arc::clone(&core.tasks), Arc::clone(&core.inboxes))
        };
        self.sessions.store(tasks.len(), Ordering::Release);
        std::thread::scope(|scope| {
            for (rank, task) in tasks.iter().enumerate() {
                let session = WorkerSession::new(self, rank, *task, Arc::clone(&inboxes));
                let thread = std::thread::Builder::new().name(format!("serve-{task}"));
                // Without a thread the worker is not listened to: its own deadline says so.
                if thread.spawn_scoped(scope, || session.run()).is_err() {
                    self.session_ended();
                }
            }
            if let Some((name, beside)) = beside {
                // Without a thread the task that asks is not answered: its own deadline says so.
                let _ =
                    std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, beside);
            }
            loop {
                std::thread::sleep(LOOK);
                let finished = over();
                if finished || self.membership.alarm().load(Ordering::Acquire) {
                    self.closing.store(true, Ordering::Release);
                    self.wake();
                    return finished;
                }
            }
        })
    }

    /// Begins a generation of these workers; the weights stay.
    pub(crate) fn open(&self, workers: Vec<TaskId>) {
        self.closing.store(false, Ordering::Release);
        let mut core = self.locked();
        core.begin(workers);
        self.table.begin(&mut core);
    }

    /// Notes where a worker is.
    pub(crate) fn note(&self, rank: usize, presence: Presence) {
        let mut core = self.locked();
        if core.note(rank, presence) {
            self.table.presence_changed(&mut core, rank);
            self.unlock(core);
        }
    }

    /// Whether no worker is listened to any more.
    pub(crate) fn is_deaf(&self) -> bool {
        self.sessions.load(Ordering::Acquire) == 0
    }

    fn session_ended(&self) {
        self.sessions.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, Core<T>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the threads that wait look again.
    pub(crate) fn notify(&self, core: &Core<T>) {
        if core.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Gives the lock back, then lets the threads that wait look again: they need not wait for the lock as well.
    pub(crate) fn unlock(&self, core: MutexGuard<'_, Core<T>>) {
        let waiting = core.waiting > 0;
        drop(core);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// As [`notify`](Self::notify), for those who do not hold the lock.
    pub(crate) fn wake(&self) {
        self.unlock(self.locked());
    }

    /// Waits while `reason` holds.
    pub(crate) fn wait_while<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core<T>>,
        reason: impl Fn(&Core<T>) -> bool,
    ) -> Result<MutexGuard<'a, Core<T>>, Interrupted> {
        if !reason(&core) {
            return Ok(core);
        }
        let limit = self.table.longest_wait();
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        core.waiting += 1;
        let result = loop {
            if !reason(&core) {
                break Ok(());
            }
            if let Some(task) = core.lost.filter(|_| T::LOSS_ENDS_WAITS) {
                break Err(Interrupted::Lost(task));
            }
            if self.closing.load(Ordering::Acquire) {
                break Err(Interrupted::Closing);
            }
            let left = deadline.map_or(GLANCE, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Err(Interrupted::Late);
            }
            let woken = self.changed.wait_timeout(core, left.min(GLANCE));
            core = woken.unwrap_or_else(PoisonError::into_inner).0;
        };
        core.waiting -= 1;
        result.map(|()| core)
    }

    /// After a loss: all servers have made `version` updates; one that has made one more rolls it back. Servers that have not
    /// made it never had all its gradients, so no worker was told that it is over. Only the first word of a generation counts.
    pub(crate) fn settle(&self, version: u64) {
        let mut core = self.locked();
        let first = !std::mem::replace(&mut core.settled, true);
        if first
            && T::version(&core.ledger) == version + 1
            && let Some(undo) = core.undo.take()
        {
            self.table.roll_back(&mut core.ledger, undo);
        }
        self.unlock(core);
    }

    /// The worker whose loss is why there is no answer, as far as it is known.
    pub(crate) fn missing(&self) -> Option<TaskId> {
        self.locked().lost.or_else(|| self.membership.lost().last().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_everything_once(length in 0usize..100_000, servers in 1usize..9) {
            let parts = parts(length, servers);
            prop_assert_eq!(parts.len(), servers);
            prop_assert_eq!((parts[0].start, parts[servers - 1].end), (0, length));
            for pair in parts.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
                prop_assert!(pair[0].end % LINE == 0 || pair[0].end == length);
            }
            let most = parts.iter().map(Range::len).max().unwrap_or(0);
            prop_assert!(most <= length / servers + 2 * LINE);
        }
    }
}
