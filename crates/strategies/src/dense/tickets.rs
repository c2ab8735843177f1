//! Which worker gets which global batch, where workers do not run in lockstep.
//!
//! Batches are dealt in the order of the run. What a lost worker held is dealt again before anything
//! new, so every batch makes exactly one update, and the first `n` updates of a run use no batch
//! beyond those dealt. Pure: no clock, no threads.

use crate::Origin;
use std::collections::BTreeSet;

/// Deals batches.
#[derive(Debug, Clone)]
pub(crate) struct Tickets {
    next: u64,
    end: u64,
    /// Dealt before, to a worker that did not finish.
    again: BTreeSet<u64>,
    /// Batch and worker; a handful.
    dealt: Vec<(u64, usize)>,
    stopping: bool,
}

impl Tickets {
    /// All batches below `steps` that are not in the weights yet.
    pub(crate) fn new(origin: &Origin, steps: Option<u64>) -> Self {
        Self {
            next: origin.version + origin.outstanding.len() as u64,
            end: steps.unwrap_or(u64::MAX),
            again: origin.outstanding.iter().copied().collect(),
            dealt: Vec::new(),
            stopping: false,
        }
    }

    /// The next batch for a worker, if there is one.
    pub(crate) fn deal(&mut self, worker: usize) -> Option<u64> {
        if self.stopping {
            return None;
        }
        let batch = self.again.pop_first().or_else(|| {
            (self.next < self.end).then(|| {
                self.next += 1;
                self.next - 1
            })
        })?;
        self.dealt.push((batch, worker));
        Some(batch)
    }

    /// A batch's gradient is there. Says whether it was this worker's to do.
    pub(crate) fn complete(&mut self, batch: u64, worker: usize) -> bool {
        let found = self.dealt.iter().position(|dealt| *dealt == (batch, worker));
        found.map(|at| self.dealt.swap_remove(at)).is_some()
    }

    /// Takes back what a worker holds.
    pub(crate) fn give_back(&mut self, worker: usize) {
        let again = &mut self.again;
        self.dealt.retain(|(batch, holder)| {
            if *holder == worker {
                again.insert(*batch);
            }
            *holder != worker
        });
    }

    /// How many batches a worker holds.
    pub(crate) fn held(&self, worker: usize) -> usize {
        self.dealt.iter().filter(|(_, holder)| *holder == worker).count()
    }

    /// Whether the batch of a lost worker waits to be dealt again.
    pub(crate) fn has_returned(&self) -> bool {
        !self.stopping && !self.again.is_empty()
    }

    /// Deals none of these any more: they count as made.
    pub(crate) fn strike(&mut self, made: &Done) {
        self.again.retain(|batch| !made.contains(*batch));
        self.dealt.retain(|(batch, _)| !made.contains(*batch));
    }

    /// Deals nothing any more.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether no worker has anything left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.dealt.is_empty() && (self.stopping || (self.again.is_empty() && self.next >= self.end))
    }

    /// Batches that were dealt and did not come back, ascending.
    pub(crate) fn outstanding(&self) -> Vec<u64> {
        let dealt = self.dealt.iter().map(|(batch, _)| *batch);
        dealt.chain(self.again.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Which batches are in the weights of a server: all below a number, and some beyond.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) below: u64,
    pub(crate) beyond: BTreeSet<u64>,
}

impl Done {
    pub(crate) fn new(origin: &Origin) -> Self {
        let end = origin.version + origin.outstanding.len() as u64;
        let mut done = Self::default();
        let missing: BTreeSet<u64> = origin.outstanding.iter().copied().collect();
        // All up to the first that is missing at once: a run may be long.
        done.below = missing.first().copied().unwrap_or(end);
        for batch in (done.below..end).filter(|batch| !missing.contains(batch)) {
            done.insert(batch);
        }
        done
    }

    /// Adds a batch; says whether it was new.
    pub(crate) fn insert(&mut self, batch: u64) -> bool {
        if batch < self.below || !self.beyond.insert(batch) {
            return false;
        }
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
        true
    }

    pub(crate) fn contains(&self, batch: u64) -> bool {
        batch < self.below || self.beyond.contains(&batch)
    }

    /// Whether all of `other` is here too.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        (self.below..other.below).all(|batch| self.beyond.contains(&batch))
            && other.beyond.iter().all(|batch| self.contains(*batch))
    }

    /// Adds all of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.below = self.below.max(other.below);
        self.beyond.extend(&other.beyond);
        self.beyond = self.beyond.split_off(&self.below);
        while self.beyond.remove(&self.below) {
            self.below += 1;
        }
    }
}

/// What a server says of itself when copies of one version are made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) done: Done,
    /// Batch and worker: what each worker that is there brought last. A worker begins no batch before
    /// all servers have answered to the one before, so no other can still be on its way.
    pub(crate) brought: Vec<(u64, u64)>,
}

impl Progress {
    /// Adds another server's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.done.add(&other.done);
        self.brought.extend(&other.brought);
    }
}

/// Weights handed out and not answered by an update yet; holds `max_staleness`.
///
/// An update is stale by the number of others that were made since its weights were handed out.
/// Served oldest first, the i-th of the outstanding ones (from 0) is made after i more updates. The
/// bound `s` therefore can be kept for all of them as long as `version + i - pulled(i) <= s` for
/// every i. Two rules keep that true: weights are handed out to at most `s + 1` workers at a time,
/// and an update out of turn waits while it would break the bound of an older one. The oldest never
/// waits, so there is always a worker that can continue.
///
/// With several servers an update is made here first and on the others a little later, in any order.
/// Until it has landed on all of them it stays in the list, since any update may overtake it on some
/// server; and weights handed out meanwhile count as without it, since some server may not have it. So
/// the bound holds for every server's part. The oldest then waits at most for updates to land, which
/// do not wait for other workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulls {
    /// Oldest first.
    outstanding: Vec<Pulled>,
    /// Who waits for weights, longest first: else a fast worker takes every turn from slower ones.
    waiting: Vec<usize>,
    bound: Option<u64>,
}

/// Weights in a worker's hands.
#[derive(Debug, Clone, Copy)]
struct Pulled {
    worker: usize,
    /// Updates that are in all parts of them.
    version: u64,
    /// The update from them is made here and on its way to the other servers.
    landing: bool,
}

impl Pulls {
    pub(crate) fn new(bound: Option<u64>) -> Self {
        Self { outstanding: Vec::new(), waiting: Vec::new(), bound }
    }

    fn others(&self, worker: usize) -> impl Iterator<Item = &Pulled> {
        self.outstanding.iter().filter(move |pulled| pulled.worker != worker)
    }

    /// A worker wants weights, behind those who wait already.
    pub(crate) fn ask(&mut self, worker: usize) {
        if self.bound.is_some() && !self.waiting.contains(&worker) {
            self.waiting.push(worker);
        }
    }

    /// Whether a worker may have weights now.
    pub(crate) fn may_pull(&self, worker: usize) -> bool {
        let Some(bound) = self.bound else { return true };
        let before = self.waiting.iter().take_while(|other| **other != worker).count();
        (before + self.others(worker).count()) as u64 <= bound
    }

    /// Whether a worker's update may be made now, as number `version`.
    pub(crate) fn may_push(&self, worker: usize, version: u64) -> bool {
        let Some(bound) = self.bound else { return true };
        let mut before = 0;
        self.others(worker).all(|pulled| {
            let others = version - pulled.version;
            if pulled.landing {
                return others <= bound;
            }
            before += 1;
            others + before <= bound
        })
    }

    /// A worker has weights of `version`.
    pub(crate) fn pulled(&mut self, worker: usize, version: u64) {
        self.forget(worker);
        let landing = self.outstanding.iter().filter(|pulled| pulled.landing).count() as u64;
        let version = version.saturating_sub(landing);
        self.outstanding.push(Pulled { worker, version, landing: false });
    }

    /// A worker's update is made here, and has to land on other servers.
    pub(crate) fn lands(&mut self, worker: usize) {
        let its = |pulled: &&mut Pulled| pulled.worker == worker;
        self.outstanding.iter_mut().filter(its).for_each(|pulled| pulled.landing = true);
    }

    /// It has.
    pub(crate) fn landed(&mut self, worker: usize) {
        self.outstanding.retain(|pulled| pulled.worker != worker || !pulled.landing);
    }

    /// A worker's update is made, or never will be.
    pub(crate) fn forget(&mut self, worker: usize) {
        self.waiting.retain(|other| *other != worker);
        self.outstanding.retain(|pulled| pulled.worker != worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fast_worker_comes_behind_those_who_wait() {
        let mut pulls = Pulls::new(Some(0));
        for worker in 0..3 {
            pulls.ask(worker);
        }
        let mut turns = Vec::new();
        for version in 0..7 {
            let able: Vec<usize> = (0..3).filter(|worker| pulls.may_pull(*worker)).collect();
            assert_eq!(able.len(), 1, "{able:?} at {version}");
            pulls.pulled(able[0], version);
            assert!(pulls.may_push(able[0], version));
            pulls.forget(able[0]);
            pulls.ask(able[0]);
            turns.push(able[0]);
        }
        assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0]);
        pulls.forget(1);
        assert!(pulls.may_pull(2), "no worker waits behind one that is gone");
    }

    #[test]
    fn what_a_lost_worker_held_is_dealt_again_first() {
        let mut tickets = Tickets::new(&Origin::default(), Some(5));
        assert_eq!(
            (tickets.deal(0), tickets.deal(1), tickets.deal(1)),
            (Some(0), Some(1), Some(2))
        );
        assert!(tickets.complete(1, 1));
        assert!(!tickets.complete(1, 1) && !tickets.complete(2, 0), "not theirs to do");
        tickets.give_back(1);
        assert_eq!(tickets.outstanding(), [0, 2]);
        assert_eq!(
            (tickets.deal(0), tickets.deal(0), tickets.deal(0)),
            (Some(2), Some(3), Some(4))
        );
        assert_eq!(tickets.deal(0), None);
        assert_eq!(tickets.held(0), 4);
        for batch in [0, 2, 3, 4] {
            assert!(!tickets.is_over());
            assert!(tickets.complete(batch, 0));
        }
        assert!(tickets.is_over() && tickets.outstanding().is_empty());
    }

    #[test]
    fn what_counts_as_made_is_not_dealt_again() {
        let mut tickets = Tickets::new(&Origin::default(), Some(4));
        assert_eq!(
            (tickets.deal(0), tickets.deal(0), tickets.deal(1)),
            (Some(0), Some(1), Some(2))
        );
        tickets.give_back(0);
        tickets.strike(&Done { below: 1, beyond: [2].into() });
        assert_eq!(tickets.outstanding(), [1]);
        assert!(!tickets.complete(2, 1), "no worker holds it any more");
        assert_eq!((tickets.deal(1), tickets.deal(1)), (Some(1), Some(3)));
    }

    #[test]
    fn a_stopped_run_resumes_with_what_was_left_lying() {
        let mut tickets = Tickets::new(&Origin::default(), None);
        for _ in 0..4 {
            tickets.deal(0);
        }
        assert!(tickets.complete(0, 0) && tickets.complete(2, 0));
        tickets.stop();
        assert_eq!(tickets.deal(1), None);
        tickets.give_back(0);
        assert!(tickets.is_over());
        let origin = Origin { version: 2, outstanding: tickets.outstanding() };
        assert_eq!(origin.outstanding, [1, 3]);
        let mut again = Tickets::new(&origin, Some(5));
        let dealt: Vec<_> = std::iter::from_fn(|| again.deal(0)).collect();
        assert_eq!(dealt, [1, 3, 4]);
        let mut done = Done::new(&origin);
        assert_eq!((done.below, done.beyond.len()), (1, 1));
        assert!(done.contains(2) && !done.contains(3) && done.insert(1) && !done.insert(2));
        assert_eq!(done.below, 3);
    }

    #[test]
    fn sets_compare_and_join() {
        let set = |below, beyond: &[u64]| Done { below, beyond: beyond.iter().copied().collect() };
        assert!(set(3, &[5]).covers(&set(2, &[5])) && !set(3, &[5]).covers(&set(4, &[])));
        assert!(set(2, &[2, 3]).covers(&set(4, &[])) && !set(9, &[]).covers(&set(0, &[9])));
        let mut joined = set(3, &[5]);
        joined.add(&set(1, &[3, 4, 7]));
        assert_eq!(joined, set(6, &[7]));
    }

    proptest! {
        /// Whatever the workers' speeds: no update is staler than the bound, and there is always a worker that
        /// can continue.
        #[test]
        fn the_bound_holds_and_no_worker_waits_forever(
            workers in 1usize..6,
            bound in 0u64..6,
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            #[derive(Clone, Copy, PartialEq)]
            enum ModelWorker { Idle, Computing(u64) }
            let mut pulls = Pulls::new(Some(bound));
            let mut state = vec![ModelWorker::Idle; workers];
            let mut version = 0u64;
            for pick in order {
                let able: Vec<usize> = (0..workers)
                    .filter(|worker| match state[*worker] {
                        ModelWorker::Idle => pulls.may_pull(*worker),
                        ModelWorker::Computing(_) => pulls.may_push(*worker, version),
                    })
                    .collect();
                prop_assert!(!able.is_empty(), "all workers wait");
                let worker = able[pick.index(able.len())];
                state[worker] = match state[worker] {
                    ModelWorker::Idle => {
                        pulls.pulled(worker, version);
                        ModelWorker::Computing(version)
                    }
                    ModelWorker::Computing(pulled) => {
                        prop_assert!(version - pulled <= bound, "stale by {}", version - pulled);
                        pulls.forget(worker);
                        version += 1;
                        ModelWorker::Idle
                    }
                };
            }
        }

        /// With several servers, whatever the speeds of workers and links: no server's part of an update
        /// is staler than the bound, and there is always a worker that can continue.
        #[test]
        fn the_bound_holds_on_every_server(
            workers in 1usize..6,
            servers in 2usize..4,
            bound in 0u64..6,
            order in prop::collection::vec(any::<prop::sample::Index>(), 600),
        ) {
            /// What each server has yet to do for a worker; server 0 comes first.
            #[derive(Clone, PartialEq)]
            enum ModelWorker { Idle, Fetching(Vec<usize>), Computing, Pushing(Vec<usize>) }
            let mut pulls = Pulls::new(Some(bound));
            let mut state = vec![ModelWorker::Idle; workers];
            let mut versions = vec![0u64; servers];
            let mut pulled = vec![vec![0u64; servers]; workers];
            for pick in order {
                let mut able = Vec::new();
                for (worker, state) in state.iter().enumerate() {
                    match state {
                        ModelWorker::Idle if pulls.may_pull(worker) => able.push((worker, 0)),
                        ModelWorker::Computing if pulls.may_push(worker, versions[0]) => {
                            able.push((worker, 0));
                        }
                        ModelWorker::Fetching(left) | ModelWorker::Pushing(left) => {
                            able.extend(left.iter().map(|server| (worker, *server)));
                        }
                        _ => {}
                    }
                }
                prop_assert!(!able.is_empty(), "all workers wait");
                let (worker, server) = able[pick.index(able.len())];
                let mut push = |server: usize| {
                    let stale = versions[server] - pulled[worker][server];
                    versions[server] += 1;
                    stale
                };
                state[worker] = match state[worker].clone() {
                    ModelWorker::Idle => {
                        pulls.pulled(worker, versions[0]);
                        pulled[worker][0] = versions[0];
                        ModelWorker::Fetching((1..servers).collect())
                    }
                    ModelWorker::Fetching(mut left) => {
                        pulled[worker][server] = versions[server];
                        left.retain(|other| *other != server);
                        if left.is_empty() { ModelWorker::Computing } else { ModelWorker::Fetching(left) }
                    }
                    ModelWorker::Computing => {
                        let stale = push(0);
                        prop_assert!(stale <= bound, "stale by {} on the first", stale);
                        pulls.lands(worker);
                        ModelWorker::Pushing((1..servers).collect())
                    }
                    ModelWorker::Pushing(mut left) => {
                        let stale = push(server);
                        prop_assert!(stale <= bound, "stale by {} on server {}", stale, server);
                        left.retain(|other| *other != server);
                        if left.is_empty() {
                            pulls.landed(worker);
                            ModelWorker::Idle
                        } else {
                            ModelWorker::Pushing(left)
                        }
                    }
                };
            }
        }
    }
}
