//! What the threads of a server share, of whatever table: who is there, what is held back, what may be rolled back.

use super::Table;
use paceline_wire::TaskId;
use std::{
    sync::{Arc, RwLock},
    time::Instant,
};

/// Where a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// On its way.
    Expected,
    Here,
    /// Lost at that moment; may come back where workers are asynchronous.
    Gone(Instant),
    /// Has finished.
    Left,
}

impl Presence {
    /// Whether something may still come of it.
    pub(crate) fn is_there(self) -> bool {
        matches!(self, Self::Expected | Self::Here)
    }

    /// Whether a worker that was `self` is so still when `now` is noticed. A worker that has finished hangs up at last, and one
    /// that is gone is gone since that was noticed first.
    fn remains(self, now: Self) -> bool {
        self == now || matches!((self, now), (Self::Left | Self::Gone(_), Self::Gone(_)))
    }
}

/// No updates but those up to the target, until a copy is made.
#[derive(Debug)]
pub(crate) struct Hold<P> {
    /// The worker that asked for it, where one did: if that one goes, so does the hold.
    pub(crate) by: Option<usize>,
    /// None at all while it is not known.
    pub(crate) target: Option<P>,
}

/// What the threads of a server share.
#[derive(Debug)]
pub(crate) struct Core<T: Table> {
    pub(crate) ledger: T::Ledger,
    /// The workers of this generation, in the order of their ranks. The membership may be a generation ahead.
    pub(crate) tasks: Arc<[TaskId]>,
    pub(crate) inboxes: Arc<[RwLock<T::Inbox>]>,
    pub(crate) presence: Vec<Presence>,
    pub(crate) hold: Option<Hold<T::Progress>>,
    /// How the last update is rolled back, where that may be needed.
    pub(crate) undo: Option<T::Undo>,
    /// It has been said in this generation which version all servers have.
    pub(crate) settled: bool,
    /// A worker asked to stop.
    pub(crate) stop: bool,
    /// A worker that is missing; see [`Table::LOSS_ENDS_WAITS`].
    pub(crate) lost: Option<TaskId>,
    /// Threads that wait for a change.
    pub(crate) waiting: usize,
}

impl<T: Table> Core<T> {
    pub(super) fn new(ledger: T::Ledger) -> Self {
        Self {
            ledger,
            tasks: Arc::new([]),
            inboxes: Arc::new([]),
            presence: Vec::new(),
            hold: None,
            undo: None,
            settled: false,
            stop: false,
            lost: None,
            waiting: 0,
        }
    }

    /// Begins a generation of these workers.
    pub(super) fn begin(&mut self, tasks: Vec<TaskId>) {
        self.presence = vec![Presence::Expected; tasks.len()];
        self.inboxes = tasks.iter().map(|_| RwLock::default()).collect();
        self.tasks = tasks.into();
        (self.hold, self.settled, self.lost) = (None, false, None);
    }

    /// Notes where a worker is; says whether that is news.
    pub(super) fn note(&mut self, rank: usize, presence: Presence) -> bool {
        if self.presence[rank].remains(presence) {
            return false;
        }
        self.presence[rank] = presence;
        if presence != Presence::Here
            && self.hold.as_ref().is_some_and(|hold| hold.by == Some(rank))
        {
            self.hold = None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_noted_once_and_a_return_after_it() {
        let (first, later) = (Instant::now(), Instant::now() + std::time::Duration::from_secs(1));
        assert!(Presence::Gone(first).remains(Presence::Gone(later)));
        assert!(Presence::Left.remains(Presence::Gone(later)), "it hung up after its last word");
        assert!(Presence::Here.remains(Presence::Here));
        for (before, now) in [
            (Presence::Expected, Presence::Here),
            (Presence::Expected, Presence::Gone(first)),
            (Presence::Here, Presence::Gone(first)),
            (Presence::Gone(first), Presence::Here),
            (Presence::Left, Presence::Here),
            (Presence::Here, Presence::Left),
        ] {
            assert!(!before.remains(now), "{before:?}, then {now:?}");
        }
    }
}
