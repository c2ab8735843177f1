//! Which jobs are left, and whose they are.

use crate::Plan;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a worker without a job looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The chief's list.
pub(super) struct Board {
    state: Mutex<BoardState>,
    changed: Condvar,
}

struct BoardState {
    plan: Plan,
    queues: Vec<VecDeque<usize>>,
    /// What each worker is doing.
    current: Vec<Option<usize>>,
    lost: Vec<bool>,
    /// Results that have not come yet.
    open: usize,
    /// Jobs that were another worker's before it was lost.
    inherited: Vec<bool>,
    /// Results of each worker, and how many of them were inherited.
    counts: BTreeMap<usize, (usize, usize)>,
}

impl Board {
    /// Every job that is not done, for the worker that the plan gives it to.
    pub(super) fn new(plan: &Plan, done: &[usize]) -> Self {
        let mut finished = vec![false; plan.jobs()];
        for &job in done {
            finished[job] = true;
        }
        let mut queues = vec![VecDeque::new(); plan.workers];
        for job in (0..plan.jobs()).filter(|&job| !finished[job]) {
            queues[plan.worker_of(job)].push_back(job);
        }
        let state = BoardState {
            open: queues.iter().map(VecDeque::len).sum(),
            queues,
            current: vec![None; plan.workers],
            lost: vec![false; plan.workers],
            inherited: vec![false; plan.jobs()],
            counts: BTreeMap::new(),
            plan: plan.clone(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        // Nothing is half changed where a holder could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job of a worker. Waits where it has none but others are not done: one of them may be lost. Nothing comes when all
    /// is done, or when `stopped` says so, which is asked while the board is locked and must not use it.
    pub(super) fn next(&self, worker: usize, stopped: &dyn Fn() -> bool) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.open == 0 || stopped() {
                return None;
            }
            if let Some(job) = state.queues[worker].pop_front() {
                state.lost[worker] = false;
                state.current[worker] = Some(job);
                return Some(job);
            }
            (state, _) =
                self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A worker's result came. Whether it counts: a job that was given to another in the meantime counts once.
    pub(super) fn done(&self, worker: usize, job: usize) -> bool {
        let mut state = self.lock();
        if state.current[worker] != Some(job) {
            return false;
        }
        state.current[worker] = None;
        state.open -= 1;
        let inherited = usize::from(state.inherited[job]);
        let count = state.counts.entry(worker).or_default();
        *count = (count.0 + 1, count.1 + inherited);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// A worker is gone: the others do what it had left, shared out by the same rule among those who are there.
    pub(super) fn lose(&self, worker: usize) {
        let mut state = self.lock();
        state.lost[worker] = true;
        let left: Vec<usize> = state.current[worker]
            .take()
            .into_iter()
            .chain(std::mem::take(&mut state.queues[worker]))
            .collect();
        let there: Vec<usize> =
            (0..state.plan.workers).filter(|&other| !state.lost[other]).collect();
        let shared = Plan { workers: there.len(), ..state.plan.clone() };
        for job in left {
            state.inherited[job] = true;
            // The chief is never lost: without it there is no board.
            let heir = there[shared.worker_of(job)];
            state.queues[heir].push_back(job);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Whether all results are there.
    pub(super) fn is_complete(&self) -> bool {
        self.lock().open == 0
    }

    /// Jobs that a worker did, and how many of them were a lost worker's.
    pub(super) fn counts(&self, worker: usize) -> (usize, usize) {
        self.lock().counts.get(&worker).copied().unwrap_or_default()
    }

    /// Whether a worker was lost and did not come back.
    pub(super) fn is_lost(&self, worker: usize) -> bool {
        self.lock().lost[worker]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Work;

    fn board(done: &[usize]) -> (Plan, Board) {
        let plan = Plan::new(Work::Trace, 400, 1, 1 << 30, Some(100)).unwrap();
        let plan = Plan { workers: 3, ..plan };
        let board = Board::new(&plan, done);
        (plan, board)
    }

    const GO_ON: &dyn Fn() -> bool = &|| false;

    /// The next job of a worker's own; does not wait for those of others.
    fn own_job(board: &Board, worker: usize) -> Option<usize> {
        // Asked before: `next` holds the board while it asks whether to stop.
        let empty = board.lock().queues[worker].is_empty();
        board.next(worker, &|| empty)
    }

    #[test]
    fn jobs_of_a_lost_worker_are_done_once_by_the_others() {
        let (plan, board) = board(&[0, 1]);
        let first = board.next(1, GO_ON).unwrap();
        assert_eq!(plan.worker_of(first), 1);
        board.lose(1);
        assert!(!board.done(1, first), "a late result of a job that was given away");
        let mut seen = vec![0, 1];
        while !board.is_complete() {
            for worker in [0, 2] {
                if let Some(job) = own_job(&board, worker) {
                    assert!(board.done(worker, job));
                    seen.push(job);
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..plan.jobs()).collect::<Vec<_>>());
        assert!(board.is_lost(1) && !board.is_lost(0));
        let (zero, two) = (board.counts(0), board.counts(2));
        assert_eq!((zero.0 + two.0, board.counts(1)), (14, (0, 0)));
        assert_eq!(zero.1 + two.1, (2..16).filter(|&job| plan.worker_of(job) == 1).count());
        assert_eq!(board.next(0, GO_ON), None, "all is done");
    }

    #[test]
    fn a_worker_without_jobs_waits_for_those_of_others() {
        let (_, board) = board(&[]);
        while own_job(&board, 0).is_some_and(|job| board.done(0, job)) {}
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| board.next(0, GO_ON));
            board.lose(2);
            assert!(waiting.join().unwrap().is_some());
        });
        assert_eq!(board.next(1, &|| true), None, "told to stop");
    }
}
